"""Rows of a precomputed Gram matrix, as far as landmarks need them: their columns, and the diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.source.rows import Rows
from scalable_kpca.source.spans import cut

__all__ = ["GramColumns", "check_landmark_block", "gram_columns"]

Block = NDArray[np.floating[Any]]

READ_BYTES = 16 * 2**20  # of whole rows of K at a time


@dataclass(frozen=True, eq=False)
class GramColumns:
    """Some columns of a Gram matrix (n, n), and its diagonal behind them: what the kernel "precomputed" evaluates.

    Attributes
    ----------
    matrix : Rows
        K, row by row.
    columns : ndarray of shape (m,), int64
    square : bool
        Whether row i has k(x, x) in column i; new rows, whose scores do not ask for it, have 0 in its place.
    """

    matrix: Rows
    columns: NDArray[np.int64]
    square: bool = True

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.matrix.n_samples

    @property
    def n_features(self) -> int:
        """Columns and diagonal: m + 1."""
        return len(self.columns) + 1

    @property
    def dtype(self) -> str:
        """Name of the dtype."""
        return "float32" if self.matrix.dtype == "float32" else "float64"

    def read(self, rows: slice) -> Block:
        """Rows of a slice, shape (stop − start, m + 1); whole rows of K are in memory a few MiB at a time."""
        selected = np.empty((rows.stop - rows.start, self.n_features), self.dtype)
        for start, stop in cut(len(selected), max(1, READ_BYTES // (8 * self.matrix.n_features))):
            first = rows.start + start
            block = self.matrix.read(slice(first, rows.start + stop))
            selected[start:stop] = gram_columns(block, self.columns, first if self.square else None)
        return selected


def gram_columns(block: Block, columns: NDArray[np.int64], start: int | None) -> Block:
    """Columns of rows of K, and K[i, i] behind them where the first row's number is known; else 0."""
    diagonal = np.zeros(len(block)) if start is None else block[np.arange(len(block)), start + np.arange(len(block))]
    return np.column_stack([block[:, columns], diagonal])


def check_landmark_block(block: Block, columns: NDArray[np.int64]) -> None:
    """Refuse a precomputed matrix that is not symmetric where landmarks meet, beyond the rounding of its dtype."""
    inside = block[:, :-1]
    difference = np.abs(inside - inside.T)
    allowed = 100 * float(np.finfo(inside.dtype).eps) * float(np.abs(inside).max(initial=0.0))
    if difference.max(initial=0.0) > allowed:
        i, j = np.unravel_index(int(difference.argmax()), difference.shape)
        raise InvalidInputError(
            f"the precomputed kernel is not symmetric: K[{columns[i]}, {columns[j]}] = {inside[i, j]:.6g} and "
            f"K[{columns[j]}, {columns[i]}] = {inside[j, i]:.6g}; pass (K + K.T) / 2 if that is what you mean."
        )
