"""What happens to one run of tiles in one pass: strip by strip, while the strip is in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import STRIP_ROWS, Kernel, kernel_strips
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Tiling

__all__ = [
    "RowReduction",
    "RunProduct",
    "TileCounts",
    "computed_strips",
    "join",
    "multiply_tile",
    "reduce_row",
    "tile_strips",
]

Matrix = NDArray[np.float64]
Tile = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class TileCounts:
    """How many tiles were evaluated, read from storage, and evaluated again because they were damaged."""

    computed: int = 0
    read: int = 0
    repaired: int = 0

    def __add__(self, other: TileCounts) -> TileCounts:
        return TileCounts(self.computed + other.computed, self.read + other.read, self.repaired + other.repaired)


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
    counts : TileCounts
    """

    row_part: Matrix
    column_part: Matrix
    squared_norm: float
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
    squared_norm : float
        ‖K‖_F² so far.
    counts : TileCounts
    """

    finished: Matrix
    rest: Matrix
    squared_norm: float
    counts: TileCounts


def computed_strips(
    kernel: Kernel, rows: Rows, tiling: Tiling, i: int, j: int, tile: Tile
) -> Iterator[tuple[int, Matrix]]:
    """Evaluate tile (i, j) into `tile` and yield its strips as stored, in float64.

    What is multiplied is the entry after rounding to the tile's dtype, so that the first pass and every later one
    apply the same matrix, bit for bit.
    """
    left = rows.read(tiling.block(i)).astype(np.float64)
    right = left if i == j else rows.read(tiling.block(j)).astype(np.float64)
    for start, strip in kernel_strips(kernel, left, right, diagonal=i == j):
        stored = tile[start : start + len(strip)]
        with np.errstate(over="ignore"):
            stored[...] = strip
            if tile.dtype != np.float64:
                strip[...] = stored
            if not np.isfinite(strip.sum()):
                _refuse_infinite(strip, tiling.block(i).start + start, tiling.block(j).start)
        yield start, strip


def tile_strips(tile: Tile) -> Iterator[tuple[int, Matrix]]:
    """Strips of a finished tile in float64; the buffer is reused."""
    buffer = np.empty((min(STRIP_ROWS, len(tile)), tile.shape[1]))
    for start in range(0, len(tile), STRIP_ROWS):
        strip = buffer[: len(tile) - start]
        strip[...] = tile[start : start + STRIP_ROWS]
        yield start, strip


def multiply_tile(
    strips: Iterable[tuple[int, Matrix]], w_rows: Matrix, w_columns: Matrix, *, diagonal: bool
) -> tuple[Matrix, Matrix | None, float]:
    """Both products that one tile serves.

    Parameters
    ----------
    strips : iterable of (start, strip)
        The tile K_ij of shape (t_i, t_j), top down.
    w_rows, w_columns : ndarray of shape (t_i, b) and (t_j, b), float64
        W_i and W_j.
    diagonal : bool
        Whether i == j; then there is no mirrored tile.

    Returns
    -------
    row_part : ndarray of shape (t_i, b)
        K_ij W_j.
    column_part : ndarray of shape (t_j, b) or None
        K_ijᵀ W_i; None on the diagonal.
    squared_norm : float
        ‖K_ij‖_F² of this tile alone.

    Notes
    -----
    4·t_i·t_j·b flops off the diagonal; each strip is read from memory once.
    """
    row_part = np.empty((len(w_rows), w_rows.shape[1]))
    column_part = None if diagonal else np.zeros((len(w_columns), w_rows.shape[1]))
    squared_norm = 0.0
    for start, strip in strips:
        stop = start + len(strip)
        np.matmul(strip, w_columns, out=row_part[start:stop])
        if column_part is not None:
            column_part += strip.T @ w_rows[start:stop]
        flat = strip.reshape(-1)
        with np.errstate(over="ignore"):
            squared_norm += float(flat @ flat)
    return row_part, column_part, squared_norm


def join(i: int, products: list[tuple[int, Matrix, Matrix | None, float]], counts: TileCounts) -> RunProduct:
    """Run product of the tiles (i, j) whose (j, row_part, column_part, squared_norm) are given in order of j."""
    row_part = products[0][1]
    for _, part, _, _ in products[1:]:
        row_part = row_part + part
    columns = [part for _, _, part, _ in products if part is not None]
    column_part = np.concatenate(columns) if columns else np.empty((0, row_part.shape[1]))
    squared_norm = sum(norm if j == i else 2 * norm for j, _, _, norm in products)
    return RunProduct(row_part, column_part, squared_norm, counts)


def reduce_row(before: RowReduction | None, *runs: RunProduct) -> RowReduction:
    """Add the runs of one block row, in order of their columns, to what the rows above have contributed.

    The order of additions is fixed by the plan alone, so the sums have the same bits whichever task ends first.
    """
    columns = np.concatenate([run.column_part for run in runs])
    length = len(runs[0].row_part)
    if before is None:
        finished, rest = runs[0].row_part, columns
        norm, counts, later = 0.0, TileCounts(), runs[1:]
    else:
        finished, rest = before.rest[:length], before.rest[length:] + columns
        norm, counts, later = before.squared_norm, before.counts, runs
    for run in later:
        finished = finished + run.row_part
    for run in runs:
        norm, counts = norm + run.squared_norm, counts + run.counts
    return RowReduction(finished, rest, norm, counts)


def _refuse_infinite(strip: Matrix, first_row: int, first_column: int) -> None:
    bad = np.argwhere(~np.isfinite(strip))
    if len(bad) == 0:
        return  # every entry is finite, only their sum overflows
    row, column = bad[0]
    raise InvalidInputError(
        f"the kernel of rows {first_row + row} and {first_column + column} is {strip[row, column]} in the "
        "tiles' dtype; "
        "standardize or scale the features, or use a smaller degree or gamma."
    )
