"""Home of tiles nowhere: evaluated again in every pass, strip by strip, never whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.gram.passes import PassResult, assemble, run_pass
from scalable_kpca.gram.products import TileCounts, TileProduct, computed_strips, multiply_tile, strips_of_tile
from scalable_kpca.gram.reductions import RunProduct, multiply_run
from scalable_kpca.kernels import Kernel, kernel_block
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Tiling

__all__ = ["RecomputeGram"]

Block = NDArray[np.floating[Any]]


class RecomputeGram:
    """Gram matrix that exists a strip at a time.

    Parameters
    ----------
    rows : Rows
        Training rows.
    kernel : Kernel
        Resolved kernel.
    tiling : Tiling
        The tiles.
    dtype : str
        To which entries are rounded.
    engine : Engine
        Where they are computed.
    tiles_per_task : int
        Length of a run.

    Notes
    -----
    Memory a task: one strip of 256 × t entries and both sides of a tile. Every pass costs n²/2 kernel values.
    """

    def __init__(
        self, rows: Rows, kernel: Kernel, tiling: Tiling, dtype: str, engine: Engine, tiles_per_task: int = 1
    ) -> None:
        self._rows, self._kernel, self._engine, self._width = rows, kernel, engine, tiles_per_task
        self.tiling, self.dtype = tiling, dtype

    def build(self, block: Block | None = None) -> PassResult:
        """First pass: nothing is made, but row sums and norm are measured exactly."""
        return self._pass(block, "tiles", measure=True)

    def multiply(self, block: Block) -> PassResult:
        """One pass: K times `block` of shape (n_samples, b)."""
        return self._pass(block, "pass", measure=False)

    def _pass(self, block: Block | None, stage: str, *, measure: bool) -> PassResult:
        head = (_recompute_run, self._rows, self._kernel, self.tiling, self.dtype, measure)
        return run_pass(
            self._engine,
            self.tiling,
            block,
            lambda i, columns: (*head, i, columns.start),
            stage=stage,
            tiles_per_task=self._width,
        )

    def to_array(self) -> NDArray[np.floating[Any]]:
        """Whole matrix as an array of shape (n_samples, n_samples): for small n only."""

        def tile(i: int, j: int) -> NDArray[np.floating[Any]]:
            left, right = self._rows.read(self.tiling.block(i)), self._rows.read(self.tiling.block(j))
            return kernel_block(self._kernel, left, right, diagonal=i == j, dtype=self.dtype)

        return assemble(self.tiling, self.dtype, tile)


def _recompute_run(
    rows: Rows,
    kernel: Kernel,
    tiling: Tiling,
    dtype: str,
    measure: bool,
    i: int,
    start: int,
    w_rows: Block,
    *w_columns: Block,
) -> RunProduct:
    def multiply(j: int, w_j: Block) -> TileProduct:
        strips = strips_of_tile(kernel, rows, tiling, i, j, dtype)
        product = multiply_tile(computed_strips(strips, tiling, i, j), w_rows, w_j, diagonal=i == j, measure=measure)
        return replace(product, error=strips.error, counts=TileCounts(computed=1))

    return multiply_run(i, start, w_columns, multiply)
