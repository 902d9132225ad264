"""What can be said for certain about computed eigenpairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.completeness import Verdict
from scalable_kpca.operator import CenteredGram
from scalable_kpca.scale import GramScale
from scalable_kpca.solvers import EigenResult
from scalable_kpca.tiling import CERTIFIED_COLUMNS

__all__ = ["Certificate", "certificate_of", "residual_bounds"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Certificate:
    """Bounds that hold for the returned pairs, whatever solver found them.

    Attributes
    ----------
    residual_norms : ndarray of shape (k,), float64
        ‖K̃v − λv‖: from the recurrence of a solver that knows them (block Krylov, power), else from one more pass.
    eigenvalue_bounds : ndarray of shape (k,), float64
        An eigenvalue of the evaluated K̃ lies within this distance of each λ: the residual norm plus the rounding
        of the products that measured it. That is n·eps·‖K‖_F with products in float64; with products in float32 it is
        what two ways to compute the same inner products disagree by, an estimate.
    explained_variance_ratio : ndarray of shape (k,), float64
        λ / tr K̃. The denominator is exact: it needs the diagonal and the grand mean, not the spectrum.
    total_variance : float
        tr K̃.
    squared_norm : float
        ‖K̃‖_F².
    kernel_error : float
        Largest error of an entry of K, to first order: rounding to the dtype of the tiles and evaluation in float32,
        for a kernel with |k(x, y)| ≤ max k(x, x).
    complete : bool
        Whether it is established that these are the leading pairs: `missed_bound` does not exceed the smallest returned
        eigenvalue by more than 10⁻⁶ of it and the uncertainty of the returned ones.
    missed_bound : float
        Every other eigenvalue is at most this.
    failure_probability : float
        Chance that `missed_bound` fails: 0 when it is proven, else over the draw of the probe's random block.
    completeness : str
        How that was established, or what is missing.
    """

    residual_norms: Vector
    eigenvalue_bounds: Vector
    explained_variance_ratio: Vector
    total_variance: float
    squared_norm: float
    kernel_error: float
    complete: bool
    missed_bound: float
    failure_probability: float
    completeness: str

    @property
    def effective_rank(self) -> float:
        """(tr K̃)² / ‖K̃‖_F²: how many equal eigenvalues would have the same trace and norm; 0 for K̃ = 0."""
        return self.total_variance**2 / self.squared_norm if self.squared_norm > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Certificate:
        """Inverse of `to_json`."""
        values: dict[str, Any] = {
            name: np.asarray(value, np.float64) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**values)


def residual_bounds(
    operator: CenteredGram, eigenvalues: Vector, eigenvectors: Matrix, scale: GramScale, result: EigenResult
) -> tuple[Vector, Vector]:
    """Residual norms ‖K̃v − λv‖ of returned pairs, and bounds on |λ − λ̂|; one more pass when the solver has no norms.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        K̃.
    eigenvalues, eigenvectors : ndarray of shape (k,) and (n_samples, k)
        As they are returned.
    scale : GramScale
        Sizes of K and K̃.
    result : EigenResult
        What the solver knows.

    Returns
    -------
    norms, bounds : ndarray of shape (k,), float64

    References
    ----------
    Parlett (1998), The Symmetric Eigenvalue Problem, theorem 4.5.1.
    """
    if result.residual_norms is None:
        norms, rounding = _residual_norms(operator, eigenvalues, eigenvectors), scale.rounding
    else:
        norms, rounding = result.residual_norms[: len(eigenvalues)], result.rounding + scale.rounding
    return norms, norms + rounding


def certificate_of(
    eigenvalues: Vector, norms: Vector, bounds: Vector, scale: GramScale, verdict: Verdict
) -> Certificate:
    """Certificate of pairs that have been measured (`residual_bounds`) and examined (`examine`)."""
    total = scale.total_variance
    return Certificate(
        residual_norms=norms,
        eigenvalue_bounds=bounds,
        explained_variance_ratio=eigenvalues / total if total > 0 else np.zeros_like(eigenvalues),
        total_variance=total,
        squared_norm=scale.squared_norm,
        kernel_error=scale.entry_error,
        complete=verdict.complete,
        missed_bound=verdict.missed_bound,
        failure_probability=verdict.failure_probability,
        completeness=verdict.how,
    )


def _residual_norms(operator: CenteredGram, eigenvalues: Vector, eigenvectors: Matrix) -> Vector:
    """‖K̃v − λv‖ of each column: a pass for each batch of columns, and no second copy of all vectors."""
    norms = [np.empty(0)]
    for start in range(0, len(eigenvalues), CERTIFIED_COLUMNS):
        columns = slice(start, start + CERTIFIED_COLUMNS)
        residuals = operator.matmat(eigenvectors[:, columns])
        residuals -= eigenvectors[:, columns] * eigenvalues[columns]
        norms.append(np.linalg.norm(residuals, axis=0))
    return np.concatenate(norms)
