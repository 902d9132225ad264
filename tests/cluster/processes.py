"""Schedulers and workers as processes of their own, and commands that use them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

__all__ = ["NUMERIC", "Cluster", "Proxy", "begin", "is_worker", "skpca", "wait_until", "workers_below"]


# variables that decide which kernels numpy and BLAS compute with: workers that do not inherit them round differently
NUMERIC = {name: value for name, value in os.environ.items() if name.startswith(("NPY_", "OPENBLAS_", "MKL_", "BLIS_"))}


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """The first true value of a condition; an error when it never comes."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "what was waited for never came"
        time.sleep(0.01)
    return value


def skpca(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    return begin(*arguments).finish()


def is_worker(process: psutil.Process) -> bool:
    """Whether a process below a nanny is the worker, and not what multiprocessing keeps beside it."""
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def workers_below(pid: int) -> list[psutil.Process]:
    """Worker processes that a process has started, or one of its own has; none where it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [child for child in psutil.Process(pid).children(recursive=True) if is_worker(child)]
    return []


class Command(subprocess.Popen[str]):
    """A command that runs."""

    def __init__(self, arguments: tuple[object, ...], environment: dict[str, str], folder: Path | None) -> None:
        command = [sys.executable, "-m", "scalable_kpca.cli", *map(str, arguments)]
        environment = {**os.environ, **environment}
        super().__init__(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder
        )

    def finish(self, seconds: float = 200) -> subprocess.CompletedProcess[str]:
        """Wait for its end; one that does not come is an error."""
        try:
            output, errors = self.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            output, errors = self.communicate()
            raise AssertionError(f"it hangs: {errors}") from None
        return subprocess.CompletedProcess(self.args, self.returncode, output, errors)

    def end(self) -> None:
        """Kill it, if it still runs; what it has said is lost."""
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()


def begin(*arguments: object, environment: dict[str, str] | None = None, folder: Path | None = None) -> Command:
    """A command that has been started, in a directory and with variables of its own."""
    return Command(arguments, environment or {}, folder)


class Cluster:
    """A scheduler and workers, each a process, on the loopback interface.

    Parameters
    ----------
    folder : Path
        For their files.
    environment : dict
        Settings of dask, such as ``DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL``.
    arguments : sequence of str
        Of every process: certificates.
    """

    def __init__(
        self, folder: Path, environment: dict[str, str] | None = None, arguments: tuple[str, ...] = ()
    ) -> None:
        self._folder, self._arguments = folder, arguments
        self._environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **(environment or {})}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start_scheduler(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            tree = [process]
            with contextlib.suppress(psutil.NoSuchProcess):
                tree = [*psutil.Process(process.pid).children(recursive=True), process]
            for each in tree:
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    each.kill()
            process.wait()

    @property
    def address(self) -> str:
        """Of the scheduler."""
        return json.loads((self._folder / "scheduler.json").read_text())["address"]

    def start_scheduler(self, port: int) -> subprocess.Popen[bytes]:
        """A scheduler, which answers."""
        file = self._folder / "scheduler.json"
        file.unlink(missing_ok=True)
        protocol = ("--protocol", "tls") if self._arguments else ()
        options = ("--host", "127.0.0.1", "--port", port, "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
        started = self._start("scheduler", *options, *protocol, "--scheduler-file", file)
        wait_until(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        return started

    def start_workers(
        self,
        n: int = 1,
        *,
        contact: str | None = None,
        prefix: tuple[str, ...] = (),
        environment: Any = None,
        name: str = "",
    ) -> subprocess.Popen[bytes]:
        """Workers under one nanny process each; they may reach the scheduler at another address."""
        options = (
            "--host",
            "127.0.0.1",
            "--nworkers",
            n,
            "--nthreads",
            1,
            "--no-dashboard",
            "--dashboard-address",
            "127.0.0.1:0",
        )
        named = ("--name", name) if name else ()
        place = ("--local-directory", self._folder / f"workers-{len(self._processes)}")
        return self._start(
            "worker", contact or self.address, *options, *named, *place, prefix=prefix, environment=environment
        )

    def workers(self, of: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """Worker processes below a nanny process."""
        return workers_below(of.pid)

    def log(self, of: subprocess.Popen[bytes]) -> str:
        """What a process has said."""
        return (self._folder / f"log-{self._processes.index(of)}").read_text()

    def _start(
        self, kind: str, *options: object, prefix: tuple[str, ...] = (), environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [*prefix, sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, options), *self._arguments]
        with (self._folder / f"log-{len(self._processes)}").open("w") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**self._environment, **(environment or {})}, cwd=self._folder
            )
        self._processes.append(process)
        return process


class Proxy:
    """A TCP proxy to the scheduler that counts bytes, is slow, and resets connections when it is told to.

    Parameters
    ----------
    target : str
        Address ``tcp://host:port``.
    delay : float
        Seconds that every piece of data waits, at most.

    Attributes
    ----------
    n_bytes : int
        That have gone through it so far, in both directions.
    """

    def __init__(self, target: str, delay: float = 0.0) -> None:
        host, port = target.removeprefix("tcp://").split(":")
        self._target, self._delay, self._random = (host, int(port)), delay, random.Random(0)
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop, self._port, self.n_bytes = asyncio.new_event_loop(), 0, 0
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"tcp://127.0.0.1:{self._port}"

    def reset(self) -> int:
        """Abort every connection, in the middle of whatever it carries; how many."""
        found = len(self._writers)
        self._loop.call_soon_threadsafe(lambda: [writer.transport.abort() for writer in tuple(self._writers)])
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._pass_on, "127.0.0.1", 0))
        self._port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, other_writer}
        await asyncio.gather(self._copy(reader, other_writer), self._copy(other_reader, writer), return_exceptions=True)
        self._writers -= {writer, other_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(2**16):
                await asyncio.sleep(self._random.uniform(0, self._delay))
                self.n_bytes += len(piece)
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()
