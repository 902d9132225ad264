"""What happens to one run of tiles in one pass: strip by strip, while the strip is in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import STRIP_ROWS, Kernel, TileStrips, place_strip
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Tiling

__all__ = [
    "RowReduction",
    "RunProduct",
    "TileCounts",
    "TileProduct",
    "computed_strips",
    "multiply_run",
    "multiply_tile",
    "reduce_row",
    "strips_of_tile",
    "tile_strips",
]

Matrix = NDArray[np.float64]
Block = NDArray[np.floating[Any]]  # vectors, in the dtype of the arithmetic
Tile = NDArray[np.floating[Any]]
Strips = Iterable[tuple[int, Tile]]


@dataclass(frozen=True)
class TileCounts:
    """How many tiles were evaluated, read from storage, and evaluated again because they were damaged."""

    computed: int = 0
    read: int = 0
    repaired: int = 0

    def __add__(self, other: TileCounts) -> TileCounts:
        return TileCounts(self.computed + other.computed, self.read + other.read, self.repaired + other.repaired)


@dataclass(frozen=True)
class TileProduct:
    """Both products that one tile K_ij serves.

    Attributes
    ----------
    row_part : ndarray of shape (t_i, b), float64
        K_ij W_j.
    column_part : ndarray of shape (t_j, b), float64, or None
        K_ijᵀ W_i; None on the diagonal.
    squared_norm : float
        ‖K_ij‖_F² of this tile alone.
    error : float
        Relative error of an entry, 0 when the tile was not evaluated here.
    counts : TileCounts
    """

    row_part: Matrix
    column_part: Matrix | None
    squared_norm: float
    error: float = 0.0
    counts: TileCounts = TileCounts()

    @property
    def row_sums(self) -> Matrix:
        """Row sums of the tile: the product with the column of ones, which is always the last."""
        return self.row_part[:, -1]

    @property
    def column_sums(self) -> Matrix:
        """Column sums of the tile; its row sums on the diagonal."""
        return self.row_part[:, -1] if self.column_part is None else self.column_part[:, -1]


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


def strips_of_tile(kernel: Kernel, rows: Rows, tiling: Tiling, i: int, j: int, dtype: str) -> TileStrips:
    """Strips of tile (i, j), evaluated from the rows when they are iterated over."""
    left = rows.read(tiling.block(i)).astype(np.float64)
    right = left if i == j else rows.read(tiling.block(j)).astype(np.float64)
    return TileStrips(kernel, left, right, diagonal=i == j, dtype=dtype)


def computed_strips(
    strips: TileStrips, tiling: Tiling, i: int, j: int, tile: Tile | None = None
) -> Iterator[tuple[int, Tile]]:
    """Strips that are checked to be finite on their way, and written into `tile` when there is one."""
    for start, strip in strips:
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(strip.sum()):
                _refuse_infinite(strip, tiling.block(i).start + start, tiling.block(j).start)
        if tile is not None:
            place_strip(tile, start, strip, diagonal=i == j)
        yield start, strip


def tile_strips(tile: Tile, *, diagonal: bool) -> Iterator[tuple[int, Tile]]:
    """Strips of a finished tile: views, from the diagonal on where the tile lies on it."""
    for start in range(0, len(tile), STRIP_ROWS):
        yield start, tile[start : start + STRIP_ROWS, start if diagonal else 0 :]


def multiply_tile(
    strips: Strips, w_rows: Block, w_columns: Block, *, diagonal: bool, measure: bool = True
) -> TileProduct:
    """Both products that one tile serves.

    Parameters
    ----------
    strips : iterable of (start, strip)
        The tile K_ij of shape (t_i, t_j), top down.
    w_rows, w_columns : ndarray of shape (t_i, b) and (t_j, b), float32 or float64
        W_i and W_j; strips are multiplied in their dtype.
    diagonal : bool
        Whether i == j; then there is no mirrored tile.
    measure : bool
        Whether the squared norm is computed, and the sums (the last column, where the vectors are ones) in float64.

    Returns
    -------
    TileProduct

    Notes
    -----
    4·t_i·t_j·b flops, half of that on the diagonal; each strip is read from memory once. Sums over strips are float64.
    """
    # what came over a network may lie at odd addresses, which numpy multiplies without BLAS, in another order
    w_rows, w_columns = np.require(w_rows, requirements="A"), np.require(w_columns, requirements="A")
    row_part = np.zeros((len(w_rows), w_rows.shape[1]))
    # on the diagonal the mirrored half of the tile adds to the same rows
    column_part = row_part if diagonal else np.zeros((len(w_columns), w_rows.shape[1]))
    sums = np.zeros(len(w_rows))
    column_sums = sums if diagonal else np.zeros(len(w_columns))
    squared_norm = 0.0
    widened: Tile | None = None
    for start, strip in strips:
        stop = start + len(strip)
        if strip.dtype != w_rows.dtype or not strip.flags.aligned:
            widened = np.empty(strip.size, w_rows.dtype) if widened is None else widened
            wide = widened[: strip.size].reshape(strip.shape)
            wide[...] = strip
            strip = wide
        first = start if diagonal else 0
        mirrored = strip[:, len(strip) :] if diagonal else strip
        below = stop if diagonal else 0
        row_part[start:stop] += strip @ w_columns[first:]
        column_part[below:] += mirrored.T @ w_rows[start:stop]
        if measure:
            squared_norm += _squared_norm(strip) + (_squared_norm(mirrored) if diagonal else 0.0)
            if strip.dtype != np.float64:
                sums[start:stop] += strip.sum(axis=1, dtype=np.float64)
                column_sums[below:] += mirrored.sum(axis=0, dtype=np.float64)
    if measure and w_rows.dtype != np.float64:
        row_part[:, -1], column_part[:, -1] = sums, column_sums
    return TileProduct(row_part, None if diagonal else column_part, squared_norm)


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


def _squared_norm(strip: Tile) -> float:
    # 64 terms at a time in the strip's dtype, then in float64: a float32 sum over a whole strip would lose digits
    flat = strip.reshape(-1)
    whole = len(flat) // 64 * 64
    pieces = flat[:whole].reshape(-1, 64)
    with np.errstate(over="ignore"):
        norm = np.einsum("ij,ij->i", pieces, pieces).sum(dtype=np.float64)
        if not np.isfinite(norm):  # squares beyond float32's range
            norm = np.square(pieces, dtype=np.float64).sum()
        return float(norm + np.square(flat[whole:], dtype=np.float64).sum())


def _refuse_infinite(strip: Tile, first_row: int, first_column: int) -> None:
    bad = np.argwhere(~np.isfinite(strip))
    if len(bad) == 0:
        return  # every entry is finite, only their sum overflows
    row, column = bad[0]
    raise InvalidInputError(
        f"the kernel of rows {first_row + row} and {first_column + column} is {strip[row, column]} in the tiles' "
        "dtype; standardize or scale the features, or use a smaller degree or gamma."
    )
