"""Orthogonal iteration, and the power method with deflation: slow, short, and what the fast solvers agree with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.errors import NotConvergedError
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers.block_krylov import MAX_PASSES
from scalable_kpca.solvers.result import EigenResult, canonical

__all__ = ["solve_power"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


class _Ritz(NamedTuple):
    """Ritz values, descending, vectors, their images, and the asymmetry that the product's rounding has left."""

    values: Vector
    vectors: Matrix
    images: Matrix
    rounding: float

    def residuals(self) -> Matrix:
        return self.images - self.vectors * self.values


def solve_power(
    operator: CenteredGram,
    start: Matrix,
    n_components: int,
    *,
    tol: float = 1e-6,
    max_passes: int = MAX_PASSES,
    seed: int = 0,
    deflation: bool = False,
) -> EigenResult:
    """Leading eigenpairs by repeated products with the operator.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        One pass a product; with products in float64, as `tol` may be below the rounding of float32.
    start : ndarray of shape (n_samples, b)
        Guesses of the eigenvectors, and random columns so that nothing is out of reach; more are drawn up to k.
    n_components : int
        k ≥ 1; at most the n_samples − 1 pairs beside K̃1 = 0 are returned, n_samples ≥ 2.
    tol : float
        Pairs are accepted when ‖K̃v − λv‖ ≤ tol·λ₁, or when it is within the rounding of the products.
    max_passes : int
        Limit on products.
    seed : int
        Of random columns, and of the mixtures of the start block that deflation begins with.
    deflation : bool
        False iterates all columns together, with a Rayleigh–Ritz step: the residual falls by λ_{b+1}/λ_k a pass.
        True finds one vector after another, each orthogonal to those before: λ_{j+1}/λ_j a pass for the j-th.

    Returns
    -------
    EigenResult
        With residual norms, which the same passes give.

    Raises
    ------
    NotConvergedError
        When `max_passes` are used up; the message names the residual that was reached, `result` holds the pairs.

    Notes
    -----
    A pass: one product with b vectors (or one), 12·n·b² flops. Memory: 8·n·b float64, and 4·n·k with deflation.

    The largest eigenvalues are found, not those of largest magnitude: a Ritz value −μ < 0 shifts the iteration to
    K̃ + μI, at no pass. For an indefinite kernel the ratios above are those of λ + μ, and passes more.
    An eigenvalue below √n·tol·λ₁ may be missed: there a vector that knows nothing of it is accepted too.

    References
    ----------
    Seed 003 (power method on XXᵀ, deflation); Rutishauser (1969), Simultaneous iteration method for symmetric
    matrices; Parlett (1998), The Symmetric Eigenvalue Problem, chapter 14.
    """
    n, before = operator.shape[0], operator.n_passes
    k = min(n_components, n - 1)
    pairs, reached, is_accepted = _Ritz(np.empty(0), np.empty((n, 0)), np.empty((n, 0)), 0.0), np.inf, False
    blocks = _start_blocks(start, k, np.random.default_rng(seed), deflation=deflation)
    step_tol = tol / len(blocks) ** 0.5  # so much can the vectors of all steps together add to the residual of one
    for block in blocks:
        if operator.n_passes - before >= max_passes:
            break
        more, reached, is_accepted = _iterate(operator, block, pairs, k // len(blocks), step_tol, before + max_passes)
        if len(pairs.values) == 0:
            pairs = more
        else:
            pairs = _rayleigh_ritz(np.hstack([pairs.vectors, more.vectors]), np.hstack([pairs.images, more.images]))
    result = _result(pairs, k, operator.n_passes - before)
    if is_accepted and len(pairs.values) >= k:
        return result
    raise NotConvergedError(
        f"orthogonal iteration reached a residual of {reached:.2g}·λ₁ with {len(result.eigenvalues)} of {k} components "
        f"in max_passes={max_passes} passes, tol={tol:.2g} was asked for; raise max_passes or tol, or use "
        "eigen_solver='block_krylov', which takes fewer passes.",
        result=result,
    )


def _start_blocks(start: Matrix, k: int, rng: np.random.Generator, *, deflation: bool) -> list[Matrix]:
    """One block, or k single vectors for deflation."""
    n, b = start.shape
    block = np.hstack([start[:, : n - 1], rng.standard_normal((n, max(0, k - b)))])
    if not deflation:
        return [block]
    # mixtures: a guess that is an eigenvector already, but not of the next eigenvalue, would be accepted at once
    mixed = _orthonormal(block, block[:, :0]) @ rng.standard_normal((block.shape[1], k))
    return [mixed[:, [j]] for j in range(k)]


def _iterate(
    operator: CenteredGram, block: Matrix, found: _Ritz, wanted: int, tol: float, last_pass: int
) -> tuple[_Ritz, float, bool]:
    """Pairs orthogonal to those found, their residual over λ₁, and whether it was accepted."""
    largest, shift = float(found.values.max(initial=0.0)), 0.0
    while True:
        block = _orthonormal(block, found.vectors)
        pairs = _rayleigh_ritz(block, operator.matmat(block))
        residuals = pairs.residuals()
        # a Rayleigh–Ritz step together with those found removes the part along them
        residuals -= found.vectors @ (found.vectors.T @ residuals)
        reached = float(np.linalg.norm(residuals[:, :wanted], axis=0).max())
        largest, needed = max(largest, float(pairs.values[0])), -float(pairs.values[-1])
        accepted = max(tol * largest, pairs.rounding + EPS * np.sqrt(len(block) * operator.built.squared_norm))
        # while the shift rises, negative eigenvalues may still hide smaller ones that are wanted
        is_accepted, shift = reached <= accepted and needed <= shift + accepted, max(shift, needed)
        if is_accepted or operator.n_passes >= last_pass:
            return pairs, reached / (largest or 1.0), is_accepted
        block = pairs.images + shift * pairs.vectors


def _result(pairs: _Ritz, k: int, n_passes: int) -> EigenResult:
    eigenvalues, eigenvectors = canonical(pairs.values[:k], pairs.vectors[:, :k])
    residuals = pairs.residuals()
    return EigenResult(
        eigenvalues=eigenvalues,
        eigenvectors=eigenvectors,
        solver="power",
        n_passes=n_passes,
        is_whole_spectrum=len(pairs.values) == len(residuals) - 1,
        residual_norms=np.linalg.norm(residuals[:, :k], axis=0),
        rounding=pairs.rounding,
        ritz_values=pairs.values,
        ritz_gram=residuals.T @ residuals,
    )


def _orthonormal(block: Matrix, found: Matrix) -> Matrix:
    """Orthonormal columns orthogonal to the ones and to those found; Householder's are so even for a block of zeros."""
    q = scipy.linalg.qr(np.hstack([np.ones((len(block), 1)), found, block]), mode="economic")[0]
    return np.asarray(q[:, 1 + found.shape[1] :], np.float64)


def _rayleigh_ritz(basis: Matrix, image: Matrix) -> _Ritz:
    projected = basis.T @ image
    values, rotation = scipy.linalg.eigh((projected + projected.T) / 2, driver="evd")  # the most orthogonal
    values, rotation = values[::-1], rotation[:, ::-1]
    rounding = float(np.linalg.norm(projected - projected.T, 2)) / 2
    return _Ritz(values, basis @ rotation, image @ rotation, rounding)
