"""Engines for each kind of scheduler, started and stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.config

from scalable_kpca.engine.backends import started
from scalable_kpca.engine.base import Engine, Event, Listener
from scalable_kpca.engine.blas import single_threaded_blas
from scalable_kpca.engine.cluster import ClusterEngine
from scalable_kpca.engine.connections import active_client, address_of, connected, local, wait_for_workers
from scalable_kpca.engine.local import LocalEngine
from scalable_kpca.engine.performance import check_report
from scalable_kpca.engine.preflight import check_workers
from scalable_kpca.engine.settings import ClusterSettings
from scalable_kpca.engine.slurm_runner import scheduler_file_of

__all__ = ["active_kind", "client_of", "open_engine"]


def active_kind() -> str:
    """Kind of scheduler that dask's own settings ask for here: an active client, ``scheduler=`` or threads."""
    if "distributed" in sys.modules:
        from distributed import get_client

        try:
            get_client()
        except ValueError:
            pass
        else:
            return "client"
    chosen = dask.config.get("scheduler", None)
    return "synchronous" if chosen in ("synchronous", "sync", "single-threaded") else "threads"


@contextmanager
def open_engine(
    cluster: str | ClusterSettings = "threads",
    *,
    n_threads: int = 1,
    shared: Path | None = None,
    listener: Listener | None = None,
) -> Iterator[Engine]:
    """Engine for a kind of scheduler; everything that it started is stopped at the end.

    Parameters
    ----------
    cluster : str or ClusterSettings
        A kind alone, where that says everything.
    n_threads : int
        Of ``"threads"``, and of each worker process of ``"local"``.
    shared : Path, optional
        Directory that every worker of a cluster must be able to read and write.
    listener : callable, optional
        Receives progress events.

    Yields
    ------
    Engine

    Raises
    ------
    ClusterError
        When no scheduler answers, or it has too few workers, or one with other libraries, or without access to
        `shared`.
    ConfigError
        When the settings do not go together.

    Notes
    -----
    While the engine is open, BLAS in this process runs on one thread per task: see `single_threaded_blas`.
    """
    settings = ClusterSettings(cluster) if isinstance(cluster, str) else cluster
    with single_threaded_blas():
        if settings.kind in ("threads", "synchronous"):
            engine = LocalEngine(n_threads if settings.kind == "threads" else 0, listener)
            try:
                yield engine
            finally:
                engine.close()
        else:
            with client_of(settings, n_threads) as client:
                _join(client, settings, listener)
                if settings.kind != "local" or shared is not None:
                    check_workers(client, shared, settings.patience)
                if settings.report:
                    check_report(client, settings.patience)
                yield ClusterEngine(client, listener, stall=settings.stall)


def _join(client: Any, settings: ClusterSettings, listener: Listener | None) -> None:
    """Wait for workers, and say so where they are not there yet: they may be in a queue for an hour."""
    found, tell = len(client.nthreads()), listener or (lambda _: None)
    if found < settings.wait_for:
        tell(Event("workers", found, settings.wait_for))
    wait_for_workers(client, settings.wait_for, settings.seconds)
    if found < settings.wait_for:
        tell(Event("workers", settings.wait_for, settings.wait_for))


def client_of(settings: ClusterSettings, n_threads: int) -> AbstractContextManager[Any]:
    """A client of the scheduler that is meant, which is started and ended where no other one has."""
    if settings.kind == "client":
        return nullcontext(active_client())
    if settings.kind == "local":
        return local(settings.n_workers, n_threads, dashboard=settings.dashboard, profile=settings.report)
    if settings.kind == "address":
        return connected(address_of(settings), settings.tls)
    if settings.kind == "slurm-runner":
        file = replace(settings, scheduler_file=scheduler_file_of(settings.options))
        return connected(address_of(file), None)
    return started(settings)
