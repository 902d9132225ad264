"""How the values of columns are spread: moments and ends of each, and medians from rows taken at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ColumnStatistics", "RowSample"]

Vector = NDArray[np.float64]
Block = NDArray[np.floating[Any]]

SAMPLE_ROWS = 2**17  # of which medians are taken
SAMPLE_BYTES = 64 * 2**20


@dataclass(eq=False)
class ColumnStatistics:
    """Of each of some numeric columns, over the values that are there, merged block by block.

    Attributes
    ----------
    count, missing : ndarray of shape (d,), int64
        Values, and rows without one.
    mean, squares : ndarray of shape (d,), float64
        Mean, and sum of squared deviations from it.
    low, high : ndarray of shape (d,), float64
        Smallest and largest value; infinity and -infinity before the first.

    References
    ----------
    Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance: equation 2.1.
    """

    count: NDArray[np.int64]
    missing: NDArray[np.int64]
    mean: Vector
    squares: Vector
    low: Vector
    high: Vector

    @classmethod
    def empty(cls, n_columns: int) -> ColumnStatistics:
        """Those of no rows."""
        zeros, ends = np.zeros(n_columns), np.full(n_columns, np.inf)
        none = np.zeros(n_columns, np.int64)
        return cls(none, none.copy(), zeros, zeros.copy(), ends, -ends)

    @classmethod
    def of(cls, values: Block) -> ColumnStatistics:
        """Those of rows (m, d), m > 0; NaN where a value is missing."""
        numbers = values.astype(np.float64)
        missing = np.isnan(numbers)
        absent = missing.sum(axis=0)
        count = len(numbers) - absent
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = np.fmin.reduce(numbers, axis=0), np.fmax.reduce(numbers, axis=0)
            np.copyto(numbers, 0.0, where=missing)
            mean = numbers.sum(axis=0) / np.maximum(count, 1)
            numbers -= mean
            np.copyto(numbers, 0.0, where=missing)
            squares = np.einsum("ij,ij->j", numbers, numbers)
        found = cls(count, absent, mean, squares, np.fmin(low, np.inf), np.fmax(high, -np.inf))
        found._settle()
        return found

    def add(self, values: Block) -> None:
        """Merge the next rows (m, d); NaN where a value is missing."""
        if len(values):
            self.merge(ColumnStatistics.of(values))

    def merge(self, later: ColumnStatistics) -> None:
        """Merge those of the rows that follow."""
        total = self.count + later.count
        share = later.count / np.maximum(total, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            delta = np.where(later.count > 0, later.mean - self.mean, 0.0)
            self.squares = self.squares + later.squares + delta * delta * self.count * share
            self.mean = self.mean + delta * share
        self.count, self.missing = total, self.missing + later.missing
        self.low, self.high = np.fmin(self.low, later.low), np.fmax(self.high, later.high)
        self._settle()

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Whether all values of a column are the same, shape (d,)."""
        return np.asarray(self.low == self.high)

    def _settle(self) -> None:
        """Of a column of equal values the mean is that value and nothing deviates, whatever sums are rounded to."""
        self.mean = np.where(self.constant, self.low, self.mean)
        self.squares = np.where(self.constant, 0.0, self.squares)

    def filled(self, fill: Vector) -> tuple[Vector, Vector]:
        """Mean and variance (ddof 0) of each column when every missing value is `fill`, shape (d,) each.

        They are infinite or NaN where they are beyond float64.
        """
        total = np.maximum(self.count + self.missing, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = (self.count * self.mean + self.missing * fill) / total
            shifted = self.count * (self.mean - mean) ** 2 + self.missing * (fill - mean) ** 2
            return mean, (self.squares + shifted) / total


class RowSample:
    """Rows taken at random by their numbers, the same ones however they come; all of them where there are few.

    Parameters
    ----------
    n_columns : int

    Attributes
    ----------
    values : ndarray of shape (s, n_columns), float64
        Those of the rows that are taken so far; s ≤ 131 072, and less where they would have more than 32 MiB; while
        rows are added there are twice as many bytes.
    """

    def __init__(self, n_columns: int) -> None:
        self._size = max(1, min(SAMPLE_ROWS, SAMPLE_BYTES // (2 * 8 * max(1, n_columns))))
        self.values, self._order = np.empty((0, n_columns)), np.empty(0, np.uint64)

    def add(self, values: Block, numbers: NDArray[np.int64]) -> None:
        """The next rows."""
        order = _scattered(numbers)
        if len(self._order) == self._size:
            chosen = order < self._order.max()
            values, order = values[chosen], order[chosen]
        self.values = np.concatenate([self.values, values.astype(np.float64)])
        self._order = np.concatenate([self._order, order])
        if len(self._order) > self._size:
            first = np.argpartition(self._order, self._size - 1)[: self._size]
            self.values, self._order = self.values[first], self._order[first]

    def medians(self) -> Vector:
        """Of each column; NaN where no row of the sample has a value."""
        found = np.full(self.values.shape[1], np.nan)
        for index, column in enumerate(self.values.T):
            there = column[~np.isnan(column)]
            if len(there):
                with np.errstate(over="ignore"):
                    middle = np.median(there)
                # the mean of the two in the middle may be too large only before it is halved
                found[index] = middle if np.isfinite(middle) else 2 * np.median(there / 2)
        return found


def _scattered(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Numbers in an order that looks random: the finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection."""
    words = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))
