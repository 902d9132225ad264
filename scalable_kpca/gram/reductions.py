"""Sums over tiles: a run is one task; what runs give to a segment of rows is added block row by block row, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.gram.products import TileCounts, TileProduct

__all__ = ["RunProduct", "SegmentSum", "add_runs", "multiply_run"]

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
class SegmentSum:
    """What block rows 0 … i give to a segment of neighbouring blocks.

    Attributes
    ----------
    finished : ndarray of shape (t_i, b), float64, or None
        Rows of K W in block i, where it belongs to the segment.
    rest : ndarray of shape (rows of the segment below block i, b), float64
        Contributions to them so far.
    squared_norm, error, counts
        As in `RunProduct`, of the block rows so far that belong to the segment.
    """

    finished: Matrix | None
    rest: Matrix
    squared_norm: float = 0.0
    error: float = 0.0
    counts: TileCounts = field(default_factory=TileCounts)


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


def add_runs(
    before: SegmentSum | None, finishes: bool, parts: tuple[slice[int, int, None], ...], *runs: RunProduct
) -> SegmentSum:
    """Add runs of one block row, in order of their columns, to what the rows above have given to a segment.

    Parameters
    ----------
    before : SegmentSum, optional
        None in the first block row.
    finishes : bool
        Whether the block row belongs to the segment: `runs` are all of its runs then.
    parts : tuple of slice
        Rows of each run's `column_part` that lie in the segment.
    *runs : RunProduct

    Notes
    -----
    The order of additions is fixed by the plan alone, so the sums have the same bits whichever task ends first.
    """
    added = np.concatenate([run.column_part[part] for run, part in zip(runs, parts, strict=True)])
    if not finishes:
        return SegmentSum(None, added if before is None else before.rest + added)
    length = len(runs[0].row_part)
    if before is None:
        finished, rest = runs[0].row_part, added
        norm, error, counts, later = 0.0, 0.0, TileCounts(), runs[1:]
    else:
        finished, rest = before.rest[:length], before.rest[length:] + added
        norm, error, counts, later = before.squared_norm, before.error, before.counts, runs
    for run in later:
        finished = finished + run.row_part
    for run in runs:
        norm, error, counts = norm + run.squared_norm, max(error, run.error), counts + run.counts
    return SegmentSum(finished, rest, norm, error, counts)
