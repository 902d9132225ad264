"""A store of tiles in a directory: each chunk is a file, written beside its place and renamed."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from scalable_kpca.documents import read_json, refuse_links
from scalable_kpca.gram.places import GROUP, DamagedChunkError

__all__ = ["ChunkFiles"]

MOST_KEPT = 16  # damaged chunks that are put aside: a disk that loses many must not be filled by them


class ChunkFiles:
    """Chunks in a directory: see `ChunkPlace`.

    Parameters
    ----------
    root : Path
        ``gram.zarr``.

    Notes
    -----
    Like zarr, nothing is flushed to the disk: chunks have checksums. A killed writer leaves ``*.partial`` files, and
    one that is killed while it starts a store a directory ``gram.zarr.*.new``.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def exists(self) -> bool:
        """Whether anything has the name, a link too."""
        return self._root.is_symlink() or self._root.exists()

    def create(self, descriptions: Mapping[str, bytes]) -> None:
        """Made beside its place and renamed: a store that exists is whole, if empty."""
        staging = self._root.with_name(f"{self._root.name}.{uuid.uuid4().hex}.new")
        try:
            for name, content in descriptions.items():
                (staging / name).parent.mkdir(parents=True, exist_ok=True)
                (staging / name).write_bytes(content)
            staging.rename(self._root)
        except OSError:
            if not self._root.exists():
                raise
        for leftover in self._root.parent.glob(f"{self._root.name}*.new"):
            shutil.rmtree(leftover, ignore_errors=True)

    def description(self, name: str) -> Any:
        """Of a file, when neither it nor anything beside or below it is a link."""
        if self._root.is_symlink():
            raise ValueError("it is a link, which is not followed")
        if name != GROUP:
            refuse_links((self._root / name).parent)
        return read_json(self._root / name)

    def read(self, name: str, at_most: int) -> bytes | None:
        """The first bytes of a file."""
        try:
            with (self._root / name).open("rb") as file:
                return file.read(at_most)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    @contextmanager
    def reading(self, name: str) -> Iterator[tuple[io.FileIO, int]]:
        """A file; the system is asked for all of it at once, so that it reads on while a strip is used."""
        try:
            file = (self._root / name).open("rb", buffering=0)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise DamagedChunkError("the chunk itself is gone") from error
        with file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            yield file, os.fstat(file.fileno()).st_size

    @contextmanager
    def writing(self, name: str) -> Iterator[io.BufferedWriter]:
        """A file beside its place, then renamed; directories are made."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
        try:
            with beside.open("xb") as file:
                yield file
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def sizes(self, below: str) -> dict[str, int]:
        """Of files."""
        top = self._root / below
        return {str(file.relative_to(top)): file.stat().st_size for file in top.rglob("*") if file.is_file()}

    def clear(self, names: Sequence[str]) -> None:
        """Remove files or directories in their place, and a file in the place of a directory above them."""
        for name in names:
            self._clear(PurePath(name))

    def put_aside(self, name: str, alias: str) -> None:
        """Move a file to ``damaged/`` beside the store."""
        aside = self._root.parent / "damaged"
        with contextlib.suppress(OSError):  # it is made again in any case
            aside.mkdir(mode=0o700, exist_ok=True)
            if sum(1 for _ in aside.iterdir()) < MOST_KEPT:
                (self._root / name).replace(aside / alias)

    def sweep(self) -> int:
        """Remove ``*.partial`` files."""
        orphans = list(self._root.rglob("*.partial"))
        for orphan in orphans:
            orphan.unlink(missing_ok=True)
        return len(orphans)

    def _clear(self, name: PurePath) -> None:
        for place in (*reversed((self._root / name).parents[: len(name.parts) - 1]), self._root / name):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # a task may just make a directory above
                if not place.is_dir():
                    place.unlink()
                elif place == self._root / name:
                    shutil.rmtree(place)
