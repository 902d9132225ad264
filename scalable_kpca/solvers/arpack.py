"""scipy's ARPACK on the operator: implicitly restarted Lanczos, one vector a pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from scalable_kpca.errors import NotConvergedError
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers.result import EigenResult, canonical
from scalable_kpca.tiling import arpack_vectors

__all__ = ["solve_arpack"]


def solve_arpack(
    operator: CenteredGram,
    n_components: int,
    *,
    tol: float = 0.0,
    seed: int = 0,
    max_passes: int | None = None,
    is_zero: bool = False,
) -> EigenResult:
    """Leading eigenpairs by `scipy.sparse.linalg.eigsh`.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        One pass a product. ARPACK keeps its state to itself: a solve that may be killed needs an operator with a
        journal, from which the same call replays what was done.
    n_components : int
        1 ≤ k < n_samples.
    tol : float
        ARPACK's relative tolerance. 0, the default, is machine precision; a loosened tolerance can return a wrong set
        of eigenvalues on tight clusters and still report success.
    seed : int
        Of the start vector.
    max_passes : int, optional
        Limit on products with the operator, replayed ones included.
    is_zero : bool
        Whether the operator is zero to rounding, which ARPACK would report as an error (−9).

    Returns
    -------
    EigenResult

    Raises
    ------
    NotConvergedError
        When ARPACK gives up.

    Notes
    -----
    Memory: max(2k + 1, 20) vectors of length n. Passes: 40 to 60 for ten components of a decaying spectrum.

    References
    ----------
    Lehoucq, Sorensen and Yang (1998), ARPACK Users' Guide.
    """
    n = operator.shape[0]
    before = operator.n_passes
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(n)
    start -= start.mean()
    if is_zero:
        return _zero_operator(n, n_components)

    def matvec(v: NDArray[np.float64]) -> NDArray[np.float64]:
        if max_passes is not None and operator.n_passes - before >= max_passes:
            raise NotConvergedError(
                f"ARPACK has not found {n_components} components in max_passes={max_passes} passes; raise max_passes "
                "or ask for fewer components."
            )
        return np.asarray(operator.matvec(v), np.float64)

    try:
        values, vectors = eigsh(
            LinearOperator((n, n), matvec=matvec, dtype=np.float64),
            k=n_components,
            which="LA",
            v0=start,
            ncv=arpack_vectors(n, n_components),
            tol=tol,
            rng=rng,  # ARPACK draws from it when it meets an invariant subspace
        )
    except ArpackNoConvergence as error:
        raise NotConvergedError(
            f"ARPACK found {len(error.eigenvalues)} of {n_components} components in {operator.n_passes - before} "
            "passes; ask for fewer components, or use eigen_solver='dense' if n_samples² float64 fit in memory."
        ) from error
    values, vectors = canonical(values, vectors)
    return EigenResult(values, vectors, "arpack", operator.n_passes - before, is_whole_spectrum=False)


def _zero_operator(n_samples: int, n_components: int) -> EigenResult:
    vectors = np.zeros((n_samples, n_components))
    vectors[np.arange(n_components), np.arange(n_components)] = 1
    return EigenResult(np.zeros(n_components), vectors, "arpack", 0, is_whole_spectrum=True)
