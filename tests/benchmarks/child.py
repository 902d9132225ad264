"""What runs inside a child process: one subject, measured, its numbers on the last line of stdout as JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Stopwatch", "main", "stopwatch"]


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
