"""The engine that a configuration asks for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from scalable_kpca.engine import Engine, Listener, open_engine
from scalable_kpca.workflow.config import ClusterConfig

__all__ = ["open_cluster"]


def open_cluster(cluster: ClusterConfig, n_threads: int, listener: Listener | None) -> AbstractContextManager[Engine]:
    """Engine of the section ``cluster``: see `open_engine`."""
    return open_engine(
        cluster.kind,
        n_threads=n_threads,
        address=cluster.address,
        n_workers=cluster.n_workers,
        wait=cluster.wait,
        listener=listener,
    )
