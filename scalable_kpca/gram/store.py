"""Home of tiles that are stored: one zarr group on a disk or on S3, each tile computed once, read in every pass.

Format (version 1)
    ``tiles`` (n, n), chunks (t, t), only i ≤ j written. ``row_sums`` (n_blocks, n_blocks, t) float64, chunks
    (1, 1, t): entry [i, j] holds the row sums of tile (i, j), entry [j, i] its column sums. A tile is written first,
    then [j, i], then [i, j]: **[i, j] present means tile (i, j) is committed.** The fill value is NaN, which no kernel
    value is, so that a missing chunk cannot be mistaken for data.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import CorruptTileError, IncompleteGramError, StorageError, storage_errors
from scalable_kpca.faults import is_loss
from scalable_kpca.gram.chunks import ChunkWriter, read_strips, read_sums, sums_bytes, write_chunk, write_sums
from scalable_kpca.gram.opening import FORMAT_VERSION, check_store, described_tiles, descriptions, place_of
from scalable_kpca.gram.places import ChunkPlace, DamagedChunkError
from scalable_kpca.kernels import STRIP_ROWS
from scalable_kpca.objects import StoredObject
from scalable_kpca.tiling import Tiling

__all__ = ["FORMAT_VERSION", "StoredTiles", "create_tiles", "find_tiles"]

logger = logging.getLogger(__name__)

Matrix = NDArray[np.float64]
Tile = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class StoredTiles:
    """Handle on a ``gram.zarr``: small, picklable, opened once in each process.

    Parameters
    ----------
    path : str
        Directory of the group, or ``s3://BUCKET/KEY``; each process opens that by its own environment.
    tiling : Tiling
        The tiles.
    dtype : str
        Of the tiles.
    fingerprint : str
        Of rows, kernel, dtype and tile size; a store with another one is refused.
    """

    path: str
    tiling: Tiling
    dtype: str
    fingerprint: str

    def is_committed(self, i: int, j: int) -> bool:
        """Whether tile (i, j) is whole: its row sums were written, and they are written last."""
        sums = self._sums(i, j)
        return sums is not None and not bool(np.isnan(sums[0]))

    def missing(self) -> tuple[tuple[int, int], ...]:
        """Tiles that are not committed, block row by block row; of those that are only the sizes are known.

        Notes
        -----
        Cost: one listing of the row sums, on S3 one request for each thousand of them.
        """
        sizes, whole = self._place.sizes("row_sums/c"), sums_bytes(self.tiling.tile_rows)
        return tuple((i, j) for i, j in self.tiling.tiles() if sizes.get(f"{i}/{j}/0") != whole)

    def strips(self, i: int, j: int) -> Iterator[tuple[int, Tile]]:
        """Strips of tile (i, j), top down, as pairs of first row and values: see `chunks.read_strips`.

        Raises
        ------
        IncompleteGramError
            When the tile was never committed.
        CorruptTileError
            When its chunk is damaged: at the end at the latest, so that nothing may be used before.
        StorageError
            When the file system or the server refuses to read it.
        """
        if not self.is_committed(i, j):
            raise IncompleteGramError(self.path, self.missing(), self.tiling.n_tiles)
        t, shape = self.tiling.tile_rows, (self.tiling.length(i), self.tiling.length(j))
        with storage_errors(f"reading tile ({i}, {j}) of {self.path}"):
            try:
                yield from read_strips(self._place, _chunk(i, j), t, shape, self.dtype, STRIP_ROWS)
            except DamagedChunkError as error:
                raise self._corrupt(i, j, str(error)) from error
            except OSError as error:
                if isinstance(error, StorageError) or not is_loss(error):
                    raise
                raise self._corrupt(i, j, f"it cannot be read: {error}") from error

    def read(self, i: int, j: int) -> Tile:
        """Tile (i, j) of shape (t_i, t_j), whole: see `strips`."""
        tile = np.empty((self.tiling.length(i), self.tiling.length(j)), self.dtype)
        for start, strip in self.strips(i, j):
            tile[start : start + len(strip)] = strip
        return tile

    def read_checked(self, i: int, j: int) -> Tile:
        """Tile (i, j) whose sums have been compared with the stored ones: see `read` and `check`."""
        tile = self.read(i, j)
        exact = tile.astype(np.float64)
        self.check(i, j, exact.sum(axis=1), exact.sum(axis=0 if i != j else 1), float(np.square(exact).sum()))
        return tile

    def check(
        self, i: int, j: int, row_sums: Matrix, column_sums: Matrix, squared_norm: float, dtype: str = "float64"
    ) -> None:
        """Compare the sums of a tile just read with the stored ones; CorruptTileError when they differ.

        Notes
        -----
        Sums of t terms in float64 differ between two orders of addition by at most
        ``2 t eps Σ|k| ≤ 2 t^{3/2} eps ‖K_ij‖_F``. In float32 that worst case would hide a swapped tile; there the
        tolerance is 4 t eps ‖K_ij‖_F, which the rounding of t terms does not reach unless all errors have one sign and
        one row holds nearly the whole norm.
        """
        eps, t = float(np.finfo(dtype).eps), self.tiling.tile_rows
        tolerance = eps * np.sqrt(squared_norm) * (2 * t**1.5 if dtype == "float64" else 4 * t)
        for found, at in ((row_sums, (i, j)), (column_sums, (j, i))):
            stored = self._sums(*at)
            difference = np.inf if stored is None else np.abs(stored[: len(found)] - found).max()
            if not difference <= tolerance:
                differ = f"its sums differ from the stored ones by {difference:.3g} (> {tolerance:.3g})"
                raise self._corrupt(i, j, "some of its sums are gone" if stored is None else differ)

    @contextlib.contextmanager
    def writing(self, i: int, j: int) -> Iterator[ChunkWriter]:
        """Write the chunk of tile (i, j), strip by strip; it is not committed by that.

        Raises
        ------
        StorageError
            When the file system or the server refuses a write; no chunk is left.
        """
        what, t = f"writing tile ({i}, {j}) of {self.path}", self.tiling.tile_rows
        with storage_errors(what), write_chunk(self._place, _chunk(i, j), t, self.dtype) as chunk:
            yield chunk

    def commit(self, i: int, j: int, row_sums: Matrix, column_sums: Matrix) -> None:
        """Write the column sums, then the row sums of tile (i, j), whose chunk is written: the last write commits.

        Raises
        ------
        StorageError
            When the file system or the server refuses a write; the tile is then not committed.
        """
        with storage_errors(f"writing tile ({i}, {j}) of {self.path}"):
            if i != j:
                write_sums(self._place, _sums_chunk(j, i), column_sums, self.tiling.tile_rows)
            write_sums(self._place, _sums_chunk(i, j), row_sums, self.tiling.tile_rows)

    def withdraw(self, i: int, j: int) -> None:
        """Make way for a missing or damaged tile, its commit first; on S3 the new one is written over it."""
        self._place.clear([_sums_chunk(i, j), _sums_chunk(j, i), _chunk(i, j)])

    def put_aside(self, error: CorruptTileError) -> None:
        """Say that a damaged tile is made again, and on a disk keep its chunk in ``damaged/`` beside the store."""
        logger.warning("tile (%d, %d) of %s is made again: %s", error.i, error.j, self.path, error.reason)
        self._place.put_aside(_chunk(error.i, error.j), f"tile-{error.i}-{error.j}")

    def sweep(self) -> int:
        """Remove the temporary files that a killed writer left; the caller must be the only writer."""
        return self._place.sweep()

    @property
    def _place(self) -> ChunkPlace:
        return _open(self)

    def _sums(self, i: int, j: int) -> Matrix | None:
        place = self._place  # what cannot be opened is no damage of one tile
        first, last = min(i, j), max(i, j)
        with storage_errors(f"reading the sums of tile ({first}, {last}) of {self.path}"):
            try:
                return read_sums(place, _sums_chunk(i, j), self.tiling.tile_rows)
            except (DamagedChunkError, OSError) as error:
                if isinstance(error, StorageError) or (isinstance(error, OSError) and not is_loss(error)):
                    raise
                raise CorruptTileError(first, last, f"{self.path}/row_sums", str(error)) from error

    def _corrupt(self, i: int, j: int, reason: str) -> CorruptTileError:
        return CorruptTileError(i, j, f"{self.path}/{_chunk(i, j)}", reason)


def create_tiles(
    path: Path | StoredObject, tiling: Tiling, dtype: str, fingerprint: str, attributes: dict[str, Any]
) -> StoredTiles:
    """Open the ``gram.zarr`` at `path`, or start an empty one.

    Parameters
    ----------
    path : Path or StoredObject
        Directory of the group, whose parent exists; or the key that it has on S3.
    tiling : Tiling
        The tiles.
    dtype : str
        Of the tiles.
    fingerprint : str
        Identity of the contents.
    attributes : dict
        JSON values that describe them: kernel with parameters, and what else a reader wants to know.

    Returns
    -------
    StoredTiles

    Raises
    ------
    StorageError
        When `path` holds a store with another fingerprint, or none that can be read.
    """
    tiles, place = StoredTiles(str(path), tiling, dtype, fingerprint), place_of(str(path))
    if not place.exists():
        with storage_errors(f"creating {path}"):
            place.create(descriptions(tiling, dtype, fingerprint, attributes))
    _open(tiles)
    return tiles


def find_tiles(path: Path | StoredObject) -> StoredTiles | None:
    """The store at `path` as it describes itself, for a look at it; None where there is none.

    Raises
    ------
    StorageError
        When it cannot be opened, or has more tiles than can be looked at one by one.
    """
    if not place_of(str(path)).exists():
        return None
    tiles = StoredTiles(str(path), *described_tiles(str(path)))
    _open(tiles)
    return tiles


@lru_cache(maxsize=8)
def _open(tiles: StoredTiles) -> ChunkPlace:
    return check_store(tiles.path, tiles.tiling, tiles.dtype, tiles.fingerprint)


def _chunk(i: int, j: int) -> str:
    return f"tiles/c/{i}/{j}"


def _sums_chunk(i: int, j: int) -> str:
    return f"row_sums/c/{i}/{j}/0"
