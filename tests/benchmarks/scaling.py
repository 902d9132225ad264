"""Times of large fits on clusters that are not here: `python -m tests.benchmarks.scaling > docs/scaling.md`.

Every number of the page follows from constants that are recorded in `scaling_costs`; `--measure` measures them again
on this machine and writes them to stdout. Nothing else is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence

from scalable_kpca.errors import MemoryLimitError
from scalable_kpca.tiling import plan_exact
from tests.benchmarks.scaling_cases import (
    FAST,
    GIB,
    LANDMARKS,
    MEMORY,
    N_FEATURES,
    RATES,
    SLOW,
    THREADS,
    WORKERS,
    K,
    count,
    duration,
    entry_seconds,
    exact,
    pays_until,
    reality,
    streamed,
)
from tests.benchmarks.scaling_costs import LATENCY, MEASURED, measure_costs
from tests.benchmarks.scaling_text import (
    ADVICE,
    CONCLUSION,
    EXACT,
    INTRODUCTION,
    NOT_SIMULATED,
    PASSES,
    REAL,
    REPEAT,
    STREAM,
    TRANSIT,
    WHY_EXACT,
    WHY_STREAM,
)

__all__ = ["main", "page"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page to stdout, or what the constants are on this machine."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scaling", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure the constants again: some minutes")
    if parser.parse_args(arguments).measure:
        sys.stdout.write(json.dumps(measure_costs(), indent=1) + "\n")
    else:
        sys.stdout.write(page())
    return 0


def page() -> str:
    """The whole page."""
    return "\n".join([_introduction(), _reality(), _exact_section(), _streamed_section(), _conclusion(), REPEAT])


def _introduction() -> str:
    costs = MEASURED
    rows = [
        ("scheduler, a task", f"{costs['scheduler_task'] * 1e3:.2f} ms", PASSES),
        ("scheduler, a value that a task takes from another", f"{costs['scheduler_edge'] * 1e6:.0f} µs", PASSES),
        ("client, a task", f"{costs['client_task'] * 1e6:.0f} µs", PASSES),
        ("client, a value that a task takes from another", f"{costs['client_edge'] * 1e6:.1f} µs", PASSES),
        ("client and scheduler each, a byte through both", f"{costs['transit_byte'] * 1e9:.2f} ns", TRANSIT),
        ("worker, a byte of a sum", f"{costs['added_byte'] * 1e9:.2f} ns", "measured: CPU of `add_runs`"),
        ("worker, a kernel value and its products with 23 columns", f"{entry_seconds(RATES, 23) * 1e9:.2f} ns",
         "`nominal_rates`, which the planner takes too where nothing was calibrated"),
        ("a message on its way", f"{LATENCY * 1e3:.1f} ms", "assumed"),
        ("into a worker, the scheduler, the client", f"{SLOW / 1e9:.0f} GB/s, or {FAST / 1e9:.0f}", "assumed"),
        ("what the client writes", f"{RATES.flush / 1e9:.1f} GB/s", "`nominal_rates`"),
    ]  # fmt: skip
    return INTRODUCTION + "\n".join(_table(("what", "value", "how"), rows)) + "\n" + NOT_SIMULATED


def _reality() -> str:
    found, measured, n = reality()
    seconds = measured["two worker processes"]
    rows = [
        ("two worker processes, simulated", f"{found.seconds:.2f} s"),
        ("two worker processes, measured", f"{seconds:.2f} s"),
        ("measured / simulated", f"{seconds / found.seconds:.2f}"),
        ("a bare pool of two threads, measured: the work alone", f"{measured['bare pool']:.2f} s"),
    ]
    lines = [
        "## Beside a real pass",
        "",
        f"n = {count(n)}, the row `schedulers` of [the benchmarks](benchmarks.md): {found.tasks} tasks on two",
        "worker processes of one thread each, a kernel value as fast as in the bare pool there.",
        "",
        *_table(("pass", "seconds"), rows),
        "",
        REAL,
        "",
    ]
    return "\n".join(lines)


def _exact_section() -> str:
    headings = (
        "workers", "tile × run", "runs", "values taken", "passes", "home by the planner",
        "planned", "a pass", "client beside", "fit", "fit / planned", "bottleneck", "fit at 10 GB/s",
        "bottleneck there",
    )  # fmt: skip
    lines = ["## Exact fits", "", EXACT, ""]
    for n, memory in MEMORY.items():
        lines += [f"### n = {count(n)}", "", _memory(n, memory), "", *_table(headings, _exact_rows(n)), ""]
    return "\n".join([*lines, WHY_EXACT])


def _exact_rows(n: int) -> Iterator[tuple[str, ...]]:
    for workers in WORKERS:
        slow, fast = exact(n, workers, SLOW), exact(n, workers, FAST)
        times = (duration(slow.planned), duration(slow.parts[0]), duration(slow.parts[1]), duration(slow.seconds))
        yield (str(workers), *slow.plan.split(" | "), *times, slow.ratio, slow.bottleneck,
               duration(fast.seconds), fast.bottleneck)  # fmt: skip


def _memory(n: int, memory: int) -> str:
    text = f"`memory_limit` {memory // GIB} GiB a process."
    try:
        plan_exact(n, N_FEATURES, n_components=K, memory_limit=16 * GIB, n_threads=THREADS, n_workers=WORKERS[0])
    except MemoryLimitError as error:
        text += f" With 16 GiB the planner refuses: {error}"
    return text


def _streamed_section() -> str:
    headings = (
        "workers", "rows of a span", "spans", "wave of sums", "wave of scores", "planned", "look", "sums", "scores",
        "fit", "fit / planned", "bottleneck", "fit at 10 GB/s", "bottleneck there",
    )  # fmt: skip
    lines = ["## Nyström fits of 10⁹ rows", "", STREAM, ""]
    for landmarks in LANDMARKS:
        rows = []
        for workers in WORKERS:
            slow, fast = streamed(landmarks, workers, SLOW), streamed(landmarks, workers, FAST)
            times = [duration(seconds) for seconds in (slow.planned, *slow.parts, slow.seconds)]
            ends = (slow.ratio, slow.bottleneck, duration(fast.seconds), fast.bottleneck)
            rows.append((str(workers), *slow.plan.split(" | "), *times, *ends))
        lines += [f"### {count(landmarks)} landmarks", "", *_table(headings, rows), ""]
    return "\n".join([*lines, WHY_STREAM])


def _conclusion() -> str:
    rows = []
    for name, fit, key in [
        *((f"exact, n = {count(n)}", exact, n) for n in MEMORY),
        *((f"Nyström, 10⁹ rows, {count(m)} landmarks", streamed, m) for m in LANDMARKS),
    ]:
        cells = [name]
        for bandwidth in (SLOW, FAST):
            found = [fit(key, workers, bandwidth) for workers in WORKERS]
            best = pays_until([(each.workers, each.seconds) for each in found])
            at = next(each for each in found if each.workers == best)
            beyond = next((each for each in found if each.workers > best), at)
            cells += [f"{best} workers, {duration(at.seconds)}", beyond.bottleneck]
        rows.append(tuple(cells))
    headings = ("fit", "pays until, at 1 GB/s", "what limits beyond", "pays until, at 10 GB/s", "what limits beyond")
    return "\n".join([CONCLUSION, *_table(headings, rows), "", ADVICE])


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    headings = list(headings)
    return ["| " + " | ".join(cells) + " |" for cells in (headings, ["---"] * len(headings), *rows)]


if __name__ == "__main__":
    sys.exit(main())
