"""The engine that a configuration asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from scalable_kpca.engine import ClusterSettings, Engine, Listener, Tls, open_engine, taking_part
from scalable_kpca.workflow.config import ClusterConfig, Config
from scalable_kpca.workflow.loading import Draft
from scalable_kpca.workflow.monitoring import reporting

__all__ = ["open_cluster", "part_of_job", "settings_of"]


@contextmanager
def open_cluster(config: Config, n_threads: int, listener: Listener | None, run: Path) -> Iterator[Engine]:
    """Engine of the section ``cluster``, whose workers can use the directory of a run: see `open_engine`.

    What it has done is reported at the end where ``monitor.performance_report`` asks for that.
    """
    place = config.monitor.performance_report
    settings = replace(settings_of(config.cluster), report=place is not None)
    with (
        open_engine(settings, n_threads=n_threads, shared=run, listener=listener) as engine,
        reporting(engine, place),
    ):
        yield engine


def part_of_job(draft: Draft) -> AbstractContextManager[None]:
    """The part of this process in a job of Slurm that `srun` has started as a whole: see `taking_part`."""
    cluster = draft.cluster()
    return taking_part(cluster.options) if cluster.kind == "slurm-runner" else nullcontext()


def settings_of(cluster: ClusterConfig) -> ClusterSettings:
    """The section ``cluster`` as an engine takes it."""
    tls = cluster.tls
    return ClusterSettings(
        kind=cluster.kind,
        n_workers=cluster.n_processes,
        dashboard=cluster.dashboard,
        address=cluster.address,
        scheduler_file=None if cluster.scheduler_file is None else Path(cluster.scheduler_file),
        tls=None if tls is None else Tls(Path(tls.ca), Path(tls.cert), Path(tls.key)),
        class_path=cluster.class_path,
        options=cluster.options,
        scale=cluster.scale,
        adapt=cluster.adapt,
        wait_for=cluster.wait_for,
        wait=cluster.wait,
        stall=cluster.stall,
    )
