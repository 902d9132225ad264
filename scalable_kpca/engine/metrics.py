"""Counters of a worker process, on the page /metrics that `distributed` serves there for Prometheus."""

from __future__ import annotations

import contextlib
import sys
import threading
from functools import cache
from typing import Any

__all__ = ["count_task"]

_registering = threading.Lock()  # the library takes a name once


def count_task(stage: str, seconds: float) -> None:
    """Count a task of this package, where there is such a page: `distributed` has imported the library for it then."""
    if "prometheus_client" not in sys.modules:
        return
    with contextlib.suppress(OSError, ValueError):  # whatever is wrong with counting, the task is done
        with _registering:
            tasks, times = _counters()
        tasks.labels(stage).inc()
        times.labels(stage).inc(seconds)


@cache
def _counters() -> tuple[Any, Any]:
    from prometheus_client import Counter

    return (
        Counter(
            "skpca_worker_tasks", "Tasks of scalable_kpca that this process has ended, failed ones too.", ["stage"]
        ),
        Counter("skpca_worker_task_seconds", "Time in these tasks, of all threads together.", ["stage"]),
    )
