"""One tile as one chunk file of a zarr array, strip by strip: what is read or written is never held whole.

zarr's own reading makes the file's bytes, then the decoded chunk, then the selection; writing makes three copies too. A
pass over stored tiles then spends more time on copies and fresh pages than on products. The layout is that of the zarr
v3 specification for the codecs ``bytes(little)`` and ``crc32c``: the entries row by row, padded to the size of a chunk,
and four bytes of checksum; zarr reads what is written here, and the other way round.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from scalable_kpca.kernels import STRIP_ROWS

__all__ = ["ChunkWriter", "DamagedChunkError", "read_strips", "write_chunk"]

Tile = NDArray[np.floating[Any]]


class DamagedChunkError(ValueError):
    """A chunk file is gone, has another size, or does not match its checksum."""


def read_strips(
    path: Path, tile_rows: int, shape: tuple[int, int], dtype: str, strip_rows: int
) -> Iterator[tuple[int, Tile]]:
    """Strips of a tile from its chunk file, top down, each read into the same buffer.

    Parameters
    ----------
    path : Path
        The file.
    tile_rows : int
        t: the chunk is t × t.
    shape : tuple of int
        Rows and columns of the tile, each ≤ t: what lies beyond is padding.
    dtype : str
        Of the entries.
    strip_rows : int
        Height of a strip.

    Yields
    ------
    start : int
        First row of the strip within the tile.
    strip : ndarray of shape (≤ strip_rows, shape[1])
        A view, valid until the next one is asked for.

    Raises
    ------
    DamagedChunkError
        Before the first strip when the file is gone or has another size; after the last one, when the checksum is
        wrong: what was made of the strips must not be used before the iteration has ended.
    OSError
        When the file cannot be read.

    Notes
    -----
    Memory: one strip of t columns. The system is asked for the whole chunk at once, so that it reads on while a strip
    is used.
    """
    stored = np.dtype(dtype).newbyteorder("<")
    size = tile_rows * tile_rows * stored.itemsize
    with _open(path) as file:
        found = os.fstat(file.fileno()).st_size
        if found != size + 4:
            raise DamagedChunkError(f"the chunk has {found} bytes instead of {size + 4}")
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
        buffer = np.empty((min(strip_rows, tile_rows), tile_rows), stored)
        checksum = 0
        for start in range(0, tile_rows, len(buffer)):
            strip = buffer[: tile_rows - start]
            _fill(file, strip)
            checksum = google_crc32c.extend(checksum, strip)
            if np.isnan(strip[0, 0]) and start < shape[0]:
                raise DamagedChunkError("it holds fill values")
            if start < shape[0]:
                yield start, strip[: shape[0] - start, : shape[1]]
        if checksum != int.from_bytes(file.read(4), "little"):
            raise DamagedChunkError("the checksum does not match the contents")


class ChunkWriter:
    """A chunk file on its way: strips go in from the top; see `write_chunk`."""

    def __init__(self, file: BinaryIO, tile_rows: int, dtype: str) -> None:
        self._file, self._tile_rows = file, tile_rows
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._checksum = self._rows = 0

    def append(self, strip: Tile) -> None:
        """Write the next rows, shape (≤ t, ≤ t); columns that are missing become NaN."""
        # what is padded or converted is a copy: of a few rows at a time, whatever the caller has at once
        for start in range(0, len(strip), STRIP_ROWS):
            rows = self._whole_rows(strip[start : start + STRIP_ROWS])
            self._checksum = google_crc32c.extend(self._checksum, rows)
            self._file.write(rows.data)
            self._rows += len(rows)

    def finish(self) -> None:
        """Write what is missing below, and the checksum."""
        if self._rows < self._tile_rows:
            self.append(np.empty((self._tile_rows - self._rows, 0)))
        self._file.write(self._checksum.to_bytes(4, "little"))

    def _whole_rows(self, strip: Tile) -> Tile:
        if strip.shape[1] == self._tile_rows:
            return np.ascontiguousarray(strip, self._dtype)
        rows = np.full((len(strip), self._tile_rows), np.nan, self._dtype)
        rows[:, : strip.shape[1]] = strip
        return rows


@contextmanager
def write_chunk(path: Path, tile_rows: int, dtype: str) -> Iterator[ChunkWriter]:
    """Write a chunk file whole or not at all: beside its place, then renamed; like zarr, without a flush to the disk.

    Parameters
    ----------
    path : Path
        The file; directories are made.
    tile_rows : int
        t: the chunk is t × t.
    dtype : str
        Of the entries.

    Yields
    ------
    ChunkWriter

    Notes
    -----
    A killed writer leaves a ``*.partial`` file, as zarr does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with beside.open("xb") as file:
            writer = ChunkWriter(file, tile_rows, dtype)
            yield writer
            writer.finish()
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb", buffering=0)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise DamagedChunkError("the chunk itself is gone") from error
    with file:
        yield file


def _fill(file: BinaryIO, strip: Tile) -> None:
    view = strip.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise DamagedChunkError("the chunk ended while it was read")
        done += count
