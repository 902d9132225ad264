"""Where the pieces of a store of tiles lie, by their names in the zarr layout: what every such place can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

__all__ = ["GROUP", "ChunkPlace", "DamagedChunkError", "ReadStream", "WriteStream"]

GROUP = "zarr.json"  # describes the store, and is written last


class DamagedChunkError(ValueError):
    """A chunk is gone, has another size, or does not match its checksum."""


class ReadStream(Protocol):
    """A chunk, from its beginning."""

    def readinto(self, buffer: Any, /) -> int | None:
        """Fill the beginning of a buffer; how many bytes came, 0 at the end."""


class WriteStream(Protocol):
    """A chunk on its way."""

    def write(self, content: Any, /) -> Any:
        """Write the next bytes."""


class ChunkPlace(Protocol):
    """Chunks and descriptions by their names, such as ``tiles/c/0/1`` and ``tiles/zarr.json``.

    Notes
    -----
    Concurrency: any number of readers and writers; whoever reads a chunk sees all of what one of them has written.
    """

    def exists(self) -> bool:
        """Whether there is a store, or anything in its place."""

    def create(self, descriptions: Mapping[str, bytes]) -> None:
        """Start an empty store, whole or not at all; one that another process has started meanwhile stays.

        Parameters
        ----------
        descriptions : mapping
            Contents of each ``zarr.json`` by its name.
        """

    def description(self, name: str) -> Any:
        """JSON value of a ``zarr.json``; OSError where it cannot be read, ValueError where it is none of ours."""

    def read(self, name: str, at_most: int) -> bytes | None:
        """The first bytes of a small chunk; None where there is none."""

    def reading(self, name: str) -> AbstractContextManager[tuple[ReadStream, int]]:
        """A chunk and its size in bytes; DamagedChunkError where there is none."""

    def writing(self, name: str) -> AbstractContextManager[WriteStream]:
        """A stream whose contents are the chunk once all of it is written; what fails leaves what was there."""

    def sizes(self, below: str) -> dict[str, int]:
        """Bytes of each chunk whose name begins so, by the rest of its name."""

    def clear(self, names: Sequence[str]) -> None:
        """Take away what would be in the way of chunks, in this order."""

    def put_aside(self, name: str, alias: str) -> None:
        """Keep a damaged chunk where it can be looked at, if that costs little."""

    def sweep(self) -> int:
        """Remove what killed writers left; the caller must be the only one here. How much that was."""
