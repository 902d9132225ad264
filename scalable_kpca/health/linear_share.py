"""How much of the scores of a kernel is a linear function of the rows: what PCA of the same rows has as well."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["JointMoments", "LinearShare"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

ROWS_A_FEATURE = 10  # with fewer, what fits by chance is not small beside what is linear
RESOLUTION = 1e-12  # eigenvalues that are smaller beside the largest are rounding
DIGITS = 4


@dataclass(frozen=True)
class LinearShare:
    """Of the variance of all scores together.

    Attributes
    ----------
    linear : float
        Share that a linear function of the features has, 0 to 1: what PCA with all of its components has. What the
        kernel finds beyond it is the rest.
    leading : float
        Share that a linear function of the first k principal components has, for k components of the kernel; at most
        `linear`.
    """

    linear: float
    leading: float

    def to_json(self) -> dict[str, float]:
        """Fields as JSON values."""
        return asdict(self)


@dataclass(eq=False)
class JointMoments:
    """Sums of products of the deviations of rows and of their scores, merged block by block.

    Attributes
    ----------
    count : int
        Rows.
    origin : ndarray of shape (d + k,), float64
        What is near the mean of each feature and score: of equal values that value.
    mean : ndarray of shape (d + k,), float64
        Less the origin.
    rows : ndarray of shape (d, d), float64
        Σ (x − x̄)(x − x̄)ᵀ.
    both : ndarray of shape (d, k), float64
        Σ (x − x̄)(z − z̄)ᵀ.
    scores : ndarray of shape (k,), float64
        Σ (z − z̄)².

    References
    ----------
    Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance: equation 2.1, here for products of two
    variables.
    """

    count: int
    origin: Vector
    mean: Vector
    rows: Matrix
    both: Matrix
    scores: Vector

    @classmethod
    def of(cls, rows: NDArray[np.floating[Any]], scores: Matrix) -> JointMoments:
        """Of rows (b, d) and their scores (b, k), b > 0."""
        values = np.concatenate([rows, scores], axis=1, dtype=np.float64)
        count, d = len(values), rows.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            constant = values.min(axis=0) == values.max(axis=0)
            origin = np.where(constant, values[0], values.mean(axis=0))
            values -= origin
            mean = values.mean(axis=0)
            values -= mean
            features, others = values[:, :d], values[:, d:]
            squares = np.einsum("ij,ij->j", others, others)
            return cls(count, origin, mean, features.T @ features, features.T @ others, squares)

    def merge(self, later: JointMoments) -> None:
        """Merge those of the rows that follow."""
        total, d = self.count + later.count, len(self.rows)
        with np.errstate(over="ignore", invalid="ignore"):
            delta = (later.origin - self.origin) + (later.mean - self.mean)
            scaled = delta * (self.count * later.count / total)
            self.rows += later.rows + np.outer(scaled[:d], delta[:d])
            self.both += later.both + np.outer(scaled[:d], delta[d:])
            self.scores += later.scores + scaled[d:] * delta[d:]
            self.mean += delta * (later.count / total)
        self.count = total

    def linear_share(self) -> LinearShare | None:
        """How much of the variance of the scores is linear in the rows, less what chance gives that many features.

        Returns
        -------
        LinearShare or None
            To four decimals; None for rows or scores that do not vary, fewer than ten rows a feature, and squares
            beyond float64.

        Notes
        -----
        R² of all scores together, adjusted for the number of directions in which rows vary. Columns have unit variance
        for `linear`, which does not depend on it; adjusted for fewer directions, `leading` alone may be larger, and
        is then both. Cost: some 20·d³ flops.

        References
        ----------
        Ezekiel (1930), Methods of Correlation Analysis, for the adjustment.
        """
        d, k = self.both.shape
        with np.errstate(over="ignore", invalid="ignore"):
            total, variances = float(self.scores.sum()), np.diag(self.rows)
        varying, largest, smallest = variances > 0, np.finfo(np.float64).max, np.finfo(np.float64).tiny / RESOLUTION
        squares = np.append(variances[varying], total)
        if self.count < ROWS_A_FEATURE * d or not varying.any() or not (squares > smallest).all():
            return None
        if not all((np.abs(products) <= largest).all() for products in (self.rows, self.both, squares)):
            return None
        rows, both = self.rows[np.ix_(varying, varying)], self.both[varying]
        unit = np.sqrt(variances[varying])
        standard = _along(rows / unit / unit[:, None], both / unit[:, None])
        linear = self._adjusted(standard.sum() / total, len(standard))
        principal = _along(rows, both)[:k]
        leading = self._adjusted(principal.sum() / total, len(principal))
        return LinearShare(round(max(linear, leading), DIGITS), round(leading, DIGITS))

    def _adjusted(self, share: float, n_directions: int) -> float:
        """Share of a regression on so many directions, as it would be of rows without end."""
        freedom = self.count - 1
        return float(np.clip(1 - (1 - share) * freedom / (freedom - n_directions), 0, 1))


def _along(rows: Matrix, both: Matrix) -> Vector:
    """What each direction in which rows vary has of the scores, the direction of the largest variance first."""
    values, vectors = np.linalg.eigh(rows)
    kept = np.flatnonzero(values > RESOLUTION * values[-1])[::-1]
    found: Vector = np.square(vectors[:, kept].T @ (both / np.sqrt(values[-1]))).sum(axis=1)
    found /= values[kept] / values[-1]
    return found
