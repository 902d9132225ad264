"""Seconds that a scheduler and a client take for a task, a dependency and a byte, measured on real passes."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.scaling_cluster import Costs

__all__ = ["LATENCY", "MEASURED", "measure_costs", "recorded_costs"]

TILE_ROWS, WORKERS = 8, 2
# blocks, tiles of a run, blocks of a segment: ten thousand tasks that take little from others, fewer that take more
CASES = ((140, 1, 140), (140, 4, 16), (200, 50, 50))
WARM = (40, 4, 8)
BLOCKS, BLOCK_BYTES, ROUNDS = 64, 2**20, 7  # that travel from the client to workers and back
IDLE_SECONDS = 5.0
LATENCY = 0.2e-3

# by `python -m tests.benchmarks.scaling --measure` on two processors of an AMD EPYC, Python 3.11, distributed 2026.8.0.
# CPU seconds, but what else runs there takes caches away: a run on a busier machine found 0.50 ms and 0.10 ms for the
# scheduler. Passes of 10 291, 3517 and 1401 tasks with 29 750, 18 234 and 22 194 edges took it 6.1, 3.2 and 2.0 s, by
# these numbers 6.6, 2.8 and 2.1 s.
MEASURED: Mapping[str, float] = {
    "scheduler_task": 0.45e-3,
    "scheduler_edge": 66e-6,
    "client_task": 0.15e-3,
    "client_edge": 7.6e-6,
    "transit_byte": 1.3e-9,
    "added_byte": 0.44e-9,
}


def recorded_costs(bandwidth: float) -> Costs:
    """What was measured, on a network of so many bytes a second."""
    return Costs(**MEASURED, latency=LATENCY, bandwidth=bandwidth)


def measure_costs() -> dict[str, float]:
    """The same numbers on this machine: two workers, their scheduler and their client, each a process."""
    from distributed import Client

    from tests.cluster.processes import Cluster

    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory)) as cluster:
        cluster.start_workers(WORKERS)
        with Client(cluster.address) as client:
            client.wait_for_workers(WORKERS)
            passes = _Passes(client, cluster.scheduler.pid, Path(directory))
            passes.one(WARM)  # in which workers import
            idle = _idle(passes.spent)
            transit = passes.transit()
            found = {case: passes.one(case) for case in CASES}
    costs = {}
    for position, name in enumerate(("scheduler", "client")):
        seconds = np.array([found[case][1][position] - idle[position] * found[case][2] for case in CASES])
        counts = np.array([found[case][0] for case in CASES])
        # least squares of relative errors: a case counts as much as any other
        fitted = np.linalg.lstsq(counts / seconds[:, None], np.ones(len(CASES)))[0]
        costs[f"{name}_task"], costs[f"{name}_edge"] = fitted.tolist()
        sys.stderr.write(f"{name}: idle {idle[position]:.3f}, tasks and edges {counts.tolist()}, ")
        sys.stderr.write(f"seconds {seconds.round(2).tolist()}, fitted {(counts @ fitted).round(2).tolist()}\n")
    return {**costs, "transit_byte": transit, "added_byte": _added_byte()}


class _Passes:
    """Real passes of tiny tiles, and what scheduler and client spend on them."""

    def __init__(self, client: Any, scheduler: int, directory: Path) -> None:
        import psutil

        from scalable_kpca.engine.cluster import ClusterEngine

        self._processes = psutil.Process(scheduler), psutil.Process(os.getpid())
        self._directory, self._engine = directory, _counting(ClusterEngine)(client)

    def spent(self) -> list[float]:
        """CPU seconds of scheduler and client so far."""
        times = [process.cpu_times() for process in self._processes]
        return [found.user + found.system for found in times]

    def one(self, case: tuple[int, int, int]) -> tuple[tuple[int, int], list[float], float]:
        """Tasks and edges of a pass, CPU seconds of scheduler and client, seconds."""
        from unittest.mock import patch

        from scalable_kpca.gram import RecomputeGram
        from scalable_kpca.kernels import resolve_kernel
        from scalable_kpca.source import write_rows
        from scalable_kpca.tiling import Tiling, sizes

        n_blocks, width, segment = case
        X = np.random.default_rng(0).standard_normal((n_blocks * TILE_ROWS, 2))
        shape = {"n_samples": len(X), "n_features": 2, "dtype": "float64", "tile_rows": TILE_ROWS}
        path = self._directory / f"rows-{len(X)}-{width}.zarr"
        rows, _ = write_rows(iter([X]), path, fingerprint=path.stem, **shape)
        kernel, tiling = resolve_kernel("rbf", gamma=0.1, n_features=2), Tiling(len(X), TILE_ROWS)
        gram = RecomputeGram(rows, kernel, tiling, "float64", self._engine, width)
        block = np.ones((len(X), 1))
        with patch.object(sizes, "RUN_ROWS", segment * TILE_ROWS):
            before, start = self.spent(), time.perf_counter()
            gram.multiply(block)
            seconds = time.perf_counter() - start
        spent = [b - a for a, b in zip(before, self.spent(), strict=True)]
        return graph_size(self._engine.graph), spent, seconds

    def transit(self) -> float:
        """CPU seconds of scheduler or client, the mean of both, for a byte on its way to a worker or back."""
        found = []
        for number in range(ROUNDS):
            blocks = np.random.default_rng(number).bytes(BLOCKS * BLOCK_BYTES)
            name = self._engine.new_name("transit")
            graph: dict[Any, Any] = {
                (name, i): np.frombuffer(blocks, np.uint8, BLOCK_BYTES, i * BLOCK_BYTES) for i in range(BLOCKS)
            }
            graph |= {(f"{name}-same", i): (_same, (name, i)) for i in range(BLOCKS)}
            before = self.spent()
            self._engine.run(graph, [(f"{name}-same", i) for i in range(BLOCKS)])
            found.append(sum(self.spent()) - sum(before))
        return statistics.median(found) / 2 / (2 * BLOCKS * BLOCK_BYTES)


def _same(block: Any) -> Any:
    return block


def _counting(engine: type[Any]) -> type[Any]:
    class Counting(engine):  # type: ignore[misc]
        def run(self, graph: Any, outputs: Sequence[Any], **options: Any) -> Any:
            self.graph = graph
            return super().run(graph, outputs, **options)

    return Counting


def graph_size(graph: Mapping[Any, Any]) -> tuple[int, int]:
    """Tasks of a graph, and how many values of others they take."""
    edges = 0
    for value in graph.values():
        if type(value) is tuple and value and callable(value[0]):
            named = {argument for argument in value[1:] if type(argument) is tuple and type(argument[0]) is str}
            edges += sum(argument in graph for argument in named)
    return len(graph), edges


def _idle(spent: Callable[[], list[float]]) -> list[float]:
    """CPU seconds a second of both while nobody asks them anything."""
    before = spent()
    time.sleep(IDLE_SECONDS)
    return [(b - a) / IDLE_SECONDS for a, b in zip(before, spent(), strict=True)]


def _added_byte() -> float:
    """CPU seconds for a byte of a segment's sum to which two halves of the same size are added."""
    from scalable_kpca.gram.products import TileCounts
    from scalable_kpca.gram.reductions import RunProduct, SegmentSum, add_runs

    rows, columns, seconds = 262_144, 23, []  # more than a cache holds
    before = SegmentSum(None, np.ones((rows, columns)))
    half = np.ones((rows // 2, columns))
    runs = [RunProduct(half[:1], half, 0.0, 0.0, TileCounts()) for _ in range(2)]
    for _ in range(15):
        start = time.process_time()
        add_runs(before, False, (slice(None), slice(None)), *runs)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds) / before.rest.nbytes
