"""What one streaming pass over rows finds out: whether they are finite, and how they vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError, NotFiniteError
from scalable_kpca.source.sparse import RowBlock, is_sparse

__all__ = ["FiniteCheck", "Moments", "RowSummary", "check_width", "said_of_source"]

Values = NDArray[np.floating[Any]]

REMEDY = "remove or fill these rows first."


@dataclass(frozen=True)
class RowSummary:
    """What one streaming pass over the rows learns.

    Attributes
    ----------
    n_samples, n_features : int
    variance : float
        Of all entries together, as `numpy.var` gives it.
    """

    n_samples: int
    n_features: int
    variance: float


class Moments:
    """Mean and sum of squared deviations of all entries, merged block by block (Chan, Golub, LeVeque 1983)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, block: RowBlock) -> None:
        """Merge the next block."""
        if 0 in block.shape:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # a variance beyond float64 matters only to who asks for it
            values = block.data if is_sparse(block) else block
            if values.size:
                self._merge(values)
            self._merge_zeros(block.shape[0] * block.shape[1] - values.size)

    def _merge(self, values: Values) -> None:
        mean = float(values.mean(dtype=np.float64))
        squares = float(np.square(np.subtract(values, mean, dtype=np.float64)).sum())
        total = self.count + values.size
        delta = mean - self.mean
        self.squares += squares + delta * delta * self.count * values.size / total
        self.mean += delta * values.size / total
        self.count = total

    def _merge_zeros(self, number: int) -> None:
        """The entries of sparse rows that are not stored."""
        if number:
            total = self.count + number
            self.squares += self.mean * self.mean * self.count * number / total
            self.mean -= self.mean * number / total
            self.count = total

    def merged(self, later: Moments) -> Moments:
        """Those of all entries of both, in an object of its own."""
        both = Moments()
        both.count = self.count + later.count
        if both.count:
            with np.errstate(over="ignore", invalid="ignore"):
                delta, share = np.float64(later.mean) - self.mean, later.count / both.count
                both.mean = float(self.mean + delta * share)
                both.squares = float(self.squares + later.squares + delta * delta * self.count * share)
        return both

    def variance(self) -> float:
        """Variance of all entries so far, 0 before the first."""
        return self.squares / self.count if self.count else 0.0


class FiniteCheck:
    """Finds the first entry that is not finite and counts the rows that have one.

    Parameters
    ----------
    names : sequence of str, optional
        Column names for the message.

    Attributes
    ----------
    first : tuple of (row, column, value) or None
        Where the first one is, counted over all blocks.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.names = names
        self.first: tuple[int, int, float] | None = None
        self.bad_rows, self.seen = 0, 0

    def add(self, block: RowBlock) -> None:
        """Look at the next rows."""
        if is_sparse(block):
            self._add_sparse(block)
            return
        finite = np.isfinite(block)
        if not finite.all():
            if self.first is None:
                row, column = np.argwhere(~finite)[0]
                self.first = (self.seen + int(row), int(column), float(block[row, column]))
            self.bad_rows += int((~finite.all(axis=1)).sum())
        self.seen += len(block)

    def _add_sparse(self, block: RowBlock) -> None:
        bad = np.flatnonzero(~np.isfinite(block.data))
        if len(bad):
            rows = np.searchsorted(block.indptr, bad, side="right") - 1
            if self.first is None:
                self.first = (self.seen + int(rows[0]), int(block.indices[bad[0]]), float(block.data[bad[0]]))
            self.bad_rows += len(np.unique(rows))
        self.seen += block.shape[0]

    def merged(self, later: FiniteCheck) -> FiniteCheck:
        """What both found, the rows of `later` following on those of this one, in an object of its own."""
        both = FiniteCheck(self.names)
        both.first = self.first
        if both.first is None and later.first is not None:
            row, column, value = later.first
            both.first = (self.seen + row, column, value)
        both.bad_rows, both.seen = self.bad_rows + later.bad_rows, self.seen + later.seen
        return both

    def raise_if_any(self) -> None:
        """NotFiniteError naming the first row and column, and how many rows are like it."""
        if self.first is None:
            return
        row, column, value = self.first
        name = f'column "{self.names[column]}"' if self.names else f"column {column}"
        found = "NaN" if np.isnan(value) else "infinity" if value > 0 else "-infinity"
        raise NotFiniteError(
            row,
            f"{name} is {found} (1 of {self.bad_rows} such rows); kernel PCA needs finite numbers and "
            f"accepts no NaN or infinity: {REMEDY}",
        )


def said_of_source(text: str) -> str:
    """What `FiniteCheck` says of an array, for a source: NaN may be one of its nulls, which it has an option for."""
    text = text.replace("(1 of 1 such rows)", "(the only such row)")
    if " is NaN (" not in text or not text.endswith(REMEDY):
        return text
    remedy = "set source.nulls to drop or impute:median, or " + REMEDY
    return text.replace(" is NaN (", " is NaN or null (", 1).removesuffix(REMEDY) + remedy


def check_width(found: int, needed: int) -> None:
    """InvalidInputError unless rows have the number of columns that the model was fitted on."""
    if found != needed:
        raise InvalidInputError(
            f"X has {found} features, but this model was fitted on {needed} features; give the same columns in the "
            "same order."
        )
