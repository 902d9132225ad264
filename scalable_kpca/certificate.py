"""What can be said for certain about computed eigenpairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.operator import CenteredGram

__all__ = ["Certificate", "GramScale", "certify"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


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
        Largest rounding of an entry of K to the dtype of the tiles, for a kernel with |k(x, y)| ≤ max k(x, x).
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
    """

    n_samples: int
    dtype: str
    max_diagonal: float
    gram_norm: float
    squared_norm: float
    total_variance: float

    @property
    def rounding(self) -> float:
        """Bound on the norm of the rounding in K̃v for a unit v: n·eps·‖K‖_F."""
        return self.n_samples * float(np.finfo(np.float64).eps) * self.gram_norm

    def zero_threshold(self, largest: float = 0.0) -> float:
        """Eigenvalues up to ``max(n·eps64, eps(dtype)) · max(λ₁, max k(x, x))`` count as zero; λ₁ is `largest`.

        The largest k(x, x) stands for what the rounding of K itself can add to an eigenvalue; it decides when K̃ is
        small beside K, as for constant rows.
        """
        relative = max(self.n_samples * float(np.finfo(np.float64).eps), float(np.finfo(self.dtype).eps))
        return relative * max(largest, self.max_diagonal)


def certify(
    operator: CenteredGram, eigenvalues: Vector, eigenvectors: Matrix, scale: GramScale, *, is_whole_spectrum: bool
) -> Certificate:
    """Certificate of computed pairs, with one more pass.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        K̃.
    eigenvalues, eigenvectors : ndarray of shape (k,) and (n_samples, k)
        As the solver returned them.
    scale : GramScale
        Sizes of K and K̃.
    is_whole_spectrum : bool
        Whether the solver computed every eigenvalue.

    Returns
    -------
    Certificate

    References
    ----------
    Parlett (1998), The Symmetric Eigenvalue Problem, theorem 4.5.1 (residual bound).
    """
    residuals = operator.matmat(eigenvectors)
    residuals -= eigenvectors * eigenvalues
    norms = np.linalg.norm(residuals, axis=0)
    bounds = norms + scale.rounding
    total = scale.total_variance
    complete, how = (
        (True, "the whole spectrum was computed") if is_whole_spectrum else _completeness(eigenvalues, bounds, scale)
    )
    return Certificate(
        residual_norms=norms,
        eigenvalue_bounds=bounds,
        explained_variance_ratio=eigenvalues / total if total > 0 else np.zeros_like(eigenvalues),
        total_variance=total,
        squared_norm=scale.squared_norm,
        kernel_error=float(np.finfo(scale.dtype).eps) / 2 * scale.max_diagonal,
        complete=complete,
        completeness=how,
    )


def _completeness(eigenvalues: Vector, bounds: Vector, scale: GramScale) -> tuple[bool, str]:
    # Σ over all eigenvalues of λ² is ‖K̃‖_F², so one that was missed is at most the root of what ours leave of it
    found = float(np.square(np.maximum(eigenvalues - bounds, 0)).sum())
    missed = float(np.sqrt(max(scale.squared_norm + scale.rounding * scale.gram_norm - found, 0.0)))
    if missed < eigenvalues[-1]:
        return True, f"any other eigenvalue is at most {missed:.6g}: the Frobenius norm leaves no room for a larger one"
    return False, f"not proven: the Frobenius norm leaves room for an eigenvalue up to {missed:.6g} beside these"
