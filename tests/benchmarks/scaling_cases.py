"""Fits that are simulated beside what the planner says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import sqrt
from pathlib import Path

from scalable_kpca.tiling import nominal_rates, plan_exact, plan_nystroem, segment_width
from scalable_kpca.tiling.costs import solver_seconds, staging_seconds, start_seconds
from scalable_kpca.tiling.rates import MachineRates
from scalable_kpca.tiling.sizes import Job
from tests.benchmarks.scaling_costs import recorded_costs
from tests.benchmarks.scaling_passes import Outcome, PassShape, simulate_pass
from tests.benchmarks.scaling_streams import simulate_nystroem

__all__ = [
    "FAST",
    "GIB",
    "LANDMARKS",
    "MEMORY",
    "N_FEATURES",
    "RATES",
    "SLOW",
    "THREADS",
    "WORKERS",
    "Found",
    "K",
    "count",
    "duration",
    "entry_seconds",
    "exact",
    "pays_until",
    "reality",
    "streamed",
]

GIB, GIGABYTE = 2**30, 1e9
N_FEATURES, K, THREADS = 64, 10, 4
WORKERS = (10, 30, 100, 300, 1000)
MEMORY = {1_000_000: 16 * GIB, 3_000_000: 16 * GIB, 10_000_000: 64 * GIB}  # of each process, the client's too
STREAMED, LANDMARKS = 10**9, (1000, 3000)
SLOW, FAST = GIGABYTE, 10 * GIGABYTE  # bytes a second into each machine
RATES = nominal_rates("rbf", "float32")
FAR = 1.5  # times the planned seconds, from which on a row is marked
RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class Found:
    """One fit: what the planner says, what the simulation finds, and what its time goes to."""

    workers: int
    plan: str
    planned: float
    parts: tuple[float, ...]
    seconds: float
    busy: Mapping[str, float]

    @property
    def bottleneck(self) -> str:
        """The resource that is busy for the largest share of the fit."""
        name = max(self.busy, key=lambda name: self.busy[name])
        return f"{name}, {self.busy[name] / self.seconds:.0%}"

    @property
    def ratio(self) -> str:
        """Simulated over planned seconds."""
        ratio = self.seconds / self.planned
        return f"**{ratio:.2f}**" if max(ratio, 1 / ratio) > FAR else f"{ratio:.2f}"


def entry_seconds(rates: MachineRates, columns: int) -> float:
    """Of a thread, for a kernel value and its products in a pass that evaluates tiles and measures nothing."""
    return rates.entry + rates.feature * N_FEATURES + rates.single.entry + rates.single.column * columns


@cache
def exact(n: int, workers: int, bandwidth: float) -> Found:
    """An exact fit whose tiles are evaluated in every pass."""
    options = {"n_components": K, "memory_limit": MEMORY[n], "n_threads": THREADS, "n_workers": workers}
    plan = plan_exact(n, N_FEATURES, **options, gram="recompute", rates=RATES, is_run=True)
    free = plan_exact(n, N_FEATURES, **options, rates=RATES, is_run=True)
    job = Job(n, N_FEATURES, K, plan.dtype, plan.solver, THREADS, n_workers=workers)
    columns = plan.block_columns + 1
    segment = segment_width(plan.tile_rows, plan.tiles_per_task)
    shape = PassShape(plan.tiling, plan.tiles_per_task, segment, columns)
    one = simulate_pass(shape, workers, THREADS, entry_seconds(RATES, columns), recorded_costs(bandwidth))
    alone = staging_seconds(job, RATES, is_run=True) + solver_seconds(job, RATES)
    shared = start_seconds(job, RATES) + plan.tiling.n_entries * RATES.single.measure / job.n_parallel
    passes = plan.expected_passes
    busy = {name: passes * seconds for name, seconds in one.busy.items()}
    busy["client"] += alone
    busy["processors"] += shared
    assert plan.seconds is not None
    assert free.seconds is not None
    tile = f"{plan.tile_rows} × {plan.tiles_per_task}"
    text = f"{tile} | {count(plan.n_tasks)} | {count(one.edges)} | {passes}"
    home = plan.gram if free.gram == plan.gram else f"{free.gram}, {duration(free.seconds)}"
    seconds = passes * one.seconds + alone + shared
    return Found(workers, f"{text} | {home}", plan.seconds, (one.seconds, alone), seconds, busy)


@cache
def streamed(landmarks: int, workers: int, bandwidth: float) -> Found:
    """A Nyström fit of `STREAMED` rows, with its scores."""
    plan = plan_nystroem(
        STREAMED, N_FEATURES, n_components=K, n_landmarks=landmarks, memory_limit=16 * GIB,
        n_threads=THREADS, n_workers=workers, rates=RATES, is_run=True,
    )  # fmt: skip
    stages = simulate_nystroem(plan, RATES, recorded_costs(bandwidth), write_bytes=RATES.flush)
    alone = 5 * RATES.lapack * landmarks**3
    busy: dict[str, float] = {}
    for stage in stages.values():
        for name, seconds in stage.busy.items():
            busy[name] = busy.get(name, 0.0) + seconds
    busy["client"] += alone
    assert plan.seconds is not None
    text = f"{count(plan.span_rows)} | {count(plan.n_spans)} | {count(plan.sum_wave)} | {count(plan.score_wave)}"
    parts = tuple(stage.seconds for stage in stages.values())
    return Found(workers, text, plan.seconds, parts, sum(parts) + alone, busy)


def pays_until(times: Sequence[tuple[int, float]]) -> int:
    """Workers up to which every step to w times as many makes a fit at least √w times faster."""
    best = times[0][0]
    for (few, slow), (many, fast) in pairwise(times):
        if slow / fast < sqrt(many / few):
            return best
        best = many
    return best


@cache
def reality() -> tuple[Outcome, dict[str, float], int]:
    """The pass of two worker processes that `docs/benchmarks.md` has, simulated; and what was measured."""
    row = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]["schedulers"]
    measured = {found["label"]: sorted(found["seconds"])[len(found["seconds"]) // 2] for found in row["measurements"]}
    first = row["measurements"][0]
    plan = plan_exact(
        row["n"], N_FEATURES, n_components=K, gram="recompute", solver="block_krylov", dtype="float32",
        memory_limit=2 * GIB, n_threads=2, tile_rows=first["tile_rows"],
    )  # fmt: skip
    # work alone: two threads of a bare pool, which have no scheduler
    entry = 2 * measured["bare pool"] / first["entries"]
    segment = segment_width(plan.tile_rows, plan.tiles_per_task)
    shape = PassShape(plan.tiling, plan.tiles_per_task, segment, first["columns"] + 1)
    return simulate_pass(shape, 2, 1, entry, recorded_costs(SLOW)), measured, row["n"]


def duration(seconds: float) -> str:
    """Seconds in a unit in which they can be read."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def count(value: int) -> str:
    """A number with its thousands apart."""
    return f"{value:,}".replace(",", " ")
