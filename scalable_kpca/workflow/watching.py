"""What passes while rows are scored: what a profile is made of, and what is compared with one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.health import (
    N_LEADING,
    Finding,
    Profile,
    ScoreBins,
    compare_novelty,
    compare_scores,
    score_bins,
    shares_of,
)
from scalable_kpca.model import AnyModel, NystroemModel
from scalable_kpca.nystroem import Projection
from scalable_kpca.source import ColumnStatistics, Rows, RowSample, Survey
from scalable_kpca.source.spans import cut
from scalable_kpca.workflow.parts import NOVELTY, score_names

__all__ = ["Comparison", "ProfileRecorder", "Tally", "survey_rows"]

Matrix = NDArray[np.float64]


class ProfileRecorder:
    """What passes of the rows of a fit while they are scored: their columns, and scores of some taken at random.

    Parameters
    ----------
    n_components : int
    n_columns : int or None
        Features to look at; None where the columns were surveyed before they were prepared.
    novelty : bool
        Whether tables have a column of novelty.
    """

    def __init__(self, n_components: int, n_columns: int | None, *, novelty: bool) -> None:
        self._names = score_names(n_components)[:N_LEADING] + ([NOVELTY] if novelty else [])
        self._novelty = novelty
        self._sample = RowSample(len(self._names))
        self._columns = None if n_columns is None else ColumnStatistics.empty(n_columns)

    @property
    def wants_columns(self) -> bool:
        """Whether it is given the statistics of features."""
        return self._columns is not None

    def add(self, start: int, table: Any, columns: ColumnStatistics | None) -> None:
        """A table of scores, whose first row has this number, and what the features of the same rows are like."""
        values = np.column_stack([np.empty((len(table), 0)), *(table[name].to_numpy() for name in self._names)])
        self._sample.add(values, np.arange(start, start + len(values)))
        if self._columns is not None and columns is not None:
            self._columns.merge(columns)

    def bins(self) -> ScoreBins:
        """Bins of the rows that were taken."""
        values = self._sample.values
        return score_bins(*((values[:, :-1], values[:, -1]) if self._novelty else (values, None)))

    def survey(self) -> Survey:
        """Of rows that have every value."""
        return _complete(self._columns if self._columns is not None else ColumnStatistics.empty(0))


def survey_rows(rows: Rows, batch_rows: int) -> Survey:
    """Survey of rows that are features as they are, each of which has every value."""
    columns = ColumnStatistics.empty(rows.n_features)
    for start, stop in cut(rows.n_samples, batch_rows):
        columns.add(np.asarray(rows.read(slice(start, stop))))
    return _complete(columns)


def _complete(columns: ColumnStatistics) -> Survey:
    """Survey of rows that have every value, of which these are the statistics."""
    n_rows, none = int(columns.count.max(initial=0)), np.zeros(len(columns.count), np.int64)
    return Survey(columns, none, none.copy(), [], none[:0], n_rows=n_rows, n_kept=n_rows)


@dataclass(frozen=True, eq=False)
class Comparison:
    """How scores of later rows are compared with a profile: a function of rows that tasks can be sent.

    Attributes
    ----------
    bins : ScoreBins
    projection : Projection or None
        What makes the scores that are compared of rows; None where those of the model in force are.
    """

    bins: ScoreBins
    projection: Projection | None

    @classmethod
    def of(cls, profile: Profile, model: AnyModel) -> Comparison:
        """With the components of the fit, whatever updates have made of them."""
        bins = profile.scores
        if bins.weights is None or bins.offset is None or not isinstance(model, NystroemModel):
            return cls(bins, None)
        return cls(bins, Projection(model.basis, bins.weights, bins.offset))

    def counts(self, rows: NDArray[Any], scores: Matrix) -> Matrix:
        """How many of some rows (b, n_features) with scores (b, k) are in each bin, shape (k', 10)."""
        return shares_of(scores if self.projection is None else self.projection(rows), self.bins.edges)

    def tally(self) -> Tally:
        """Of no rows yet."""
        return Tally(self.bins)


class Tally:
    """Scores of later rows, counted as they pass.

    Parameters
    ----------
    bins : ScoreBins
        Of the fit.
    """

    def __init__(self, bins: ScoreBins) -> None:
        self._bins = bins
        self._counts = np.zeros_like(bins.shares)
        self._novel = self._rows = 0

    def add(self, counts: Matrix, table: Any) -> None:
        """The next rows: how many are in each bin, and the table of their scores."""
        self._counts += counts
        if self._bins.novel is not None and NOVELTY in table.column_names:
            self._novel += int((table[NOVELTY].to_numpy() > self._bins.novel).sum())
            self._rows += len(table)

    def findings(self) -> list[Finding]:
        """How far they are from the scores of the fit."""
        return compare_scores(self._bins, self._counts) + compare_novelty(self._bins, self._novel, self._rows)
