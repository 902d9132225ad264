"""Home of tiles in memory: computed in the first pass, kept where they were computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.gram.passes import PassResult, assemble, run_pass
from scalable_kpca.gram.products import (
    TileCounts,
    TileProduct,
    computed_tile,
    multiply_tile,
    tile_strips,
)
from scalable_kpca.gram.reductions import RunProduct, multiply_run
from scalable_kpca.kernels import Kernel
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Tiling

__all__ = ["MemoryGram"]

Block = NDArray[np.floating[Any]]
Tile = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class TileRun:
    """Tiles (i, j) for j in a run, and the error of their entries: one opaque value for a scheduler."""

    tiles: tuple[Tile, ...]
    error: float


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

    def build(self, block: Block | None = None) -> PassResult:
        """Compute and keep every tile, and K times `block` on the way."""
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
            block,
            lambda i, columns: (_multiply_run, (name, i, columns.start), i, columns.start, True),
            stage="tiles",
            tiles_per_task=self._width,
            extra=tiles,
            keep=tuple(tiles),
        )
        self._kept = {(i, start): kept for (_, i, start), kept in zip(tiles, result.kept, strict=True)}
        return result

    def multiply(self, block: Block) -> PassResult:
        """One pass: K times `block` of shape (n_samples, b)."""
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
        tiles = {
            (i, j): tile
            for (i, start), run in zip(self._kept, self._runs(), strict=True)
            for j, tile in enumerate(run.tiles, start)
        }
        return assemble(self.tiling, self.dtype, lambda i, j: tiles[i, j])

    def _runs(self) -> list[TileRun]:
        if self._engine.shares_memory:
            return list(self._kept.values())
        name = self._engine.new_name("gather")
        graph = {(name, *at): (_identity, kept) for at, kept in self._kept.items()}
        return self._engine.run(graph, list(graph), stage="gather")[0]


def _compute_run(rows: Rows, kernel: Kernel, tiling: Tiling, dtype: str, i: int, start: int, stop: int) -> TileRun:
    made = (computed_tile(kernel, rows, tiling, i, j, dtype) for j in range(start, stop))
    tiles, errors = zip(*made, strict=True)
    return TileRun(tiles, max(errors))


def _multiply_run(run: TileRun, i: int, start: int, computed: bool, w_rows: Block, *w_columns: Block) -> RunProduct:
    counts = TileCounts(computed=1) if computed else TileCounts(read=1)

    def multiply(j: int, w_j: Block) -> TileProduct:
        product = multiply_tile(
            tile_strips(run.tiles[j - start], diagonal=i == j), w_rows, w_j, diagonal=i == j, measure=computed
        )
        return replace(product, error=run.error, counts=counts)

    return multiply_run(i, start, w_columns, multiply)


def _identity(run: TileRun) -> TileRun:
    return run
