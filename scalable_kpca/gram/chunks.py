"""One tile as one chunk of a zarr array, strip by strip, and the small chunks of its sums; wherever chunks lie.

What is read or written of a tile is never held whole.

zarr's own reading makes the file's bytes, then the decoded chunk, then the selection; writing makes three copies too. A
pass over stored tiles then spends more time on copies and fresh pages than on products. The layout is that of the zarr
v3 specification for the codecs ``bytes(little)`` and ``crc32c``: the entries row by row, padded to the size of a chunk,
and four bytes of checksum; zarr reads what is written here, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from scalable_kpca.gram.places import ChunkPlace, DamagedChunkError, ReadStream, WriteStream
from scalable_kpca.kernels import STRIP_ROWS

__all__ = ["ChunkWriter", "read_strips", "read_sums", "sums_bytes", "write_chunk", "write_sums"]

CHECKSUM_BYTES = 4

Tile = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]


def read_strips(
    place: ChunkPlace, name: str, tile_rows: int, shape: tuple[int, int], dtype: str, strip_rows: int
) -> Iterator[tuple[int, Tile]]:
    """Strips of a tile from its chunk, top down, each read into the same buffer.

    Parameters
    ----------
    place, name : ChunkPlace, str
        The chunk.
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
        Before the first strip when the chunk is gone or has another size; after the last one, when the checksum is
        wrong: what was made of the strips must not be used before the iteration has ended.
    OSError
        When the chunk cannot be read.

    Notes
    -----
    Memory: one strip of t columns, and of an object of S3 a piece of it, twice while it comes.
    """
    stored = np.dtype(dtype).newbyteorder("<")
    size = tile_rows * tile_rows * stored.itemsize
    with place.reading(name) as (stream, found):
        if found != size + CHECKSUM_BYTES:
            raise DamagedChunkError(f"the chunk has {found} bytes instead of {size + CHECKSUM_BYTES}")
        buffer = np.empty((min(strip_rows, tile_rows), tile_rows), stored)
        checksum = 0
        for start in range(0, tile_rows, len(buffer)):
            strip = buffer[: tile_rows - start]
            _fill(stream, strip)
            checksum = google_crc32c.extend(checksum, strip)
            if np.isnan(strip[0, 0]) and start < shape[0]:
                raise DamagedChunkError("it holds fill values")
            if start < shape[0]:
                yield start, strip[: shape[0] - start, : shape[1]]
        stored_checksum = np.empty(CHECKSUM_BYTES, np.uint8)
        _fill(stream, stored_checksum)
        if checksum != int.from_bytes(stored_checksum.tobytes(), "little"):
            raise DamagedChunkError("the checksum does not match the contents")


def sums_bytes(tile_rows: int) -> int:
    """Size of the chunk of the row sums of a tile."""
    return 8 * tile_rows + CHECKSUM_BYTES


def read_sums(place: ChunkPlace, name: str, tile_rows: int) -> Vector | None:
    """Row sums of a tile, shape (t,); None where none were written, DamagedChunkError where they are not whole."""
    size = sums_bytes(tile_rows)
    content = place.read(name, size + 1)
    if content is None:
        return None
    if len(content) != size:
        raise DamagedChunkError(f"the chunk of its sums does not have {size} bytes")
    values, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    if google_crc32c.value(values) != int.from_bytes(checksum, "little"):
        raise DamagedChunkError("the checksum of its sums does not match them")
    return np.frombuffer(values, "<f8")


def write_sums(place: ChunkPlace, name: str, sums: Vector, tile_rows: int) -> None:
    """Write row sums of a tile, shape (≤ t,), whole or not at all; zeros are added."""
    values = np.zeros(tile_rows, "<f8")
    values[: len(sums)] = sums
    content = values.tobytes()
    with place.writing(name) as stream:
        stream.write(content + google_crc32c.value(content).to_bytes(CHECKSUM_BYTES, "little"))


class ChunkWriter:
    """A chunk on its way: strips go in from the top; see `write_chunk`."""

    def __init__(self, stream: WriteStream, tile_rows: int, dtype: str) -> None:
        self._stream, self._tile_rows = stream, tile_rows
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._checksum = self._rows = 0

    def append(self, strip: Tile) -> None:
        """Write the next rows, shape (≤ t, ≤ t); columns that are missing become NaN."""
        # what is padded or converted is a copy: of a few rows at a time, whatever the caller has at once
        for start in range(0, len(strip), STRIP_ROWS):
            rows = self._whole_rows(strip[start : start + STRIP_ROWS])
            self._checksum = google_crc32c.extend(self._checksum, rows)
            self._stream.write(rows.data.cast("B"))
            self._rows += len(rows)

    def finish(self) -> None:
        """Write what is missing below, and the checksum."""
        if self._rows < self._tile_rows:
            self.append(np.empty((self._tile_rows - self._rows, 0)))
        self._stream.write(self._checksum.to_bytes(CHECKSUM_BYTES, "little"))

    def _whole_rows(self, strip: Tile) -> Tile:
        if strip.shape[1] == self._tile_rows:
            return np.ascontiguousarray(strip, self._dtype)
        rows = np.full((len(strip), self._tile_rows), np.nan, self._dtype)
        rows[:, : strip.shape[1]] = strip
        return rows


@contextmanager
def write_chunk(place: ChunkPlace, name: str, tile_rows: int, dtype: str) -> Iterator[ChunkWriter]:
    """Write a chunk whole or not at all.

    Parameters
    ----------
    place, name : ChunkPlace, str
        Where it will be.
    tile_rows : int
        t: the chunk is t × t.
    dtype : str
        Of the entries.

    Yields
    ------
    ChunkWriter
    """
    with place.writing(name) as stream:
        writer = ChunkWriter(stream, tile_rows, dtype)
        yield writer
        writer.finish()


def _fill(stream: ReadStream, values: Tile | NDArray[np.uint8]) -> None:
    view = values.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])
        if not count:
            raise DamagedChunkError("the chunk ended while it was read")
        done += count
