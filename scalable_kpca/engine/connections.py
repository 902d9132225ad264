"""Clients of schedulers: of one that runs, of worker processes on this machine, and of whatever has been started."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import dask.config

from scalable_kpca.engine.settings import ClusterSettings, Tls
from scalable_kpca.errors import ClusterError, ConfigError, KernelPCAError

__all__ = [
    "ALLOCATOR",
    "CONNECT_SECONDS",
    "active_client",
    "address_of",
    "connected",
    "local",
    "new_client",
    "wait_for_workers",
    "worker_environment",
]

CONNECT_SECONDS = 5  # for a scheduler to answer
LOOK_SECONDS = 0.2  # between two looks for a file
MOST_BYTES = 2**20  # of it

# distributed has its workers return every freed array to the system, and get fresh pages for the next one: a pass takes
# 1.4 times as long by that. These are what glibc arrives at by itself where nobody interferes.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(64 * 2**20), "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20)}


# What workers do beside their tasks needs the interpreter's lock, a hundred times a second by default: a pass over
# 40 000 rows on two worker processes took a tenth longer with it than without. [docs/decisions/0024]
PROFILE = "distributed.worker.profile.enabled"
QUIET = {
    PROFILE: False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}


# Profiles are nested more deeply than distributed can tell the size of, and each worker warns of that.
HUSHED = {"DASK_LOGGING": "{'distributed.sizeof': 'error'}"}


# Of a scheduler of our own: a worker that hangs is started anew, and no task waits for workers that never come.
PATIENCE = {"distributed.scheduler.worker-ttl": "60s", "distributed.scheduler.no-workers-timeout": "300s"}


def active_client() -> Any:
    """The client that is active in this process; ClusterError where there is none."""
    from distributed import get_client

    try:
        return get_client()
    except ValueError as error:
        raise ClusterError("no Dask client is active here; make one with distributed.Client(...).") from error


@contextmanager
def local(n_workers: int | None, n_threads: int, *, dashboard: bool, profile: bool = False) -> Iterator[Any]:
    """Worker processes on the loopback interface, which end with the block; they may note what they are at."""
    from distributed import LocalCluster

    quiet, environment = {**QUIET, PROFILE: profile}, {**worker_environment(), **(HUSHED if profile else {})}
    with (
        dask.config.set({**PATIENCE, **quiet, "distributed.nanny.pre-spawn-environ": environment}),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=n_threads,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # of its other pages, which would else be served to everyone
            scheduler_kwargs={"dashboard": dashboard},
        ) as cluster,
        new_client(cluster) as client,
    ):
        yield client


def new_client(*arguments: Any, **options: Any) -> Any:
    """A client that is not the active one and that whoever asks for it closes."""
    return _client_class()(*arguments, set_as_default=False, **options)


@cache
def _client_class() -> Any:
    from distributed import Client

    class OwnClient(Client):
        """A client that does not close itself when it is collected.

        One that was interrupted while it was made would wait a minute then, for a loop that has ended with its cluster.
        """

        def __del__(self) -> None:
            pass

    return OwnClient


def worker_environment() -> dict[str, str]:
    """Variables with which a nanny of this process is to start its worker."""
    before = dask.config.get("distributed.nanny.pre-spawn-environ")
    for name in ALLOCATOR:
        # of nannies that start together, distributed leaves its own values in this process, where they would come first
        if os.environ.get(name) == str(before.get(name)):
            del os.environ[name]
    return {**before, **ALLOCATOR}


@contextmanager
def connected(address: str, tls: Tls | None) -> Iterator[Any]:
    """A client of a scheduler that runs."""
    from distributed import Security

    if tls is not None and not address.startswith("tls://"):
        raise ConfigError(f"cluster.tls is given, and cluster.address={address} is not encrypted; use tls://HOST:PORT.")
    _check_address(address)
    try:
        # the connection first: a client that fails to connect logs tracebacks when it is thrown away
        security = Security() if tls is None else tls.security()
        asyncio.run(_greet(address, _certificates(address, tls, security)))
        client = new_client(address, timeout=CONNECT_SECONDS, security=security)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        if isinstance(error, KernelPCAError):
            raise
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {CONNECT_SECONDS} s ({error}); {_advice(address, error)}."
        ) from error
    try:
        yield client
    finally:
        _close(client)


def address_of(settings: ClusterSettings) -> str:
    """Where the scheduler of kind ``"address"`` is, by the settings or by those of dask.

    Raises
    ------
    ClusterError
        When no scheduler writes its file in the time that workers have to join.
    ConfigError
        When none of them say.
    """
    if settings.scheduler_file is not None:
        return _written_address(settings.scheduler_file, settings.seconds)
    address = settings.address or dask.config.get("scheduler-address", None)
    if not address:
        raise ConfigError(
            "cluster.kind is 'address' but no address is given; set cluster.address to tcp://HOST:PORT, "
            "cluster.scheduler_file to the file that the scheduler writes, or DASK_SCHEDULER_ADDRESS."
        )
    return str(address)


def wait_for_workers(client: Any, count: int, seconds: float) -> None:
    """Return when so many workers have joined; ClusterError when they have not in time."""
    # a cluster that adapts to its load starts workers only when there are tasks
    tasks = client.map(abs, range(-count, 0), pure=False)
    try:
        client.wait_for_workers(count, timeout=seconds)
    except TimeoutError as error:
        found = len(client.scheduler_info(n_workers=-1)["workers"])
        has = f"has {found} of {count} workers" if found else "has no worker"
        raise ClusterError(
            f"the Dask scheduler at {client.scheduler.address} {has} after {seconds:g} s; start one with `dask worker "
            "ADDRESS`, see what keeps those that are to come, or set cluster.wait higher."
        ) from error
    finally:
        for task in tasks:
            task.release()


def _written_address(file: Path, seconds: float) -> str:
    """The address in the file of a scheduler, which may be about to write it."""
    if file.exists() and not file.is_file():
        raise ConfigError(f"cluster.scheduler_file: {file} is no file; give what a scheduler writes.")
    deadline = time.monotonic() + seconds
    while True:
        try:
            with file.open("rb") as stream:
                return str(json.loads(stream.read(MOST_BYTES))["address"])
        except FileNotFoundError as error:
            said: Exception = error
        except (OSError, ValueError, KeyError, TypeError) as error:  # it may be half written
            said = error
        if time.monotonic() > deadline:
            reason = "is not there" if isinstance(said, FileNotFoundError) else f"does not say an address ({said})"
            raise ClusterError(
                f"the scheduler file {file} {reason} after {seconds:g} s; start a scheduler with `dask scheduler "
                f"--scheduler-file {file}`, or correct cluster.scheduler_file."
            ) from said
        time.sleep(LOOK_SECONDS)


def _certificates(address: str, tls: Tls | None, security: Any) -> dict[str, Any]:
    """What connections are made with; refused where that is not enough for an encrypted one."""
    try:
        arguments: dict[str, Any] = security.get_connection_args("client")
    except ssl.SSLError as error:
        files = "those of dask's settings" if tls is None else f"{tls.ca}, {tls.cert} and {tls.key}"
        raise ConfigError(
            f"cluster.tls: {files} are not an authority, a certificate and the key of that certificate, in PEM "
            f"({error}); correct them."
        ) from error
    if address.startswith("tls://") and arguments.get("ssl_context") is None:
        raise ClusterError(
            f"the Dask scheduler at {address} answers those with certificates alone, and none are given; set "
            "cluster.tls to its authority, and a certificate and key of that (ca, cert, key)."
        )
    return arguments


async def _greet(address: str, arguments: dict[str, Any]) -> None:
    from distributed.comm.core import connect

    comm = await connect(address, timeout=CONNECT_SECONDS, **arguments)
    await comm.close()


def _advice(address: str, error: Exception) -> str:
    from distributed.comm.core import CommClosedError

    if address.startswith("tls://"):
        return (
            "start one or correct it, and see that cluster.tls names the authority that has signed its certificate, "
            "and a certificate and key of the same one"
        )
    if isinstance(error, CommClosedError):  # somebody is there
        return "if it answers those with certificates alone, give its address as tls://HOST:PORT, and cluster.tls"
    return "start one or correct it"


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
    """ConfigError for what can be no scheduler's address, whoever listens."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    port = 1
    try:
        scheme, place = parse_address(address)
        get_backend(scheme)
        if scheme != "inproc":
            _, port = parse_host_port(place)
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigError(
            f"cluster.address={address} is no address ({error}); give tcp://HOST:PORT or tls://."
        ) from error
    if not 0 < port < 65536:
        raise ConfigError(f"cluster.address={address} is no address: ports are 1 to 65535; give tcp://HOST:PORT.")
