"""A map from scores to rows, learned on training rows by kernel ridge regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import STRIP_ROWS, CallableKernel, Kernel, Precomputed, kernel_block
from scalable_kpca.model import RidgeMap, check_ridge_kernel, check_scores
from scalable_kpca.preimage.pairs import check_not_negative, dense

__all__ = ["check_ridge", "fit_ridge_map", "ridge_bytes"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

EVALUATED = 7  # arrays like the scores, at most, while the kernel is evaluated between them
SOLVED = 64  # columns of the matrix that LAPACK works in, at most


def ridge_bytes(n_pairs: int, n_components: int, n_features: int) -> int:
    """Memory that `fit_ridge_map` takes for so many pairs, at most, with the pairs and the map themselves."""
    evaluating = (n_pairs + STRIP_ROWS) * n_pairs + EVALUATED * n_pairs * (n_components + 2)
    solving = (2 * n_pairs + SOLVED) * n_pairs + 2 * n_pairs * n_components
    return 8 * (max(evaluating, solving) + 4 * n_pairs * n_features)


def check_ridge(alpha: Any) -> float:
    """The ridge as a float; InvalidInputError unless it is a finite number ≥ 0."""
    return check_not_negative("alpha", alpha)


def fit_ridge_map(scores: Any, rows: Any, kernel: Kernel, alpha: float = 1.0) -> RidgeMap:
    """Map from scores to rows that is learned from pairs of them.

    Parameters
    ----------
    scores : ndarray of shape (m, k)
        Of training rows: see `choose_training_pairs`.
    rows : ndarray of shape (m, n_features)
        Those rows; finite.
    kernel : Kernel
        With resolved parameters; that of the fit, as in scikit-learn, is a matter of convention. It is evaluated
        between scores, rows of k numbers of either sign: a function has to take such rows.
    alpha : float
        Ridge, ≥ 0: the larger, the smoother the map. 0 interpolates the rows.

    Returns
    -------
    RidgeMap

    Raises
    ------
    InvalidInputError
        For a precomputed kernel, one of amounts (chi2), a function that does not take scores, sparse rows, a negative
        ridge, no pairs, or kernel values beyond float64.

    Notes
    -----
    Equivalent to ``inverse_transform`` of `sklearn.decomposition.KernelPCA` when all training rows are given and their
    mean is zero. Where it is not, scikit-learn pulls the origin of the rows, not their mean, towards zero scores: with
    a linear kernel it loses the mean. The ridge enters the fit alone, in both.

    k(Z, Z) + αI is solved by Cholesky. Where it is not positive definite to working precision (α = 0 with repeated
    scores or fewer components than rows, sigmoid), the coefficients are those of smallest norm among the ones that fit
    best: directions whose eigenvalue is at most m·eps of the largest are left out.

    Cost: m³/3 flops for Cholesky, some 10·m³ otherwise, and 2·m²·n_features. Memory: `ridge_bytes`, 2·m² float64 and a
    few copies of the pairs.

    References
    ----------
    Bakır, Weston and Schölkopf (2004), Learning to find pre-images.
    """
    if isinstance(kernel, Precomputed):
        raise InvalidInputError("a precomputed kernel cannot be evaluated between scores; fit on the rows themselves.")
    check_ridge_kernel(kernel.name)
    ridge = check_ridge(alpha)
    targets = dense(rows)
    centres = check_scores(scores, np.shape(scores)[-1] if np.ndim(scores) else 0)
    if targets.ndim != 2 or len(targets) != len(centres) or len(targets) == 0:
        raise InvalidInputError(
            f"{len(centres)} scores and rows of shape {targets.shape}; as many rows as scores are needed, at least one."
        )
    mean: Vector = targets.mean(axis=0, dtype=np.float64)
    inside = _between(kernel, centres)
    if not np.isfinite(inside).all():
        raise InvalidInputError(
            "kernel values between scores are beyond float64; scale the features, or use a smaller degree or gamma."
        )
    inside.flat[:: len(inside) + 1] += ridge
    # in the order of a saved array, so that products are the same bits after loading
    return RidgeMap(kernel, centres.copy(), np.ascontiguousarray(_solve(inside, targets - mean)), mean)


def _between(kernel: Kernel, centres: Matrix) -> Matrix:
    """k(Z, Z); a function of the caller may be for rows only, and then the error says so."""
    try:
        inside: Matrix = kernel_block(kernel, centres, centres, diagonal=True).astype(np.float64, copy=False)
    except Exception as error:
        if not isinstance(kernel, CallableKernel):
            raise
        raise InvalidInputError(
            f"the ridge map evaluates the kernel between scores, rows of {centres.shape[1]} numbers of either sign, "
            f"and the kernel function does not take them ({type(error).__name__}: {error}); give a function that does, "
            "or set fit_inverse_transform=False."
        ) from error
    return inside


def _solve(inside: Matrix, targets: Matrix) -> Matrix:
    """Coefficients; the matrix is overwritten, so that no more than one other of its size is there at any time."""
    size = max(float(np.abs(inside[i : i + STRIP_ROWS]).sum(axis=1).max()) for i in range(0, len(inside), STRIP_ROWS))
    smallest = len(inside) * float(np.finfo(np.float64).eps)
    factor, info = scipy.linalg.lapack.dpotrf(inside, lower=True)
    if info == 0 and scipy.linalg.lapack.dpocon(factor, size, uplo="L")[0] > smallest:
        found: Matrix = scipy.linalg.cho_solve((factor, True), targets, check_finite=False)
        return found
    del factor
    # symmetric, and in this order LAPACK works on the matrix itself
    values, vectors = scipy.linalg.eigh(inside.T, overwrite_a=True, check_finite=False)
    magnitudes = np.abs(values)
    keep = magnitudes > smallest * magnitudes.max()
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=keep)
    least: Matrix = vectors @ (inverse[:, None] * (vectors.T @ targets))
    return least
