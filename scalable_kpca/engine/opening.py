"""Engines for each kind of scheduler, started and stopped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask.config

from scalable_kpca.engine.base import Engine, Listener
from scalable_kpca.engine.blas import single_threaded_blas
from scalable_kpca.engine.cluster import ClusterEngine
from scalable_kpca.engine.local import LocalEngine
from scalable_kpca.errors import ClusterError, ConfigError

__all__ = ["CONNECT_SECONDS", "WAIT_SECONDS", "active_kind", "open_engine"]

CONNECT_SECONDS = 5  # for a scheduler to answer
WAIT_SECONDS = 30  # for it to have a worker

# distributed has its workers return every freed array to the system, and get fresh pages for the next one: a pass takes
# 1.4 times as long by that. These are what glibc arrives at by itself where nobody interferes.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(64 * 2**20), "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20)}


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
    kind: str = "threads",
    *,
    n_threads: int = 1,
    address: str | None = None,
    n_workers: int | None = None,
    wait: float = WAIT_SECONDS,
    listener: Listener | None = None,
) -> Iterator[Engine]:
    """Engine for a kind of scheduler; everything that it started is stopped at the end.

    Parameters
    ----------
    kind : {"threads", "synchronous", "local", "address", "client"}
        ``"local"`` starts worker processes on the loopback interface; ``"address"`` connects; ``"client"`` uses the
        active `distributed` client.
    n_threads : int
        Of ``"threads"``, and of each worker process of ``"local"``.
    address : str, optional
        Of a scheduler.
    n_workers : int, optional
        Processes of ``"local"``.
    wait : float
        Seconds for a first worker of ``"address"`` and ``"client"`` to join.
    listener : callable, optional
        Receives progress events.

    Yields
    ------
    Engine

    Raises
    ------
    ClusterError
        When no scheduler answers, or it has no worker.

    Notes
    -----
    While the engine is open, BLAS in this process runs on one thread per task: see `single_threaded_blas`.
    """
    with single_threaded_blas():
        if kind in ("threads", "synchronous"):
            engine = LocalEngine(n_threads if kind == "threads" else 0, listener)
            try:
                yield engine
            finally:
                engine.close()
        elif kind == "client":
            client = _active_client()
            _wait_for_worker(client, wait)
            yield ClusterEngine(client, listener)
        elif kind in ("local", "address"):
            with _connected(kind, address, n_workers, n_threads) as client:
                _wait_for_worker(client, wait)
                yield ClusterEngine(client, listener)
        else:
            raise ConfigError(
                f"cluster kind {kind!r} is not known; choose one of threads, synchronous, local, address."
            )


def _active_client() -> Any:
    from distributed import get_client

    try:
        return get_client()
    except ValueError as error:
        raise ClusterError("no Dask client is active here; make one with distributed.Client(...).") from error


@contextmanager
def _connected(kind: str, address: str | None, n_workers: int | None, n_threads: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    if kind == "local":
        before = dask.config.get("distributed.nanny.pre-spawn-environ")
        with (
            dask.config.set({"distributed.nanny.pre-spawn-environ": {**before, **ALLOCATOR}}),
            LocalCluster(
                n_workers=n_workers,
                threads_per_worker=n_threads,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    if address is None:
        raise ConfigError("cluster.kind is 'address' but no address is given; set cluster.address to tcp://HOST:PORT.")
    try:
        _check_address(address)  # a client that fails later tries to close what it never opened
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {CONNECT_SECONDS} s ({error}); start one or correct it."
        ) from error
    try:
        yield client
    finally:
        _close(client)


def _close(client: Any) -> None:
    log = logging.getLogger("distributed.client")
    before = log.level
    if client.status != "running":
        # it is looking for a scheduler that is lost, and logs a traceback when it is told to stop
        log.setLevel(logging.CRITICAL)
    try:
        client.close()
    finally:
        log.setLevel(before)


def _check_address(address: str) -> None:
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    scheme, place = parse_address(address)
    get_backend(scheme)
    if scheme != "inproc":
        parse_host_port(place)


def _wait_for_worker(client: Any, seconds: float) -> None:
    # a cluster that adapts to its load starts a worker only when there is a task
    task = client.submit(abs, -1, pure=False)
    try:
        client.wait_for_workers(1, timeout=seconds)
    except TimeoutError as error:
        raise ClusterError(
            f"the Dask scheduler at {client.scheduler.address} has no worker after {seconds:g} s; start one with "
            "`dask worker ADDRESS`, or set cluster.wait higher."
        ) from error
    finally:
        task.release()
