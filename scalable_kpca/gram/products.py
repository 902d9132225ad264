"""What happens to one tile in one pass: strip by strip, while the strip is in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import STRIP_ROWS, Kernel, TileStrips, place_strip
from scalable_kpca.kernels.namespace import (
    array_namespace,
    beside,
    copy_into,
    empty,
    float64_copy,
    is_numpy_array,
    matmul_into,
    to_numpy,
    zeros,
)
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Tiling

__all__ = [
    "Strips",
    "TileCounts",
    "TileProduct",
    "computed_strips",
    "computed_tile",
    "multiply_tile",
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


def strips_of_tile(kernel: Kernel, rows: Rows, tiling: Tiling, i: int, j: int, dtype: str) -> TileStrips:
    """Strips of tile (i, j), evaluated from the rows when they are iterated over."""
    left = float64_copy(rows.read(tiling.block(i)))
    right = left if i == j else float64_copy(rows.read(tiling.block(j)))
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


def computed_tile(kernel: Kernel, rows: Rows, tiling: Tiling, i: int, j: int, dtype: str) -> tuple[Tile, float]:
    """Tile (i, j), whole, and the relative error of an entry."""
    tile = np.empty((tiling.length(i), tiling.length(j)), dtype)
    strips = strips_of_tile(kernel, rows, tiling, i, j, dtype)
    for _ in computed_strips(strips, tiling, i, j, tile):
        pass
    return tile, strips.error


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
        The tile K_ij of shape (t_i, t_j), top down; arrays of any library (see `kernels.namespace`).
    w_rows, w_columns : ndarray of shape (t_i, b) and (t_j, b), float32 or float64
        W_i and W_j; strips are multiplied in their dtype.
    diagonal : bool
        Whether i == j; then there is no mirrored tile.
    measure : bool
        Whether the squared norm is computed, and the sums (the last column, where the vectors are ones) in float64.

    Returns
    -------
    TileProduct
        In numpy, wherever the strips are.

    Notes
    -----
    4·t_i·t_j·b flops, half of that on the diagonal; each strip is read from memory once. Sums over strips are float64.
    Strips on a device are multiplied there: the vectors go to it and the products come back once a tile.
    """
    # what came over a network may lie at odd addresses, which numpy multiplies without BLAS, in another order
    w_rows, w_columns = np.require(w_rows, requirements="A"), np.require(w_columns, requirements="A")
    narrow, shape = w_rows.dtype != np.float64, (len(w_columns), w_rows.shape[1])
    strips, where = _beginning(strips, w_rows)
    xp, w_rows, w_columns = array_namespace(where), beside(w_rows, where), beside(w_columns, where)
    row_part = zeros(w_rows.shape, "float64", where)
    # on the diagonal the mirrored half of the tile adds to the same rows
    column_part = row_part if diagonal else zeros(shape, "float64", where)
    sums = zeros(w_rows.shape[0], "float64", where)
    column_sums = sums if diagonal else zeros(shape[0], "float64", where)
    ones = zeros(max(w_rows.shape[0], shape[0]), "float64", where) + 1
    squared_norm = 0.0
    # reused: what is allocated for every strip costs fresh pages, above all in workers whose allocator returns memory
    product_rows = empty(w_rows.shape, w_rows.dtype, where)
    product_columns = empty(shape, w_rows.dtype, where)
    in_dtype_of_vectors, exact = _Widened(w_rows.dtype), _Widened(xp.float64)
    for start, narrow_strip in strips:
        strip = in_dtype_of_vectors(narrow_strip)
        length = strip.shape[0]
        stop = start + length
        first = start if diagonal else 0
        mirrored = strip[:, length:] if diagonal else strip
        below = stop if diagonal else 0
        matmul_into(strip, w_columns[first:, :], product_rows[:length, :])
        row_part[start:stop, :] += product_rows[:length, :]
        matmul_into(mirrored.T, w_rows[start:stop, :], product_columns[below:, :])
        column_part[below:, :] += product_columns[below:, :]
        if measure:
            wide = exact(strip)
            across = wide[:, length:] if diagonal else wide
            squared_norm += _squared_norm(wide) + (_squared_norm(across) if diagonal else 0.0)
            if narrow:
                # as products with ones: numpy's own sums of float32 in float64 take twice as long
                sums[start:stop] += wide @ ones[: wide.shape[1]]
                column_sums[below:] += across.T @ ones[:length]
    if measure and narrow:
        row_part[:, -1], column_part[:, -1] = sums, column_sums
    return TileProduct(to_numpy(row_part), None if diagonal else to_numpy(column_part), squared_norm)


def _beginning(strips: Strips, otherwise: Block) -> tuple[Strips, Tile]:
    """The same strips, and the first of them: what tells where a tile is."""
    rest = iter(strips)
    first = next(rest, None)
    return (rest, otherwise) if first is None else (chain([first], rest), first[1])


class _Widened:
    """Strips in a dtype, each in the same buffer where they have another one."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._buffer: Tile | None = None

    def __call__(self, strip: Tile) -> Tile:
        aligned = strip.flags.aligned if is_numpy_array(strip) else True
        if strip.dtype == self._dtype and aligned:
            return strip
        size = strip.shape[0] * strip.shape[1]
        if self._buffer is None or self._buffer.size < size:
            self._buffer = empty(size, self._dtype, strip)
        wide: Tile = array_namespace(strip).reshape(self._buffer[:size], strip.shape)
        copy_into(strip, wide)
        return wide


def _squared_norm(strip: Tile) -> float:
    with np.errstate(over="ignore"):
        return float(array_namespace(strip).tensordot(strip, strip, axes=2))


def _refuse_infinite(strip: Tile, first_row: int, first_column: int) -> None:
    bad = np.argwhere(~np.isfinite(strip))
    if len(bad) == 0:
        return  # every entry is finite, only their sum overflows
    row, column = bad[0]
    raise InvalidInputError(
        f"the kernel of rows {first_row + row} and {first_column + column} is {strip[row, column]} in the tiles' "
        "dtype; standardize or scale the features, or use a smaller degree or gamma."
    )
