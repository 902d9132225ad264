"""Eigenpairs of a matrix that is formed: the reference, and the fastest way for a few thousand rows."""

from __future__ import annotations

import scipy.linalg

from scalable_kpca.engine import several_blas_threads
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers.leading import leading_pairs
from scalable_kpca.solvers.result import EigenResult, canonical
from scalable_kpca.tiling import is_few

__all__ = ["solve_dense"]

THREADED_ROWS = 1000  # from here on LAPACK gains by threads; below they wait for one another, on a busy machine long


def solve_dense(
    operator: CenteredGram,
    n_components: int | None = None,
    *,
    n_threads: int = 1,
    floor: float = 0.0,
    seed: int = 0,
    allowed_below: float | None = None,
) -> EigenResult:
    """Leading eigenpairs of a matrix small enough to be formed.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        Formed with one pass.
    n_components : int, optional
        Pairs wanted, 1 ≤ k ≤ n_samples; None is all of them.
    n_threads : int
        Of LAPACK, from `THREADED_ROWS` rows on and while nothing else computes in this process.
    floor : float
        Size of the rounding in the matrix.
    seed : int
        Of the start vector, where few pairs are wanted.
    allowed_below : float, optional
        Share of the largest eigenvalue that the lowest may be below 0 without being asked for; without it nothing is
        asked.

    Returns
    -------
    EigenResult
        Of the whole spectrum, or with `bound_of_others` where a fortieth of the pairs, or fewer, are wanted.

    Notes
    -----
    All or many pairs: LAPACK, 4/3·n³ flops for a few (``syevr``), some 9·n³ for all (``syevd``), and up to 5·n² float64
    of memory. Few pairs of more than 200 rows: Lanczos to machine precision and one Cholesky factorisation that proves
    them complete, a fourth of the time; where they fail, LAPACK after another pass. Equivalent to scikit-learn's
    ``eigen_solver="dense"``.
    """
    n = operator.shape[0]
    before = operator.n_passes
    k = n if n_components is None else min(n_components, n)
    if is_few(n, k):
        found = leading_pairs(operator, k, floor=floor, seed=seed, n_threads=n_threads, allowed_below=allowed_below)
        if found is not None:
            return found
    # the transpose of a symmetric matrix in C order is the same matrix in Fortran's: LAPACK takes it without a copy
    dense = operator.to_dense().T
    whole = k == n or allowed_below is not None
    with several_blas_threads(n_threads if n >= THREADED_ROWS else 1):
        values, vectors = scipy.linalg.eigh(
            dense,
            subset_by_index=None if whole else (n - k, n - 1),
            driver="evd" if whole else "evr",
            overwrite_a=True,
            check_finite=False,  # the tiles were checked
        )
    del dense
    if not whole and len(values) < k:
        # LAPACK's bisection can lose members of a multiple eigenvalue when a subset is asked for
        values, vectors = scipy.linalg.eigh(operator.to_dense().T, driver="evd", overwrite_a=True)
    lowest = float(values[0]) if whole else None
    values, vectors = canonical(values, vectors)
    values, vectors = values[:k], vectors[:, :k]
    return EigenResult(values, vectors, "dense", operator.n_passes - before, is_whole_spectrum=True, lowest=lowest)
