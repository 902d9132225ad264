"""What runs inside a child process: one subject, measured, its numbers on the last line of stdout as JSON."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Stopwatch", "main", "peak_of", "stopwatch"]


@dataclass
class Stopwatch:
    """Seconds of a block, known when it is left."""

    seconds: float = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block of code by the wall clock."""
    watch, start = Stopwatch(), time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - start


def peak_of(process: subprocess.Popen[bytes], told: Path) -> int:
    """Wait for a process that this one has started, and return its peak resident size in bytes.

    It may begin with the size of the process that started it, which is small. One that fails is a RuntimeError with
    what it has told.
    """
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(told.read_text(encoding="utf-8"))
    return usage.ru_maxrss * 1024


def main(subject: str, options: dict[str, Any]) -> None:
    """Run a subject and print its result with the peak resident size of this process, or of one it names, in bytes."""
    # -m puts the working directory first, where a checkout would hide the package that is installed
    del sys.path[0]
    from tests.benchmarks.subjects import SUBJECTS

    result = SUBJECTS[subject](**options)
    result.setdefault("peak_memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
