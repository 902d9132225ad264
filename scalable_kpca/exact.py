"""An exact fit: rows and a plan in, a certified model out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.certificate import Certificate, GramScale, certify
from scalable_kpca.checkpoint import clear_state, load_state, save_state
from scalable_kpca.engine import Engine
from scalable_kpca.errors import AccuracyWarning, ConfigError, CorruptTileError, IncompleteGramError, InvalidInputError
from scalable_kpca.gram import Gram, MemoryGram, PassResult, RecomputeGram, StoredGram, TileCounts, create_tiles
from scalable_kpca.kernels import Kernel
from scalable_kpca.model import Model
from scalable_kpca.nystroem import nystroem_block
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers import (
    MAX_PASSES,
    EigenResult,
    KrylovState,
    lowest_eigenvalue,
    solve_arpack,
    solve_block_krylov,
    solve_dense,
)
from scalable_kpca.source import Rows
from scalable_kpca.tiling import RANDOM_COLUMNS, Plan

__all__ = ["ExactFit", "fit_exact", "open_gram"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

START_LANDMARKS = 600  # of the Nyström start block
FEW_DIGITS = 1e-4  # of λ₁: a bound above it is worth a warning


@dataclass(frozen=True, eq=False)
class ExactFit:
    """A model and how it came about.

    Attributes
    ----------
    model : Model
    build_counts : TileCounts
        Tiles computed, read and repaired in the first pass.
    resumed_passes : int
        Passes of an interrupted solve that were not repeated.
    """

    model: Model
    build_counts: TileCounts
    resumed_passes: int = 0


def open_gram(
    rows: Rows, kernel: Kernel, plan: Plan, engine: Engine, *, path: Path | None = None, fingerprint: str = ""
) -> Gram:
    """The Gram matrix in the home that the plan chose.

    Parameters
    ----------
    rows, kernel, plan, engine
        What it is made of and where.
    path : Path, optional
        ``gram.zarr`` for the zarr home.
    fingerprint : str
        Identity of its contents.

    Returns
    -------
    Gram
    """
    if plan.gram in ("memory", "recompute"):
        home = MemoryGram if plan.gram == "memory" else RecomputeGram
        return home(rows, kernel, plan.tiling, plan.dtype, engine, plan.tiles_per_task)
    if path is None:
        raise ConfigError('gram="zarr" needs a place for the tiles; set workdir to a directory with room.')
    tiles = create_tiles(path, plan.tiling, plan.dtype, fingerprint, {"kernel": kernel.to_json()})
    return StoredGram(rows, kernel, tiles, engine, plan.tiles_per_task)


def fit_exact(
    rows: Rows,
    kernel: Kernel,
    plan: Plan,
    gram: Gram,
    engine: Engine,
    *,
    n_components: int | float | None,
    tol: float | None = None,
    seed: int = 0,
    max_passes: int | None = None,
    indefinite: str = "error",
    remove_zero_eig: bool = False,
    feature_names: tuple[str, ...] = (),
    checkpoint: tuple[Path, str] | None = None,
) -> ExactFit:
    """Exact kernel PCA by the plan.

    Parameters
    ----------
    rows : Rows of shape (n_samples, n_features)
        Finite training rows.
    kernel : Kernel
        Resolved kernel.
    plan : Plan
        From `plan_exact`.
    gram : Gram
        From `open_gram`.
    engine : Engine
        Where tasks run.
    n_components : int, float or None
        Number of components; fraction of the total variance to reach; None for all that are not zero.
    tol : float, optional
        Relative residual at which block Krylov accepts a pair: 1e-6 with float32 tiles, 1e-9 with float64 by default;
        ARPACK's tolerance, 0 by default.
    seed, max_passes : int
        Of the iterative solver.
    indefinite : {"error", "clip"}
        What to do when K̃ has a negative eigenvalue beyond rounding: refuse, or drop the negative part.
    remove_zero_eig : bool
        Whether components with eigenvalue zero are dropped.
    feature_names : tuple of str
        Kept in the model.
    checkpoint : tuple of (Path, str), optional
        Directory for the state of block Krylov, and the identity of this solve: an interrupted solve goes on there.

    Returns
    -------
    ExactFit

    Raises
    ------
    InvalidInputError
        For an indefinite kernel.
    NotConvergedError
        When the solver gives up.
    """
    _check_options(indefinite, tol, max_passes)
    state, built = _resume(gram, checkpoint) if plan.solver == "block_krylov" else (None, None)
    operator = CenteredGram(gram, built, plan.product_dtype)
    measure = cache(lambda: _measure(rows, kernel, plan, operator))
    if plan.solver == "block_krylov":
        start = _start_block(rows, kernel, plan, engine, seed) if state is None else state.block
        rule = _count_rule(plan, n_components, measure)
        result = _solve_by_blocks(operator, start, rule, plan, tol, max_passes, seed, state, checkpoint)
    elif plan.solver == "dense":
        # all eigenvalues when their number or sign is to be decided from them
        wanted = n_components if isinstance(n_components, int) and kernel.positive_semidefinite else None
        result = solve_dense(operator, wanted)
    else:
        is_zero = measure().total_variance == 0 and _is_zero(operator, measure())
        result = solve_arpack(
            operator, plan.n_components, tol=tol or 0.0, seed=seed, max_passes=max_passes, is_zero=is_zero
        )
    scale = measure()
    threshold = max(scale.zero_threshold(float(result.eigenvalues[0])), result.rounding)
    if indefinite == "error" and not kernel.positive_semidefinite:
        _refuse_indefinite(operator, result, kernel, threshold, seed)
    drop_zeros = remove_zero_eig or n_components is None
    resumed_passes = 0 if state is None else state.n_passes
    k = _count(result.eigenvalues, n_components, scale.total_variance, threshold, drop_zeros=drop_zeros)
    eigenvalues = np.where(result.eigenvalues[:k] <= threshold, 0.0, result.eigenvalues[:k])
    eigenvectors = np.ascontiguousarray(result.eigenvectors[:, :k])
    certificate = certify(operator, eigenvalues, eigenvectors, scale, result)
    _warn_of_few_digits(certificate, eigenvalues, plan)
    model = Model(
        kernel=kernel,
        rows=rows,
        tile_rows=plan.tile_rows,
        dtype=plan.dtype,
        centering=operator.centering,
        eigenvalues=eigenvalues,
        eigenvectors=eigenvectors,
        certificate=certificate,
        solver=result.solver,
        n_passes=operator.n_passes + resumed_passes,
        feature_names=feature_names,
    )
    return ExactFit(model, operator.built.counts, resumed_passes)


def _check_options(indefinite: str, tol: float | None, max_passes: int | None) -> None:
    if indefinite not in ("error", "clip"):
        raise ConfigError(f"indefinite={indefinite!r} is not known; choose one of error, clip.")
    if (tol is not None and not tol >= 0) or (max_passes is not None and max_passes < 1):
        raise ConfigError(f"tol={tol!r} and max_passes={max_passes!r}; tol ≥ 0 and max_passes ≥ 1 are needed.")


def _solve_by_blocks(
    operator: CenteredGram,
    start: Matrix,
    rule: Callable[[Vector, Vector], int | None],
    plan: Plan,
    tol: float | None,
    max_passes: int | None,
    seed: int,
    state: KrylovState | None,
    checkpoint: tuple[Path, str] | None,
) -> EigenResult:
    """Block Krylov by the plan, with its state saved after every pass."""
    try:
        return solve_block_krylov(
            operator,
            start,
            rule,
            tol=_default_tol(plan) if tol is None else tol,
            max_basis=plan.max_basis,
            max_passes=MAX_PASSES if max_passes is None else max_passes,
            seed=seed,
            state=state,
            checkpoint=None if checkpoint is None else lambda now: save_state(*checkpoint, now, operator.built),
        )
    except (CorruptTileError, IncompleteGramError):
        # the next run has to begin with a building pass, which repairs
        if checkpoint is not None:
            clear_state(checkpoint[0])
        raise


def _resume(gram: Gram, checkpoint: tuple[Path, str] | None) -> tuple[KrylovState | None, PassResult | None]:
    """Where an interrupted solve stood, if its tiles are still there."""
    found = load_state(*checkpoint) if checkpoint is not None else None
    if checkpoint is None or found is None:
        return None, None
    try:
        gram.resume()
    except IncompleteGramError:
        clear_state(checkpoint[0])
        return None, None
    return found


def _start_block(rows: Rows, kernel: Kernel, plan: Plan, engine: Engine, seed: int) -> Matrix:
    """Nyström guesses of the eigenvectors, and random columns, so that no eigenvector is out of reach."""
    guesses = nystroem_block(
        rows,
        kernel,
        plan.tiling,
        engine,
        n_columns=plan.block_columns - RANDOM_COLUMNS,
        n_landmarks=START_LANDMARKS,
        seed=seed,
    )
    guesses /= np.maximum(np.linalg.norm(guesses, axis=0), np.finfo(np.float64).tiny)
    rng = np.random.default_rng([seed, 1])
    random = rng.standard_normal((plan.n_samples, plan.block_columns - guesses.shape[1])) / np.sqrt(plan.n_samples)
    return np.concatenate([guesses, random], axis=1)


def _count_rule(
    plan: Plan, n_components: int | float | None, measure: Callable[[], GramScale]
) -> Callable[[Vector, Vector], int | None]:
    """How many pairs are wanted, given Ritz values and residuals: a number, or what reaches a share of the trace."""

    def rule(values: Vector, residuals: Vector) -> int | None:
        if not isinstance(n_components, float):
            return plan.n_components
        # θ − residual is a certified lower bound: the share is reached for certain
        reached = np.cumsum(np.maximum(values - residuals, 0)) >= n_components * measure().total_variance
        return int(np.argmax(reached)) + 1 if reached.any() else None

    return rule


def _default_tol(plan: Plan) -> float:
    return 1e-6 if plan.dtype == "float32" else 1e-9


def _measure(rows: Rows, kernel: Kernel, plan: Plan, operator: CenteredGram) -> GramScale:
    """Sizes of K and K̃ from the first pass and a streaming look at the diagonal, as the tiles hold it."""
    built, centering = operator.built, operator.centering
    diagonal_sum, max_diagonal = 0.0, 0.0
    for i in range(plan.tiling.n_blocks):
        exact = kernel.diagonal(rows.read(plan.tiling.block(i)).astype(np.float64))
        values = exact.astype(plan.dtype).astype(np.float64)
        diagonal_sum += float(values.sum())
        max_diagonal = max(max_diagonal, float(np.abs(values).max()))
    scale = GramScale(
        n_samples=plan.n_samples,
        dtype=plan.dtype,
        max_diagonal=max_diagonal,
        gram_norm=float(np.sqrt(built.squared_norm)),
        squared_norm=max(centering.squared_norm(built.squared_norm), 0.0),
        total_variance=centering.total_variance(diagonal_sum),
        entry_error=built.error * max_diagonal,
        # squares are summed 64 at a time in the dtype of the products, the rest in float64
        norm_error=built.squared_norm * (65 * _eps(plan.product_dtype) + 4 * plan.n_samples * _eps("float64")),
    )
    # a trace within rounding of zero is zero, ratios to it would be noise: it sums n entries and n row means
    noise = max(4 * scale.zero_threshold(), 2 * plan.n_samples * scale.entry_error)
    return scale if abs(scale.total_variance) > noise else replace(scale, total_variance=0.0)


def _eps(dtype: str) -> float:
    return float(np.finfo(dtype).eps)


def _warn_of_few_digits(certificate: Certificate, eigenvalues: Vector, plan: Plan) -> None:
    """Warn when K̃ is so small beside K that the rounding of K shows in the eigenvalues."""
    uncertain = float(certificate.eigenvalue_bounds.max())
    if uncertain > FEW_DIGITS * eigenvalues[0] > 0:
        advice = "set dtype='float64'" if plan.dtype == "float32" else "use a larger gamma or standardize the features"
        warnings.warn(
            f"eigenvalues are certain only to {uncertain:.2g}, {uncertain / eigenvalues[0]:.1g} of the largest: the "
            f"centred Gram matrix is small beside the Gram matrix itself; {advice}.",
            AccuracyWarning,
            stacklevel=3,
        )


def _refuse_indefinite(
    operator: CenteredGram, result: EigenResult, kernel: Kernel, threshold: float, seed: int
) -> None:
    """Raise when K̃ has an eigenvalue that is negative beyond rounding; a Ritz value is never below the lowest."""
    values = result.eigenvalues if result.ritz_values is None else result.ritz_values
    lowest = float(values[-1])
    if lowest >= -threshold and not result.is_whole_spectrum:
        lowest = lowest_eigenvalue(operator, seed=seed)
    if lowest < -threshold:
        raise InvalidInputError(
            f"kernel {kernel.name!r} is not positive semi-definite on these rows: its lowest centred eigenvalue is "
            f'{lowest:.6g}, the largest {result.eigenvalues[0]:.6g}; set indefinite="clip" to drop the negative part, '
            "or choose another kernel or other parameters."
        )


def _count(
    eigenvalues: Vector,
    n_components: int | float | None,
    total_variance: float,
    threshold: float,
    *,
    drop_zeros: bool,
) -> int:
    non_zero = int((eigenvalues > threshold).sum())
    if isinstance(n_components, float):
        reached = np.cumsum(eigenvalues[:non_zero]) >= n_components * total_variance
        return int(np.argmax(reached)) + 1 if reached.any() else max(1, non_zero)
    wanted = len(eigenvalues) if n_components is None else min(n_components, len(eigenvalues))
    return max(1, min(wanted, non_zero)) if drop_zeros else wanted


def _is_zero(operator: CenteredGram, scale: GramScale) -> bool:
    """Whether K̃ is zero to rounding, which ARPACK would trip over: one pass with a random vector.

    Asked for only when the trace, which is Σλ, is zero. The vector has norm √n, so that its image has about the
    root mean square of the eigenvalues times √n.
    """
    n = scale.n_samples
    vector = np.random.default_rng(n).standard_normal(n)
    return bool(np.linalg.norm(operator.matvec(vector)) <= 4 * scale.zero_threshold() * np.sqrt(n))
