"""Memory of a fit with a ridge map after it: one number that both keep to."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from scalable_kpca.approximate import plan_joining
from scalable_kpca.engine import active_kind
from scalable_kpca.errors import MemoryLimitError
from scalable_kpca.fitting import Options, resident_bytes
from scalable_kpca.fitting.planned import plan_fit
from scalable_kpca.machine import resolve_memory_limit, resolve_threads
from scalable_kpca.model import NystroemModel
from scalable_kpca.preimage import ridge_bytes
from scalable_kpca.staging import is_dask, is_zarr
from scalable_kpca.tiling import PROCESS_BYTES, NystroemPlan, Plan

__all__ = ["FitWithRidge"]


@dataclass(frozen=True, eq=False)
class FitWithRidge:
    """A fit that a ridge map is learned after.

    Attributes
    ----------
    rows : ndarray, CSR array, dask array or zarr array of shape (n_samples, n_features)
    n_components : int, float or None
    options : Options
        Of the fit.
    most_pairs : int
        Rows that the map is learned on, at most.
    model : NystroemModel or None
        That rows are added to; its landmarks are the pairs.
    copies : bool
        Whether an exact model copies rows that stay.
    held_bytes : int
        Of what the rows were made from, where the caller has that too.
    """

    rows: Any
    n_components: int | float | None
    options: Options
    most_pairs: int
    model: NystroemModel | None
    copies: bool
    held_bytes: int

    def smallest_limit(self, limit: int) -> int:
        """A limit, or the next larger one in bytes that both the fit and the map keep to.

        Each that is too small names the next, which is tried: it may lead to another plan, and that to a larger map.
        """
        while (needed := self._needed(limit)) > limit:
            limit = needed
        return limit

    def _needed(self, limit: int) -> int:
        """Bytes of the fit that is planned within a limit, where that is too small, or else of the map after it."""
        try:
            plan = self._plan(replace(self.options, memory_limit=limit))
        except MemoryLimitError as error:
            return error.needed
        resident = resident_bytes(self.rows, stays=self._in_memory or (self._stays and isinstance(plan, Plan)))
        if isinstance(plan, Plan) and self.copies:
            resident *= 2
        pairs, model_bytes, k = self._sizes(plan)
        held = PROCESS_BYTES + self.held_bytes + resident + model_bytes
        return held + ridge_bytes(pairs, k, self.rows.shape[1])

    @property
    def _in_memory(self) -> bool:
        return not (is_dask(self.rows) or is_zarr(self.rows))

    @property
    def _stays(self) -> bool:
        """Whether the fit has its rows in the memory of this process."""
        return (self._in_memory or self.options.workdir is None) and active_kind() != "client"

    def _plan(self, options: Options) -> Plan | NystroemPlan:
        """Plan of what is kept in the end: of a fit that passes refine, the second of its plans."""
        if self.model is not None:
            return plan_joining(
                self.model,
                self.rows.shape[0],
                memory_limit=resolve_memory_limit(options.memory_limit),
                n_threads=resolve_threads(options.n_jobs),
                resident_bytes=resident_bytes(self.rows, stays=self._stays) + self.held_bytes,
            )
        workdir = Path(options.workdir or tempfile.gettempdir())
        held: dict[str, Any] = {"stays": self._stays, "copies": self.copies, "held_bytes": self.held_bytes}
        planned = partial(plan_fit, self.rows, self._wanted, options, workdir, **held)
        plan = planned(method="nystroem" if options.max_passes == 0 else options.method)
        if isinstance(plan, NystroemPlan) and options.max_passes:
            # an unknown number of components is at most that of the landmarks
            k = self._wanted if isinstance(self._wanted, int) else plan.n_landmarks
            return plan_fit(self.rows, k, options, workdir, method="exact", solver="block_krylov", **held)
        return plan

    @property
    def _wanted(self) -> int | float | None:
        """Components, at most one a row."""
        k = self.n_components
        return min(k, self.rows.shape[0]) if isinstance(k, int) else k

    def _sizes(self, plan: Plan | NystroemPlan) -> tuple[int, int, int]:
        """Pairs of the map, bytes of the model that they come from, and its components, at most."""
        if isinstance(plan, NystroemPlan):
            m, d, k = plan.n_landmarks, plan.n_features, plan.n_components or plan.n_landmarks
            return min(self.most_pairs, m), 8 * (3 * m * m + 2 * m * d + m * k), k
        # an unknown number: all of them where all are found, else what the solver is planned to hold
        k = plan.n_components or min(plan.max_basis or plan.n_samples, plan.n_samples)
        return min(self.most_pairs, plan.n_samples), 16 * plan.n_samples * k, k
