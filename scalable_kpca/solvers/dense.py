"""Whole spectrum by LAPACK: the reference, and the fastest way for a few thousand rows."""

from __future__ import annotations

import scipy.linalg

from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers.result import EigenResult, canonical

__all__ = ["solve_dense"]


def solve_dense(operator: CenteredGram, n_components: int | None = None) -> EigenResult:
    """Leading eigenpairs of a matrix small enough to be formed.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        Formed with one pass.
    n_components : int, optional
        Pairs wanted, 1 ≤ k ≤ n_samples; None is all of them.

    Returns
    -------
    EigenResult

    Notes
    -----
    4/3·n³ flops and, with all pairs, 5·n² float64 of memory (LAPACK ``syevr``). Equivalent to scikit-learn's
    ``eigen_solver="dense"``.
    """
    n = operator.shape[0]
    before = operator.n_passes
    k = n if n_components is None else min(n_components, n)
    subset = None if k == n else (n - k, n - 1)
    # the transpose of a symmetric matrix in C order is the same matrix in Fortran's: LAPACK takes it without a copy
    dense = operator.to_dense().T
    values, vectors = scipy.linalg.eigh(dense, subset_by_index=subset, driver="evr", overwrite_a=True)
    del dense
    if len(values) < k:
        # LAPACK's bisection can lose members of a multiple eigenvalue when a subset is asked for
        values, vectors = scipy.linalg.eigh(operator.to_dense().T, driver="evd", overwrite_a=True)
    values, vectors = canonical(values, vectors)
    values, vectors = values[:k], vectors[:, :k]
    return EigenResult(values, vectors, "dense", operator.n_passes - before, is_whole_spectrum=True)
