"""One pass over the tiles as one task graph, whatever the home of the tiles."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.gram.products import TileCounts
from scalable_kpca.gram.reductions import SegmentSum, add_runs
from scalable_kpca.tiling import Tiling, segment_width

__all__ = ["MOST_WAITING", "Gram", "PassResult", "assemble", "rows_to_wait_for", "run_pass"]

Matrix = NDArray[np.float64]
Block = NDArray[np.floating[Any]]  # vectors, in the dtype of the arithmetic
MOST_WAITING = 2  # runs, for each that is under way, that are made before those of earlier rows are added

RunTask = Callable[[int, range], tuple[Any, ...]]


@dataclass(frozen=True)
class PassResult:
    """What one pass over K yields.

    Attributes
    ----------
    product : ndarray of shape (n_samples, b), float64
        K V.
    row_sums : ndarray of shape (n_samples,), float64
        K 1: a column of ones rides along in every pass.
    squared_norm : float
        ‖K‖_F² in a building pass, 0 in one that only multiplies.
    error : float
        Largest relative error of an entry that was evaluated in this pass.
    counts : TileCounts
    kept : list
        Stand-ins for what the engine kept, in the order asked for.
    """

    product: Matrix
    row_sums: NDArray[np.float64]
    squared_norm: float
    error: float
    counts: TileCounts
    kept: list[Any]


class Gram(Protocol):
    """A Gram matrix somewhere: symmetric, never seen whole.

    Attributes
    ----------
    tiling : Tiling
    dtype : str
        Of the tiles.
    """

    tiling: Tiling
    dtype: str

    def build(self, block: Block | None = None) -> PassResult:
        """Make every tile that is missing, and K times `block` on the way: the first pass."""

    def multiply(self, block: Block) -> PassResult:
        """One pass: K times `block` of shape (n_samples, b), in the block's dtype, sums in float64."""

    def to_array(self) -> NDArray[np.floating[Any]]:
        """Whole matrix as a new array of shape (n_samples, n_samples): for small n only."""


def run_pass(
    engine: Engine,
    tiling: Tiling,
    block: Block | None,
    run_task: RunTask,
    *,
    stage: str,
    tiles_per_task: int = 1,
    extra: dict[Any, Any] | None = None,
    keep: tuple[Any, ...] = (),
) -> PassResult:
    """Multiply the matrix behind `run_task` by `block` with a column of ones beside it.

    Parameters
    ----------
    engine : Engine
        Where the tasks run.
    tiling : Tiling
        The tiles.
    block : ndarray of shape (n_samples, b), float32 or float64
        V, or None for the column of ones alone. Strips are multiplied in its dtype and summed in float64.
    run_task : callable
        ``run_task(i, columns)`` is the head ``(function, *arguments)`` of the task for tiles (i, j), j in `columns`;
        W_i and then every W_j are appended to it. Its value is a `RunProduct`.
    stage : str
        Name in progress events.
    tiles_per_task : int
        Length of a run.
    extra : dict, optional
        More graph entries, for tasks that `run_task` refers to.
    keep : tuple of keys
        Kept where they are computed.

    Returns
    -------
    PassResult

    Notes
    -----
    The caller's thread sends and receives O(n·b) numbers. In flight are partial sums of n·(b + 1) float64 in all, the
    products of about two block rows, as many again, and those of `MOST_WAITING` runs for each that can run at a time:
    runs wait until earlier ones are added. No tile leaves the process that made it. Each segment of rows has a sum of
    its own, so that they are added on as many workers as there are segments. [docs/decisions/0025]
    """
    name = engine.new_name("pass")
    if block is None:
        block = np.empty((tiling.n_samples, 0))
    # one memory layout, whatever the caller's: BLAS adds in another order for another layout
    vectors = np.ones((tiling.n_samples, block.shape[1] + 1), block.dtype)
    vectors[:, :-1] = block
    graph: dict[Any, Any] = dict(extra or {})
    for i in range(tiling.n_blocks):
        graph[f"{name}-vectors", i] = vectors[tiling.block(i)]
    segments = tiling.segments(segment_width(tiling.tile_rows, tiles_per_task))
    waits = rows_to_wait_for(tiling, tiles_per_task, MOST_WAITING * engine.n_parallel) if len(segments) > 1 else {}
    for i in range(tiling.n_blocks):
        own = (f"{name}-vectors", i)
        if i in waits:
            # sums are cheap, and a scheduler in no hurry to get to them would keep the products of half of the pass
            added = [(f"{name}-added", min(waits[i], segment.stop - 1), segment.start) for segment in segments]
            graph |= {key: (_added, (f"{name}-sum", *key[1:])) for key in added}
            graph[f"{name}-turn", i] = (_in_turn, own, *added)
            own = (f"{name}-turn", i)
        runs = {}
        for columns in tiling.runs(i, tiles_per_task):
            key = (f"{name}-run", i, columns.start)
            graph[key] = (*run_task(i, columns), own, *((f"{name}-vectors", j) for j in columns))
            runs[key] = columns
        for segment in segments:
            if i < segment.stop:
                key, before = (f"{name}-sum", i, segment.start), (f"{name}-sum", i - 1, segment.start) if i else None
                graph[key] = (add_runs, before, i in segment, *_parts(tiling, runs, i, segment))
            if i in segment:
                graph[f"{name}-finished", i] = (_finished, key)
    lasts = [(f"{name}-sum", segment.stop - 1, segment.start) for segment in segments]
    graph[f"{name}-totals"] = (_totals, *lasts)
    weights = {(f"{name}-finished", i): tiling.n_blocks - i for i in range(tiling.n_blocks)}
    values, kept = engine.run(graph, [*weights, f"{name}-totals"], keep=keep, stage=stage, weights=weights)
    product = np.concatenate(values[:-1])
    squared_norm, error, counts = values[-1]
    return PassResult(np.ascontiguousarray(product[:, :-1]), product[:, -1].copy(), squared_norm, error, counts, kept)


def assemble(
    tiling: Tiling, dtype: str, tile: Callable[[int, int], NDArray[np.floating[Any]]]
) -> NDArray[np.floating[Any]]:
    """Whole symmetric matrix from its upper tiles: for small n only."""
    array = np.empty((tiling.n_samples, tiling.n_samples), dtype)
    for i, j in tiling.tiles():
        rows, columns = tiling.block(i), tiling.block(j)
        array[rows, columns] = tile(i, j)
        if i != j:
            array[columns, rows] = array[rows, columns].T
    return array


def _parts(tiling: Tiling, runs: Mapping[Any, range], i: int, segment: range) -> tuple[Any, ...]:
    """Rows of each run of block row i that lie in a segment, and the runs: all of them where the row lies there too."""
    parts = {}
    for key, columns in runs.items():
        first, stop = (tiling.block(max(j, i + 1)).start for j in (columns.start, columns.stop))
        above, below = (tiling.block(j).start for j in (segment.start, segment.stop))
        part = slice(*(min(max(row, first), stop) - first for row in (above, below)))
        if i in segment or part.start < part.stop:
            parts[key] = part
    return tuple(parts.values()), *parts


def rows_to_wait_for(tiling: Tiling, tiles_per_task: int, n_ahead: int) -> dict[int, int]:
    """Block rows whose runs wait, and for which row's sums: with at least `n_ahead` runs in the rows between.

    There are half as many more at most, or about a block row's, whichever is more. Where many runs may be ahead only
    some rows are waited for: each costs as many keys as there are segments.
    """
    counts = [len(list(tiling.runs(i, tiles_per_task))) for i in range(tiling.n_blocks)]
    before = list(accumulate(counts, initial=0))
    step = max(1, n_ahead // 2)
    gates = [-1, *(i for i in range(tiling.n_blocks) if before[i] // step < before[i + 1] // step)]
    waits = {}
    for i in range(tiling.n_blocks):
        farthest = bisect_right(before, before[i] - n_ahead) - 2  # the last row with enough runs between
        waits[i] = gates[bisect_right(gates, max(farthest, -1)) - 1]
    return {i: row for i, row in waits.items() if row >= 0}


def _in_turn(vectors: Block, *_added: None) -> Block:
    return vectors


def _added(_sum: SegmentSum) -> None:
    """Nothing, once a sum is there."""


def _finished(row: SegmentSum) -> Matrix | None:
    return row.finished


def _totals(*lasts: SegmentSum) -> tuple[float, float, TileCounts]:
    """Of the segments, each after its last block row."""
    counts = TileCounts()
    for last in lasts:
        counts += last.counts
    return sum(last.squared_norm for last in lasts), max(last.error for last in lasts), counts
