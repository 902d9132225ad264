"""Home of tiles on disk: one zarr group, each tile computed once, written once, read in every pass.

Format (version 1)
    ``tiles`` (n, n), chunks (t, t), only i ≤ j written. ``row_sums`` (n_blocks, n_blocks, t) float64, chunks
    (1, 1, t): entry [i, j] holds the row sums of tile (i, j), entry [j, i] its column sums. A tile is written first,
    then [j, i], then [i, j]: **[i, j] present means tile (i, j) is committed.** The fill value is NaN, which no kernel
    value is, so that a missing chunk cannot be mistaken for data.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from scalable_kpca.errors import CorruptTileError, IncompleteGramError, storage_errors
from scalable_kpca.faults import is_loss
from scalable_kpca.gram.chunks import ChunkWriter, DamagedChunkError, read_strips, write_chunk
from scalable_kpca.gram.opening import FORMAT_VERSION, described_tiles, open_store
from scalable_kpca.kernels import STRIP_ROWS
from scalable_kpca.source import checked_codecs
from scalable_kpca.tiling import Tiling

__all__ = ["FORMAT_VERSION", "StoredTiles", "create_tiles", "find_tiles"]

MOST_KEPT = 16  # damaged chunks that are put aside: a disk that loses many must not be filled by them

logger = logging.getLogger(__name__)

Matrix = NDArray[np.float64]
Tile = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class StoredTiles:
    """Handle on a ``gram.zarr``: small, picklable, opened once in each process.

    Parameters
    ----------
    path : str
        Directory of the group.
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
        return not bool(np.isnan(self._sums(i, j)[0]))

    def missing(self) -> tuple[tuple[int, int], ...]:
        """Tiles that are not committed, block row by block row."""
        found = []
        for i, j in self.tiling.tiles():
            try:
                if not self.is_committed(i, j):
                    found.append((i, j))
            except CorruptTileError:
                found.append((i, j))
        return tuple(found)

    def strips(self, i: int, j: int) -> Iterator[tuple[int, Tile]]:
        """Strips of tile (i, j), top down, as pairs of first row and values: see `chunks.read_strips`.

        Raises
        ------
        IncompleteGramError
            When the tile was never committed.
        CorruptTileError
            When its chunk is damaged: at the end at the latest, so that nothing may be used before.
        StorageError
            When the file system refuses to read it.
        """
        if not self.is_committed(i, j):
            raise IncompleteGramError(self.path, self.missing(), self.tiling.n_tiles)
        t, shape = self.tiling.tile_rows, (self.tiling.length(i), self.tiling.length(j))
        with storage_errors(f"reading tile ({i}, {j}) of {self.path}"):
            try:
                yield from read_strips(self._chunk(i, j), t, shape, self.dtype, STRIP_ROWS)
            except DamagedChunkError as error:
                raise CorruptTileError(i, j, str(self._chunk(i, j)), str(error)) from error
            except OSError as error:
                if not is_loss(error):
                    raise
                raise CorruptTileError(i, j, str(self._chunk(i, j)), f"it cannot be read: {error}") from error

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
            difference = np.abs(self._sums(*at)[: len(found)] - found).max()
            if not difference <= tolerance:
                raise CorruptTileError(
                    i,
                    j,
                    str(self._chunk(i, j)),
                    f"its sums differ from the stored ones by {difference:.3g} (> {tolerance:.3g})",
                )

    @contextlib.contextmanager
    def writing(self, i: int, j: int) -> Iterator[ChunkWriter]:
        """Write the chunk of tile (i, j), strip by strip; it is not committed by that.

        Raises
        ------
        StorageError
            When the file system refuses a write; no chunk is left.
        """
        what = f"writing tile ({i}, {j}) of {self.path}"
        with storage_errors(what), write_chunk(self._chunk(i, j), self.tiling.tile_rows, self.dtype) as chunk:
            yield chunk

    def commit(self, i: int, j: int, row_sums: Matrix, column_sums: Matrix) -> None:
        """Write the column sums, then the row sums of tile (i, j), whose chunk is written: the last write commits.

        Raises
        ------
        StorageError
            When the file system refuses a write; the tile is then not committed.
        """
        _, sums = _open(self)
        with storage_errors(f"writing tile ({i}, {j}) of {self.path}"):
            if i != j:
                sums[j, i, :] = self._padded(column_sums)
            sums[i, j, :] = self._padded(row_sums)

    def withdraw(self, i: int, j: int) -> None:
        """Clear the place of a missing or damaged tile, its commit first; only a new commit makes it readable."""
        sums = [Path("row_sums", _open(self)[1].metadata.encode_chunk_key((*at, 0))) for at in ((i, j), (j, i))]
        for name in (*sums, self._chunk(i, j).relative_to(self.path)):
            _remove(Path(self.path), name)

    def put_aside(self, error: CorruptTileError) -> None:
        """Move the chunk of a damaged tile to ``damaged/`` beside the store, where it can be looked at; and say so."""
        chunk, aside = self._chunk(error.i, error.j), Path(self.path).parent / "damaged"
        logger.warning("tile (%d, %d) of %s is made again: %s", error.i, error.j, self.path, error.reason)
        with contextlib.suppress(OSError):  # it is made again in any case
            aside.mkdir(mode=0o700, exist_ok=True)
            if sum(1 for _ in aside.iterdir()) < MOST_KEPT:
                chunk.replace(aside / f"tile-{error.i}-{error.j}")

    def sweep(self) -> int:
        """Remove the temporary files that a killed writer left; the caller must be the only writer."""
        orphans = list(Path(self.path).rglob("*.partial"))
        for orphan in orphans:
            orphan.unlink(missing_ok=True)
        return len(orphans)

    def _chunk(self, i: int, j: int) -> Path:
        return Path(self.path, "tiles", _open(self)[0].metadata.encode_chunk_key((i, j)))

    def _sums(self, i: int, j: int) -> Matrix:
        _, stored = _open(self)  # what cannot be opened is no damage of one tile
        with storage_errors(f"reading the sums of tile ({min(i, j)}, {max(i, j)}) of {self.path}"):
            try:
                sums: Matrix = stored[i, j, :]
            except MemoryError:
                raise
            except Exception as error:
                if isinstance(error, OSError) and not is_loss(error):
                    raise
                raise CorruptTileError(min(i, j), max(i, j), f"{self.path}/row_sums", str(error)) from error
        return sums

    def _padded(self, sums: Matrix) -> Matrix:
        padded = np.zeros(self.tiling.tile_rows)
        padded[: len(sums)] = sums
        return padded


def create_tiles(path: Path, tiling: Tiling, dtype: str, fingerprint: str, attributes: dict[str, Any]) -> StoredTiles:
    """Open the ``gram.zarr`` at `path`, or start an empty one.

    Parameters
    ----------
    path : Path
        Directory of the group; its parent exists.
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
    tiles = StoredTiles(str(path), tiling, dtype, fingerprint)
    if path.exists():
        _open(tiles)
        return tiles
    codecs = checked_codecs()
    n, t, nb = tiling.n_samples, tiling.tile_rows, tiling.n_blocks
    description = {
        **attributes,
        "format_version": FORMAT_VERSION,
        "fingerprint": fingerprint,
        "n_samples": n,
        "tile_rows": t,
        "dtype": dtype,
        "triangle": "upper",
    }
    # made beside its place and renamed: a store that exists is whole, if empty
    staging = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    with storage_errors(f"creating {path}"):
        try:
            group = zarr.create_group(str(staging), attributes=description, overwrite=True)
            group.create_array("tiles", shape=(n, n), chunks=(t, t), dtype=dtype, **codecs)
            group.create_array("row_sums", shape=(nb, nb, t), chunks=(1, 1, t), dtype="float64", **codecs)
            staging.rename(path)
        except OSError:
            if not path.exists():
                raise
            _open(tiles)  # another fit of the same tiles was faster
    for leftover in path.parent.glob(f"{path.name}*.new"):
        shutil.rmtree(leftover, ignore_errors=True)
    return tiles


def find_tiles(path: Path) -> StoredTiles | None:
    """The store at `path` as it describes itself, for a look at it; None where there is none.

    Raises
    ------
    StorageError
        When it cannot be opened, or has more tiles than can be looked at one by one.
    """
    if not path.is_symlink() and not path.exists():
        return None
    tiles = StoredTiles(str(path), *described_tiles(path))
    _open(tiles)
    return tiles


@lru_cache(maxsize=8)
def _open(tiles: StoredTiles) -> tuple[Any, Any]:
    return open_store(Path(tiles.path), tiles.tiling, tiles.dtype, tiles.fingerprint)


def _remove(root: Path, name: Path) -> None:
    """Remove a chunk or a directory in its place, and a file in the place of a directory above it."""
    for place in (*reversed((root / name).parents[: len(name.parts) - 1]), root / name):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # another task may just make a directory above
            if not place.is_dir():
                place.unlink()
            elif place == root / name:
                shutil.rmtree(place)
