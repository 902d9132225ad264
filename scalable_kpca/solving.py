"""One solve by the plan: which solver, from which start, until when, and what to do when a larger eigenvalue shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.certificate import Certificate, certificate_of, residual_bounds
from scalable_kpca.completeness import Verdict, examine
from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError, NotConvergedError
from scalable_kpca.kernels import Kernel
from scalable_kpca.machine import release_memory
from scalable_kpca.nystroem import nystroem_block
from scalable_kpca.operator import CenteredGram
from scalable_kpca.scale import GramScale
from scalable_kpca.solvers import (
    MAX_PASSES,
    EigenResult,
    lowest_eigenvalue,
    solve_arpack,
    solve_block_krylov,
    solve_dense,
    solve_power,
)
from scalable_kpca.source import Rows
from scalable_kpca.tiling import PROBE_BYTES, RANDOM_COLUMNS, SQUARE_ARRAYS, Plan

__all__ = ["Settled", "Solve"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

Select = Callable[[EigenResult], tuple[Vector, Matrix]]

ARPACK_PASSES = 1000  # when no limit is given: on gaps of 1e-9 it would make thousands and find nothing
PROBE_SHARE = 0.4  # most passes of a probe, of those of the solve
SMALL_PROBE = 40  # most passes up to SMALL_SAMPLES rows, where a pass takes a moment
SMALL_SAMPLES = 10_000
LOOK_PASSES = 20  # for the lowest eigenvalue: 40 see hardly more
CURES = 2  # further solves, when a probe shows something larger


@dataclass(frozen=True, eq=False)
class Settled:
    """Pairs that are returned.

    Attributes
    ----------
    eigenvalues, eigenvectors : ndarray of shape (k,) and (n_samples, k), float64
    certificate : Certificate
    solver : str
        Which solvers found them.
    failure : str or None
        Why they are not what was asked for.
    """

    eigenvalues: Vector
    eigenvectors: Matrix
    certificate: Certificate
    solver: str
    failure: str | None = None


class Solve:
    """An eigenproblem and everything that decides how it is solved.

    Parameters
    ----------
    operator : CenteredGram
        K̃.
    rows, kernel, engine
        What the start block is made of, and where.
    plan : Plan
        Solver, block and basis.
    measure : callable
        Sizes of K and K̃, asked for when they are needed: they cost a look at the diagonal.
    n_components : int, float or None
        Number of components; fraction of the total variance to reach; None for all.
    tol : float, optional
        Relative residual at which blocks accept a pair; None and 0 are 1e-6 with float32 tiles, 1e-9 with float64. For
        ARPACK its tolerance, both are machine precision.
    max_passes : int, optional
        Limit on passes of each solver; `MAX_PASSES` for blocks and `ARPACK_PASSES` when it is not given.
    seed : int
        Of landmarks and random vectors.
    start : ndarray of shape (n_samples, b), optional
        Guesses of the leading eigenvectors, in the place of those from few landmarks.

    Attributes
    ----------
    residuals : list of ndarray
        Of block Krylov, after each pass: residual norms of the leading pairs, at most as many as are wanted.
    """

    def __init__(
        self,
        operator: CenteredGram,
        rows: Rows,
        kernel: Kernel,
        engine: Engine,
        plan: Plan,
        measure: Callable[[], GramScale],
        *,
        n_components: int | float | None,
        tol: float | None = None,
        max_passes: int | None = None,
        seed: int = 0,
        start: Matrix | None = None,
    ) -> None:
        if (tol is not None and not tol >= 0) or (max_passes is not None and max_passes < 1):
            raise ConfigError(f"tol={tol!r} and max_passes={max_passes!r}; tol ≥ 0 and max_passes ≥ 1 are needed.")
        self._operator, self._rows, self._kernel, self._engine, self._plan = operator, rows, kernel, engine, plan
        self._measure, self._n_components, self._tol, self._seed = measure, n_components, tol, seed
        self._max_passes = max_passes
        self._start = start
        self.residuals: list[Vector] = []

    def first(self) -> tuple[EigenResult, str | None]:
        """Leading pairs by the solver of the plan, and what it says when it gave up.

        Raises
        ------
        NotConvergedError
            When it gave up with nothing in its hands.
        """
        return _attempt(self._by_plan)

    def settle(self, result: EigenResult, select: Select, failure: str | None) -> Settled:
        """Certified pairs: probed where norms prove nothing, and solved again when something larger shows.

        Parameters
        ----------
        result : EigenResult
            From `first`.
        select : callable
            Eigenvalues and eigenvectors of a result that are returned.
        failure : str or None
            What the solver said when it gave up; then nothing is probed.

        Returns
        -------
        Settled
        """
        for attempt in range(CURES + 1):
            settled, verdict = self._certified(result, select, attempt, failure)
            if verdict.alarm is None:
                return replace(settled, failure=failure)
            if attempt == CURES:
                break
            start = self._enlarged(settled.eigenvectors, verdict.alarm)
            again, failure = _attempt(partial(self._by_blocks, start))
            if failure is None and _is_same(select(again)[0], settled, verdict):
                return _unconfirmed(settled)
            result = replace(again, solver=f"{result.solver} and {again.solver}")
        return replace(settled, failure=f"{verdict.how}; set another seed, or eigen_solver to 'dense'.")

    def _certified(
        self, result: EigenResult, select: Select, attempt: int, failure: str | None
    ) -> tuple[Settled, Verdict]:
        scale = self._measure()
        values, vectors = select(result)
        norms, bounds = residual_bounds(self._operator, values, vectors, scale, result)
        verdict = examine(
            self._operator,
            values,
            vectors,
            bounds,
            scale,
            result,
            probe_width=self._plan.block_columns,
            max_probe_passes=self._probe_passes(result) if failure is None else 0,
            seed=self._seed + attempt,
            positive_semidefinite=self._kernel.centered_positive_semidefinite,
        )
        certificate = certificate_of(values, norms, bounds, scale, verdict)
        return Settled(values, vectors, certificate, result.solver), verdict

    def _probe_passes(self, result: EigenResult) -> int:
        """Most passes of a probe: a share of the solve's, more where they are cheap, and no more than memory holds."""
        plan = self._plan
        if plan.solver == "dense" or result.is_whole_spectrum:
            return 0  # the solver has its proof
        vectors = result.eigenvectors if result.ritz_vectors is None else result.ritz_vectors
        room = plan.max_basis + PROBE_BYTES // (16 * plan.n_samples) - int(vectors.shape[1])
        share = SMALL_PROBE if plan.n_samples <= SMALL_SAMPLES else max(2, int(PROBE_SHARE * result.n_passes))
        return min(share, room // plan.block_columns)

    def look_below(self, result: EigenResult, allowed: float) -> float:
        """Lowest eigenvalue that shows in a few passes, within the memory of a probe: see `lowest_eigenvalue`."""
        values, vectors = result.eigenvalues, result.eigenvectors
        if result.ritz_values is not None and result.ritz_vectors is not None:
            values, vectors = result.ritz_values[: result.ritz_vectors.shape[1]], result.ritz_vectors
        # the rest may be the constant vector, or belong to the low end itself
        positive = vectors[:, : max(1, int((values > allowed).sum()))]
        return lowest_eigenvalue(
            self._operator,
            positive,
            allowed=allowed,
            width=self._plan.block_columns,
            max_passes=max(1, min(self._probe_passes(result), self._limit(LOOK_PASSES))),
            seed=self._seed,
        )

    def _by_plan(self) -> EigenResult:
        plan, operator = self._plan, self._operator
        if plan.solver == "block_krylov":
            return self._by_blocks(self._start_block())
        if plan.solver == "dense":
            return solve_dense(
                operator,
                # all where their number is to be decided from them
                plan.n_components if isinstance(self._n_components, int) else None,
                n_threads=plan.n_threads,
                floor=self._measure().rounding,
                seed=self._seed,
                allowed_below=None if self._kernel.centered_positive_semidefinite else self._kernel.noise,
            )
        if plan.solver == "power":
            return solve_power(
                operator,
                self._start_block(),
                plan.n_components,
                tol=self._block_tol(),
                max_passes=self._limit(MAX_PASSES),
                seed=self._seed,
            )
        is_zero = self._measure().total_variance == 0 and _is_zero(operator, self._measure())
        return solve_arpack(
            operator,
            plan.n_components,
            tol=self._tol or 0.0,
            seed=self._seed,
            max_passes=self._limit(ARPACK_PASSES),
            is_zero=is_zero,
        )

    def _enlarged(self, found: Matrix, shown: Matrix) -> Matrix:
        """What was found, the directions in which something larger shows most, and random columns."""
        # no wider than a block of the plan, where there is a number of components
        shown = shown[:, : max(self._plan.block_columns - found.shape[1] - RANDOM_COLUMNS, RANDOM_COLUMNS)]
        rng = np.random.default_rng([self._seed, 3])
        random = rng.standard_normal((len(found), RANDOM_COLUMNS)) / np.sqrt(len(found))
        return np.concatenate([found, shown, random], axis=1)

    def _by_blocks(self, start: Matrix) -> EigenResult:
        return solve_block_krylov(
            self._operator,
            start,
            self._wanted,
            tol=self._block_tol(),
            max_basis=max(self._max_basis(), 4 * start.shape[1]),
            max_passes=self._limit(MAX_PASSES),
            seed=self._seed,
        )

    def _max_basis(self) -> int:
        """Columns of the basis: of the plan, and for a share of the variance what half of the memory left can hold."""
        plan = self._plan
        if not isinstance(self._n_components, float):
            return plan.max_basis
        spare = max(0, plan.memory_limit - plan.peak_memory) // 2
        # twice a column of the basis, and what is square in it: see tiling.sizes
        square = int(np.sqrt(spare / (8 * SQUARE_ARRAYS)))
        return min(plan.n_samples, max(plan.max_basis, min(plan.max_basis + spare // (16 * plan.n_samples), square)))

    def _limit(self, default: int) -> int:
        return default if self._max_passes is None else self._max_passes

    def _block_tol(self) -> float:
        default = 1e-6 if self._plan.dtype == "float32" else 1e-9
        # 0 is scikit-learn's word for the default
        return default if not self._tol or self._plan.solver == "arpack" else self._tol

    def _wanted(self, values: Vector, residuals: Vector) -> int | None:
        """How many pairs are wanted, given Ritz values and residuals: a number, or what reaches the share."""
        self.residuals.append(residuals[: self._plan.n_components or None])
        if not isinstance(self._n_components, float):
            return self._plan.n_components
        # θ − residual is a certified lower bound: the share is reached for certain
        reached = np.cumsum(np.maximum(values - residuals, 0)) >= self._n_components * self._measure().total_variance
        return int(np.argmax(reached)) + 1 if reached.any() else None

    def _start_block(self) -> Matrix:
        """Nyström guesses of the eigenvectors, and random columns, so that no eigenvector is out of reach."""
        plan = self._plan
        if plan.has_wide_rows:
            release_memory()  # blocks that were checked; and after it those of landmarks, which have other sizes
        guesses = self._guesses() if self._start is None else self._start[:, : plan.block_columns - RANDOM_COLUMNS]
        if plan.has_wide_rows:
            release_memory()
        guesses = guesses / np.maximum(np.linalg.norm(guesses, axis=0), np.finfo(np.float64).tiny)
        rng = np.random.default_rng([self._seed, 1])
        random = rng.standard_normal((plan.n_samples, plan.block_columns - guesses.shape[1])) / np.sqrt(plan.n_samples)
        return np.concatenate([guesses, random], axis=1)

    def _guesses(self) -> Matrix:
        plan = self._plan
        return nystroem_block(
            self._rows,
            self._kernel,
            plan.tiling,
            self._engine,
            n_columns=plan.block_columns - RANDOM_COLUMNS,
            n_landmarks=plan.start_landmarks,
            seed=self._seed,
        )


def _attempt(solve: Callable[[], EigenResult]) -> tuple[EigenResult, str | None]:
    try:
        return solve(), None
    except NotConvergedError as error:
        if error.result is None:
            raise
        return error.result, str(error)


def _is_same(values: Vector, settled: Settled, verdict: Verdict) -> bool:
    """Whether another solve found no larger eigenvalue in any place."""
    uncertain = verdict.level - settled.eigenvalues[-1:].sum()
    return len(values) == len(settled.eigenvalues) and bool((values <= settled.eigenvalues + uncertain).all())


def _unconfirmed(settled: Settled) -> Settled:
    # what showed was the uncertainty of the Ritz vectors that were put aside
    how = f"not proven: {settled.certificate.completeness}, and another solve did not find it"
    return replace(settled, certificate=replace(settled.certificate, completeness=how))


def _is_zero(operator: CenteredGram, scale: GramScale) -> bool:
    """Whether K̃ is zero to rounding, which ARPACK would trip over: one pass with a random vector.

    Asked for only when the trace, which is Σλ, is zero. The vector has norm √n, so that its image has about the
    root mean square of the eigenvalues times √n.
    """
    n = scale.n_samples
    vector = np.random.default_rng(n).standard_normal(n)
    return bool(np.linalg.norm(operator.matvec(vector)) <= 4 * scale.zero_threshold() * np.sqrt(n))
