"""The fit of an array: plan, rows where tasks can read them, and the method that the plan names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.approximate import NystroemFit, fit_nystroem, plan_joining, solve_model, sums_of_joining
from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.exact import ExactFit, fit_exact, open_gram
from scalable_kpca.fitting.arrays import spans_of
from scalable_kpca.fitting.options import Options
from scalable_kpca.kernels import Kernel, Precomputed
from scalable_kpca.landmarks import Landmarks, choose_columns, fetch_rows, find_landmarks, look
from scalable_kpca.machine import disk_room, resolve_memory_limit, resolve_threads
from scalable_kpca.model import NystroemModel, in_memory
from scalable_kpca.nystroem import Spans, approximate_eigenvectors, relative_residual
from scalable_kpca.planning import gram_fingerprint, plan
from scalable_kpca.source import StoredRows, check_landmark_block, digest_rows
from scalable_kpca.staging import stage_rows
from scalable_kpca.tiling import NystroemPlan, Plan

__all__ = ["Added", "Fitted", "Fitting"]

Matrix = NDArray[np.float64]
Components = int | float | None


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit, and the plan that it followed.

    Attributes
    ----------
    plan : Plan or NystroemPlan
    fit : ExactFit or NystroemFit
        What is kept.
    start : NystroemFit or None
        Of a fit that was refined by passes: what it began with.
    """

    plan: Plan | NystroemPlan
    fit: ExactFit | NystroemFit
    start: NystroemFit | None = None


@dataclass(frozen=True, eq=False)
class Added:
    """A model with more rows, and what the new ones are like.

    Attributes
    ----------
    model : NystroemModel
    residual : float
        Share of the new rows' trace that the landmarks do not reach; that of the rows before is in the certificate.
    """

    model: NystroemModel
    residual: float


class Fitting:
    """One fit of one array.

    Parameters
    ----------
    X : ndarray, dask array or zarr array of shape (n_samples, n_features)
        Checked to be a matrix of numbers; never written to.
    n_components : int, float or None
    options : Options
    engine : Engine
    workdir : Path
        Where what has to be stored goes.
    names : tuple of str
        Of the features; may be empty.
    """

    def __init__(
        self,
        X: Any,
        n_components: Components,
        options: Options,
        engine: Engine,
        workdir: Path,
        names: tuple[str, ...] = (),
    ) -> None:
        self._X, self._n_components, self._options = X, n_components, options
        self._engine, self._workdir, self._names = engine, workdir, names
        # rows that tasks read from the caller's own array
        self._stays = engine.shares_memory and (isinstance(X, np.ndarray) or options.workdir is None)

    def run(self) -> Fitted:
        """Plan and fit."""
        chosen = self._plan("nystroem" if self._options.max_passes == 0 else self._options.method)
        if isinstance(chosen, Plan):
            return Fitted(chosen, self._exact(chosen, self._n_components))
        if self._options.kernel == "precomputed":
            if self._options.max_passes:
                raise ConfigError("passes over K evaluate the kernel; a precomputed one is not refined: max_passes=0.")
            return Fitted(chosen, self._precomputed(chosen))
        spans = self._spans(chosen)
        fit = self._nystroem(chosen, spans)
        if not self._options.max_passes:
            return Fitted(chosen, fit)
        return Fitted(chosen, self._refined(fit, spans, chosen), fit)

    def add_to(self, model: NystroemModel) -> Added:
        """The same landmarks with the rows of this array added: one pass over them, none over the old ones."""
        options = self._options
        if model.columns is not None:
            raise ConfigError(
                "a precomputed kernel has values with the rows that were fitted; fit the larger one anew."
            )
        if options.max_passes:
            raise ConfigError("rows cannot be added to a fit that passes refine; set max_passes=None.")
        chosen = plan_joining(
            model,
            self._X.shape[0],
            memory_limit=resolve_memory_limit(options.memory_limit),
            n_threads=resolve_threads(options.n_jobs),
            resident_bytes=self._resident_bytes,
        )
        sums, _ = sums_of_joining(self._spans(chosen), model, chosen, self._engine, names=self._names)
        added = solve_model(
            model.basis,
            model.sums + sums,
            self._n_components,
            indefinite=options.indefinite,
            remove_zero_eig=options.remove_zero_eig,
            feature_names=model.feature_names,
        )
        return Added(added, relative_residual(model.basis, sums))

    def _plan(self, method: str, solver: str | None = None) -> Plan | NystroemPlan:
        options, (n_samples, n_features) = self._options, self._X.shape
        if options.kernel == "precomputed" and n_samples != n_features:
            raise InvalidInputError(
                f"a precomputed kernel has shape (n_samples, n_samples), and X has {(n_samples, n_features)}."
            )
        solver = solver or options.eigen_solver
        return plan(
            n_samples,
            n_features,
            n_components=self._n_components,
            method=method,
            n_landmarks=options.landmark_count,
            landmarks=options.landmark_method,
            dtype=options.dtype,
            solver="block_krylov" if solver == "randomized" else solver,
            gram=options.gram,
            kernel=options.kernel,
            memory_limit=options.memory_limit,
            n_jobs=options.n_jobs,
            tile_rows=options.tile_rows,
            directory=self._workdir,
            disk_limit=disk_room(self._workdir, "gram-*.zarr") if options.gram == "auto" else None,
            resident_bytes=self._resident_bytes,
        )

    @property
    def _resident_bytes(self) -> int:
        """Of the caller's rows, where they stay in memory."""
        n_samples, n_features = self._X.shape
        return n_samples * n_features * (4 if self._X.dtype == np.float32 else 8) if self._stays else 0

    def _exact_plan(self) -> Plan:
        exact = self._plan("exact", "block_krylov")
        if not isinstance(exact, Plan):
            raise ConfigError("passes refine by the plan of an exact fit.")
        return exact

    # ---------------------------------------------------------------- exact

    def _exact(self, chosen: Plan, n_components: Components, start: Matrix | None = None) -> ExactFit:
        options = self._options
        if options.kernel == "precomputed":
            raise ConfigError(
                "exact fits evaluate the kernel and take no precomputed one; set method='nystroem', with n_landmarks "
                "up to the number of rows."
            )
        rows, summary = stage_rows(
            self._X,
            self._engine,
            None if self._stays else self._workdir,
            tile_rows=chosen.tile_rows,
            names=self._names,
        )
        kernel = options.resolve_kernel(summary)
        identity = (
            gram_fingerprint(digest_rows(rows, chosen.tile_rows), kernel, chosen) if chosen.gram == "zarr" else ""
        )
        path = self._workdir / f"gram-{identity[:16]}.zarr"
        fit = fit_exact(
            rows,
            kernel,
            chosen,
            open_gram(rows, kernel, chosen, self._engine, path=path, fingerprint=identity),
            self._engine,
            n_components=n_components,
            tol=options.tol,
            seed=options.seed,
            max_passes=options.max_passes,
            indefinite=options.indefinite,
            on_failure=options.on_failure,
            remove_zero_eig=options.remove_zero_eig,
            feature_names=self._names,
            start=start,
        )
        # stored rows vanish with a temporary directory
        vanishes = options.workdir is None and isinstance(rows, StoredRows)
        return replace(fit, model=in_memory(fit.model)) if vanishes else fit

    # ---------------------------------------------------------------- Nyström

    def _spans(self, chosen: NystroemPlan, columns: NDArray[np.int64] | None = None) -> Spans:
        return spans_of(self._X, self._engine, self._workdir, chosen.span_rows, columns=columns, names=self._names)

    def _precomputed(self, chosen: NystroemPlan) -> NystroemFit:
        """Nyström from columns of the caller's Gram matrix."""
        options = self._options
        n_samples = self._X.shape[0]
        columns = choose_columns(options.landmarks, n_samples, chosen.n_landmarks, seed=options.seed)
        spans = self._spans(chosen, columns)
        look(self._engine, spans, n_features=len(columns) + 1, batch_rows=chosen.batch_rows)
        rows = fetch_rows(self._engine, spans, columns, batch_rows=chosen.batch_rows)
        check_landmark_block(rows, columns)
        fit = self._fit_nystroem(chosen, spans, Precomputed(), Landmarks(rows, columns, "columns"))
        return replace(fit, model=replace(fit.model, columns=columns))

    def _nystroem(self, chosen: NystroemPlan, spans: Spans) -> NystroemFit:
        options = self._options
        landmarks, summary = find_landmarks(
            self._engine,
            spans,
            chosen,
            options.resolve_kernel,
            seed=options.seed,
            names=self._names,
            given=options.landmarks if chosen.landmarks == "given" else None,
        )
        return self._fit_nystroem(chosen, spans, options.resolve_kernel(summary), landmarks)

    def _fit_nystroem(self, chosen: NystroemPlan, spans: Spans, kernel: Kernel, landmarks: Landmarks) -> NystroemFit:
        options = self._options
        return fit_nystroem(
            spans,
            kernel,
            chosen,
            self._engine,
            landmarks,
            n_components=self._n_components,
            indefinite=options.indefinite,
            remove_zero_eig=options.remove_zero_eig,
            feature_names=self._names,
        )

    def _refined(self, fit: NystroemFit, spans: Spans, chosen: NystroemPlan) -> ExactFit:
        """The same components after passes over K, from the leading directions of the landmarks."""
        exact = self._exact_plan()
        start = approximate_eigenvectors(
            fit.model.basis,
            fit.model.sums,
            spans,
            self._engine,
            n_columns=exact.block_columns,
            batch_rows=chosen.batch_rows,
        )
        return self._exact(exact, fit.model.n_components, start)
