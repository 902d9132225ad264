"""The first pass over rows: whether they are finite, how they vary, and a uniform sample of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.landmarks.priorities import row_priorities
from scalable_kpca.source import FiniteCheck, RowBlock, RowSummary, Span, stack
from scalable_kpca.source.checks import Moments
from scalable_kpca.source.spans import row_numbers
from scalable_kpca.streaming import BlockSpan, reduce_spans

__all__ = ["BATCH_ROWS", "Look", "look"]

logger = logging.getLogger(__name__)

BATCH_ROWS = 8192  # rows that a task reads at a time


@dataclass(frozen=True, eq=False)
class Look:
    """What the first pass over the rows learns.

    Attributes
    ----------
    summary : RowSummary
        Number of rows and the variance of all entries.
    sample : ndarray or scipy CSR array of shape (s, n_features)
        The rows of the smallest priorities, in ascending order of priority: the first m of them are a uniform sample
        of m rows, for every m.
    numbers : ndarray of shape (s,), int64
        Their row numbers.
    """

    summary: RowSummary
    sample: RowBlock
    numbers: NDArray[np.int64]


def look(
    engine: Engine,
    spans: Sequence[Span | BlockSpan],
    *,
    n_features: int,
    sample_size: int = 0,
    seed: int = 0,
    names: Sequence[str] = (),
    batch_rows: int = BATCH_ROWS,
) -> Look:
    """Check all rows, summarise them, and sample some without replacement; one streaming pass.

    Parameters
    ----------
    engine : Engine
        Where the pass runs.
    spans : sequence of Span
        All rows, in order.
    n_features : int
        Their columns.
    sample_size : int
        Rows of the sample, at most: see `sample_size`.
    seed : int
        Of the priorities.
    names : sequence of str, optional
        Column names for messages.
    batch_rows : int
        Rows that a task reads at a time.

    Returns
    -------
    Look

    Raises
    ------
    InvalidInputError
        Naming row and column of the first entry that is not finite, and how many rows are like it.

    Notes
    -----
    The priority of a row comes from the seed and its ids (`row_priorities`), so that the sample does not depend on the
    order of files and rows, nor on spans and batches. Where ids are not unique, which shows in the sample, a second
    pass draws by row numbers, which do depend on their order, and so does everything where rows have no id.
    Memory: for each running or waiting task at most 2·sample_size + batch_rows rows.
    """
    options = (sample_size, seed, tuple(names), batch_rows)
    total = _found(engine, spans, *options, by_ids=True)
    if total is not None and len(np.unique(total.sample.priorities)) < len(total.sample):
        # rows of one id have one priority and would be drawn together
        logger.warning("ids of rows are not unique: the sample is drawn by row numbers, and depends on their order")
        total = _found(engine, spans, *options, by_ids=False)
    if total is None:
        return Look(RowSummary(0, n_features, 0.0), np.empty((0, n_features)), np.empty(0, np.int64))
    total.finite.raise_if_any()
    summary = RowSummary(total.finite.seen, n_features, total.moments.variance())
    rows = total.sample.rows if sample_size else np.empty((0, n_features))
    return Look(summary, rows, total.sample.numbers)


def _found(
    engine: Engine,
    spans: Sequence[Span | BlockSpan],
    sample_size: int,
    seed: int,
    names: tuple[str, ...],
    batch_rows: int,
    *,
    by_ids: bool,
) -> _Found | None:
    """What one pass finds in all spans; None where there are none."""
    options = (sample_size, seed, names, batch_rows, by_ids)
    total: _Found | None = None
    for _, part in reduce_spans(engine, spans, _look_at, *options, add=partial(_add, sample_size), stage="look"):
        total = part if total is None else _add(sample_size, total, part)
    return total


@dataclass(frozen=True, eq=False)
class _Sample:
    """Rows with their numbers and priorities, in order of priority and then number."""

    priorities: NDArray[np.uint64]
    numbers: NDArray[np.int64]
    rows: RowBlock

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class _Found:
    finite: FiniteCheck
    moments: Moments
    sample: _Sample


def _look_at(span: Span, sample_size: int, seed: int, names: tuple[str, ...], batch_rows: int, by_ids: bool) -> _Found:
    finite, moments = FiniteCheck(names), Moments()
    pieces: list[_Sample] = []
    limit = np.uint64(2**64 - 1)
    for batch in span.batches(batch_rows, "ids" if sample_size and by_ids else "none"):
        finite.add(batch.rows)
        if finite.first is not None:
            continue  # only how many more such rows there are is of interest now
        moments.add(batch.rows)
        if sample_size == 0:
            continue
        labels = batch.labels if by_ids else row_numbers(batch.start, batch.start + batch.rows.shape[0])
        priorities = row_priorities(labels, seed)
        keep = np.flatnonzero(priorities <= limit)
        pieces.append(_Sample(priorities[keep], batch.start + keep, batch.rows[keep]))
        if sum(map(len, pieces)) > 2 * sample_size:
            pieces = [_smallest(sample_size, pieces)]
            limit = pieces[0].priorities[-1]
    return _Found(finite, moments, _smallest(sample_size, pieces))


def _smallest(size: int, pieces: Sequence[_Sample]) -> _Sample:
    """The rows of the smallest priorities; rows of equal priority in order of their numbers."""
    # pieces without rows may not know the dtype of the others
    pieces = [piece for piece in pieces if len(piece)] or list(pieces[:1])
    if not pieces:
        return _Sample(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty((0, 0)))
    priorities = np.concatenate([piece.priorities for piece in pieces])
    numbers = np.concatenate([piece.numbers for piece in pieces])
    rows = stack([piece.rows for piece in pieces])
    order = np.lexsort((numbers, priorities))[:size]
    return _Sample(priorities[order], numbers[order], rows[order])


def _add(sample_size: int, before: _Found, after: _Found) -> _Found:
    return _Found(
        before.finite.merged(after.finite),
        before.moments.merged(after.moments),
        _smallest(sample_size, [before.sample, after.sample]),
    )
