"""A job that has been checked and planned, and the names of what it makes: same name, same contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError
from scalable_kpca.kernels import Kernel, resolve_kernel
from scalable_kpca.landmarks import sampled_gamma
from scalable_kpca.objects import StoredObject
from scalable_kpca.planning import ALGORITHM_VERSION, gram_fingerprint
from scalable_kpca.records import digest_json
from scalable_kpca.source import Preparation, PreparedSource, Rows, RowSummary, Source, Survey, row_spans
from scalable_kpca.tiling import NystroemPlan, Plan
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.planned import is_refined, plan_start

__all__ = ["AnyPlan", "Planned", "Prepared", "run_fingerprint"]

AnyPlan = Plan | NystroemPlan


@dataclass(frozen=True, eq=False)
class Planned:
    """A job that has been checked and planned; of its rows only their shape is known.

    Attributes
    ----------
    config : Config
    source : Source
    plan : Plan or NystroemPlan
    output : Output
    """

    config: Config
    source: Source
    plan: AnyPlan
    output: Output

    @property
    def preparation(self) -> Preparation | None:
        """How features are made of columns, None where they are these columns."""
        return self.source.preparation if isinstance(self.source, PreparedSource) else None

    @property
    def survey(self) -> Survey | None:
        """What the columns were like before they were prepared, None where they are taken as they are."""
        return self.source.found if isinstance(self.source, PreparedSource) else None

    @property
    def exact_plan(self) -> Plan:
        """The plan of a job that copies its rows."""
        if not isinstance(self.plan, Plan):
            raise ConfigError("a Nyström job reads its rows where they are.")
        return self.plan

    @property
    def nystroem_plan(self) -> NystroemPlan:
        """The plan of a job that reads its rows where they are."""
        if not isinstance(self.plan, NystroemPlan):
            raise ConfigError("an exact job copies its rows.")
        return self.plan

    def kernel(self, summary: RowSummary, median: float | Callable[[], float]) -> Kernel:
        """The kernel with every parameter resolved on the rows; `median` is asked for only where gamma is that."""
        wanted = self.config.kernel
        return resolve_kernel(
            wanted.name,
            gamma=wanted.resolved_gamma,
            degree=wanted.degree,
            coef0=wanted.coef0,
            n_features=summary.n_features,
            variance=summary.variance,
            median=median,
        )


@dataclass(frozen=True, eq=False)
class Prepared(Planned):
    """A planned job whose rows have been read once for their identity, before anything is written.

    Attributes
    ----------
    config, source, plan, output
        See `Planned`.
    source_digest : str
        Identity of the source's contents when it was prepared; what is published belongs to them.
    source_states : dict
        Of each file, by its path, what `file_states` said before its contents were read: it names one that changed.
    fingerprint : str
        Identity of the run: same contents, kernel, plan and solver settings, same name.
    """

    source_digest: str
    source_states: dict[str, list[list[Any]]]
    fingerprint: str

    @property
    def rows_key(self) -> str:
        """Identity of the stored rows and of the labels that belong to them."""
        return digest_json([self.source_digest, self.exact_plan.tile_rows, self.source.dtype])

    def kernel_on(self, rows: Rows, summary: RowSummary, engine: Engine | None = None) -> Kernel:
        """The kernel resolved on stored rows; without an engine, what that reads is read in this process."""
        spans = row_spans(rows, self.exact_plan.tile_rows)
        return self.kernel(summary, partial(sampled_gamma, spans, seed=self.config.seed, engine=engine))

    def gram_key(self, kernel: Kernel) -> str:
        """Identity of the tiles: other components or tolerances use the same ones."""
        return gram_fingerprint(self.rows_key, kernel, self.exact_plan)

    def tiles_at(self, kernel: Kernel) -> StoredObject | None:
        """Where the tiles lie on S3, by their contents; None where they lie in the directory of the run."""
        place = self.config.output.tiles
        return None if place is None else StoredObject.of(place) / self.gram_key(kernel) / "gram.zarr"


def run_fingerprint(config: Config, source_digest: str, plan: AnyPlan) -> str:
    """Identity of a run, SHA-256 in hexadecimal, of everything that its results depend on."""
    identity = {
        "source": source_digest,
        "kernel": config.kernel.identity,
        "n_components": config.n_components,
        "dtype": plan.dtype,
        "indefinite": config.indefinite,
        "novelty": config.novelty,
        "health": config.health,
        "format": config.output.format,
        "inverse": None if config.inverse is None else config.inverse.alpha,
        "seed": config.seed,
        "algorithm": ALGORITHM_VERSION,
        **(_exact_identity(config, plan) if isinstance(plan, Plan) else _nystroem_identity(plan)),
    }
    return digest_json(identity)


def _exact_identity(config: Config, plan: Plan) -> dict[str, Any]:
    return (_nystroem_identity(plan_start(config, plan)) if is_refined(config) else {}) | {
        "method": "exact",
        "solver": [plan.solver, plan.max_basis, config.solver.tol, config.solver.max_passes],
        "tile_rows": plan.tile_rows,
        "tiles_per_task": plan.tiles_per_task,
        "on_failure": config.on_failure,
    }


def _nystroem_identity(plan: NystroemPlan) -> dict[str, Any]:
    cut = [plan.span_rows, plan.batch_rows]
    return {"method": "nystroem", "landmarks": [plan.landmarks, plan.n_landmarks], "spans": cut}
