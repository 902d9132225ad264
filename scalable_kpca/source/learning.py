"""What a recipe for columns comes to on the rows of a fit: values that stand for missing ones, units, categories."""

from __future__ import annotations

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


def fit_preparation(source: RawSource, recipe: Recipe, found: Survey) -> Preparation:
    """The preparation that a recipe comes to on the rows of a survey.

    Raises
    ------
    InvalidInputError
        When no row is left, or a column has no value that could stand for those that are missing.
    """
    columns, names = found.columns, source.feature_names
    n_rows = found.n_kept
    if n_rows == 0 and found.n_rows:
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
