"""How far a run has come: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scalable_kpca.engine import Event, Listener

__all__ = ["progress"]

SECONDS_BETWEEN_LINES = 5


@contextmanager
def progress(say: Callable[[str], None]) -> Iterator[Listener]:
    """Listener that draws bars on a terminal, or tells `say` one line when a stage ends or five seconds have passed."""
    if not sys.stderr.isatty():
        yield _plain_listener(say)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}
        passes = 0

        def listener(event: Event) -> None:
            nonlocal passes
            if event.stage not in tasks:
                tasks[event.stage] = bars.add_task(event.stage, total=event.total)
            bars.update(tasks[event.stage], completed=event.done, total=event.total)
            if event.stage == "pass" and event.done == event.total:
                passes += 1
                bars.update(tasks["pass"], description=f"pass {passes}")

        yield listener


def _plain_listener(say: Callable[[str], None]) -> Listener:
    last, passes = time.monotonic(), 0

    def listener(event: Event) -> None:
        nonlocal last, passes
        finished = event.done == event.total
        passes += event.stage == "pass" and finished
        if (finished and event.stage != "pass") or time.monotonic() - last > SECONDS_BETWEEN_LINES:
            name = f"pass {passes + (not finished)}" if event.stage == "pass" else event.stage
            say(f"{name}: {event.done} of {event.total}")
            last = time.monotonic()

    return listener
