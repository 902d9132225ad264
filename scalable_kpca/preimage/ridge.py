"""A map from scores to rows, learned on training rows by kernel ridge regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Kernel, Precomputed, TileStrips, kernel_block
from scalable_kpca.preimage.pairs import check_scores, dense

__all__ = ["RidgeMap", "fit_ridge_map", "ridge_bytes"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RidgeMap:
    """Function from scores (b, k) to rows (b, n_features), float64: z ↦ k(z, Z)B + x̄.

    Attributes
    ----------
    kernel : Kernel
        That of the fit with its resolved parameters, between scores here.
    centres : ndarray of shape (m, k), float64
        Z: scores of training rows. scikit-learn's ``X_transformed_fit_``.
    coefficients : ndarray of shape (m, n_features), float64
        B = (k(Z, Z) + αI)⁻¹(X − 1x̄ᵀ). scikit-learn's ``dual_coef_`` where the rows have mean zero.
    mean : ndarray of shape (n_features,), float64
        x̄ of the training rows that the map was learned on.

    Notes
    -----
    Cost a row: m kernel values of k numbers, and 2·m·n_features flops. Memory: the rows, and one strip of kernel
    values.
    """

    kernel: Kernel
    centres: Matrix
    coefficients: Matrix
    mean: Vector

    def __call__(self, scores: Any) -> Matrix:
        """Rows of some scores; InvalidInputError unless they are finite and k a row."""
        values = check_scores(scores, self.centres.shape[1])
        rows = np.empty((len(values), len(self.mean)))
        for start, strip in TileStrips(self.kernel, values, self.centres):
            rows[start : start + len(strip)] = strip @ self.coefficients
        rows += self.mean
        return rows


def ridge_bytes(n_pairs: int, n_components: int, n_features: int) -> int:
    """Memory that `fit_ridge_map` takes for so many pairs, at most, and the map itself."""
    return 8 * n_pairs * (3 * n_pairs + 3 * n_components + 4 * n_features)


def fit_ridge_map(scores: Any, rows: Any, kernel: Kernel, alpha: float = 1.0) -> RidgeMap:
    """Map from scores to rows that is learned from pairs of them.

    Parameters
    ----------
    scores : ndarray of shape (m, k)
        Of training rows: see `choose_training_pairs`.
    rows : ndarray of shape (m, n_features)
        Those rows; finite.
    kernel : Kernel
        With resolved parameters; that of the fit, as in scikit-learn, is a matter of convention.
    alpha : float
        Ridge, ≥ 0: the larger, the smoother the map. 0 interpolates the rows.

    Returns
    -------
    RidgeMap

    Raises
    ------
    InvalidInputError
        For a precomputed kernel, sparse rows, a negative ridge, no pairs, or kernel values beyond float64.

    Notes
    -----
    Equivalent to ``inverse_transform`` of `sklearn.decomposition.KernelPCA` when all training rows are given and their
    mean is zero. Where it is not, scikit-learn pulls the origin of the rows, not their mean, towards zero scores: with
    a linear kernel it loses the mean. The ridge enters the fit alone, in both.

    k(Z, Z) + αI is solved by Cholesky. Where it is not positive definite to working precision (α = 0 with repeated
    scores or fewer components than rows, sigmoid), the coefficients are those of smallest norm among the ones that fit
    best: directions whose eigenvalue is at most m·eps of the largest are left out.

    Cost: m³/3 flops for Cholesky, some 10·m³ otherwise, and 2·m²·n_features. Memory: 2·m² float64, 3·m² otherwise, and
    twice the rows.

    References
    ----------
    Bakır, Weston and Schölkopf (2004), Learning to find pre-images.
    """
    if isinstance(kernel, Precomputed):
        raise InvalidInputError("a precomputed kernel cannot be evaluated between scores; fit on the rows themselves.")
    if not (math.isfinite(alpha) and alpha >= 0):
        raise InvalidInputError(f"alpha={alpha!r}; a finite number ≥ 0 is needed.")
    targets = dense(rows)
    centres = check_scores(scores, np.shape(scores)[-1] if np.ndim(scores) else 0)
    if targets.ndim != 2 or len(targets) != len(centres) or len(targets) == 0:
        raise InvalidInputError(
            f"{len(centres)} scores and rows of shape {targets.shape}; as many rows as scores are needed, at least one."
        )
    mean: Vector = targets.mean(axis=0, dtype=np.float64)
    inside: Matrix = kernel_block(kernel, centres, centres, diagonal=True).astype(np.float64, copy=False)
    if not np.isfinite(inside).all():
        raise InvalidInputError(
            "kernel values between scores are beyond float64; scale the features, or use a smaller degree or gamma."
        )
    inside.flat[:: len(inside) + 1] += alpha
    return RidgeMap(kernel, centres.copy(), _solve(inside, targets - mean), mean)


def _solve(inside: Matrix, targets: Matrix) -> Matrix:
    size = float(np.linalg.norm(inside, 1))
    smallest = len(inside) * float(np.finfo(np.float64).eps)
    factor, info = scipy.linalg.lapack.dpotrf(inside, lower=True)
    if info == 0 and scipy.linalg.lapack.dpocon(factor, size, uplo="L")[0] > smallest:
        found: Matrix = scipy.linalg.cho_solve((factor, True), targets)
        return found
    values, vectors = scipy.linalg.eigh(inside)
    keep = np.abs(values) > smallest * np.abs(values).max()
    kept = vectors[:, keep]
    least: Matrix = kept @ ((kept.T @ targets) / values[keep, None])
    return least
