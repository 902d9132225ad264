"""Home of tiles in memory: computed in the first pass, kept where they were computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.gram.passes import PassResult, run_pass
from scalable_kpca.gram.products import (
    RunProduct,
    TileCounts,
    computed_strips,
    join,
    multiply_tile,
    tile_strips,
)
from scalable_kpca.kernels import Kernel
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Tiling

__all__ = ["MemoryGram"]

Matrix = NDArray[np.float64]
Tile = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class TileRun:
    """Tiles (i, j) for j in a run. A class of its own, so that a scheduler sees one opaque value."""

    tiles: tuple[Tile, ...]


class MemoryGram:
    """Gram matrix whose tiles stay in this process or on the workers of a cluster.

    Parameters
    ----------
    rows : Rows
        Training rows.
    kernel : Kernel
        Resolved kernel.
    tiling : Tiling
        The tiles.
    dtype : str
        Of the tiles.
    engine : Engine
        Where they are computed and stay.
    tiles_per_task : int
        Length of a run.

    Notes
    -----
    Memory: n(n + t)/2 entries over all processes. A tile lost with a worker is computed again by the scheduler.
    """

    def __init__(
        self, rows: Rows, kernel: Kernel, tiling: Tiling, dtype: str, engine: Engine, tiles_per_task: int = 1
    ) -> None:
        self._rows, self._kernel, self._engine, self._width = rows, kernel, engine, tiles_per_task
        self.tiling, self.dtype = tiling, dtype
        self._kept: dict[tuple[int, int], Any] = {}

    def build(self) -> PassResult:
        """Compute and keep every tile; one pass, with the column of ones alone."""
        name = self._engine.new_name("tiles")
        tiles: dict[Any, Any] = {
            (name, i, columns.start): (
                _compute_run, self._rows, self._kernel, self.tiling, self.dtype, i, columns.start, columns.stop
            )
            for i in range(self.tiling.n_blocks)
            for columns in self.tiling.runs(i, self._width)
        }  # fmt: skip
        result = run_pass(
            self._engine,
            self.tiling,
            np.empty((self.tiling.n_samples, 0)),
            lambda i, columns: (_multiply_run, (name, i, columns.start), i, columns.start, True),
            stage="tiles",
            tiles_per_task=self._width,
            extra=tiles,
            keep=tuple(tiles),
        )
        self._kept = {(i, start): kept for (_, i, start), kept in zip(tiles, result.kept, strict=True)}
        return result

    def multiply(self, block: Matrix) -> PassResult:
        """One pass: K times `block` of shape (n_samples, b), float64."""
        return run_pass(
            self._engine,
            self.tiling,
            block,
            lambda i, columns: (_multiply_run, self._kept[i, columns.start], i, columns.start, False),
            stage="pass",
            tiles_per_task=self._width,
        )

    def to_array(self) -> NDArray[np.floating[Any]]:
        """Whole matrix as an array of shape (n_samples, n_samples): for small n only."""
        array = np.empty((self.tiling.n_samples, self.tiling.n_samples), self.dtype)
        name = self._engine.new_name("gather")
        graph = {(name, *at): (_identity, kept) for at, kept in self._kept.items()}
        values, _ = self._engine.run(graph, list(graph), stage="gather")
        for (i, start), run in zip(self._kept, values, strict=True):
            for j, tile in enumerate(run.tiles, start):
                array[self.tiling.block(i), self.tiling.block(j)] = tile
                if i != j:
                    array[self.tiling.block(j), self.tiling.block(i)] = tile.T
        return array


def _compute_run(rows: Rows, kernel: Kernel, tiling: Tiling, dtype: str, i: int, start: int, stop: int) -> TileRun:
    tiles = []
    for j in range(start, stop):
        tile = np.empty((tiling.length(i), tiling.length(j)), dtype)
        for _ in computed_strips(kernel, rows, tiling, i, j, tile):
            pass
        tiles.append(tile)
    return TileRun(tuple(tiles))


def _multiply_run(run: TileRun, i: int, start: int, computed: bool, w_rows: Matrix, *w_columns: Matrix) -> RunProduct:
    products = [
        (j, *multiply_tile(tile_strips(tile), w_rows, w_j, diagonal=i == j))
        for j, (tile, w_j) in enumerate(zip(run.tiles, w_columns, strict=True), start)
    ]
    count = len(run.tiles)
    return join(i, products, TileCounts(computed=count) if computed else TileCounts(read=count))


def _identity(run: TileRun) -> TileRun:
    return run
