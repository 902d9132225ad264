"""What a configuration may say: every key with its type, default and meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from scalable_kpca.errors import ConfigError
from scalable_kpca.machine import resolve_memory_limit
from scalable_kpca.workflow.cluster_config import ClusterConfig, TlsConfig
from scalable_kpca.workflow.csv_config import CsvConfig
from scalable_kpca.workflow.kernel_config import KernelConfig, Section
from scalable_kpca.workflow.monitor_config import MonitorConfig
from scalable_kpca.workflow.output_config import InverseConfig, OutputConfig, Place
from scalable_kpca.workflow.parts import NOVELTY, RECONSTRUCTION
from scalable_kpca.workflow.source_config import SourceConfig

__all__ = [
    "BudgetConfig",
    "ClusterConfig",
    "Config",
    "CsvConfig",
    "DriftConfig",
    "InverseConfig",
    "KernelConfig",
    "Limits",
    "MonitorConfig",
    "NystroemConfig",
    "OutputConfig",
    "Place",
    "SolverConfig",
    "SourceConfig",
    "TlsConfig",
]


Size = int | str


class SolverConfig(Section):
    """The eigensolver."""

    name: Literal["auto", "dense", "arpack", "block_krylov", "power"] = Field(
        default="auto",
        description="auto is dense up to 2000 rows, block Krylov above; power is a slow reference.",
    )
    tol: float | None = Field(
        default=None, ge=0, description="Relative residual (block_krylov, power) or ARPACK's tolerance."
    )
    max_passes: int | None = Field(
        default=None, ge=0, description="Limit on passes; 0 is Nyström; with method nystroem, passes that refine it."
    )


class NystroemConfig(Section):
    """Landmarks of a Nyström fit."""

    n_landmarks: int = Field(default=1000, ge=1, description="At most as many as there are rows.")
    landmarks: Literal["uniform", "kmeans++", "rpcholesky"] = Field(
        default="uniform",
        description="Drawn uniformly, spread out by k-means++ in a sample, or by randomly pivoted Cholesky: some ten "
        "passes over the rows, and fewer landmarks where the spectrum decays or small clusters matter.",
    )


class Limits(Section):
    """Of one measure of drift."""

    warn: float | None = Field(default=None, ge=0, description="Above it there is a warning.")
    fail: float | None = Field(default=None, ge=0, description="Above it nothing is published, exit code 65.")


MEASURES = ("missing", "outside", "mean", "spread", "unknown", "psi", "novelty")  # of health


class DriftConfig(Limits):
    """How far later rows may be from those of the fit, each measure less what chance gives.

    `warn` and `fail` are of landmarks: the share of trace that they leave out of a new partition, over that of the base
    run's rows; the others are of `skpca transform` too.
    """

    warn: float | None = Field(default=2.0, gt=0, description="Ratio above which `skpca update` warns.")
    fail: float | None = Field(default=None, gt=0, description="Ratio above which it refuses the partition.")
    missing: Limits = Field(
        default=Limits(warn=0.05), description="Share of rows without a value in a column, less that of the fit."
    )
    outside: Limits = Field(
        default=Limits(warn=0.05), description="Share of a column's values below or above all that the fit has seen."
    )
    mean: Limits = Field(
        default=Limits(warn=1.0), description="Shift of a column's mean, in standard deviations of the fit."
    )
    spread: Limits = Field(
        default=Limits(),
        description="Ratio of a column's standard deviation to that of the fit, or the other way, less 1.",
    )
    unknown: Limits = Field(
        default=Limits(warn=0.05), description="Share of categories that the fit has not seen (source.unknown: ignore)."
    )
    psi: Limits = Field(
        default=Limits(warn=0.25), description="Population stability index of the leading components' scores."
    )
    novelty: Limits = Field(
        default=Limits(warn=0.05),
        description="Share of rows more novel than all but one in a hundred of the fit's, less that one; with novelty.",
    )

    @field_validator(*MEASURES, mode="before")
    @classmethod
    def _what_is_not_said_stays(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict) and info.field_name is not None:
            return {**cls.model_fields[info.field_name].default.model_dump(), **value}
        return value

    def limits(self, measure: str) -> Limits:
        """Of a measure."""
        found: Limits = getattr(self, measure)
        return found


class BudgetConfig(Section):
    """What the run may use."""

    memory: Size | None = Field(default=None, description="Peak of a process, bytes or text such as 4GiB.")
    disk: Size | None = Field(default=None, description="Bytes of rows, tiles and journal, number or text: 50GiB.")

    @field_validator("memory", "disk")
    @classmethod
    def _is_a_size(cls, value: Size | None) -> Size | None:
        try:
            resolve_memory_limit(value)
        except ConfigError as error:
            message = f'{value!r} is not a size; give bytes or text such as "4GiB"'
            raise PydanticCustomError("size", "{message}", {"message": message}) from error
        return value


def _or_a_truth_value(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"type": "boolean"})


class Config(Section):
    """A kernel PCA job."""

    source: SourceConfig
    output: OutputConfig
    kernel: KernelConfig = KernelConfig()
    method: Literal["auto", "exact", "nystroem"] = Field(
        default="auto",
        description="auto is exact as long as that fits in memory and takes less than half an hour by nominal rates.",
    )
    n_components: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=10, description="A number; the fewest for a share of the variance; or null for all that are not zero."
    )
    gram: Literal["auto", "zarr", "memory", "recompute"] = Field(
        default="auto",
        description="Where tiles of an exact fit live: stored, kept, or evaluated in every pass; auto is the fastest "
        "that fits.",
    )
    dtype: Literal["auto", "float64", "float32"] = Field(
        default="auto", description="Of tiles, or of kernel values with landmarks; auto is float64 up to 2000 rows."
    )
    tile_rows: int | None = Field(default=None, ge=1, description="Rows of a tile; planned by default.")
    solver: SolverConfig = SolverConfig()
    nystroem: NystroemConfig = NystroemConfig()
    health: bool = Field(
        default=True,
        description="Whether a run keeps what its rows are like (profile.json), and later rows are compared with it.",
    )
    drift: DriftConfig = DriftConfig()
    novelty: bool = Field(
        default=False,
        description="Whether a column `novelty` stands beside the scores: the squared distance of a row to the "
        "components in feature space (Hoffmann 2007).",
    )
    inverse: InverseConfig | None = Field(
        default=None,
        description="Whether the model learns a map from scores back to rows, true or its ridge, and a column "
        "`reconstruction` stands beside the scores: the distance of a row's features to what they are mapped back to.",
        json_schema_extra=_or_a_truth_value,
    )
    indefinite: Literal["error", "clip"] = Field(
        default="error",
        description="A kernel that is not positive semi-definite on the rows is refused, or loses its negative part.",
    )
    on_failure: Literal["error", "return"] = Field(
        default="error",
        description="A solve that gives up is an error, or is published with complete=false. ARPACK that finds nothing "
        "in its passes is an error in either case: there is nothing to publish.",
    )
    keep: Literal["all", "results"] | Annotated[int, Field(ge=1)] = Field(
        default="all",
        description="After publishing: everything stays; rows, tiles and journals of committed runs go; or all but so "
        "many runs go.",
    )
    seed: int = Field(default=0, ge=0, description="Of landmarks and start vectors: the same gives the same bits.")
    cluster: ClusterConfig = ClusterConfig()
    budget: BudgetConfig = BudgetConfig()
    monitor: MonitorConfig = MonitorConfig()

    @model_validator(mode="before")
    @classmethod
    def _true_is_the_default_map(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(fields.get("inverse"), bool):
            return {**fields, "inverse": {} if fields["inverse"] else None}
        return fields

    @model_validator(mode="after")
    def _limits_are_measured(self) -> Config:
        unused = [name for name in MEASURES if getattr(self.drift, name) != DriftConfig.model_fields[name].default]
        if unused and not self.health:
            reason = "health is false, and no row is compared with those of the fit"
        elif "novelty" in unused and not self.novelty:
            unused, reason = ["novelty"], "novelty is false, and there is no such column"
        elif self.drift.fail is not None and self.method == "exact":
            unused, reason = ["fail"], "method is exact, and rows are added to Nyström models only"
        else:
            return self
        message = f"{', '.join(f'drift.{name}' for name in unused)}: {reason}; leave one of them out"
        raise PydanticCustomError("drift", "{message}", {"message": message})

    @model_validator(mode="after")
    def _tiles_are_stored(self) -> Config:
        asked_for = f"output.tiles={self.output.tiles} is where the stored tiles of exact jobs go"
        passes = self.solver.max_passes
        if self.output.tiles is not None and self.gram != "zarr":
            message = f"{asked_for}; set gram: zarr, which is not chosen by itself: no plan knows the speed of S3"
            raise PydanticCustomError("tiles", "{message}", {"message": message})
        if self.output.tiles is not None and (passes == 0 or (self.method == "nystroem" and not passes)):
            message = f"{asked_for}, and a Nyström fit stores none; leave it out, or set method: exact"
            raise PydanticCustomError("tiles", "{message}", {"message": message})
        return self

    @model_validator(mode="after")
    def _reports_are_of_schedulers(self) -> Config:
        if self.monitor.performance_report is not None and self.cluster.kind in ("threads", "synchronous"):
            message = (
                f"monitor.performance_report is of tasks on a Dask scheduler, and cluster.kind is {self.cluster.kind}; "
                "set cluster.kind to local or another one, or leave the report out (monitor.performance_report: null)"
            )
            raise PydanticCustomError("monitor", "{message}", {"message": message})
        return self

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns that stand beside the scores."""
        return (NOVELTY,) * self.novelty + (RECONSTRUCTION,) * (self.inverse is not None)
