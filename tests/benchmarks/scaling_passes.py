"""What a simulated cluster has to do in one pass of an exact fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from scalable_kpca.gram.passes import MOST_WAITING, rows_to_wait_for
from scalable_kpca.tiling import Tiling
from tests.benchmarks.scaling_cluster import Costs, SimulatedCluster, SimulatedTask

__all__ = ["VECTOR_BYTES", "Outcome", "PassGraph", "PassShape", "outcome_of", "pass_graph", "simulate_pass"]

PRODUCT_BYTES, VECTOR_BYTES = 8, 4  # of a number: products are float64, vectors float32


@dataclass(frozen=True)
class Outcome:
    """What a simulation found.

    Attributes
    ----------
    seconds : float
        From the first to the last event.
    busy : dict
        Seconds that each kind of resource was busy, of the busiest one of its kind: where it comes near `seconds`,
        the resource is the bottleneck.
    tasks, edges : int
        Of all graphs.
    """

    seconds: float
    busy: dict[str, float]
    tasks: int
    edges: int


@dataclass(frozen=True)
class PassShape:
    """What decides about the graph of a pass.

    Attributes
    ----------
    tiling : Tiling
    width : int
        Tiles of a run.
    segment : int
        Blocks of a segment.
    columns : int
        Of the product, with the column of ones.
    """

    tiling: Tiling
    width: int
    segment: int
    columns: int

    def rows(self, blocks: range) -> int:
        """Rows of neighbouring blocks."""
        if not blocks:
            return 0
        return min(blocks.stop * self.tiling.tile_rows, self.tiling.n_samples) - blocks.start * self.tiling.tile_rows

    def product_bytes(self, i: int, columns: range) -> int:
        """Of the result of a run: its rows, and those of its columns below the diagonal."""
        below = range(max(columns.start, i + 1), columns.stop)
        return (self.rows(range(i, i + 1)) + self.rows(below)) * self.columns * PRODUCT_BYTES

    def entries(self, i: int, columns: range) -> float:
        """Kernel values of a run: of a tile on the diagonal its upper half."""
        own = self.rows(range(i, i + 1))
        return own * self.rows(columns) - (own * own / 2 if i in columns else 0)


@dataclass(frozen=True)
class _Sum:
    """What one block row gives to one segment: runs by number, values that are taken, bytes that are added."""

    runs: tuple[int, ...]
    edges: int
    added_bytes: int


@dataclass(frozen=True)
class PassGraph:
    """The graph that `run_pass` makes, as numbers.

    Attributes
    ----------
    runs : list of (int, range)
        Block row and columns of each run.
    entries, product_bytes : list
        Kernel values of each run, bytes of its result.
    sums : dict
        By segment and block row.
    users : list
        Of each run, the sums that take its result.
    gates : int
        Keys that runs wait for until sums of earlier rows are there.
    tasks, edges : int
        Keys of the graph, values that they take from one another.
    """

    runs: list[tuple[int, range]]
    entries: list[float]
    product_bytes: list[int]
    sums: dict[tuple[int, int], _Sum]
    users: list[list[tuple[int, int]]]
    gates: int
    tasks: int
    edges: int


@lru_cache(maxsize=8)  # clusters of several sizes run the same pass
def pass_graph(shape: PassShape, n_parallel: int) -> PassGraph:
    """Runs, and sums of each segment in a chain along the block rows, for so many runs at a time."""
    tiling, n_blocks = shape.tiling, shape.tiling.n_blocks
    runs = [(i, columns) for i in range(n_blocks) for columns in tiling.runs(i, shape.width)]
    segments, sums = tiling.segments(shape.segment), {}
    users: list[list[tuple[int, int]]] = [[] for _ in runs]
    first = 0
    for i in range(n_blocks):
        own = range(first, first + len(range(i, n_blocks, shape.width)))
        first = own.stop
        for s in range(i // shape.segment, len(segments)):
            segment = segments[s]
            parts = tuple(r for r in own if i in segment or _overlap(runs[r][1], segment, i))
            rest = shape.rows(range(max(segment.start, i + 1), segment.stop))
            finished = shape.rows(range(i, i + 1)) * len(parts) if i in segment else 0
            sums[s, i] = _Sum(parts, len(parts) + (i > 0), (rest + finished) * shape.columns * PRODUCT_BYTES)
            for run in parts:
                users[run].append((s, i))
    edges = sum(len(columns) + (i not in columns) for i, columns in runs) + sum(found.edges for found in sums.values())
    waits = rows_to_wait_for(tiling, shape.width, MOST_WAITING * n_parallel) if len(segments) > 1 else {}
    gates = len({(min(row, segment.stop - 1), segment.start) for row in waits.values() for segment in segments})
    # a row that waits has its vectors twice, and the first run of it takes both
    edges += gates + len(waits) * (len(segments) + 2)
    return PassGraph(
        runs,
        [shape.entries(*run) for run in runs],
        [shape.product_bytes(*run) for run in runs],
        sums,
        users,
        gates=gates + len(waits),
        tasks=2 * n_blocks + len(runs) + len(sums) + gates + len(waits) + 1,  # vectors, finished rows, and the totals
        edges=edges + n_blocks + len(segments),
    )


def _overlap(columns: range, segment: range, i: int) -> bool:
    return max(columns.start, i + 1, segment.start) < min(columns.stop, segment.stop)


def simulate_pass(shape: PassShape, n_workers: int, n_threads: int, entry_seconds: float, costs: Costs) -> Outcome:
    """One pass over K by tasks as `run_pass` makes them, tiles evaluated where they are needed.

    Parameters
    ----------
    shape : PassShape
    n_workers, n_threads : int
    entry_seconds : float
        Of one thread for a kernel value and its products.
    costs : Costs

    Returns
    -------
    Outcome
    """
    cluster, graph = SimulatedCluster(n_workers, n_threads, costs), pass_graph(shape, n_workers * n_threads)
    tiling, n_blocks = shape.tiling, shape.tiling.n_blocks
    cluster.use_client(costs.building(graph.tasks, graph.edges), tiling.n_samples * shape.columns * VECTOR_BYTES)
    # vectors are tasks of their own, each value on one worker in the beginning
    cluster.now = cluster.scheduler.serve(cluster.now, n_blocks * costs.scheduling(0))
    cluster.now = cluster.scheduler.serve(cluster.now, graph.gates * costs.scheduling(1))
    block = tiling.tile_rows * shape.columns * VECTOR_BYTES
    held = np.zeros((n_workers, n_blocks), bool)
    held[np.arange(n_blocks) % n_workers, np.arange(n_blocks)] = True
    places, chains = [-1] * len(graph.runs), [0.0] * len(tiling.segments(shape.segment))
    waits_for = {key: found.edges for key, found in graph.sums.items()}

    def vectors_missing(run: int, worker: int) -> float:
        i, columns = graph.runs[run]
        mine = held[worker]
        missing = (
            len(columns) - np.count_nonzero(mine[columns.start : columns.stop]) + (i not in columns and not mine[i])
        )
        mine[columns.start : columns.stop] = mine[i] = True
        return float(missing * block)

    def run_finished(run: int, worker: int) -> None:
        places[run] = worker
        for key in graph.users[run]:
            arrived(key)

    def arrived(key: tuple[int, int]) -> None:
        waits_for[key] -= 1
        if not waits_for[key]:
            cluster.give(sum_task(key))

    def sum_task(key: tuple[int, int]) -> SimulatedTask:
        (segment, i), found = key, graph.sums[key]
        home = segment % n_workers  # the sum so far stays where it is
        n_bytes = sum(graph.product_bytes[run] for run in found.runs if places[run] != home)
        seconds = costs.added_byte * found.added_bytes
        chains[segment] += seconds + costs.fetching(n_bytes) + 2 * costs.latency + costs.scheduling(found.edges)
        return SimulatedTask(
            seconds, found.edges, lambda _: n_bytes, partial(sum_finished, segment, i), worker=home, urgent=True
        )

    def sum_finished(segment: int, i: int, worker: int) -> None:
        del worker
        if i // shape.segment == segment:  # the task that takes out the finished rows
            cluster.scheduler.serve(cluster.now, costs.scheduling(1))
        if (segment, i + 1) in graph.sums:
            arrived((segment, i + 1))

    for run, (i, columns) in enumerate(graph.runs):
        seconds, edges = entry_seconds * graph.entries[run], len(columns) + (i not in columns)
        cluster.give(SimulatedTask(seconds, edges, partial(vectors_missing, run), partial(run_finished, run)))
    cluster.run()
    cluster.now = max(cluster.now, cluster.scheduler.free)
    cluster.use_client(0.0, tiling.n_samples * shape.columns * PRODUCT_BYTES)
    return outcome_of(cluster, max(chains), graph.tasks, graph.edges)


def outcome_of(cluster: SimulatedCluster, chain: float, tasks: int, edges: int) -> Outcome:
    """What a cluster has found by now, with the seconds of its longest chain of sums."""
    busy = {
        "processors": cluster.working / (cluster.n_workers * cluster.n_threads),
        "scheduler": cluster.scheduler.busy,
        "a worker's link": cluster.busiest_link,
        "chain of sums": chain,
        "client": cluster.client.busy,
    }
    return Outcome(cluster.now, busy, tasks, edges)
