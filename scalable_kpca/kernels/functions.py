"""Kernel functions: frozen objects whose parameters are numbers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "RBF",
    "Cosine",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Sigmoid",
]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Kernel(ABC):
    """A kernel function k(x, y) with resolved parameters.

    Attributes
    ----------
    name : str
        scikit-learn's name of the kernel.
    """

    name: ClassVar[str]

    @property
    def positive_semidefinite(self) -> bool:
        """Whether every Gram matrix of this kernel is positive semi-definite."""
        return True

    @abstractmethod
    def diagonal(self, rows: Matrix) -> Vector:
        """Values k(x, x), shape (n_rows,), float64: what the diagonal of the Gram matrix is set to, exactly."""

    @abstractmethod
    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        """Write k(x, y) for the rows behind `left` and the columns behind `right` into `out`, float64."""

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        """Factors of one tile, (a, c) and (c, b): any rows of the first and columns of the second go to `evaluate`."""
        return rows, columns.T

    def rounding(self, left: Matrix, right: Matrix) -> float:
        """First-order error of an entry made from these factors, relative to the largest k(x, x), in units of eps.

        Rounding of an inner product is taken as 4·eps of the product of the norms: its terms round independently, so
        that the worst case, n_features times as large, does not occur.
        """
        del left, right
        return 4.0

    @property
    def has_float32(self) -> bool:
        """Whether `evaluate` can work in float32."""
        return True

    def direct(self) -> Kernel:
        """The same function evaluated without folding, for rows that folding would round too much; slower."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Name and parameters as JSON values; `kernel_from_json` is the inverse."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, y) = xᵀy: kernel PCA with it is PCA."""

    name = "linear"

    def diagonal(self, rows: Matrix) -> Vector:
        return _squared_norms(rows)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        np.matmul(left, right, out=out)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """k(x, y) = (γ xᵀy + c₀)^degree. [seed 002]"""

    gamma: float
    degree: float
    coef0: float
    name = "poly"

    @property
    def positive_semidefinite(self) -> bool:
        # only then is it a sum of products of positive semi-definite kernels with positive weights
        return self.coef0 >= 0 and float(self.degree).is_integer()

    def diagonal(self, rows: Matrix) -> Vector:
        values = self.gamma * _squared_norms(rows) + self.coef0
        _raise_to(values, self.degree)
        return values

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return self.gamma * rows, columns.T

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        np.matmul(left, right, out=out)
        out += self.coef0
        _raise_to(out, self.degree)

    def rounding(self, left: Matrix, right: Matrix) -> float:
        del left, right
        return 4 * max(1.0, self.degree)


@dataclass(frozen=True)
class Sigmoid(Kernel):
    """k(x, y) = tanh(γ xᵀy + c₀): not positive semi-definite in general. [seed 002]"""

    gamma: float
    coef0: float
    name = "sigmoid"

    @property
    def positive_semidefinite(self) -> bool:
        return False

    def diagonal(self, rows: Matrix) -> Vector:
        return np.tanh(self.gamma * _squared_norms(rows) + self.coef0)

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return self.gamma * rows, columns.T

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        np.matmul(left, right, out=out)
        out += self.coef0
        np.tanh(out, out=out)

    def rounding(self, left: Matrix, right: Matrix) -> float:
        return 4 * max(1.0, math.sqrt(float(_squared_norms(left).max()) * float(_squared_norms(right.T).max())))


@dataclass(frozen=True)
class Cosine(Kernel):
    """k(x, y) = xᵀy / (‖x‖ ‖y‖), and 0 where a row is zero, as in scikit-learn."""

    name = "cosine"

    def diagonal(self, rows: Matrix) -> Vector:
        return np.asarray(rows.any(axis=1), np.float64)

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return _normalised(rows), _normalised(columns).T

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        np.matmul(left, right, out=out)


@dataclass(frozen=True)
class RBF(Kernel):
    """k(x, y) = exp(−γ‖x − y‖²). [seed 002, with σ: γ = 1/(2σ²)]

    Notes
    -----
    The exponent of a whole tile is one matrix product of the factors ``[√(2γ)x, −γ‖x‖², 1]`` and
    ``[√(2γ)y, 1, −γ‖y‖²]``. Its rounding error grows with the norms, so both sides are first shifted by the mean of
    the tile's rows: the kernel does not change, and a common offset of 1e8 does no harm. A tile with far outliers,
    whose norms no shift makes small, is evaluated from differences instead (`direct`).
    """

    gamma: float
    name = "rbf"

    def diagonal(self, rows: Matrix) -> Vector:
        return np.ones(len(rows))

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        shift = rows.mean(axis=0)
        x, y = rows - shift, columns - shift
        quadratic_x, quadratic_y = -self.gamma * _squared_norms(x), -self.gamma * _squared_norms(y)
        root = math.sqrt(2 * self.gamma)
        left = np.column_stack([root * x, quadratic_x, np.ones(len(x))])
        right = np.column_stack([root * y, np.ones(len(y)), quadratic_y])
        return left, np.ascontiguousarray(right.T)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        np.matmul(left, right, out=out)
        np.minimum(out, 0, out=out)
        np.exp(out, out=out)

    def rounding(self, left: Matrix, right: Matrix) -> float:
        # the exponent is a difference of numbers as large as γ‖x − μ‖², which the factors carry
        return 4 * max(1.0, -float(left[:, -2].min()), -float(right[-1].min()))

    def direct(self) -> Kernel:
        return _DirectRBF(self.gamma)


@dataclass(frozen=True)
class _DirectRBF(RBF):
    """RBF from differences of coordinates: right for outliers and distant clusters, and some ten times slower."""

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return rows, columns.T

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        from scipy.spatial.distance import cdist

        cdist(left, right.T, metric="sqeuclidean", out=out)
        out *= -self.gamma
        np.exp(out, out=out)

    def rounding(self, left: Matrix, right: Matrix) -> float:
        del left, right
        return 4.0

    @property
    def has_float32(self) -> bool:
        return False

    def direct(self) -> Kernel:
        return self


@dataclass(frozen=True)
class Laplacian(Kernel):
    """k(x, y) = exp(−γ‖x − y‖₁)."""

    gamma: float
    name = "laplacian"

    def diagonal(self, rows: Matrix) -> Vector:
        return np.ones(len(rows))

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        from scipy.spatial.distance import cdist

        cdist(left, right.T, metric="cityblock", out=out)
        out *= -self.gamma
        np.exp(out, out=out)

    @property
    def has_float32(self) -> bool:
        return False  # scipy's city-block distance is float64 only


def _squared_norms(rows: Matrix) -> Vector:
    norms: Vector = np.einsum("ij,ij->i", rows, rows)
    return norms


def _normalised(rows: Matrix) -> Matrix:
    # the largest entry first, so that squares of very large or small rows stay in range
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scaled = rows / np.where(largest == 0, 1, largest)[:, None]
    norms = np.sqrt(_squared_norms(scaled))
    return scaled / np.where(norms == 0, 1, norms)[:, None]


def _raise_to(values: NDArray[np.float64], degree: float) -> None:
    # numpy's power costs ~20 ns an entry in float64; a chain of products ~1 ns each
    if degree == 1:
        return
    if degree in (2, 3, 4):
        base = values.copy() if degree == 3 else None
        np.multiply(values, values, out=values)
        if base is not None:
            values *= base
        elif degree == 4:
            np.multiply(values, values, out=values)
        return
    np.power(values, degree, out=values)
