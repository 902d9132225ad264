"""What a recipe for columns comes to on the rows of a fit: values that stand for missing ones, units, categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.source.column_statistics import ColumnStatistics
from scalable_kpca.source.location import natural_key
from scalable_kpca.source.preparation import Preparation, Recipe, Vocabulary
from scalable_kpca.source.survey import RawSource, Survey

__all__ = ["fit_preparation"]

Vector = NDArray[np.float64]


def fit_preparation(source: RawSource, recipe: Recipe, found: Survey, *, sampled: bool = False) -> Preparation:
    """The preparation that a recipe comes to on the rows of a survey; of a sample, columns may be without any value.

    Raises
    ------
    InvalidInputError
        When no row is left, or a column has no value that could stand for those that are missing.
    """
    columns, names = found.columns, source.feature_names
    n_rows = found.n_kept
    if n_rows == 0 and found.n_rows and not sampled:
        raise InvalidInputError(
            f"each of the {found.n_rows} rows has a null in one of the features; leave the columns out that are "
            'empty, or set source.nulls to "impute:median".'
        )
    fill: Vector = np.zeros(0)
    if recipe.imputes and names:
        constant = np.full(len(names), recipe.fill)
        medians = columns.mean if found.medians is None else found.medians
        fill = {"impute:mean": columns.mean, "impute:median": medians}.get(recipe.nulls, constant)
        fill = np.where(np.isnan(fill), columns.mean, fill)  # a column with so few values that the sample has none
        empty = [name for name, count in zip(names, columns.count, strict=True) if count == 0]
        if empty and recipe.nulls != "impute:constant" and not sampled:
            raise InvalidInputError(
                f'column "{empty[0]}" has no value in any of the {n_rows} rows; leave it out of source.features, or '
                "set source.nulls to impute:constant."
            )
        if not np.isfinite(fill).all():
            raise InvalidInputError(
                f'what stands for missing values of column "{names[int(np.argmin(np.isfinite(fill)))]}" is beyond '
                "float64; rescale it, or set source.nulls to impute:median."
            )
    mean, scale = _standard(columns, fill, names) if recipe.standardize and names else (np.zeros(0), np.zeros(0))
    vocabularies = tuple(
        Vocabulary(name, tuple(sorted(counts, key=_category_order)))
        for name, counts in zip(source.categorical, found.categories, strict=True)
    )
    return Preparation(recipe, names, vocabularies, tuple(fill.tolist()), tuple(mean.tolist()), tuple(scale.tolist()))


def _standard(columns: ColumnStatistics, fill: Vector, names: Sequence[str]) -> tuple[Vector, Vector]:
    """Mean and standard deviation of each column, missing values filled in; 1 where all values are the same."""
    mean, variance = columns.filled(fill if len(fill) else columns.mean)
    beyond = ~(np.isfinite(variance) & np.isfinite(mean))
    if beyond.any():
        raise InvalidInputError(
            f'the variance of column "{names[int(np.argmax(beyond))]}" is beyond float64; rescale it before it is '
            "standardized."
        )
    filled = (columns.missing > 0) & (fill != columns.low) if len(fill) else np.zeros(len(mean), bool)
    constant = (columns.count == 0) | (columns.constant & ~filled) | (variance == 0)
    return mean, np.where(constant, 1.0, np.sqrt(variance))


def _category_order(value: str | None) -> tuple[Any, ...]:
    """Natural order of texts, the null last."""
    return (value is None, natural_key(value or ""), value or "")
