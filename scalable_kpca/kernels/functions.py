"""Kernel functions: frozen objects whose parameters are numbers. Here those of an inner product."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from scalable_kpca.kernels.namespace import (
    Matrix,
    Vector,
    apply,
    array_namespace,
    device,
    float64_copy,
    matmul_into,
    squared_norms,
    transposed,
)
from scalable_kpca.kernels.sparse import nonzero_rows, normalised_rows
from scalable_kpca.source import is_sparse

__all__ = [
    "Cosine",
    "GivenKernel",
    "Kernel",
    "Linear",
    "Polynomial",
    "Precomputed",
    "Sigmoid",
]


GIVEN_NOISE = 1e-6  # of values from a caller, who may have evaluated them in float32 whatever their dtype is now


@dataclass(frozen=True)
class Kernel(ABC):
    """A kernel function k(x, y) with resolved parameters.

    Attributes
    ----------
    name : str
        scikit-learn's name of the kernel, or ours where it has none.
    takes_sparse : bool
        Whether rows may be sparse.
    """

    name: ClassVar[str]
    takes_sparse: ClassVar[bool] = False

    @property
    def positive_semidefinite(self) -> bool:
        """Whether every Gram matrix of this kernel is positive semi-definite."""
        return True

    @property
    def centered_positive_semidefinite(self) -> bool:
        """Whether every centred Gram matrix is: also of a kernel that is so but for constants."""
        return self.positive_semidefinite

    @abstractmethod
    def diagonal(self, rows: Matrix) -> Vector:
        """Values k(x, x), shape (n_rows,), float64: what the diagonal of the Gram matrix is set to, exactly."""

    @abstractmethod
    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        """Write k(x, y) for the rows behind `left` and the columns behind `right` into `out`, float64."""

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        """Factors of one tile, (a, c) and (c, b): any rows of the first and columns of the second go to `evaluate`."""
        return rows, transposed(columns)

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        """First-order error of an entry made from these factors, relative to the largest k(x, x).

        `eps` is that of the arithmetic. Rounding of an inner product is taken as 4·eps of the product of the norms: its
        terms round independently, so that the worst case, n_features times as large, does not occur.
        """
        del left, right
        return 4 * eps

    @property
    def has_float32(self) -> bool:
        """Whether `evaluate` can work in float32."""
        return True

    @property
    def noise(self) -> float:
        """Share of the largest eigenvalue that a negative one may be without meaning: 0 for what is evaluated here."""
        return 0.0

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
    takes_sparse = True

    def diagonal(self, rows: Matrix) -> Vector:
        return squared_norms(rows)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        matmul_into(left, right, out)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """k(x, y) = (γ xᵀy + c₀)^degree. [seed 002]"""

    gamma: float
    degree: float
    coef0: float
    name = "poly"
    takes_sparse = True

    @property
    def positive_semidefinite(self) -> bool:
        # only then is it a sum of products of positive semi-definite kernels with positive weights
        return self.coef0 >= 0 and float(self.degree).is_integer()

    def diagonal(self, rows: Matrix) -> Vector:
        values = self.gamma * squared_norms(rows) + self.coef0
        _raise_to(values, self.degree)
        return values

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return self.gamma * rows, transposed(columns)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        matmul_into(left, right, out)
        out += self.coef0
        _raise_to(out, self.degree)

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        del left, right
        return 4 * max(1.0, self.degree) * eps


@dataclass(frozen=True)
class Sigmoid(Kernel):
    """k(x, y) = tanh(γ xᵀy + c₀): not positive semi-definite in general. [seed 002]"""

    gamma: float
    coef0: float
    name = "sigmoid"
    takes_sparse = True

    @property
    def positive_semidefinite(self) -> bool:
        return False

    def diagonal(self, rows: Matrix) -> Vector:
        values = self.gamma * squared_norms(rows) + self.coef0
        apply("tanh", values)
        return values

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return self.gamma * rows, transposed(columns)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        matmul_into(left, right, out)
        out += self.coef0
        apply("tanh", out)

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        xp = array_namespace(left)
        largest = float(xp.max(squared_norms(left))) * float(xp.max(squared_norms(right.T)))
        return 4 * max(1.0, math.sqrt(largest)) * eps


@dataclass(frozen=True)
class Cosine(Kernel):
    """k(x, y) = xᵀy / (‖x‖ ‖y‖), and 0 where a row is zero, as in scikit-learn."""

    name = "cosine"
    takes_sparse = True

    def diagonal(self, rows: Matrix) -> Vector:
        if is_sparse(rows):
            return nonzero_rows(rows).astype(float)
        return float64_copy(array_namespace(rows).any(rows != 0, axis=1))

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return _normalised(rows), transposed(_normalised(columns))

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        matmul_into(left, right, out)


class GivenKernel(Kernel):
    """A kernel whose values come from the caller: neither their rounding nor their sign is known."""

    @property
    def positive_semidefinite(self) -> bool:
        return False  # not known to be

    @property
    def noise(self) -> float:
        return GIVEN_NOISE


@dataclass(frozen=True)
class Precomputed(GivenKernel):
    """k(x, y) that the caller has evaluated: a row holds its values with every landmark, and k(x, x) behind them."""

    name = "precomputed"

    def diagonal(self, rows: Matrix) -> Vector:
        return rows[:, -1]

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        xp = array_namespace(rows)
        # the place of each column among those of a row: landmarks are all of them, in order
        return rows[:, :-1], xp.arange(columns.shape[0], dtype=rows.dtype, device=device(rows))[None, :]

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        xp = array_namespace(left)
        out[...] = xp.take(left, xp.astype(right[0, :], xp.int64), axis=1)


def _normalised(rows: Matrix) -> Matrix:
    # the largest entry first, so that squares of very large or small rows stay in range
    if rows.shape[1] == 0:
        return rows
    if is_sparse(rows):
        return normalised_rows(rows)
    xp = array_namespace(rows)
    scaled = rows / _nonzero(xp.max(xp.abs(rows), axis=1))[:, None]
    return scaled / _nonzero(xp.sqrt(squared_norms(scaled)))[:, None]


def _nonzero(norms: Vector) -> Vector:
    xp = array_namespace(norms)
    return xp.where(norms == 0, xp.ones_like(norms), norms)


def _raise_to(values: Vector | Matrix, degree: float) -> None:
    # numpy's power costs ~20 ns an entry in float64; a chain of products ~1 ns each
    if degree == 1:
        return
    if degree in (2, 3, 4):
        base = array_namespace(values).asarray(values, copy=True) if degree == 3 else None
        values *= values
        if base is not None:
            values *= base
        elif degree == 4:
            values *= values
        return
    apply("pow", values, degree)
