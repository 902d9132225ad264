"""The fit of an array: plan, rows where tasks can read them, and the method that the plan names."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.approximate import NystroemFit, fit_nystroem, plan_joining, solve_model, sums_of_joining
from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.exact import ExactFit, fit_exact, open_gram
from scalable_kpca.fitting.arrays import first_rows, spans_of
from scalable_kpca.fitting.given import entries_of, passing_directory, stays_in_place
from scalable_kpca.fitting.options import Options
from scalable_kpca.fitting.planned import plan_fit, resident_bytes
from scalable_kpca.kernels import CallableKernel, Kernel, Precomputed, callable_kernel
from scalable_kpca.landmarks import Landmarks, choose_columns, fetch_rows, find_landmarks, look, sampled_gamma
from scalable_kpca.machine import release_memory, resolve_memory_limit, resolve_threads
from scalable_kpca.model import NystroemModel, in_memory
from scalable_kpca.nystroem import Spans, approximate_eigenvectors, relative_residual
from scalable_kpca.planning import gram_fingerprint
from scalable_kpca.source import (
    NoRows,
    RowNumbers,
    Rows,
    RowSummary,
    StoredRows,
    StoredSparseRows,
    as_csr,
    check_landmark_block,
    digest_rows,
    is_sparse,
)
from scalable_kpca.staging import stage_rows
from scalable_kpca.tiling import NystroemPlan, Plan

__all__ = ["Added", "Fitted", "Fitting"]

SAMPLED_ROWS = 8192  # of a span that rows are drawn from

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
    copies : bool
        Whether an exact model keeps a copy of rows that stay in memory.
    held_bytes : int
        Memory of what X was made from, where the caller has that too.
    """

    def __init__(
        self,
        X: Any,
        n_components: Components,
        options: Options,
        engine: Engine,
        workdir: Path,
        names: tuple[str, ...] = (),
        *,
        copies: bool = False,
        held_bytes: int = 0,
    ) -> None:
        self._X = as_csr(X) if is_sparse(X) else X
        self._n_components, self._options = n_components, options
        self._engine, self._workdir, self._names = engine, workdir, names
        self._copies, self._held_bytes = copies, held_bytes
        self.seed = options.seed
        self._is_matrix = options.kernel == "precomputed"
        # rows that stay in the memory of this process: the caller's own, or gathered from blocks
        in_memory = isinstance(X, np.ndarray) or is_sparse(X) or (options.workdir is None and not self._is_matrix)
        self._stays = engine.shares_memory and in_memory

    def run(self) -> Fitted:
        """Plan and fit."""
        chosen = self._plan(self._n_components, "nystroem" if self._options.max_passes == 0 else self._options.method)
        if isinstance(chosen, Plan):
            return Fitted(chosen, self._exact(chosen, self._n_components))
        # what does not fit is refused before anything is read; a number of components may be known only then
        refines, k = bool(self._options.max_passes), self._n_components
        exact = self._exact_plan(k) if refines and isinstance(k, int) else None
        with self._place_of_spans() as place:
            spans, fit = self._by_columns(chosen, place) if self._is_matrix else self._by_landmarks(chosen)
            if not refines or fit.model.n_components == 0:
                return Fitted(chosen, fit)
            exact = exact or self._exact_plan(fit.model.n_components)
            start = approximate_eigenvectors(
                fit.model.basis,
                fit.model.sums,
                spans,
                self._engine,
                n_columns=exact.block_columns,
                batch_rows=chosen.batch_rows,
            )
        # the same components after passes over K, from the leading directions of the landmarks
        return Fitted(chosen, self._exact(exact, fit.model.n_components, start), fit)

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
            resident_bytes=resident_bytes(self._X, stays=self._stays) + self._held_bytes,
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

    def _plan(self, n_components: Components, method: str, solver: str | None = None) -> Plan | NystroemPlan:
        return plan_fit(
            self._X,
            n_components,
            self._options,
            self._workdir,
            method=method,
            solver=solver,
            stays=self._stays,
            copies=self._copies,
            held_bytes=self._held_bytes,
        )

    def _exact_plan(self, n_components: int) -> Plan:
        exact = self._plan(n_components, "exact", "block_krylov")
        if not isinstance(exact, Plan):
            raise ConfigError("passes refine by the plan of an exact fit.")
        return exact

    # ---------------------------------------------------------------- exact

    def _exact(self, chosen: Plan, n_components: Components, start: Matrix | None = None) -> ExactFit:
        with ExitStack() as stack:
            if self._is_matrix:
                place = None
                if chosen.gram == "zarr" or not stays_in_place(self._X, self._engine):
                    place = stack.enter_context(passing_directory(self._workdir))
                kernel: Kernel = entries_of(self._X, chosen, self._engine, place)
                numbers, path = RowNumbers(chosen.n_samples), place / "gram.zarr" if place else None
                fit = self._solved(numbers, kernel, chosen, n_components, start, path, "")
                return replace(fit, model=replace(fit.model, kernel=Precomputed(), rows=NoRows(chosen.n_samples)))
            rows, summary = stage_rows(
                self._X,
                self._engine,
                None if self._stays else self._workdir,
                tile_rows=chosen.tile_rows,
                names=self._names,
            )
            kernel, identity = self._kernel_of(summary), ""
            if chosen.gram == "zarr" and not isinstance(kernel, CallableKernel):
                identity = gram_fingerprint(digest_rows(rows, chosen.tile_rows), kernel, chosen)
                path = self._workdir / f"gram-{identity[:16]}.zarr"
            elif chosen.gram == "zarr":  # what a function computes has no identity
                path = stack.enter_context(passing_directory(self._workdir)) / "gram.zarr"
            else:
                path = None
            fit = self._solved(rows, kernel, chosen, n_components, start, path, identity)
            # stored rows vanish with a temporary directory, and those of the caller may change
            vanishes = self._options.workdir is None and isinstance(rows, (StoredRows, StoredSparseRows))
            changes = self._copies and not isinstance(rows, (StoredRows, StoredSparseRows))
            if not (vanishes or changes):
                return fit
            if chosen.has_wide_rows:
                release_memory()  # what tasks have freed, before there are more rows
            return replace(fit, model=in_memory(fit.model))

    def _solved(
        self,
        rows: Rows,
        kernel: Kernel,
        chosen: Plan,
        n_components: Components,
        start: Matrix | None,
        path: Path | None,
        identity: str,
    ) -> ExactFit:
        options = self._options
        return fit_exact(
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

    def _kernel_of(self, summary: RowSummary) -> Kernel:
        options = self._options
        if callable(options.kernel):
            if is_sparse(self._X):
                raise InvalidInputError(
                    "a kernel that is a function takes no sparse rows; pass dense ones (X.toarray()), or choose a "
                    "kernel by name."
                )
            return callable_kernel(options.kernel, options.kernel_params, first_rows(self._X, self._engine))
        return options.resolve_kernel(summary, self._median_gamma)

    def _median_gamma(self) -> float:
        spans = spans_of(self._X, self._engine, self._workdir, SAMPLED_ROWS, names=self._names)
        return sampled_gamma(spans, seed=self.seed, engine=self._engine)

    # ---------------------------------------------------------------- Nyström

    def _spans(self, chosen: NystroemPlan) -> Spans:
        return spans_of(self._X, self._engine, self._workdir, chosen.span_rows, names=self._names)

    def _place_of_spans(self) -> AbstractContextManager[Path]:
        """Where a copy of X goes: rows are found there by the next fit, a matrix is of no use to it."""
        return passing_directory(self._workdir) if self._is_matrix else nullcontext(self._workdir)

    def _by_columns(self, chosen: NystroemPlan, place: Path) -> tuple[Spans, NystroemFit]:
        """Nyström from columns of the caller's Gram matrix."""
        options = self._options
        n_samples = self._X.shape[0]
        columns = choose_columns(options.landmarks, n_samples, chosen.n_landmarks, seed=options.seed)
        spans = spans_of(self._X, self._engine, place, chosen.span_rows, columns=columns)
        names = (*(f"K[:, {column}]" for column in columns), "K[i, i]")
        look(self._engine, spans, n_features=len(names), names=names, batch_rows=chosen.batch_rows)
        rows = fetch_rows(self._engine, spans, columns, batch_rows=chosen.batch_rows)
        check_landmark_block(rows, columns)
        fit = self._fit_nystroem(chosen, spans, Precomputed(), Landmarks(rows, columns, "columns"))
        return spans, replace(fit, model=replace(fit.model, columns=columns))

    def _by_landmarks(self, chosen: NystroemPlan) -> tuple[Spans, NystroemFit]:
        options, spans = self._options, self._spans(chosen)
        landmarks, summary = find_landmarks(
            self._engine,
            spans,
            chosen,
            self._kernel_of,
            seed=options.seed,
            names=self._names,
            given=options.landmarks if chosen.landmarks == "given" else None,
            n_features=self._X.shape[1],
        )
        return spans, self._fit_nystroem(chosen, spans, self._kernel_of(summary), landmarks)

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
