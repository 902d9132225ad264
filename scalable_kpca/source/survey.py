"""One streaming pass over the columns of a table: how their values are spread, what is missing, which rows stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError, RowError
from scalable_kpca.source.arrays import ArraySource
from scalable_kpca.source.checks import FiniteCheck
from scalable_kpca.source.column_statistics import ColumnStatistics, RowSample
from scalable_kpca.source.parquet import ParquetSource
from scalable_kpca.source.parts import naming_files, rows_together
from scalable_kpca.source.preparation import Recipe, Vocabulary, category_texts, missing_rows
from scalable_kpca.source.spans import Batch

__all__ = ["Ends", "RawSource", "Survey", "survey", "survey_batch"]

MOST_ROWS = 2**16

RawSource = ParquetSource | ArraySource
Vector = NDArray[np.float64]
Block = NDArray[np.floating[Any]]
Ends = tuple[Vector, Vector]  # smallest and largest value of each numeric column


@dataclass(eq=False)
class Survey:
    """What one pass over a table found.

    Attributes
    ----------
    columns : ColumnStatistics
        Of the numeric columns, over the rows that are kept.
    missing : ndarray of shape (d + d_categorical,), int64
        Of the numeric and the categorical columns, rows without a value; rows that are not kept count.
    outside : ndarray of shape (d,), int64
        Values that are kept and below or above what was expected; 0 where nothing was.
    categories : list of dict
        Of each categorical column, how often each of its categories is kept; None is that of nulls.
    unknown : ndarray of shape (d_categorical,), int64
        Of each categorical column, values that are none of the known categories.
    n_rows, n_kept : int
    kept : list of list of int
        Rows of each row group of each file that are not left out.
    medians : ndarray of shape (d,), float64, or None
        Of the values in the sample.
    """

    columns: ColumnStatistics
    missing: NDArray[np.int64]
    outside: NDArray[np.int64]
    categories: list[dict[str | None, int]]
    unknown: NDArray[np.int64]
    n_rows: int = 0
    n_kept: int = 0
    kept: list[list[int]] = field(default_factory=list)
    medians: Vector | None = None


def survey(
    source: RawSource,
    recipe: Recipe,
    *,
    batches: Iterable[Batch] | None = None,
    known: Sequence[Vocabulary] | None = None,
    expected: Ends | None = None,
) -> Survey:
    """Statistics of a table's columns.

    Parameters
    ----------
    source : ParquetSource or ArraySource
        Its features are the numeric columns.
    recipe : Recipe
        Says which rows are left out, and what is an error.
    batches : iterable of Batch, optional
        Some of the rows of `source`, in place of all.
    known : sequence of Vocabulary, optional
        Of a fit: other categories are counted together, and a null one is no error.
    expected : tuple of ndarray of shape (d,), optional
        Smallest and largest value of each numeric column in the rows of a fit.

    Raises
    ------
    InvalidInputError
        For an infinite value; for a missing one where that is an error; for a column with too many categories.

    Notes
    -----
    Cost: every feature is decoded once, and some ten operations on each. Memory: three batches of 16 MiB, the texts of
    65 536 rows, and 64 MiB where medians are asked for: they are those of at most 131 072 rows, or as many as these
    bytes hold, taken at random by their numbers; of all rows where there are no more.
    """
    d, n_columns = len(source.feature_names), len(source.feature_names) + len(source.categorical)
    counts: list[dict[str | None, int]] = [dict.fromkeys(vocabulary.values, 0) for vocabulary in known or ()]
    found = Survey(
        ColumnStatistics.empty(d),
        np.zeros(n_columns, np.int64),
        np.zeros(d, np.int64),
        counts or [{} for _ in source.categorical],
        np.zeros(len(source.categorical), np.int64),
    )
    finite, kept = FiniteCheck(source.feature_names), _KeptRows(source.group_rows)
    sample = RowSample(d) if recipe.nulls == "impute:median" and known is None else None
    with naming_files(source.parts):
        for batch in _all_batches(source) if batches is None else batches:
            finite.seen = batch.start
            finite.add(batch.rows if recipe.nulls == "error" else np.where(np.isnan(batch.rows), 0, batch.rows))
            columns = [category_texts(batch.labels[name]) for name in source.categorical]
            values, columns, numbers = _kept_of(batch, columns, recipe, found)
            kept.add(numbers)
            found.columns.add(values)
            if expected is not None:
                found.outside += ((values < expected[0]) | (values > expected[1])).sum(axis=0)
            if sample is not None:
                sample.add(values, numbers)
            for place, (name, column, own) in enumerate(
                zip(source.categorical, columns, found.categories, strict=True)
            ):
                if known is None:
                    _count(name, column, own, recipe, batch.start)
                else:
                    found.unknown[place] += _count_known(column, own)
        finite.raise_if_any()
    found.kept = kept.by_file()
    found.medians = None if sample is None else sample.medians()
    return found


def _kept_of(
    batch: Batch, columns: list[Any], recipe: Recipe, found: Survey
) -> tuple[Block, list[Any], NDArray[np.int64]]:
    """Values, categories and numbers of the rows of a batch that are not left out; counts what is missing."""
    values, numbers = batch.rows, np.arange(batch.start, batch.start + len(batch.rows))
    found.missing[: values.shape[1]] += np.isnan(values).sum(axis=0)
    found.missing[values.shape[1] :] += np.array([column.null_count for column in columns], np.int64)
    if recipe.nulls == "drop":
        keep = ~missing_rows(values, columns)
        values, numbers = values[keep], numbers[keep]
        columns = [column.filter(keep) for column in columns]
    found.n_rows, found.n_kept = found.n_rows + len(batch.rows), found.n_kept + len(values)
    return values, columns, numbers


def _count(name: str, column: Any, counts: dict[str | None, int], recipe: Recipe, start: int) -> None:
    """Add the categories of the next rows, from row `start` on, to their counts."""
    import pyarrow.compute as pc

    if recipe.nulls == "error" and column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise RowError(
            start + row,
            f'column "{name}" is null; set source.nulls to drop, or to impute:mean, impute:median or impute:constant, '
            "which all make a category of nulls.",
        )
    try:
        found = pc.value_counts(column)
        for entry in found[: recipe.max_categories + 1]:
            value = entry["values"].as_py()
            counts[value] = counts.get(value, 0) + entry["counts"].as_py()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f'column "{name}" has text that is not UTF-8 ({error}); write it anew.') from error
    if len(counts) > recipe.max_categories:
        some = ", ".join(repr(value)[:80] for value in list(counts)[:3])
        raise InvalidInputError(
            f'column "{name}" has more than {recipe.max_categories} different values, such as {some}, and each would '
            "be a feature; leave it out of source.categorical, or raise source.max_categories."
        )


def _count_known(column: Any, counts: dict[str | None, int]) -> int:
    """Add the known categories of the next rows to their counts; how many others there are, nulls apart."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = list(counts)
    codes = pc.index_in(column, value_set=pa.array(values, pa.string())).drop_null().to_numpy(zero_copy_only=False)
    for value, count in zip(values, np.bincount(codes, minlength=len(values)).tolist(), strict=True):
        counts[value] += count
    return len(column) - len(codes) - (0 if None in counts else int(column.null_count))


def _all_batches(source: RawSource) -> Iterator[Batch]:
    for span in source.whole_files():
        yield from span.batches(survey_batch(source))


def survey_batch(source: RawSource) -> int:
    """Rows that are looked at together: 16 MiB of numbers, and no more than 65 536 with their texts."""
    return min(MOST_ROWS, rows_together(len({*source.feature_names, *source.categorical})))


class _KeptRows:
    """Counts rows by the row group that they are in."""

    def __init__(self, group_rows: Sequence[Sequence[int]]) -> None:
        self._shape = [len(sizes) for sizes in group_rows]
        self._ends = np.cumsum([size for sizes in group_rows for size in sizes], dtype=np.int64)
        self._counts = np.zeros(len(self._ends), np.int64)

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Rows with these numbers over all files."""
        if len(numbers):
            groups = np.searchsorted(self._ends, numbers, side="right")
            self._counts += np.bincount(groups, minlength=len(self._ends))

    def by_file(self) -> list[list[int]]:
        pieces = np.split(self._counts, np.cumsum(self._shape[:-1], dtype=np.int64)) if self._shape else []
        return [piece.tolist() for piece in pieces]
