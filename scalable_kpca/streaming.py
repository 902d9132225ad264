"""Passes over the spans of a source: what every task returns comes back in order, a wave of spans at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.source import ArrayRows, RowsSpan, Span, gram_columns
from scalable_kpca.tiling import WAVE

__all__ = ["BlockSpan", "block_spans", "gram_spans", "map_spans", "reduce_spans"]

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class BlockSpan:
    """Span of a row block of a dask array: its tasks run beside the task that reads it.

    Parameters
    ----------
    block : dask.array.Array of shape (n_rows, n_features)
        One block.
    start, n_rows : int
    part : int
    """

    block: Any
    start: int
    n_rows: int
    part: int = 0


def block_spans(array: Any) -> list[BlockSpan]:
    """Spans of the row blocks of a dask array with known chunks; its columns become one chunk."""
    array = array.rechunk({1: -1})
    starts = np.cumsum([0, *array.chunks[0]])
    return [
        BlockSpan(array.blocks[i], int(starts[i]), int(length)) for i, length in enumerate(array.chunks[0]) if length
    ]


def gram_spans(array: Any, columns: NDArray[np.int64], *, square: bool = True) -> list[BlockSpan]:
    """Spans of the row blocks of a dask array that is a Gram matrix, or new rows of one, as `GramColumns` has them."""
    from dask.array import map_blocks

    shape = len(columns) + 1
    return [
        replace(
            span,
            block=map_blocks(
                gram_columns,
                span.block,
                columns=columns,
                start=span.start if square else None,
                dtype=span.block.dtype,
                chunks=((span.n_rows,), (shape,)),
                meta=np.empty((0, 0), span.block.dtype),
            ),
        )
        for span in block_spans(array)
    ]


def map_spans(
    engine: Engine,
    spans: Sequence[Span | BlockSpan],
    function: Callable[..., Value],
    *shared: Any,
    each: Sequence[Any] | None = None,
    stage: str,
    wave: int = WAVE,
    first: int = 0,
) -> Iterator[Value]:
    """What a function makes of each span, in order.

    Parameters
    ----------
    engine : Engine
        Where the tasks run.
    spans : sequence of Span
        Read by the tasks themselves.
    function : callable
        ``function(span, *shared)``, or ``function(span, own, *shared)`` with an argument of its own for each span.
    *shared
        Arguments of all tasks, sent once.
    each : sequence, optional
        One more argument for each span.
    stage : str
        Name in progress events, which count rows.
    wave : int
        Tasks at a time; their values are in memory together.
    first : int
        Span to begin with: those before are done.

    Yields
    ------
    Values of the spans, in order.
    """
    for group in _waves(len(spans), wave, first):
        graph, keys = _wave(engine, spans, group, function, shared, each, stage)
        yield from _run(engine, spans, graph, keys, group, stage)


def reduce_spans(
    engine: Engine,
    spans: Sequence[Span | BlockSpan],
    function: Callable[..., Value],
    *shared: Any,
    add: Callable[[Value, Value], Value],
    stage: str,
    start: Value | None = None,
    group: int = WAVE,
    wave: int = WAVE,
    first: int = 0,
) -> Iterator[tuple[int, Value]]:
    """Sum of what a function makes of the spans of each wave, added in the order of the spans.

    Parameters
    ----------
    engine, spans, function, *shared, stage, wave, first
        As in `map_spans`; with `start`, `wave` decides no bit.
    add : callable
        Sum of two values, a new one: a worker may need either again.
    start : optional
        What the sums of groups are added to: then the sum of all spans so far is yielded.
    group : int
        Spans that are added to one another before they are added to others.

    Yields
    ------
    done : int
        Spans so far.
    value
        Sum over the spans of the wave, or of all until then.

    Notes
    -----
    Sums of other spans than the first ones wait for those before them, so that the bits do not depend on what ends
    first. Memory: one value for each task that runs or waits, some n_threads + 2 where spans are alike; behind one that
    takes long, those of its wave.
    """
    so_far = start
    for given in _waves(len(spans), wave, first):
        graph, keys = _wave(engine, spans, given, function, shared, None, stage)
        name = engine.new_name(f"{stage}-sum")
        sums = [(name, position) for position in range(len(keys))]
        for position, key in enumerate(keys):
            graph[sums[position]] = (add, sums[position - 1], key) if position % group else key
        ends: list[Any] = [*sums[group - 1 :: group], *sums[len(sums) // group * group :][-1:]]
        if so_far is not None:
            graph[f"{name}-start"] = so_far
            ends.insert(0, f"{name}-start")
        total = ends[0]
        for position, end in enumerate(ends[1:]):
            total, before = (f"{name}-total", position), total
            graph[total] = (add, before, end)
        value = _run(engine, spans, graph, sums, given, stage, outputs=[total])[0]
        so_far = None if start is None else value
        yield given.stop, value


def _waves(n_spans: int, wave: int, first: int) -> Iterator[range]:
    for start in range(first, n_spans, wave):
        yield range(start, min(start + wave, n_spans))


def _wave(
    engine: Engine,
    spans: Sequence[Any],
    group: range,
    function: Callable[..., Any],
    shared: tuple[Any, ...],
    each: Sequence[Any] | None,
    stage: str,
) -> tuple[dict[Any, Any], list[Any]]:
    name = engine.new_name(stage)
    # arguments under keys of their own: a worker gets them once, not with every task
    held = [(f"{name}-shared", position) for position in range(len(shared))]
    graph: dict[Any, Any] = dict(zip(held, shared, strict=True))
    keys = []
    for index in group:
        own = () if each is None else (each[index],)
        span, more = _argument(spans[index])
        graph |= more
        graph[name, index] = (_apply, function, *span, *own, *held)
        keys.append((name, index))
    return graph, keys


def _argument(span: Span | BlockSpan) -> tuple[tuple[Any, ...], dict[Any, Any]]:
    """Span as a task takes it: itself and nothing, or what to make of the block and the block's key; and its graph."""
    if not isinstance(span, BlockSpan):
        return (span, None), {}
    keys = [key for row in span.block.__dask_keys__() for key in row]
    graph = dict(span.block.__dask_optimize__(span.block.__dask_graph__(), keys))
    return ((span.start, span.n_rows, span.part), keys[0]), graph


def _apply(function: Callable[..., Value], span: Any, block: NDArray[Any] | None, *arguments: Any) -> Value:
    if block is None:
        return function(span, *arguments)
    start, n_rows, part = span
    return function(RowsSpan(ArrayRows(block), start, n_rows, part, offset=0), *arguments)


def _run(
    engine: Engine,
    spans: Sequence[Any],
    graph: dict[Any, Any],
    keys: list[Any],
    group: range,
    stage: str,
    *,
    outputs: list[Any] | None = None,
) -> list[Any]:
    before, total = sum(span.n_rows for span in spans[: group.start]), sum(span.n_rows for span in spans)
    weights = {key: spans[index].n_rows for key, index in zip(keys, group, strict=True)}
    values, _ = engine.run(
        graph, keys if outputs is None else outputs, stage=stage, weights=weights, progress=(before, total)
    )
    return values
