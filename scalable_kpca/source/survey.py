"""One streaming pass over the columns of a table: how their values are spread, what is missing, which rows stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError, RowError
from scalable_kpca.source.arrays import ArraySource
from scalable_kpca.source.checks import FiniteCheck
from scalable_kpca.source.column_statistics import ColumnStatistics, RowSample
from scalable_kpca.source.location import natural_key
from scalable_kpca.source.parquet import ParquetSource
from scalable_kpca.source.parts import BATCH_BYTES, naming_files
from scalable_kpca.source.preparation import Preparation, Recipe, Vocabulary, category_texts, missing_rows
from scalable_kpca.source.spans import Batch

__all__ = ["RawSource", "Survey", "fit_preparation", "survey"]

RawSource = ParquetSource | ArraySource
Vector = NDArray[np.float64]
Block = NDArray[np.floating[Any]]


@dataclass(eq=False)
class Survey:
    """What one pass over a table found.

    Attributes
    ----------
    columns : ColumnStatistics
        Of the numeric columns, over the rows that are kept.
    categories : list of dict
        Of each categorical column, how often each of its categories is there; None is that of nulls.
    kept : list of list of int
        Rows of each row group of each file that are not left out.
    medians : ndarray of shape (d,), float64, or None
        Of the values in the sample.
    """

    columns: ColumnStatistics
    categories: list[dict[str | None, int]]
    kept: list[list[int]] = field(default_factory=list)
    medians: Vector | None = None


def survey(
    source: RawSource, recipe: Recipe, batches: Iterator[Batch] | None = None, *, with_categories: bool = True
) -> Survey:
    """Statistics of a table's columns.

    Parameters
    ----------
    source : ParquetSource or ArraySource
        Its features are the numeric columns.
    recipe : Recipe
        Says which rows are left out, and what is an error.
    batches : iterator of Batch, optional
        Some of the rows of `source`, in place of all.
    with_categories : bool
        Whether categories are counted.

    Raises
    ------
    InvalidInputError
        For an infinite value; for a missing one where that is an error; for a column with too many categories.

    Notes
    -----
    Cost: every feature is decoded once, and some ten operations on each. Memory: three batches of 16 MiB, and 64 MiB
    where medians are asked for: they are those of at most 131 072 rows, or as many as these bytes hold, taken at random
    by their numbers; of all rows where there are no more.
    """
    names = source.feature_names
    found = Survey(ColumnStatistics.empty(len(names)), [{} for _ in source.categorical])
    finite = FiniteCheck(names)
    sample = RowSample(len(names)) if recipe.nulls == "impute:median" else None
    kept = _KeptRows(source.group_rows)
    with naming_files(source.parts):
        for batch in _all_batches(source) if batches is None else batches:
            values, table = batch.rows, batch.labels
            finite.add(values if recipe.nulls == "error" else np.where(np.isnan(values), 0, values))
            numbers = np.arange(batch.start, batch.start + len(values))
            columns = [category_texts(table[name]) for name in source.categorical]
            if recipe.nulls == "drop":
                keep = ~missing_rows(values, columns)
                values, numbers = values[keep], numbers[keep]
                columns = [column.filter(keep) for column in columns]
            kept.add(numbers)
            found.columns.add(values)
            if sample is not None:
                sample.add(values, numbers)
            for name, column, counts in zip(source.categorical, columns, found.categories, strict=True):
                if with_categories:
                    _count(name, column, counts, recipe, batch.start)
        finite.raise_if_any()
    found.kept = kept.by_file()
    found.medians = None if sample is None else sample.medians()
    return found


def fit_preparation(source: RawSource, recipe: Recipe, found: Survey) -> Preparation:
    """The preparation that a recipe comes to on the rows of a survey.

    Raises
    ------
    InvalidInputError
        When no row is left, or a column has no value that could stand for those that are missing.
    """
    columns, names = found.columns, source.feature_names
    n_rows = sum(map(sum, found.kept))
    if n_rows == 0 and source.n_samples:
        raise InvalidInputError(
            f"each of the {source.n_samples} rows has a null in one of the features; leave the columns out that are "
            'empty, or set source.nulls to "impute:median".'
        )
    fill: Vector = np.zeros(0)
    if recipe.imputes and names:
        constant = np.full(len(names), recipe.fill)
        medians = columns.mean if found.medians is None else found.medians
        fill = {"impute:mean": columns.mean, "impute:median": medians}.get(recipe.nulls, constant)
        fill = np.where(np.isnan(fill), columns.mean, fill)  # a column with so few values that the sample has none
        empty = [name for name, count in zip(names, columns.count, strict=True) if count == 0]
        if empty and recipe.nulls != "impute:constant":
            raise InvalidInputError(
                f'column "{empty[0]}" has no value in any of the {n_rows} rows; leave it out of source.features, or '
                "set source.nulls to impute:constant."
            )
    mean, scale = _standard(columns, fill) if recipe.standardize and names else (np.zeros(0), np.zeros(0))
    vocabularies = tuple(
        Vocabulary(name, tuple(sorted(counts, key=_category_order)))
        for name, counts in zip(source.categorical, found.categories, strict=True)
    )
    return Preparation(recipe, names, vocabularies, tuple(fill.tolist()), tuple(mean.tolist()), tuple(scale.tolist()))


def _standard(columns: ColumnStatistics, fill: Vector) -> tuple[Vector, Vector]:
    """Mean and standard deviation of each column, missing values filled in; 1 where all values are the same."""
    mean, variance = (
        columns.filled(fill) if len(fill) else (columns.mean, columns.squares / np.maximum(columns.count, 1))
    )
    if not np.isfinite(variance).all() or not np.isfinite(mean).all():
        raise InvalidInputError("the variance of a column is beyond float64; rescale it before it is standardized.")
    # what rounding alone can make of values that are all the same: a sum of n terms is off by n·eps of their sizes
    n = np.maximum(columns.count + columns.missing, 1)
    rounding = n * np.finfo(np.float64).eps
    constant = variance <= rounding * variance + (rounding * mean) ** 2
    return mean, np.where(constant, 1.0, np.sqrt(variance))


def _category_order(value: str | None) -> tuple[Any, ...]:
    """Natural order of texts, the null last."""
    return (value is None, natural_key(value or ""), value or "")


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
        for entry in pc.value_counts(column):
            value = entry["values"].as_py()
            counts[value] = counts.get(value, 0) + entry["counts"].as_py()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f'column "{name}" has text that is not UTF-8 ({error}); write it anew.') from error
    if len(counts) > recipe.max_categories:
        raise InvalidInputError(
            f'column "{name}" has more than {recipe.max_categories} different values, such as '
            f"{', '.join(map(repr, list(counts)[:3]))}, and each would be a feature; leave it out of "
            "source.categorical, or raise source.max_categories."
        )


def _all_batches(source: RawSource) -> Iterator[Batch]:
    size = max(1, BATCH_BYTES // (8 * len({*source.feature_names, *source.categorical})))
    for span in source.whole_files():
        yield from span.batches(size)


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
