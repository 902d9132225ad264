"""Home of tiles on disk: computed once, written once, read in every pass; the store itself is in `store`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import CorruptTileError
from scalable_kpca.gram.passes import PassResult, run_pass
from scalable_kpca.gram.products import RunProduct, TileCounts, computed_strips, join, multiply_tile, tile_strips
from scalable_kpca.gram.store import StoredTiles
from scalable_kpca.kernels import Kernel
from scalable_kpca.source import Rows

__all__ = ["StoredGram"]

Matrix = NDArray[np.float64]


class StoredGram:
    """Gram matrix in a zarr group.

    Parameters
    ----------
    rows : Rows
        Training rows, readable wherever tasks run.
    kernel : Kernel
        Resolved kernel.
    tiles : StoredTiles
        The store.
    engine : Engine
        Where tasks run.
    tiles_per_task : int
        Length of a run.

    Notes
    -----
    `build` reads what is committed and computes the rest, so that an interrupted build is finished by the same call;
    damaged tiles count as missing there. `multiply` never computes: a missing or damaged tile is an error with a name.
    """

    def __init__(self, rows: Rows, kernel: Kernel, tiles: StoredTiles, engine: Engine, tiles_per_task: int = 1) -> None:
        self._rows, self._kernel, self._tiles = rows, kernel, tiles
        self._engine, self._width = engine, tiles_per_task
        self.tiling, self.dtype = tiles.tiling, tiles.dtype

    def build(self) -> PassResult:
        """Compute exactly the missing and damaged tiles; one pass, with the column of ones alone."""
        self._tiles.sweep()
        return self._pass(np.empty((self.tiling.n_samples, 0)), "tiles", build=True)

    def multiply(self, block: Matrix) -> PassResult:
        """One pass: K times `block` of shape (n_samples, b), float64."""
        return self._pass(block, "pass", build=False)

    def _pass(self, block: Matrix, stage: str, *, build: bool) -> PassResult:
        origin = (self._rows, self._kernel) if build else (None, None)
        return run_pass(
            self._engine,
            self.tiling,
            block,
            lambda i, columns: (_run, self._tiles, *origin, i, columns.start),
            stage=stage,
            tiles_per_task=self._width,
        )

    def to_array(self) -> NDArray[np.floating[Any]]:
        """Whole matrix as an array of shape (n_samples, n_samples): for small n only."""
        array = np.empty((self.tiling.n_samples, self.tiling.n_samples), self.dtype)
        for i, j in self.tiling.tiles():
            rows, columns = self.tiling.block(i), self.tiling.block(j)
            array[rows, columns] = self._tiles.read_checked(i, j)
            if i != j:
                array[columns, rows] = array[rows, columns].T
        return array

    def to_dask(self) -> Any:
        """Full symmetric matrix as a lazy dask array; mirrored blocks are transposes of stored ones."""
        import dask.array as da

        tiling = self.tiling
        lengths = tuple(tiling.length(i) for i in range(tiling.n_blocks))
        name = f"gram-{self._tiles.fingerprint}"
        graph: dict[Any, Any] = {}
        for i, j in tiling.tiles():
            graph[name, i, j] = (StoredTiles.read_checked, self._tiles, i, j)
            if i != j:
                graph[name, j, i] = (np.transpose, (name, i, j))
        return da.Array(graph, name, (lengths, lengths), dtype=self.dtype)


def _run(
    tiles: StoredTiles,
    rows: Rows | None,
    kernel: Kernel | None,
    i: int,
    start: int,
    w_rows: Matrix,
    *w_columns: Matrix,
) -> RunProduct:
    products, counts = [], TileCounts()
    for j, w_j in enumerate(w_columns, start):
        if rows is None or kernel is None:
            product, count = _read_and_multiply(tiles, i, j, w_rows, w_j), TileCounts(read=1)
        else:
            product, count = _build_and_multiply(tiles, rows, kernel, i, j, w_rows, w_j)
        products.append((j, *product))
        counts = counts + count
    return join(i, products, counts)


def _build_and_multiply(
    tiles: StoredTiles, rows: Rows, kernel: Kernel, i: int, j: int, w_rows: Matrix, w_columns: Matrix
) -> tuple[tuple[Matrix, Matrix | None, float], TileCounts]:
    count = TileCounts(computed=1)
    try:
        if tiles.is_committed(i, j):
            return _read_and_multiply(tiles, i, j, w_rows, w_columns), TileCounts(read=1)
    except CorruptTileError:
        count = TileCounts(computed=1, repaired=1)
    tiles.withdraw(i, j)
    tile = np.empty((len(w_rows), len(w_columns)), tiles.dtype)
    strips = computed_strips(kernel, rows, tiles.tiling, i, j, tile)
    product = multiply_tile(strips, w_rows, w_columns, diagonal=i == j)
    tiles.commit(i, j, tile, *_sums(product, i, j))
    return product, count


def _read_and_multiply(
    tiles: StoredTiles, i: int, j: int, w_rows: Matrix, w_columns: Matrix
) -> tuple[Matrix, Matrix | None, float]:
    product = multiply_tile(tile_strips(tiles.read(i, j)), w_rows, w_columns, diagonal=i == j)
    row_sums, column_sums = _sums(product, i, j)
    tiles.check(i, j, row_sums, column_sums, product[2])
    return product


def _sums(product: tuple[Matrix, Matrix | None, float], i: int, j: int) -> tuple[Matrix, Matrix]:
    """Row and column sums of the tile: the products with the column of ones, which is always the last."""
    row_part, column_part, _ = product
    return row_part[:, -1], row_part[:, -1] if i == j or column_part is None else column_part[:, -1]
