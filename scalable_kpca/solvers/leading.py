"""A few leading pairs of a matrix in memory, and a proof that no other eigenvalue is above them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.engine import several_blas_threads
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers.result import EigenResult, canonical

__all__ = ["leading_pairs"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Product = Callable[[Vector], Vector]
EPS = float(np.finfo(np.float64).eps)

MOST_VECTORS = (160, 6)  # and for each pair: LAPACK has the matrix by then
LOOK_EVERY = 8  # steps: a look costs as much as a product
NEARLY = 1e-7  # of the smallest pair: a tenth of the resolution at which `completeness` tells eigenvalues apart
THREADED_ROWS = 1000  # from here on the factorisation gains by threads, even where others are busy


def leading_pairs(
    operator: CenteredGram,
    n_components: int,
    *,
    floor: float,
    seed: int,
    n_threads: int,
    allowed_below: float | None = None,
) -> EigenResult | None:
    """Leading eigenpairs with residuals at rounding, proven complete; None where that fails.

    Parameters
    ----------
    operator : CenteredGram of shape (n, n)
        Formed with one pass.
    n_components : int
        1 ≤ k < n.
    floor : float
        Size of the rounding in the matrix: eigenvalues closer than that are not told apart.
    seed : int
        Of the start vector.
    n_threads : int
        Of the factorisation; all else has one, so that its bits do not depend on them.
    allowed_below : float, optional
        Share of the largest eigenvalue that the lowest may be below 0: the result has that bound on it where a
        factorisation proves it, and else the lowest eigenvalue itself. Without it nothing is asked.

    Returns
    -------
    EigenResult or None
        None when Lanczos takes too long, or when another eigenvalue lies above what was found.

    Notes
    -----
    Lanczos with full re-orthogonalisation and no restart: 40 to 90 products, each 2n² flops on half of the matrix. Then
    the Frobenius norm may leave no room for another large eigenvalue: n² flops. Where it does, n³/3 flops of a Cholesky
    factorisation decide: with W = V√Θ, μI − (K̃ − WWᵀ) is positive definite exactly when no eigenvalue of K̃ − WWᵀ
    reaches μ, and then at most k eigenvalues of K̃ do, by Weyl's theorem, since WWᵀ has rank k. Memory of size n²
    beside the matrix: none, but a copy where the lowest eigenvalue is asked for.

    References
    ----------
    Parlett (1998), The Symmetric Eigenvalue Problem, chapters 10 and 13; Higham (2002), Accuracy and Stability of
    Numerical Algorithms, theorem 10.3.
    """
    before, rng = operator.n_passes, np.random.default_rng(seed)
    dense = operator.to_dense()
    product, most = _product(dense), MOST_VECTORS[0] + MOST_VECTORS[1] * n_components
    found = _lanczos(product, len(dense), n_components, min(most, len(dense) - 1), rng)
    if found is None:
        return None
    values, vectors = canonical(found.values[:n_components], found.vectors)
    residuals = dense @ vectors
    residuals -= vectors * values
    norms = np.linalg.norm(residuals, axis=0)
    with several_blas_threads(n_threads if len(dense) >= THREADED_ROWS else 1):
        lowest = None if allowed_below is None else _bound_below(dense, max(floor, allowed_below * float(values[0])))
    shift = max(float(values[-1]), 0.0) * (1 + NEARLY) + max(floor, len(dense) * EPS * float(values[0]))
    bound = _bound_by_norm(dense, found.values, n_components, float(np.linalg.norm(norms)))
    proof = "the Frobenius norm leaves no room for"
    if bound > shift:
        with several_blas_threads(n_threads if len(dense) >= THREADED_ROWS else 1):
            bound = _bound_by_cholesky(dense, values, vectors, shift)
        proof = "a Cholesky factorisation excludes"
    if bound == np.inf:
        return None
    return EigenResult(
        values,
        vectors,
        "dense",
        operator.n_passes - before,
        is_whole_spectrum=False,
        residual_norms=norms,
        bound_of_others=bound,
        proof=proof,
        lowest=lowest,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """Ritz values of the whole basis, descending, and vectors of the wanted ones."""

    values: Vector
    vectors: Matrix


def _product(dense: Matrix) -> Product:
    # reads one triangle: products of this size wait for memory
    symmetric, fortran = scipy.linalg.get_blas_funcs("symv", (dense,)), dense.T

    def product(vector: Vector) -> Vector:
        image: Vector = symmetric(1.0, fortran, vector, lower=1)
        return image

    return product


def _lanczos(product: Product, n: int, k: int, most: int, rng: np.random.Generator) -> _Found | None:
    """Largest k pairs with residuals ≤ eps·|λ₁|; None when that takes more than `most` vectors."""
    basis, diagonal, beside = np.empty((most + 1, n)), np.empty(most), np.empty(most)
    basis[0], scale = _direction(basis[:0], n, rng), 0.0
    for j in range(most):
        image = product(basis[j])
        known, diagonal[j] = basis[: j + 1], 0.0
        for _ in range(2):
            coordinates = known @ image
            image -= coordinates @ known
            diagonal[j] += coordinates[j]
        length = float(np.linalg.norm(image))
        scale = max(scale, abs(diagonal[j]), length)
        is_invariant = length <= n * EPS * scale
        beside[j] = 0.0 if is_invariant else length
        m = j + 1
        if m >= k and (is_invariant or m % LOOK_EVERY == 0 or m == most):
            values, vectors = scipy.linalg.eigh_tridiagonal(diagonal[:m], beside[:j])
            values, vectors = values[::-1], vectors[:, ::-1]
            if (beside[j] * np.abs(vectors[-1, :k]) <= EPS * np.abs(values).max()).all():
                return _Found(values, basis[:m].T @ vectors[:, :k])
        basis[m] = _direction(known, n, rng) if is_invariant else image / length
    return None


def _direction(basis: Matrix, n: int, rng: np.random.Generator) -> Vector:
    """Random unit vector, centred and orthogonal to the rows of a basis."""
    fresh = rng.standard_normal(n)
    for _ in range(2):
        fresh -= fresh.mean()
        fresh -= (basis @ fresh) @ basis
    return np.asarray(fresh / np.linalg.norm(fresh), np.float64)


def _bound_below(dense: Matrix, allowed: float) -> float:
    """−allowed where no eigenvalue is lower, up to the rounding of the proof; the lowest one where it may be."""
    shifted = dense.T.copy(order="F")
    shifted[np.diag_indices(len(dense))] += allowed
    cholesky = scipy.linalg.get_lapack_funcs("potrf", (dense,))
    _, info = cholesky(shifted, lower=1, overwrite_a=1, clean=0)
    if info == 0:
        return -allowed
    del shifted
    return float(scipy.linalg.eigh(dense.T, eigvals_only=True, subset_by_index=[0, 0], check_finite=False)[0])


def _bound_by_norm(dense: Matrix, ritz_values: Vector, k: int, spread: float) -> float:
    """Bound on every eigenvalue but the largest k, from ‖K̃‖_F: see `completeness.Found.room`."""
    flat = dense.reshape(-1)
    squares = np.square(ritz_values)
    left = float(flat @ flat) * (1 + len(flat) * EPS) - float(squares.sum() - squares[k : k + 1].sum())
    return float(np.sqrt(max(left, 0.0))) + spread


def _bound_by_cholesky(dense: Matrix, values: Vector, vectors: Matrix, shift: float) -> float:
    """Bound on every eigenvalue but as many as were found; ∞ when another is above them. Overwrites the matrix."""
    n, k = vectors.shape
    positive, trace = np.maximum(values, 0.0), abs(float(np.trace(dense)))
    rank_k = scipy.linalg.get_blas_funcs("syrk", (dense,))
    cholesky = scipy.linalg.get_lapack_funcs("potrf", (dense,))
    below = rank_k(1.0, vectors * np.sqrt(positive), beta=-1.0, c=dense.T, lower=1, overwrite_c=1)
    below[np.diag_indices(n)] += shift
    _, info = cholesky(below, lower=1, overwrite_a=1, clean=0)
    # rounding of WWᵀ − K̃, and backward error of the factorisation: at most (n + 1)·eps times its trace
    factored = n * shift + float(positive.sum()) + trace
    rounding = EPS * ((k + 3) * float(positive.sum()) + trace + (n + 1) * factored)
    return shift + rounding if info == 0 else np.inf
