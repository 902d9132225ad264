"""The engine that a configuration asks for."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from scalable_kpca.engine import Engine, Listener, Tls, open_engine
from scalable_kpca.workflow.config import ClusterConfig

__all__ = ["open_cluster"]


def open_cluster(
    cluster: ClusterConfig, n_threads: int, listener: Listener | None, run: Path
) -> AbstractContextManager[Engine]:
    """Engine of the section ``cluster``, whose workers can use the directory of a run: see `open_engine`."""
    tls = cluster.tls
    return open_engine(
        cluster.kind,
        n_threads=n_threads,
        address=cluster.address,
        n_workers=cluster.n_workers,
        wait=cluster.wait,
        stall=cluster.stall,
        dashboard=cluster.dashboard,
        tls=None if tls is None else Tls(Path(tls.ca), Path(tls.cert), Path(tls.key)),
        shared=run,
        listener=listener,
    )
