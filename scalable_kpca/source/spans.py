"""Spans: consecutive rows of one part of a source that one task reads, where they are, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from scalable_kpca.source.rows import Rows, cut
from scalable_kpca.source.sparse import RowBlock

__all__ = ["Batch", "Labels", "RowsSpan", "Span", "cut", "row_numbers", "row_spans"]

Labels = Literal["none", "ids", "all"]


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one part, features and labels from the same read.

    Attributes
    ----------
    part : int
        Index of the part.
    rows : ndarray or scipy CSR array of shape (m, n_features), float32 or float64
    labels : pyarrow.Table or None
        Ids and passthrough columns of the same m rows, as far as they were asked for.
    start : int
        Number of the first row, over all parts.
    """

    part: int
    rows: RowBlock
    labels: Any = None
    start: int = 0


class Span(Protocol):
    """Consecutive rows of one part, read by whichever process runs the task; small enough to be sent to it.

    Attributes
    ----------
    part : int
        Index of the part of the source.
    start : int
        Number of the first row, over all parts.
    n_rows : int
    """

    @property
    def part(self) -> int: ...  # noqa: D102
    @property
    def start(self) -> int: ...  # noqa: D102
    @property
    def n_rows(self) -> int: ...  # noqa: D102
    def batches(self, batch_rows: int, labels: Labels = "none") -> Iterator[Batch]:
        """The rows in order, at most `batch_rows` at a time; with their ids, or with every column that travels."""


@dataclass(frozen=True, eq=False)
class RowsSpan:
    """Span of rows that can be read by position.

    Parameters
    ----------
    rows : Rows
    start, n_rows : int
        Which of them.
    part : int
    offset : int
        Position in `rows` of the span's first row, where that is not `start`.
    """

    rows: Rows
    start: int
    n_rows: int
    part: int = 0
    offset: int | None = None

    def batches(self, batch_rows: int, labels: Labels = "none") -> Iterator[Batch]:
        """The rows in order, at most `batch_rows` at a time; labels are row numbers."""
        first = self.start if self.offset is None else self.offset
        for done, stop in cut(self.n_rows, batch_rows):
            block = self.rows.read(slice(first + done, first + stop))
            numbers = None if labels == "none" else row_numbers(self.start + done, self.start + stop)
            yield Batch(self.part, block, numbers, self.start + done)


def row_spans(rows: Rows, span_rows: int) -> list[RowsSpan]:
    """Spans of `span_rows` rows, the last one shorter."""
    return [RowsSpan(rows, start, stop - start) for start, stop in cut(rows.n_samples, span_rows)]


def row_numbers(start: int, stop: int) -> Any:
    """Labels of rows that have no others: a table of one column, ``row``, int64."""
    import pyarrow as pa

    return pa.table({"row": np.arange(start, stop, dtype=np.int64)})
