"""Kernel functions of a distance: RBF, the Matérn family, Laplacian."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from scalable_kpca.kernels.functions import Kernel
from scalable_kpca.kernels.namespace import (
    Matrix,
    Vector,
    apply,
    array_namespace,
    empty,
    is_numpy_array,
    matmul_into,
    squared_norms,
    transposed,
)
from scalable_kpca.kernels.sparse import CLOSE, DistanceFactor, distance_factors, distances_into
from scalable_kpca.source import is_sparse

__all__ = ["RBF", "Laplacian", "Matern12", "Matern32", "Matern52"]


@dataclass(frozen=True)
class RBF(Kernel):
    """k(x, y) = exp(−γ‖x − y‖²). [seed 002, with σ: γ = 1/(2σ²)]

    Notes
    -----
    The exponent of a whole tile is one matrix product of the factors ``[√(2γ)x, −γ‖x‖², 1]`` and
    ``[√(2γ)y, 1, −γ‖y‖²]``. Its rounding error grows with the norms, so both sides are first shifted by the mean of
    the tile's rows: the kernel does not change, and a common offset of 1e8 does no harm. A tile with far outliers,
    whose norms no shift makes small, is evaluated from differences instead (`direct`). Sparse rows are not shifted.
    """

    gamma: float
    name = "rbf"
    takes_sparse = True

    def diagonal(self, rows: Matrix) -> Vector:
        return _ones(rows)

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return _fold_distance(rows, columns, -self.gamma)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        matmul_into(left, right, out)
        apply("minimum", out, 0)
        apply("exp", out)

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        # the exponent is a difference of numbers as large as γ‖x − μ‖², which the factors carry
        return 4 * max(1.0, _largest_norm(left, right)) * eps

    def direct(self) -> Kernel:
        return _DirectRBF(self.gamma)


@dataclass(frozen=True)
class _DirectRBF(RBF):
    """RBF from differences of coordinates: right for outliers and distant clusters, and some ten times slower."""

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return rows, transposed(columns)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        _distances(left, right, "sqeuclidean", out)
        out *= -self.gamma
        apply("exp", out)

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        del right
        return _rounding_of_distances(left) * eps

    @property
    def has_float32(self) -> bool:
        return False

    def direct(self) -> Kernel:
        return self


@dataclass(frozen=True)
class Matern(Kernel):
    """Matérn family of smoothness ν: a polynomial times e^{−u}, u = √(2ν)‖x − y‖/ℓ = 2√(νγ)‖x − y‖.

    The length scale is that of RBF, γ = 1/(2ℓ²): for ν → ∞ the kernel becomes RBF with the same gamma. Equivalent to
    `sklearn.gaussian_process.kernels.Matern` with ``length_scale=1/√(2γ)`` and the same ``nu``.

    Notes
    -----
    u² of a whole tile is one matrix product, folded as in `RBF`, clipped at 0. By |dk/du²| ≤ 1/(4(ν − 1)) its error
    passes into k as RBF's exponent does, near duplicates included. ν = 1/2 has no such bound: see `Matern12`.
    Memory beside `out`: one more strip for ν > 1/2.

    References
    ----------
    Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, equations 4.14 to 4.17.
    """

    gamma: float
    nu: ClassVar[float]
    takes_sparse = True

    def diagonal(self, rows: Matrix) -> Vector:
        return _ones(rows)

    def fold(self, rows: Matrix, columns: Matrix) -> tuple[Matrix, Matrix]:
        return _fold_distance(rows, columns, 4 * self.nu * self.gamma)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        matmul_into(left, right, out)
        apply("maximum", out, 0)
        apply("sqrt", out)
        self.decay(out)

    def decay(self, u: Matrix) -> None:
        """Replace u ≥ 0 by k."""
        raise NotImplementedError

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        return 4 * max(1.0, _largest_norm(left, right) / (4 * (self.nu - 1))) * eps

    def direct(self) -> Kernel:
        return _DirectMatern(self)


@dataclass(frozen=True)
class Matern12(Matern):
    """k(x, y) = e^{−u}, u = √(2γ)‖x − y‖: Matérn of ν = 1/2, the exponential kernel.

    Notes
    -----
    It has a kink where x = y: an error δ of u² becomes √δ there, some 1e-3 in float32 and 3e-8 in float64 for
    standardized rows. So float32 tiles are folded in float64, and float64 tiles are evaluated from differences.
    """

    name = "matern12"
    nu = 0.5

    def decay(self, u: Matrix) -> None:
        apply("negative", u)
        apply("exp", u)

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        # |√(u² + δ) − u| ≤ √δ, and e^{−u} is no steeper than 1
        return math.sqrt(4 * _largest_norm(left, right) * eps) + 4 * eps


@dataclass(frozen=True)
class Matern32(Matern):
    """k(x, y) = (1 + u)e^{−u}, u = √(6γ)‖x − y‖: Matérn of ν = 3/2."""

    name = "matern32"
    nu = 1.5

    def decay(self, u: Matrix) -> None:
        polynomial = u + 1
        apply("negative", u)
        apply("exp", u)
        u *= polynomial


@dataclass(frozen=True)
class Matern52(Matern):
    """k(x, y) = (1 + u + u²/3)e^{−u}, u = √(10γ)‖x − y‖: Matérn of ν = 5/2."""

    name = "matern52"
    nu = 2.5

    def decay(self, u: Matrix) -> None:
        polynomial = u / 3
        polynomial += 1
        polynomial *= u
        polynomial += 1
        apply("negative", u)
        apply("exp", u)
        u *= polynomial


@dataclass(frozen=True)
class _DirectMatern(Kernel):
    """Matérn from differences of coordinates."""

    folded: Matern

    def diagonal(self, rows: Matrix) -> Vector:
        return self.folded.diagonal(rows)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        _distances(left, right, "euclidean", out)
        out *= 2 * math.sqrt(self.folded.nu * self.folded.gamma)
        apply("minimum", out, 1e3)  # e^{−1000} is 0, and the polynomial times it stays a number for infinite u
        self.folded.decay(out)

    def rounding(self, left: Matrix, right: Matrix, eps: float) -> float:
        del right
        return _rounding_of_distances(left) * eps

    @property
    def has_float32(self) -> bool:
        return False


@dataclass(frozen=True)
class Laplacian(Kernel):
    """k(x, y) = exp(−γ‖x − y‖₁)."""

    gamma: float
    name = "laplacian"
    takes_sparse = True

    def diagonal(self, rows: Matrix) -> Vector:
        return _ones(rows)

    def evaluate(self, left: Matrix, right: Matrix, out: Matrix) -> None:
        _distances(left, right, "cityblock", out)
        out *= -self.gamma
        apply("exp", out)

    @property
    def has_float32(self) -> bool:
        return False  # scipy's city-block distance is float64 only


def _ones(rows: Matrix) -> Vector:
    ones = empty(rows.shape[0], "float64", rows)
    ones[...] = 1.0
    return ones


def _fold_distance(rows: Matrix, columns: Matrix, factor: float) -> tuple[Matrix, Matrix]:
    """Factors whose product is factor·‖x − y‖²; they carry factor·‖x − μ‖² in the last column but one and last row."""
    if is_sparse(rows):
        return distance_factors(rows, columns, factor)
    n_features = rows.shape[1]
    shift = array_namespace(rows).mean(rows, axis=0)
    x, y = rows - shift, columns - shift
    root = math.sqrt(2 * abs(factor))
    left = empty((rows.shape[0], n_features + 2), "float64", rows)
    left[:, :n_features] = math.copysign(root, -factor) * x
    left[:, -2] = factor * squared_norms(x)
    left[:, -1] = 1.0
    right = empty((n_features + 2, columns.shape[0]), "float64", rows)
    right[:n_features, :] = root * y.T
    right[-2, :] = 1.0
    right[-1, :] = factor * squared_norms(y)
    return left, right


def _largest_norm(left: Matrix, right: Matrix) -> float:
    """|factor|·‖x − μ‖² of the farthest row or column; of sparse rows twice |factor|·‖x‖²."""
    if isinstance(left, DistanceFactor):  # whose norms and products round apart
        return 2 * max(float(abs(left.norms).max()), float(abs(right.norms).max()))
    xp = array_namespace(left)
    return max(float(xp.max(xp.abs(left[:, -2]))), float(xp.max(xp.abs(right[-1, :]))))


def _rounding_of_distances(left: Matrix) -> float:
    """Error of an entry in units of eps, from distances that differences give; of sparse rows, the far ones do not."""
    return 4 / CLOSE if is_sparse(left) else 4.0


def _distances(left: Matrix, right: Matrix, metric: str, out: Matrix) -> None:
    """Distances between the rows of `left` and the columns of `right`, from differences of coordinates."""
    if is_sparse(left):
        distances_into(left, right, metric, out)
        return
    if is_numpy_array(left):
        from scipy.spatial.distance import cdist

        cdist(left, right.T, metric=metric, out=out)
        return
    xp = array_namespace(left)
    for i in range(left.shape[0]):  # one row at a time: a whole strip would need n_features times its memory
        differences = xp.abs(left[i, :][:, None] - right)
        if metric == "cityblock":
            out[i, :] = xp.sum(differences, axis=0)
        else:
            squares = xp.sum(differences * differences, axis=0)
            out[i, :] = squares if metric == "sqeuclidean" else xp.sqrt(squares)
