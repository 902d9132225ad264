"""Engines for each kind of scheduler, started and stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.config

from scalable_kpca.engine.base import Engine, Listener
from scalable_kpca.engine.blas import single_threaded_blas
from scalable_kpca.engine.cluster import STALL_SECONDS, ClusterEngine
from scalable_kpca.engine.local import LocalEngine
from scalable_kpca.engine.preflight import check_shared, check_versions
from scalable_kpca.errors import ClusterError, ConfigError, KernelPCAError

__all__ = ["CONNECT_SECONDS", "WAIT_SECONDS", "Tls", "active_kind", "open_engine"]

CONNECT_SECONDS = 5  # for a scheduler to answer
WAIT_SECONDS = 30  # for it to have a worker

# distributed has its workers return every freed array to the system, and get fresh pages for the next one: a pass takes
# 1.4 times as long by that. These are what glibc arrives at by itself where nobody interferes.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(64 * 2**20), "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20)}


# Of a scheduler of our own: a worker that hangs is started anew, and no task waits for workers that never come.
PATIENCE = {"distributed.scheduler.worker-ttl": "60s", "distributed.scheduler.no-workers-timeout": "300s"}


@dataclass(frozen=True)
class Tls:
    """PEM files for an encrypted scheduler.

    Attributes
    ----------
    ca, cert, key : Path
        Certificates to trust; this client's own; its key, readable by nobody else.
    """

    ca: Path
    cert: Path
    key: Path

    def security(self) -> Any:
        """Settings of `distributed` that let nothing through unencrypted.

        Raises
        ------
        ConfigError
            When a file is missing, or others may read the key.
        """
        from distributed import Security

        for name in ("ca", "cert", "key"):
            file: Path = getattr(self, name)
            if not file.is_file():
                raise ConfigError(f"cluster.tls.{name}: {file} is not a file; give the path of a PEM file.")
        mode = stat.S_IMODE(self.key.stat().st_mode)
        if mode & 0o077:
            raise ConfigError(
                f"cluster.tls.key: {self.key} has mode {mode:04o}, others may read it; run chmod 600 {self.key}."
            )
        return Security(
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.cert),
            tls_client_key=str(self.key),
            require_encryption=True,
        )


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
    stall: float = STALL_SECONDS,
    dashboard: bool = False,
    tls: Tls | None = None,
    shared: Path | None = None,
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
        Seconds for a first worker of ``"address"`` and ``"client"`` to join, and for each to answer.
    stall : float
        Seconds without anything finished on a cluster after which a run gives up.
    dashboard : bool
        Whether ``"local"`` serves dask's dashboard, on the loopback interface.
    tls : Tls, optional
        Of ``"address"``: nothing is said unencrypted then.
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
        When no scheduler answers, or it has no worker, or one with other libraries, or without access to `shared`.
    ConfigError
        When the settings do not go together.

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
        elif kind in ("client", "local", "address"):
            if kind == "client":
                connection: Any = nullcontext(_active_client())
            elif kind == "local":
                connection = _local(n_workers, n_threads, dashboard=dashboard)
            else:
                connection = _connected(address, tls)
            with connection as client:
                _wait_for_worker(client, wait)
                if kind != "local":
                    check_versions(client, wait)
                if shared is not None:
                    check_shared(client, shared, wait)
                yield ClusterEngine(client, listener, stall=stall)
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
def _local(n_workers: int | None, n_threads: int, *, dashboard: bool) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    before = dask.config.get("distributed.nanny.pre-spawn-environ")
    for name in ALLOCATOR:
        # of nannies that start together, distributed leaves its own values in this process, where they would come first
        if os.environ.get(name) == str(before.get(name)):
            del os.environ[name]
    with (
        dask.config.set({**PATIENCE, "distributed.nanny.pre-spawn-environ": {**before, **ALLOCATOR}}),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=n_threads,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # of its other pages, which would else be served to everyone
            scheduler_kwargs={"dashboard": dashboard},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _connected(address: str | None, tls: Tls | None) -> Iterator[Any]:
    from distributed import Client, Security

    if address is None:
        raise ConfigError("cluster.kind is 'address' but no address is given; set cluster.address to tcp://HOST:PORT.")
    if tls is not None and not address.startswith("tls://"):
        raise ConfigError(f"cluster.tls is given, and cluster.address={address} is not encrypted; use tls://HOST:PORT.")
    try:
        _check_address(address)
        # the connection first: a client that fails to connect logs tracebacks when it is thrown away
        security = Security() if tls is None else tls.security()
        asyncio.run(_greet(address, security))
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False, security=security)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, KernelPCAError):
            raise
        advice = "start one or correct it"
        if address.startswith("tls://"):
            advice += ", and see that cluster.tls names certificates that it accepts"
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {CONNECT_SECONDS} s ({error}); {advice}."
        ) from error
    try:
        yield client
    finally:
        _close(client)


async def _greet(address: str, security: Any) -> None:
    from distributed.comm.core import connect

    comm = await connect(address, timeout=CONNECT_SECONDS, **security.get_connection_args("client"))
    await comm.close()


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
