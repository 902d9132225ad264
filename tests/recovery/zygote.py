"""Commands in processes of their own that start at once and die where they are told to.

A process imports everything once and forks for every command. The fork is a process like any other: it is killed by
SIGKILL, by itself, in the moment before its k-th change of a file below a directory, and leaves what a killed process
leaves. Changes are what Python's audit events say of opening for writing, renaming, linking, removing and making
directories, and besides every flush to the disk and every write of pyarrow, which Python does not hear of.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Ended", "Zygote"]

CHANGES = {"os.rename": (0, 1), "os.link": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.mkdir": (0,)}
STOPPED = "stopped"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, or minus the signal that killed it; changes it made; what it said."""

    code: int
    changes: int
    output: str
    errors: str

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON object in the last line."""
        return json.loads(self.output.splitlines()[-1])


class Zygote:
    """Runs ``skpca`` commands in forks of one process.

    Parameters
    ----------
    scratch : Path
        Directory for what commands print.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.recovery.zygote"], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=30)

    def run(
        self,
        *arguments: str,
        watched: Path | None = None,
        kill_at: int | None = None,
        kill_on: str | None = None,
        stop_on: str | None = None,
        meanwhile: Callable[[], None] | None = None,
        **limits: int,
    ) -> Ended:
        """A command to its end; with `kill_at` it dies before that change (from 1) below `watched`.

        Parameters
        ----------
        kill_on : str, optional
            It dies before the first change of a file below `watched` whose path has this text.
        stop_on : str, optional
            Like that it stops, once, and goes on after `meanwhile`.
        meanwhile : callable, optional
            What happens until then.
        limits : int
            Of the process: names of `resource`, such as ``RLIMIT_AS``.
        """
        self.begin(*arguments, watched=watched, kill_at=kill_at, kill_on=kill_on, stop_on=stop_on, **limits)
        return self.end(meanwhile)

    def begin(
        self,
        *arguments: str,
        watched: Path | None = None,
        kill_at: int | None = None,
        kill_on: str | None = None,
        stop_on: str | None = None,
        **limits: int,
    ) -> None:
        """Start a command: see `run`."""
        request = {"arguments": arguments, "watched": str(watched or ""), "kill_at": kill_at or 0, "limits": limits}
        request |= {"scratch": str(self._scratch), "kill_on": kill_on or "", "stop_on": stop_on or ""}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def end(self, meanwhile: Callable[[], None] | None = None) -> Ended:
        """Wait for the command that was started."""
        code, changes = json.loads(self._process.stdout.readline())
        if code == STOPPED:
            try:
                if meanwhile is not None:
                    meanwhile()
            finally:
                self._process.stdin.write(b"go on\n")
                self._process.stdin.flush()
                code, changes = json.loads(self._process.stdout.readline())
        texts = [(self._scratch / name).read_text() for name in ("stdout", "stderr")]
        return Ended(code, changes, *texts)


class _Counter:
    """Counts changes below a directory, and kills or stops this process before one of them.

    A directory counts once: threads that need it try to make it each, and how many do is their order's.
    """

    def __init__(self, watched: str, kill_at: int, kill_on: str, stop_on: str, report: int) -> None:
        self._watched, self._kill_at, self._kill_on, self._stop_on = watched, kill_at, kill_on, stop_on
        self._report, self._numbers = report, itertools.count(1)  # threads count at once
        self._directories: dict[str, object] = {}

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITES:
                self.count(path)
        elif event in CHANGES:
            below = [arguments[index] for index in CHANGES[event] if self._is_below(arguments[index])]
            for path in below[-1:]:
                if event != "os.mkdir" or self._is_first(path):
                    self.count(path)

    def _is_first(self, directory: Any) -> bool:
        ours = object()
        return self._directories.setdefault(str(directory), ours) is ours

    def count(self, path: Any) -> None:
        if not self._is_below(path):
            return
        number = next(self._numbers)
        if number == self._kill_at or (self._kill_on and self._kill_on in str(path)):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._stop_on and self._stop_on in str(path):
            self._stop_on = ""
            os.kill(os.getpid(), signal.SIGSTOP)
        os.pwrite(self._report, number.to_bytes(8, "little"), 0)

    def _is_below(self, path: Any) -> bool:
        # not resolved, which would look at files in the middle of changing them
        return isinstance(path, (str, os.PathLike)) and str(Path(path).absolute()).startswith(self._watched)


def _watch(watched: str, kill_at: int, kill_on: str, stop_on: str, report: int) -> None:
    import pyarrow.parquet as pq

    counter = _Counter(watched, kill_at, kill_on, stop_on, report)

    def before(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counter.count(watched)
            return original(*arguments, **options)

        setattr(owner, name, counted)

    before(os, "fsync")
    for name in ("write_table", "close"):
        before(pq.ParquetWriter, name)
    sys.addaudithook(counter.hear)


def _become(request: dict[str, Any], report: int) -> None:
    import resource

    from scalable_kpca.cli import main

    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(request["scratch"], name), os.O_CREAT | os.O_TRUNC | os.O_WRONLY), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    for name, limit in request["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    if request["watched"]:
        _watch(request["watched"], request["kill_at"], request["kill_on"], request["stop_on"], report)
    sys.argv = ["skpca", *request["arguments"]]
    code: Any = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 0)


def _serve() -> None:
    import distributed  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401
    import sklearn.utils.validation  # noqa: F401
    import zarr  # noqa: F401

    import scalable_kpca.cli
    import scalable_kpca.workflow.inspect
    import scalable_kpca.workflow.progress
    import scalable_kpca.workflow.scoring
    import scalable_kpca.workflow.stages
    import scalable_kpca.workflow.update  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        report = os.open(Path(request["scratch"], "changes"), os.O_CREAT | os.O_TRUNC | os.O_RDWR)
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            try:
                _become(request, report)
            finally:
                os._exit(111)
        _, status = os.waitpid(child, os.WUNTRACED)
        while os.WIFSTOPPED(status):
            print(json.dumps([STOPPED, 0]), flush=True)  # noqa: T201
            sys.stdin.readline()
            os.kill(child, signal.SIGCONT)
            _, status = os.waitpid(child, os.WUNTRACED)
        changes = int.from_bytes(os.pread(report, 8, 0), "little")
        os.close(report)
        print(json.dumps([os.waitstatus_to_exitcode(status), changes]), flush=True)  # noqa: T201


if __name__ == "__main__":
    _serve()
