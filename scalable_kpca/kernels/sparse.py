"""Sparse rows: what kernels need of them, written into dense strips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.source import squared_norms_of

__all__ = [
    "CLOSE",
    "DistanceFactor",
    "distance_factors",
    "distances_into",
    "nonzero_rows",
    "normalised_rows",
    "product_into",
]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

PIECE_ROWS = 32  # of a product at a time: as a CSR array it takes 12 bytes for each of its entries that is not 0
# Below this share of ‖x‖² + ‖y‖² a squared distance that is made of inner products has lost too many digits
CLOSE = 1e-3
PAIR_ENTRIES = 2**20  # of close rows whose differences are formed together


def product_into(left: Any, right: Any, out: Matrix) -> None:
    """Write the product of two CSR arrays, (a, d) and (d, b), into a dense one; of `DistanceFactor`, distances."""
    if isinstance(left, DistanceFactor):
        product_into(left.values, right.values, out)
        out *= -2 * left.factor
        out += left.norms[:, None]
        out += right.norms
        return
    for start in range(0, left.shape[0], PIECE_ROWS):
        piece = out[start : start + PIECE_ROWS]
        product = left[start : start + PIECE_ROWS] @ right
        if piece.flags.c_contiguous:
            product.toarray(out=piece)
        else:
            piece[...] = product.toarray()


@dataclass(frozen=True, eq=False)
class DistanceFactor:
    """One side of a tile whose product with the other is factor·‖x − y‖².

    Attributes
    ----------
    values : scipy.sparse.csr_array of shape (a, d), or (d, b) on the right
    norms : ndarray of shape (a,) or (b,), float64
        factor·‖x‖² of each row or column.
    factor : float
    axis : int
        0 on the left, 1 on the right.
    """

    values: Any
    norms: Vector
    factor: float
    axis: int

    def __getitem__(self, key: tuple[slice, slice]) -> DistanceFactor:
        """Some rows of a left side, or columns of a right one: the other slice is the whole."""
        return DistanceFactor(self.values[key], self.norms[key[self.axis]], self.factor, self.axis)


def distance_factors(rows: Any, columns: Any, factor: float) -> tuple[DistanceFactor, DistanceFactor]:
    """Sides of a tile of factor·‖x − y‖²; not shifted by a mean, which would not be sparse. 0 for equal rows."""
    left = DistanceFactor(rows, factor * squared_norms_of(rows), factor, 0)
    return left, DistanceFactor(columns.T.tocsr(), factor * squared_norms_of(columns), factor, 1)


def distances_into(left: Any, right: Any, metric: str, out: Matrix) -> None:
    """Distances between rows of `left` and columns of `right`, to rounding.

    Squared distances are made of inner products. Those between close rows are made of differences, so that all are good
    to 4·eps/`CLOSE`. Cost: some 10 ns for every entry of two close rows.
    """
    columns = right.T.tocsr()
    if metric == "cityblock":
        from sklearn.metrics.pairwise import manhattan_distances

        out[...] = manhattan_distances(left, columns)
        return
    x, y = squared_norms_of(left), squared_norms_of(columns)
    product_into(left, right, out)
    out *= -2
    out += x[:, None]
    out += y
    i, j = np.nonzero(out <= CLOSE * (x[:, None] + y))
    lengths = np.diff(left.indptr)[i] + np.diff(columns.indptr)[j]
    for pairs in np.split(np.arange(len(i)), _cuts(lengths)):
        differences = left[i[pairs]] - columns[j[pairs]]
        out[i[pairs], j[pairs]] = squared_norms_of(differences)
    if metric == "euclidean":
        np.sqrt(out, out=out)


def normalised_rows(rows: Any) -> Any:
    """Rows divided by their norms, the largest entry first; rows of zeros stay zeros."""
    scaled = rows.copy()
    lengths = np.diff(rows.indptr)
    some = lengths > 0
    largest = np.ones(rows.shape[0])
    largest[some] = np.maximum.reduceat(np.abs(rows.data), rows.indptr[:-1][some])
    scaled.data /= np.repeat(np.where(largest == 0, 1, largest), lengths)
    norms = np.sqrt(squared_norms_of(scaled))
    scaled.data /= np.repeat(np.where(norms == 0, 1, norms), lengths)
    return scaled


def nonzero_rows(rows: Any) -> NDArray[np.bool_]:
    """Whether a row has any entry that is not 0."""
    return np.asarray(np.diff(rows.indptr) > 0)


def _cuts(lengths: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """Where to cut a list so that the lengths in a piece add up to `PAIR_ENTRIES`, or little more."""
    total = np.cumsum(lengths)
    return np.flatnonzero(np.diff(total // PAIR_ENTRIES)) + 1 if len(total) else np.empty(0, np.intp)
