"""Sums over tiles: a run is one task, block rows are added in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.gram.products import TileCounts, TileProduct

__all__ = ["RowReduction", "RunProduct", "multiply_run", "reduce_row"]

Matrix = NDArray[np.float64]
Block = NDArray[np.floating[Any]]  # vectors, in the dtype of the arithmetic


@dataclass(frozen=True)
class RunProduct:
    """Products of neighbouring tiles (i, j), j in a run, with a block of vectors W.

    Attributes
    ----------
    row_part : ndarray of shape (t_i, b), float64
        Sum over the run of K_ij W_j.
    column_part : ndarray of shape (sum of t_j over j > i, b), float64
        K_ijᵀ W_i for each tile above the diagonal, one under the other.
    squared_norm : float
        Sum of squares of the entries of K that the run stands for (mirrored tiles count twice).
    error : float
        Largest relative error of an entry.
    counts : TileCounts
    """

    row_part: Matrix
    column_part: Matrix
    squared_norm: float
    error: float
    counts: TileCounts


@dataclass(frozen=True)
class RowReduction:
    """State of a pass after block rows 0 … i: what is finished, and what later rows still add to.

    Attributes
    ----------
    finished : ndarray of shape (t_i, b), float64
        Rows of K W in block i.
    rest : ndarray of shape (rows below block i, b), float64
        Contributions to them so far.
    squared_norm, error, counts
        As in `RunProduct`, so far.
    """

    finished: Matrix
    rest: Matrix
    squared_norm: float
    error: float
    counts: TileCounts


def multiply_run(
    i: int, start: int, w_columns: tuple[Block, ...], multiply: Callable[[int, Block], TileProduct]
) -> RunProduct:
    """Run product of the tiles (i, start), (i, start + 1), …: `multiply` gives that of tile (i, j) with W_j."""
    products = [(j, multiply(j, w_j)) for j, w_j in enumerate(w_columns, start)]
    row_part = products[0][1].row_part
    counts = products[0][1].counts
    for _, product in products[1:]:
        row_part = row_part + product.row_part
        counts = counts + product.counts
    columns = [product.column_part for _, product in products if product.column_part is not None]
    return RunProduct(
        row_part,
        np.concatenate(columns) if columns else np.empty((0, row_part.shape[1])),
        sum(product.squared_norm * (1 if j == i else 2) for j, product in products),
        max(product.error for _, product in products),
        counts,
    )


def reduce_row(before: RowReduction | None, *runs: RunProduct) -> RowReduction:
    """Add the runs of one block row, in order of their columns, to what the rows above have contributed.

    The order of additions is fixed by the plan alone, so the sums have the same bits whichever task ends first.
    """
    columns = np.concatenate([run.column_part for run in runs])
    length = len(runs[0].row_part)
    if before is None:
        finished, rest = runs[0].row_part, columns
        norm, error, counts, later = 0.0, 0.0, TileCounts(), runs[1:]
    else:
        finished, rest = before.rest[:length], before.rest[length:] + columns
        norm, error, counts, later = before.squared_norm, before.error, before.counts, runs
    for run in later:
        finished = finished + run.row_part
    for run in runs:
        norm, error, counts = norm + run.squared_norm, max(error, run.error), counts + run.counts
    return RowReduction(finished, rest, norm, error, counts)
