"""What columns of a table become before they are features: nulls, categories, units; fitted once, applied everywhere.

`Recipe` says what is asked for, `Preparation` what it came to on the rows of a fit: the numbers and categories that
every later row is prepared with. Equivalent to scikit-learn's ``SimpleImputer``, ``StandardScaler`` and
``OneHotEncoder`` in a ``ColumnTransformer``, in one streaming pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import RowError
from scalable_kpca.records import digest_json

__all__ = ["Nulls", "Preparation", "Recipe", "Unknown", "Vocabulary", "category_texts", "missing_rows"]

Nulls = Literal["error", "drop", "impute:mean", "impute:median", "impute:constant"]
Unknown = Literal["error", "ignore"]
Block = NDArray[np.floating[Any]]

UNKNOWN = -1
LARGEST_WHOLE = 2.0**53  # below it a whole float64 has the text of the integer that it may have been


@dataclass(frozen=True)
class Recipe:
    """How columns are to be prepared.

    Attributes
    ----------
    nulls : str
        A row with a null or NaN among its features is an error, is left out, or has the mean, the median or a constant
        in its place.
    fill : float
        The constant.
    unknown : str
        A category that the fit has not seen is an error, or is none of the known ones.
    max_categories : int
        Of one column.
    standardize : bool
        Whether numeric columns get mean 0 and variance 1, missing values filled in.
    """

    nulls: Nulls = "error"
    fill: float = 0.0
    unknown: Unknown = "error"
    max_categories: int = 256
    standardize: bool = False

    @property
    def changes_numbers(self) -> bool:
        """Whether numeric columns are not taken as they are."""
        return self.standardize or self.imputes

    @property
    def identity(self) -> dict[str, Any]:
        """What prepared rows depend on, as JSON values: not how many categories would have been too many."""
        return {name: value for name, value in asdict(self).items() if name != "max_categories"}

    @property
    def imputes(self) -> bool:
        """Whether missing values are filled in."""
        return self.nulls.startswith("impute")


@dataclass(frozen=True)
class Vocabulary:
    """The categories of a column: as text, in order; None is that of nulls, and the last one."""

    column: str
    values: tuple[str | None, ...]

    @property
    def feature_names(self) -> list[str]:
        """One for each category."""
        return [f"{self.column} is null" if value is None else f"{self.column}={value}" for value in self.values]


@dataclass(frozen=True)
class Preparation:
    """Columns of a table to features, as they were fitted.

    Attributes
    ----------
    recipe : Recipe
    numeric : tuple of str
        Columns that are numbers, the first features.
    vocabularies : tuple of Vocabulary
        Columns that are categories: a feature for each, 1 where it is that of the row and 0 elsewhere.
    fill, mean, scale : tuple of float
        Of each numeric column: what stands for a missing value, what is subtracted, and what is then divided by; empty
        where nothing does, or nothing is.
    """

    recipe: Recipe
    numeric: tuple[str, ...]
    vocabularies: tuple[Vocabulary, ...] = ()
    fill: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features in order: numeric columns, then ``column=category`` or ``column is null``."""
        return (*self.numeric, *(name for vocabulary in self.vocabularies for name in vocabulary.feature_names))

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.numeric) + sum(len(vocabulary.values) for vocabulary in self.vocabularies)

    @property
    def categorical(self) -> tuple[str, ...]:
        """Columns that are categories."""
        return tuple(vocabulary.column for vocabulary in self.vocabularies)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that a prepared row depends on, hexadecimal."""
        return digest_json({**self.to_json(), "recipe": self.recipe.identity})

    def kept(self, values: Block, table: Any) -> NDArray[np.bool_] | None:
        """Which rows are not left out, shape (m,); None for all of them. Arguments as for `apply`."""
        if self.recipe.nulls != "drop":
            return None
        return ~missing_rows(values, [table[name] for name in self.categorical])

    def apply(self, values: Block, table: Any, out: Block) -> None:
        """Prepare rows, none of which is left out.

        Parameters
        ----------
        values : ndarray of shape (m, len(numeric)), float32 or float64
            Numeric columns; NaN where a value is missing.
        table : pyarrow.Table or RecordBatch of m rows, or None
            Has the categorical columns, if there are any.
        out : ndarray of shape (m, n_features), float32 or float64
            Receives the features; numbers are computed in float64 and rounded once, to infinity where they are beyond.

        Raises
        ------
        RowError
            For a category that was not seen by the fit, or a null one, where that is an error.

        Notes
        -----
        Cost: a few operations an entry. Memory: two float64 copies of `values`.
        """
        n = len(self.numeric)
        with np.errstate(over="ignore", invalid="ignore"):
            out[:, :n] = self._numbers(values) if self.recipe.changes_numbers else values
        out[:, n:] = 0
        for vocabulary in self.vocabularies:
            codes = self._codes(table[vocabulary.column], vocabulary)
            known = np.flatnonzero(codes >= 0)
            out[known, n + codes[known]] = 1
            n += len(vocabulary.values)

    def _numbers(self, values: Block) -> Block:
        numbers: Block = values.astype(np.float64)
        if self.fill:
            missing = np.isnan(numbers)
            if missing.any():
                np.copyto(numbers, np.array(self.fill), where=missing)
        if self.mean:
            numbers -= np.array(self.mean)
            numbers /= np.array(self.scale)
        return numbers

    def _codes(self, column: Any, vocabulary: Vocabulary) -> NDArray[np.int64]:
        """Number of each row's category, `UNKNOWN` where it is none of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = category_texts(column)
        found = pc.index_in(texts, value_set=pa.array(vocabulary.values, pa.string()))
        codes: NDArray[np.int64] = pc.fill_null(found, UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64)
        if (codes == UNKNOWN).any():
            self._refuse(texts, codes, vocabulary)
        return codes

    def _refuse(self, texts: Any, codes: NDArray[np.int64], vocabulary: Vocabulary) -> None:
        """RowError for the first row without a category, where that is an error."""
        nulls = texts.is_null().to_numpy(zero_copy_only=False)
        column = f'column "{vocabulary.column}"'
        if self.recipe.nulls == "error" and nulls.any():
            raise RowError(
                int(np.argmax(nulls)),
                f"{column} is null (1 of {int(nulls.sum())} such rows here); set source.nulls to drop or impute:mean, "
                "or fill these rows first.",
            )
        if self.recipe.unknown == "error":
            row = int(np.argmax(codes == UNKNOWN))
            found = texts[row].as_py()
            raise RowError(
                row,
                f"{column} is {'null' if found is None else repr(found)[:80]}, which is none of the "
                f"{len(vocabulary.values)} categories that the fit has seen; set source.unknown to ignore before the "
                "fit, so that such rows belong to none, or fit anew with rows that have it.",
            )

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values; see `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Preparation:
        """The preparation that `to_json` described; ValueError, TypeError or KeyError when it is none."""
        recipe = Recipe(**fields["recipe"])
        numeric, vocabularies = _texts(fields["numeric"]), fields["vocabularies"]
        numbers = {name: tuple(float(value) for value in fields[name]) for name in ("fill", "mean", "scale")}
        found = cls(
            recipe,
            numeric,
            tuple(Vocabulary(entry["column"], _texts(entry["values"], null=True)) for entry in vocabularies),
            **numbers,
        )
        fits = (
            recipe.nulls in get_args(Nulls)
            and recipe.unknown in get_args(Unknown)
            and all(len(values) in (0, len(numeric)) for values in numbers.values())
            and len(found.mean) == len(found.scale)
            and bool(found.fill) == (recipe.imputes and bool(numeric))
            and all(np.isfinite(values).all() for values in numbers.values())
            and all(value > 0 for value in found.scale)
            and all(isinstance(vocabulary.column, str) for vocabulary in found.vocabularies)
        )
        if not fits:
            raise ValueError("the preparation of columns is not one that is written")
        return found


def missing_rows(values: Block, columns: Sequence[Any]) -> NDArray[np.bool_]:
    """Rows that have NaN among numbers (m, n), or a null in one of some arrow columns; shape (m,)."""
    missing: NDArray[np.bool_] = np.asarray(np.isnan(values).any(axis=1))
    for column in columns:
        np.logical_or(missing, category_texts(column).is_null().to_numpy(zero_copy_only=False), out=missing)
    return missing


def category_texts(column: Any) -> Any:
    """The values of an arrow column as text, the same one however they are encoded; NaN is a null."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as pt

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pt.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pt.is_date(kind):
        column = column.cast(pa.date32(), safe=False)
    texts = column if kind == pa.string() else column.cast(pa.string())
    if pt.is_floating(kind):
        values = column.cast(pa.float64())
        is_whole = pc.and_(pc.equal(values, pc.round(values)), pc.less(pc.abs(values), LARGEST_WHOLE))
        whole = pc.if_else(is_whole, values, None).cast(pa.int64()).cast(pa.string())
        texts = pc.if_else(pc.is_nan(values), None, pc.if_else(is_whole, whole, texts))
    return texts


def _texts(values: Any, *, null: bool = False) -> tuple[Any, ...]:
    if not all(isinstance(value, str) or (null and value is None) for value in values):
        raise ValueError("a name or category is no text")
    return tuple(values)
