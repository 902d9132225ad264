"""The section of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from scalable_kpca.engine import BACKENDS
from scalable_kpca.machine import available_processors, resolve_threads
from scalable_kpca.workflow.kernel_config import Section
from scalable_kpca.workflow.output_config import Address, LocalPath

__all__ = ["ClusterConfig", "TlsConfig", "remaining"]

STARTED = (*BACKENDS, "import")
CLUSTERS = ("local", "address", "slurm-runner", *STARTED)
# keys that mean something for some kinds only
KINDS_OF = {
    "n_workers": CLUSTERS,
    "dashboard": ("local",),
    "address": ("address",),
    "scheduler_file": ("address",),
    "tls": ("address",),
    "class_path": ("import",),
    "options": (*STARTED, "slurm-runner"),
    "scale": STARTED,
    "adapt": STARTED,
    "wait_for": CLUSTERS,
    "wait": CLUSTERS,
    "stall": CLUSTERS,
}


def remaining(section: dict[str, Any], said: Mapping[str, str]) -> dict[str, Any]:
    """What a section keeps beside keys and values that are said elsewhere and come before it.

    Of another kind only the keys that mean something for it, and no options, which are those of one class; an address
    replaces a scheduler's file, and the other way round.
    """
    kept, kind = dict(section), said.get("kind", section.get("kind"))
    if kind != section.get("kind"):
        alias = {field.alias: name for name, field in ClusterConfig.model_fields.items() if field.alias}
        kept = {
            key: value
            for key, value in section.items()
            if key != "options" and kind in KINDS_OF.get(alias.get(key, key), (kind,))
        }
    for one, other in (("address", "scheduler_file"), ("scheduler_file", "address")):
        if one in said:
            kept.pop(other, None)
    return kept


class TlsConfig(Section):
    """PEM files of an encrypted scheduler, relative to the configuration file."""

    ca: LocalPath = Field(description="Certificates that scheduler and workers must be signed by.")
    cert: LocalPath = Field(description="This client's certificate.")
    key: LocalPath = Field(description="Its key, readable by its owner only (chmod 600).")


class ClusterConfig(Section):
    """Which Dask scheduler runs the tasks."""

    model_config = ConfigDict(populate_by_name=True)

    kind: Literal[
        "threads", "synchronous", "local", "address", "slurm", "slurm-runner", "ssh", "gateway", "kubernetes", "import"
    ] = Field(
        default="threads",
        description="threads and synchronous: this process. local: worker processes here. address: a scheduler that "
        "runs. slurm, ssh, gateway, kubernetes: SLURMCluster of dask-jobqueue, SSHCluster of distributed, "
        "GatewayCluster, KubeCluster. slurm-runner: SLURMRunner, a command started by srun. import: any other class.",
    )
    n_threads: int | None = Field(
        default=None, ge=1, description="Of this process, or of each worker; by default the processors of this machine."
    )
    n_workers: int | None = Field(
        default=None,
        ge=1,
        description="Worker processes: of kind local so many are started; of other kinds the plan counts with so many, "
        "by default those of `scale`, or one.",
    )
    dashboard: bool = Field(default=False, description="Whether kind local serves dask's dashboard on loopback.")
    address: Address | None = Field(
        default=None, description="Of a running scheduler, for kind address; else that of DASK_SCHEDULER_ADDRESS."
    )
    scheduler_file: LocalPath | None = Field(
        default=None, description="What `dask scheduler --scheduler-file` writes, in the place of an address."
    )
    tls: TlsConfig | None = Field(default=None, description="Of kind address: nothing is said unencrypted then.")
    class_path: str | None = Field(
        default=None, alias="import", description="package.module:Class that starts a Dask cluster, for kind import."
    )
    options: dict[str, Any] = Field(
        default={}, description="Keywords of the class that starts the cluster, by that library's own names."
    )
    scale: Annotated[int, Field(ge=1)] | dict[str, Any] | None = Field(
        default=None, description="Workers that are started, or keywords of the cluster's method scale: {jobs: 4}."
    )
    adapt: dict[str, Any] | None = Field(
        default=None, description="Keywords of the cluster's method adapt: {minimum: 1, maximum: 10}."
    )
    wait_for: int = Field(default=1, ge=1, description="Workers that a run begins with.")
    wait: float | None = Field(
        default=None, gt=0, description="Seconds for these to join: 30, or 3600 where a cluster is started."
    )
    stall: float = Field(default=1800, gt=0, description="Seconds in which nothing finishes: a run gives up.")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        def refuse(text: str) -> None:
            raise PydanticCustomError("cluster", "{message}", {"message": text})

        for name in sorted(self.model_fields_set & KINDS_OF.keys()):
            value, kinds = getattr(self, name), KINDS_OF[name]
            if self.kind not in kinds and value != type(self).model_fields[name].default:
                key = type(self).model_fields[name].alias or name
                refuse(f"{key} is for kind {', '.join(kinds)}, and kind is {self.kind}: remove it, or set cluster.kind")
        if self.kind == "import" and self.class_path is None:
            refuse("kind is import, and no class is named: set cluster.import to package.module:Class")
        if self.address is not None and self.scheduler_file is not None:
            refuse("address and scheduler_file are both given: keep one")
        if self.scale is not None and self.adapt is not None:
            refuse("scale and adapt are both given, and adapt changes what scale has set: keep one")
        least = self._started_at_once
        if least is not None and self.wait_for > max(1, least):
            # it starts workers for tasks, and there are none before the run begins
            refuse(f"wait_for is {self.wait_for}, and adapt starts {least} workers by itself: raise its minimum")
        return self

    @property
    def _started_at_once(self) -> int | None:
        """Workers that `adapt` starts by itself; None without it, or where it counts jobs or cores (dask-jobqueue)."""
        if not self.adapt or any(key.startswith("minimum_") for key in self.adapt):
            return None
        least = self.adapt.get("minimum", 0)
        return least if isinstance(least, int) else None

    @property
    def n_jobs(self) -> int | None:
        """Threads of a process that are asked for: one where tasks run one after another."""
        if self.kind == "local" and self.n_workers is not None and self.n_threads is None:
            return max(1, available_processors() // self.n_workers)
        return 1 if self.kind == "synchronous" else self.n_threads

    @property
    def n_processes(self) -> int:
        """Worker processes that the plan counts with, or this process."""
        if self.kind == "local" and self.n_workers is None:
            return max(1, available_processors() // resolve_threads(self.n_threads))
        return self.n_workers or (self.scale if isinstance(self.scale, int) else 1)
