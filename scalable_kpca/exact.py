"""An exact fit: rows and a plan in, a certified model out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.definiteness import refuse_indefinite
from scalable_kpca.engine import Engine
from scalable_kpca.errors import AccuracyWarning, ConfigError, NotConvergedError
from scalable_kpca.gram import Gram, MemoryGram, RecomputeGram, StoredGram, TileCounts, create_tiles
from scalable_kpca.journal import Journal
from scalable_kpca.kernels import Cosine, GivenKernel, Kernel
from scalable_kpca.measuring import check_range, diagonal_sizes, measure_gram
from scalable_kpca.model import Model
from scalable_kpca.objects import StoredObject
from scalable_kpca.operator import CenteredGram
from scalable_kpca.scale import GramScale
from scalable_kpca.solvers import EigenResult
from scalable_kpca.solving import Solve
from scalable_kpca.source import Rows, is_sparse
from scalable_kpca.tiling import Plan, Tiling, check_choice

__all__ = ["ExactFit", "fit_exact", "open_gram"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

FEW_DIGITS = 1e-4  # of λ₁: a bound above it is worth a warning
EPS = float(np.finfo(np.float64).eps)
ZERO_ROUNDING = 10  # times the rounding of products: eigenvalues up to that are those of a zero matrix


@dataclass(frozen=True, eq=False)
class ExactFit:
    """A model and how it came about.

    Attributes
    ----------
    model : Model
    build_counts : TileCounts
        Tiles computed, read and repaired in the building pass of the process that finished the fit.
    resumed_passes : int
        Passes of an interrupted solve that were not repeated.
    selection : str
        How many components there are, and why.
    residuals : tuple of ndarray
        Of block Krylov, after each pass: residual norms of the leading pairs.
    """

    model: Model
    build_counts: TileCounts
    resumed_passes: int = 0
    selection: str = ""
    residuals: tuple[Vector, ...] = ()


def open_gram(
    rows: Rows,
    kernel: Kernel,
    plan: Plan,
    engine: Engine,
    *,
    path: Path | StoredObject | None = None,
    fingerprint: str = "",
) -> Gram:
    """The Gram matrix in the home that the plan chose.

    Parameters
    ----------
    rows, kernel, plan, engine
        What it is made of and where.
    path : Path or StoredObject, optional
        ``gram.zarr`` for the zarr home, on a disk or on S3.
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
    on_failure: str = "error",
    remove_zero_eig: bool = False,
    feature_names: tuple[str, ...] = (),
    journal: tuple[Path, str] | None = None,
    start: Matrix | None = None,
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
        Relative residual at which block Krylov and power accept a pair: 1e-6 with float32 tiles, 1e-9 with float64 by
        default, which 0 stands for too; ARPACK's tolerance, 0 by default: machine precision.
    seed, max_passes : int
        Of the iterative solver.
    indefinite : {"error", "clip"}
        What to do when K̃ has a negative eigenvalue beyond rounding: refuse, or drop the negative part.
    on_failure : {"error", "return"}
        What to do when the solver gives up, or when a larger eigenvalue still shows after further solves: raise, or
        return what was found with ``complete=False`` and a warning.
    remove_zero_eig : bool
        Whether components with eigenvalue zero are dropped.
    feature_names : tuple of str
        Kept in the model.
    journal : tuple of (Path, str), optional
        Directory for the journal of passes, and the identity of the matrix: an interrupted fit goes on there.
    start : ndarray of shape (n_samples, b), optional
        Nyström guesses of the leading eigenvectors, to be refined by `max_passes` passes of block Krylov: that they do
        not converge in these is no failure, and the residuals say how far they came.

    Returns
    -------
    ExactFit

    Raises
    ------
    InvalidInputError
        For an indefinite kernel.
    NotConvergedError
        When the solver gives up; its `result` is the Model, unless nothing was found.

    Notes
    -----
    Passes: the solver's; one for the residuals of a solver that does not know them; those of a probe where norms do not
    prove the set complete: see `solving`.
    """
    check_choice("indefinite", indefinite, ("error", "clip"))
    check_choice("on_failure", on_failure, ("error", "return"))
    diagonal = diagonal_sizes(rows, kernel, plan)
    check_range(diagonal, plan.dtype)
    operator = CenteredGram(gram, product_dtype=plan.product_dtype, journal=Journal(*journal) if journal else None)
    measure = cache(lambda: measure_gram(diagonal, plan, operator))
    options: dict[str, Any] = {"tol": tol, "max_passes": max_passes, "seed": seed, "start": start}
    solve = Solve(operator, rows, kernel, engine, plan, measure, n_components=n_components, **options)
    result, failure = solve.first()
    scale = measure()
    threshold = max(scale.zero_threshold(float(result.eigenvalues[0])), result.rounding)
    if indefinite == "error" and not kernel.centered_positive_semidefinite:
        refuse_indefinite(result, kernel, plan, scale, threshold, solve.look_below)
    drop_zeros = remove_zero_eig or n_components is None

    def pairs_of(result: EigenResult) -> tuple[Vector, Matrix]:
        k = _count(result.eigenvalues, n_components, scale.total_variance, threshold, drop_zeros=drop_zeros)
        values = np.where(result.eigenvalues[:k] <= threshold, 0.0, result.eigenvalues[:k])
        return values, np.ascontiguousarray(result.eigenvectors[:, :k])

    settled = solve.settle(result, pairs_of, failure)
    model = Model(
        kernel=kernel,
        rows=rows,
        tile_rows=plan.tile_rows,
        dtype=plan.dtype,
        centering=operator.centering,
        eigenvalues=settled.eigenvalues,
        eigenvectors=settled.eigenvectors,
        certificate=settled.certificate,
        solver=settled.solver,
        n_passes=operator.n_passes,
        feature_names=feature_names,
    )
    if settled.failure is not None and start is None:
        if on_failure == "error":
            raise NotConvergedError(settled.failure, result=model)
        warnings.warn(f"what was found is returned, incomplete: {settled.failure}", AccuracyWarning, stacklevel=2)
    if start is None:
        _warn_of_few_digits(model, result, scale)
    return ExactFit(
        model,
        operator.built.counts,
        operator.replayed_passes,
        _selection(model, n_components),
        tuple(solve.residuals),
    )


def _selection(model: Model, n_components: int | float | None) -> str:
    share = float(model.certificate.explained_variance_ratio.sum())
    if isinstance(n_components, float):
        return f"{model.n_components} components, the fewest for {n_components:.6g} of the variance: {share:.6f}"
    if n_components is None:
        return f"{model.n_components} components, all whose eigenvalue is not zero"
    return f"{model.n_components} components, as asked for"


def _warn_of_few_digits(model: Model, result: EigenResult, scale: GramScale) -> None:
    """Warn when K̃ is so small beside K that the rounding of K shows in the eigenvalues, or has swallowed them."""
    largest, n = float(result.eigenvalues[0]), scale.n_samples
    # what is negative beyond any rounding was dropped on request, and is 0 by that
    bounds = model.certificate.eigenvalue_bounds
    bounds = bounds[result.eigenvalues[: len(bounds)] > -FEW_DIGITS * largest]
    # independent errors of the entries have a norm of about √n times their size
    uncertain = float(bounds.max(initial=0.0)) + scale.entry_error * n**0.5
    noise = ZERO_ROUNDING * (n * EPS * scale.max_diagonal + result.rounding)
    if uncertain <= FEW_DIGITS * largest:
        return
    if not model.eigenvalues.any() and largest <= noise and not _differ_in_vain(model):
        return  # constant rows have eigenvalues of the size of the products' own rounding
    advice = "set dtype='float64'" if scale.dtype == "float32" else "use a larger gamma or standardize the features"
    warnings.warn(
        f"eigenvalues are certain only to {uncertain:.2g}, the largest is {largest:.2g}: the centred Gram matrix is "
        f"small beside the Gram matrix itself; {advice}, or subtract the mean of the rows.",
        AccuracyWarning,
        stacklevel=3,
    )


def _differ_in_vain(model: Model) -> bool:
    """Whether rows differ, and their kernel values should, of which nothing is left."""
    if isinstance(model.kernel, (Cosine, GivenKernel)) or getattr(model.kernel, "gamma", 1.0) == 0:
        return False  # rows may differ without a difference to these
    tiling = Tiling(model.n_samples, model.tile_rows)
    first = model.rows.read(slice(0, 1))
    first = first.toarray() if is_sparse(first) else first
    blocks = (model.rows.read(tiling.block(i)) for i in range(tiling.n_blocks))
    return any(bool(((block.toarray() if is_sparse(block) else block) != first).any()) for block in blocks)


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
        return int(np.argmax(reached)) + 1 if reached.any() else max(0 if drop_zeros else 1, non_zero)
    wanted = len(eigenvalues) if n_components is None else min(n_components, len(eigenvalues))
    return min(wanted, non_zero) if drop_zeros else wanted
