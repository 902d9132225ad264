"""The centred Nyström eigenproblem: m × m, from sums alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.errors import AccuracyWarning, InvalidInputError
from scalable_kpca.nystroem.accumulators import Accumulators
from scalable_kpca.nystroem.basis import Basis
from scalable_kpca.nystroem.certificate import NystroemCertificate, left_out
from scalable_kpca.scale import zero_threshold
from scalable_kpca.tiling import BLOCK_ROWS

__all__ = ["Spectrum", "leading_pairs", "relative_residual", "solve_spectrum", "trace_residual"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Leading eigenpairs of K̃̂ in the coordinates of the landmarks.

    Attributes
    ----------
    eigenvalues : ndarray of shape (k,), float64
        Of K̃̂, descending; those that count as zero are exactly 0.
    weights : ndarray of shape (m, k), float64
        Q: the scores of a row are c(x)Q − offset, c(x) as `Basis.cross` gives it; columns of zero eigenvalues are 0.
    offset : ndarray of shape (k,), float64
        Mean of c over the training rows, times Q.
    certificate : NystroemCertificate
    """

    eigenvalues: Vector
    weights: Matrix
    offset: Vector
    certificate: NystroemCertificate


def solve_spectrum(
    basis: Basis,
    sums: Accumulators,
    n_components: int | float | None,
    *,
    indefinite: str = "error",
    remove_zero_eig: bool = False,
) -> Spectrum:
    """Leading eigenpairs and their certificate.

    Parameters
    ----------
    basis : Basis
    sums : Accumulators
        Of the training rows, n_samples ≥ 1.
    n_components : int, float or None
        Number of components, zero beyond the rank of the landmarks; share of the variance that is certainly to be
        reached; None for all that are not zero.
    indefinite : {"error", "clip"}
        What to do when the diagonal shows that K is not positive semi-definite.
    remove_zero_eig : bool
        Whether components with eigenvalue zero are dropped.

    Returns
    -------
    Spectrum

    Raises
    ------
    InvalidInputError
        When sums are beyond float64, or for an indefinite kernel.

    Notes
    -----
    With the features φ(x) = Pᵀk(L, x), K̂ = ΦΦᵀ = CW⁺Cᵀ, and K̃̂ has the eigenvalues of Σ(φ − φ̄)(φ − φ̄)ᵀ =
    Pᵀ(G − ssᵀ/n)P. Equivalent to `sklearn.kernel_approximation.Nystroem` and `sklearn.decomposition.PCA` with the same
    landmarks, n_samples times its ``explained_variance_`` with n_samples for n_samples − 1. Sign: of the scores of the
    landmarks in each component, the one of largest magnitude is positive.
    Cost: some 10·m³ flops; memory 6·m² float64.
    """
    inner = _eigen(basis, sums)
    values = inner[0]
    residual, rounding = trace_residual(basis, sums), _rounding(basis, sums)
    _check_definite(basis, sums, residual, rounding + basis.kernel.noise * sums.diagonal_sum, indefinite)
    largest = float(values[0]) if len(values) else 0.0
    threshold = zero_threshold(sums.n_samples, basis.dtype, max(largest, sums.max_diagonal), sums.entry_error)
    bound = max(float(values.sum()), 0.0) + max(residual, 0.0) + rounding
    k = _count(values, n_components, bound, threshold, drop_zeros=remove_zero_eig or n_components is None)
    found = np.zeros(k)
    found[: len(values)] = np.where(values[:k] > threshold, values[:k], 0.0)
    weights, offset = _in_landmarks(basis, sums, inner[1][:, :k], found)
    certificate = _certificate(basis, sums, values, found, residual, rounding)
    return Spectrum(found * basis.scale, weights, offset, certificate)


def leading_pairs(basis: Basis, sums: Accumulators, k: int) -> tuple[Vector, Matrix, Vector]:
    """Up to k eigenvalues, weights and offset as in `Spectrum`, with nothing said of how good they are."""
    values, vectors = _eigen(basis, sums)
    found = np.maximum(values[:k], 0.0)
    return found * basis.scale, *_in_landmarks(basis, sums, vectors[:, :k], found)


def trace_residual(basis: Basis, sums: Accumulators) -> float:
    """tr(K − K̂)/scale over the rows of some sums."""
    # φ = φ' + Pᵀshift, φ' being what is accumulated
    at_shift = basis.projection.T @ basis.shift
    within, mean = _features(basis, sums.gram), _mean(basis, sums)
    n = sums.n_samples
    approximated = np.trace(within) + 2 * n * float(at_shift @ mean) + n * float(at_shift @ at_shift)
    return sums.diagonal_sum - float(approximated)


def relative_residual(basis: Basis, sums: Accumulators) -> float:
    """tr(K − K̂) / tr K over the rows of some sums, not below 0: the share that the landmarks do not reach."""
    return left_out(trace_residual(basis, sums), sums.diagonal_sum)


def _eigen(basis: Basis, sums: Accumulators) -> tuple[Vector, Matrix]:
    """Eigenvalues, descending, and eigenvectors of Σ(φ − φ̄)(φ − φ̄)ᵀ."""
    if not (np.isfinite(sums.gram).all() and np.isfinite(sums.diagonal_sum)):
        raise InvalidInputError(
            "sums of kernel values are beyond float64; standardize or scale the features, or use a smaller degree or "
            "gamma."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        inner = _features(basis, sums.gram - np.outer(sums.sums, sums.sums) / sums.n_samples)
    if not np.isfinite(inner).all():
        raise InvalidInputError("the covariance of the features is beyond float64; scale the features.")
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2)
    return values[::-1], vectors[:, ::-1]


def _in_landmarks(basis: Basis, sums: Accumulators, vectors: Matrix, found: Vector) -> tuple[Matrix, Vector]:
    """Weights Q and offset of eigenvectors of the features; 0 where the eigenvalue is."""
    k, given = len(found), vectors.shape[1]
    weights, offset = np.zeros((basis.n_landmarks, k)), np.zeros(k)
    weights[:, :given] = basis.projection @ vectors
    offset[:given] = _mean(basis, sums) @ vectors
    weights[:, found == 0], offset[found == 0] = 0.0, 0.0
    # eigenvalues and scores are those of K, not of K/scale
    factors = _signs(basis, weights, offset) * np.sqrt(basis.scale)
    return weights * factors, offset * factors


def _features(basis: Basis, gram: Matrix) -> Matrix:
    """PᵀGP, or G where features are what is accumulated."""
    return gram if basis.accumulates_features else basis.projection.T @ gram @ basis.projection


def _mean(basis: Basis, sums: Accumulators) -> Vector:
    """Mean of the shifted features, shape (r,)."""
    mean = sums.sums / sums.n_samples
    return mean if basis.accumulates_features else basis.projection.T @ mean


def _rounding(basis: Basis, sums: Accumulators) -> float:
    """Estimate of what rounding does to the trace residual and to each eigenvalue, with independent errors.

    Products in the dtype of C over a block of rows are wrong by eps·√(G_ii G_jj)·√(block/n) in all, which the features
    see as a matrix of the norm computed below. Entries of C that are wrong by δ add n·δ²/ω to a direction, and
    2δ·√(Σφ²/ω) by what they have in common with the features.
    """
    if basis.rank == 0 or sums.n_samples == 0:
        return 0.0
    eps = float(np.finfo(basis.dtype).eps)
    sizes = np.sqrt(np.maximum(np.diag(sums.gram), 0.0))
    scaled = np.diag(sizes) if basis.accumulates_features else sizes[:, None] * basis.projection
    share = min(1.0, BLOCK_ROWS / sums.n_samples) ** 0.5
    products = eps * share * float(np.linalg.norm(scaled.T @ scaled))
    inner = np.maximum(np.diag(_features(basis, sums.gram)), 0.0)
    delta = max(sums.entry_error, eps * sums.max_diagonal)
    entries = sums.n_samples * delta**2 * float((1 / basis.omega).sum())
    crossed = 2 * delta * float((inner / basis.omega).sum()) ** 0.5
    summing = float(np.finfo(np.float64).eps) * sums.diagonal_sum * sums.n_samples**0.5
    return float(products + entries + crossed + summing)


def _check_definite(basis: Basis, sums: Accumulators, residual: float, rounding: float, indefinite: str) -> None:
    """Refuse a kernel whose trace residual is negative beyond rounding: for a semi-definite one it is not."""
    if basis.kernel.positive_semidefinite or indefinite == "clip" or residual >= -rounding:
        return
    raise InvalidInputError(
        f"kernel {basis.kernel.name!r} is not positive semi-definite on these rows: their approximation has more trace "
        f'than they have, by {-residual / sums.n_samples:.3g} a row on average; set indefinite="clip" to drop the '
        "negative part, or choose another kernel or other parameters."
    )


def _count(
    values: Vector, n_components: int | float | None, bound: float, threshold: float, *, drop_zeros: bool
) -> int:
    non_zero = int((values > threshold).sum())
    if isinstance(n_components, float):
        reached = np.cumsum(values[:non_zero]) >= n_components * bound
        if not reached.any():
            share = float(values[:non_zero].sum()) / bound if bound > 0 else 0.0
            warnings.warn(
                f"n_components={n_components:.6g}, but these landmarks certify no more than {share:.6g} of the "
                "variance; all components are kept: use more landmarks, or method='exact'.",
                AccuracyWarning,
                stacklevel=3,
            )
            return max(0 if drop_zeros else 1, non_zero)
        return int(np.argmax(reached)) + 1
    wanted = max(1, len(values)) if n_components is None else n_components
    return min(wanted, non_zero) if drop_zeros else wanted


def _signs(basis: Basis, weights: Matrix, offset: Vector) -> Vector:
    centred = np.concatenate([block @ weights for _, block in basis.cross(basis.landmarks, "float64")]) - offset
    at = np.abs(centred).argmax(axis=0)
    return np.where(centred[at, np.arange(centred.shape[1])] < 0, -1.0, 1.0)


def _certificate(
    basis: Basis, sums: Accumulators, values: Vector, found: Vector, residual: float, rounding: float
) -> NystroemCertificate:
    unit, k = basis.scale, len(found)
    certified = basis.kernel.positive_semidefinite
    beyond = max(residual, 0.0) + rounding
    total = max(float(values.sum()), 0.0)
    bound = total + beyond
    missed = (float(values[k]) if k < len(values) else 0.0) + beyond
    complete = certified and (k >= sums.n_samples or missed <= float(found[-1:].sum()) + rounding)
    return NystroemCertificate(
        trace_residual=residual * unit,
        rounding=rounding * unit,
        trace=sums.diagonal_sum * unit,
        approximated_variance=total * unit,
        total_variance_bound=bound * unit,
        eigenvalue_bounds=np.full(k, beyond * unit),
        explained_variance_ratio=found / bound if bound > 0 else np.zeros(k),
        explained_variance_bound=min(1.0, (float(found.sum()) + beyond) / bound) if bound > 0 else 0.0,
        missed_bound=missed * unit,
        rank=basis.rank,
        n_landmarks=basis.n_landmarks,
        certified=certified,
        complete=complete,
        completeness=_in_words(basis, sums, residual, certified=certified, complete=complete),
    )


def _in_words(basis: Basis, sums: Accumulators, residual: float, *, certified: bool, complete: bool) -> str:
    if not certified:
        text = f"nothing is certified: kernel {basis.kernel.name!r} is not known to be positive semi-definite"
        dropped = f"{basis.negative_share:.2%} of the landmarks' spectrum was negative and was dropped"
        return f"{text}; {dropped}" if basis.negative_share > 0 else text
    share = left_out(residual, sums.diagonal_sum)
    text = f"{basis.n_landmarks} landmarks of rank {basis.rank} leave {share:.3%} of the trace of K out"
    return f"{text}, less than separates the components" if complete else f"{text}; an approximation"
