"""What can be said for certain about computed eigenpairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers import EigenResult

__all__ = ["Certificate", "GramScale", "certify"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

CERTIFIED_COLUMNS = 64


@dataclass(frozen=True, eq=False)
class Certificate:
    """Bounds that hold for the returned pairs, whatever solver found them.

    Attributes
    ----------
    residual_norms : ndarray of shape (k,), float64
        ‖K̃v − λv‖, from one more pass.
    eigenvalue_bounds : ndarray of shape (k,), float64
        An eigenvalue of the evaluated K̃ lies within this distance of each λ: the residual norm plus the rounding
        of the product that measured it, n·eps·‖K‖_F.
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
        Whether it is proven that no larger eigenvalue was missed.
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
    completeness: str

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


@dataclass(frozen=True)
class GramScale:
    """How large K and K̃ are: what rounding and ratios are measured against.

    Attributes
    ----------
    n_samples : int
        Size of the matrix.
    dtype : str
        Of the tiles.
    max_diagonal : float
        Largest k(x, x).
    gram_norm : float
        ‖K‖_F of the uncentred matrix.
    squared_norm : float
        ‖K̃‖_F².
    total_variance : float
        tr K̃; 0 when it cannot be told from 0.
    entry_error : float
        Largest error of an entry of K, to first order.
    norm_error : float
        Bound on the rounding of `squared_norm`.
    """

    n_samples: int
    dtype: str
    max_diagonal: float
    gram_norm: float
    squared_norm: float
    total_variance: float
    entry_error: float = 0.0
    norm_error: float = 0.0

    @property
    def rounding(self) -> float:
        """Bound on the norm of the rounding in K̃v for a unit v: n·eps·‖K‖_F."""
        return self.n_samples * float(np.finfo(np.float64).eps) * self.gram_norm

    def zero_threshold(self, largest: float = 0.0) -> float:
        """Eigenvalues up to ``max(n·eps64, eps(dtype)) · max(λ₁, max k(x, x))`` count as zero; λ₁ is `largest`.

        Evaluation in float32 may be less exact than eps(dtype); then its error takes the place of eps. The largest
        k(x, x) stands for what the rounding of K itself can add to an eigenvalue; it decides when K̃ is small beside K,
        as for constant rows.
        """
        relative = max(self.n_samples * float(np.finfo(np.float64).eps), float(np.finfo(self.dtype).eps))
        return max(relative * max(largest, self.max_diagonal), self.entry_error)


def certify(
    operator: CenteredGram, eigenvalues: Vector, eigenvectors: Matrix, scale: GramScale, result: EigenResult
) -> Certificate:
    """Certificate of computed pairs; with one more pass when the solver does not know the residuals.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        K̃.
    eigenvalues, eigenvectors : ndarray of shape (k,) and (n_samples, k)
        As the solver returned them.
    scale : GramScale
        Sizes of K and K̃.
    result : EigenResult
        What the solver knows beside the pairs: residuals, other Ritz values, whether it saw the whole spectrum.

    Returns
    -------
    Certificate

    References
    ----------
    Parlett (1998), The Symmetric Eigenvalue Problem, theorem 4.5.1 (residual bound).
    """
    k = len(eigenvalues)
    if result.residual_norms is None:
        norms, rounding = _residual_norms(operator, eigenvalues, eigenvectors), scale.rounding
    else:
        norms, rounding = result.residual_norms[:k], result.rounding + scale.rounding
    bounds = norms + rounding
    total = scale.total_variance
    if result.is_whole_spectrum:
        complete, how = True, "the whole spectrum was computed"
    else:
        complete, how = _completeness(result, k, bounds, scale)
    return Certificate(
        residual_norms=norms,
        eigenvalue_bounds=bounds,
        explained_variance_ratio=eigenvalues / total if total > 0 else np.zeros_like(eigenvalues),
        total_variance=total,
        squared_norm=scale.squared_norm,
        kernel_error=scale.entry_error,
        complete=complete,
        completeness=how,
    )


def _residual_norms(operator: CenteredGram, eigenvalues: Vector, eigenvectors: Matrix) -> Vector:
    """‖K̃v − λv‖ of each column: a pass for each batch of columns, and no second copy of all vectors."""
    norms = []
    for start in range(0, len(eigenvalues), CERTIFIED_COLUMNS):
        columns = slice(start, start + CERTIFIED_COLUMNS)
        residuals = operator.matmat(eigenvectors[:, columns])
        residuals -= eigenvectors[:, columns] * eigenvalues[columns]
        norms.append(np.linalg.norm(residuals, axis=0))
    return np.concatenate(norms)


def _completeness(result: EigenResult, k: int, bounds: Vector, scale: GramScale) -> tuple[bool, str]:
    """Whether the Frobenius norm leaves no room for an eigenvalue above the k-th.

    Split K̃ at the first p Ritz vectors, p ≥ k: K̃ = diag(Θ_p, A) + E with ‖E‖₂ = ‖R_p‖₂, the residuals. By Weyl every
    eigenvalue is within ‖R_p‖ of a θ_j, j ≤ p, one each, or at most λ₁(A) + ‖R_p‖. With ‖A‖_F² ≤ ‖K̃‖_F² − Σ_{j≤p} θ_j²
    and, by interlacing, an eigenvalue of A above each θ_j, j > p + 1, beside λ₁(A):
    λ₁(A)² ≤ ‖K̃‖_F² − Σ_{j≠p+1} θ_j². The best p is taken.
    """
    values = result.eigenvalues[:k] if result.ritz_values is None else result.ritz_values
    residuals = (
        bounds if result.ritz_residuals is None else result.ritz_residuals + (bounds[0] - result.ritz_residuals[0])
    )
    left = scale.squared_norm + scale.norm_error - float(np.square(np.maximum(values, 0)).sum())
    next_values = np.append(np.maximum(values[k:], 0), 0.0)
    spread = np.sqrt(np.cumsum(np.square(residuals)))[k - 1 : k - 1 + len(next_values)]
    missed = float((np.sqrt(np.maximum(left + np.square(next_values), 0)) + spread).min())
    if missed < values[k - 1]:
        return True, f"the Frobenius norm leaves no room for another eigenvalue above {missed:.6g}"
    return False, f"not proven: the Frobenius norm leaves room for an eigenvalue up to {missed:.6g} beside these"
