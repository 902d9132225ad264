"""A store of tiles on S3: each chunk is an object, read by ranges and written whole."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from scalable_kpca.documents import MAX_JSON_BYTES, parse_json
from scalable_kpca.errors import BusyError
from scalable_kpca.gram.places import GROUP, DamagedChunkError
from scalable_kpca.objects import (
    READ_BYTES,
    MissingObjectError,
    ObjectFile,
    ReplacedObjectError,
    StoredObject,
    has_object,
    object_sizes,
    put_object,
    read_beginning,
    replace_object,
    writing_object,
)

__all__ = ["ChunkObjects"]


class ChunkObjects:
    """Chunks below a key: see `ChunkPlace`.

    Parameters
    ----------
    root : StoredObject
        ``s3://BUCKET/PREFIX/<fingerprint>/gram.zarr``.

    Notes
    -----
    Several processes may make the same store at once: it has its name by its contents, so that each writes what the
    others would, and whoever is last changes nothing. That is why nothing is ever taken away here: another one may just
    have written it.
    """

    def __init__(self, root: StoredObject) -> None:
        self._root = root

    def exists(self) -> bool:
        """Whether there is a description of the group."""
        return has_object(self._root / GROUP)

    def create(self, descriptions: Mapping[str, bytes]) -> None:
        """The description of the group is written last, where there is none: a store that exists is whole, if empty."""
        for name in sorted(descriptions, key=lambda name: name == GROUP):
            if name != GROUP:
                put_object(self._root / name, descriptions[name])
                continue
            with contextlib.suppress(ReplacedObjectError):
                replace_object(self._root / name, descriptions[name], None)

    def description(self, name: str) -> Any:
        """Of an object."""
        content = read_beginning(self._root / name, MAX_JSON_BYTES + 1)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._root / name))
        return parse_json(content)

    def read(self, name: str, at_most: int) -> bytes | None:
        """The first bytes of an object, by one request."""
        return read_beginning(self._root / name, at_most)

    @contextmanager
    def reading(self, name: str) -> Iterator[tuple[io.BufferedReader, int]]:
        """An object, in equal pieces of at most `READ_BYTES`; BusyError where it is written anew meanwhile."""
        place = self._root / name
        try:
            with ObjectFile(place) as file:
                size = file.n_bytes
                pieces = max(1, -(-size // READ_BYTES))
                yield io.BufferedReader(file, max(1, -(-size // pieces))), size
        except MissingObjectError as error:
            raise DamagedChunkError("the chunk itself is gone") from error
        except ReplacedObjectError as error:
            raise BusyError(
                f"{place} was written anew while it was read, as by another run of the same rows; run the same command "
                "again: nothing finished is done twice."
            ) from error

    def writing(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """An object, sent in parts where it is large."""
        return writing_object(self._root / name)

    def sizes(self, below: str) -> dict[str, int]:
        """Of objects, by one request for each thousand."""
        return object_sizes(self._root / below)

    def clear(self, names: Sequence[str]) -> None:
        """Nothing is in the way of an object: writing replaces it."""

    def put_aside(self, name: str, alias: str) -> None:
        """Nothing is kept, which would cost as long as it is there: a bucket with versions has it."""

    def sweep(self) -> int:
        """Nothing is half written: parts of an upload that was broken off are no objects."""
        return 0
