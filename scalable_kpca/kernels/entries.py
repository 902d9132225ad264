"""A Gram matrix that the caller has evaluated, as a kernel of row numbers: every home and solver works on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.kernels.functions import GivenKernel
from scalable_kpca.kernels.namespace import Matrix, Vector

__all__ = ["GramEntries"]

Numbers = NDArray[np.int64]


class Entries(Protocol):
    """A matrix that any task can read by position."""

    def read(self, rows: Numbers, columns: Numbers) -> NDArray[np.floating[Any]]:
        """Entries of some rows and columns, shape (a, b); a view where that is possible."""

    def diagonal(self, numbers: Numbers) -> NDArray[np.floating[Any]]:
        """Entries [i, i], shape (a,)."""


@dataclass(frozen=True, eq=False)
class GramEntries(GivenKernel):
    """k of rows that are known by their numbers, one column of them: entries of a matrix.

    Attributes
    ----------
    matrix : Entries
        Symmetric to rounding: entries on and above the diagonal are used.

    Notes
    -----
    Memory: one tile, unless the matrix is a numpy array, of which tiles are views.
    """

    matrix: Entries
    name = "precomputed"

    def diagonal(self, rows: Matrix) -> Vector:
        return np.asarray(self.matrix.diagonal(_numbers(rows)), np.float64)

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        # the tile itself, and the place of each column in it
        return self.matrix.read(_numbers(rows), _numbers(columns)), np.arange(len(columns))[None, :]

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        first = int(right[0, 0])
        out[...] = left[:, first : first + right.shape[1]]

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        del right
        return 4 * max(eps, float(np.finfo(left.dtype).eps))  # whoever evaluated it did so in its dtype

    @property
    def has_float32(self) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}


def _numbers(rows: Matrix) -> Numbers:
    numbers: Numbers = rows[:, 0].astype(np.int64)
    return numbers
