"""What passes while rows are scored: what a profile is made of, and what is compared with one."""

from __future__ import annotations

from dataclasses import dataclass, field
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
from scalable_kpca.quality import LinearShare, linear_share, rows_of_share
from scalable_kpca.source import ColumnStatistics, Rows, RowSample, Survey, are_drawn
from scalable_kpca.source.spans import cut
from scalable_kpca.workflow.parts import NOVELTY, score_names

__all__ = ["Comparison", "Noted", "Noting", "ProfileRecorder", "Tally", "look_at_rows"]

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Noting:
    """What is noted of the rows of a fit while they pass: a function of rows that tasks can be sent.

    Attributes
    ----------
    n_rows : int
        That pass.
    n_drawn : int
        So many of them, drawn at random by their numbers, are kept whole.
    columns : bool
        Whether statistics of the features are taken.
    """

    n_rows: int
    n_drawn: int
    columns: bool

    @classmethod
    def of(cls, n_rows: int, n_features: int, n_components: int, *, columns: bool) -> Noting:
        """With as many rows as a `linear_share` wants."""
        return cls(n_rows, rows_of_share(n_features, n_components), columns)

    def note(self, start: int, rows: NDArray[np.floating[Any]], scores: Matrix) -> Noted:
        """Of rows (b, n_features), the first of which has this number, and their scores (b, k)."""
        drawn = are_drawn(np.arange(start, start + len(rows)), self.n_rows, self.n_drawn)
        found = Noted([rows[drawn].astype(np.float64)], [scores[drawn]])
        found.columns = ColumnStatistics.of(rows) if self.columns and len(rows) else None
        return found


@dataclass(eq=False)
class Noted:
    """What was noted of some rows, merged in their order.

    Attributes
    ----------
    rows, scores : list of ndarray of shapes (s, n_features) and (s, k), float64
        Of those that were drawn.
    columns : ColumnStatistics or None
    """

    rows: list[Matrix] = field(default_factory=list)
    scores: list[Matrix] = field(default_factory=list)
    columns: ColumnStatistics | None = None

    def merge(self, later: Noted) -> None:
        """Merge what was noted of the rows that follow."""
        self.rows += later.rows
        self.scores += later.scores
        if self.columns is None:
            self.columns = later.columns
        elif later.columns is not None:
            self.columns.merge(later.columns)

    def linear_share(self) -> LinearShare | None:
        """How much of the scores is a linear function of the rows; None where that cannot be said."""
        found = [block for block in self.rows if len(block)]
        return linear_share(np.concatenate(found), np.concatenate(self.scores)) if found else None

    def survey(self) -> Survey:
        """Of rows that have every value."""
        columns = ColumnStatistics.empty(0) if self.columns is None else self.columns
        n_rows, none = int(columns.count.max(initial=0)), np.zeros(len(columns.count), np.int64)
        return Survey(columns, none, none.copy(), [], none[:0], n_rows=n_rows, n_kept=n_rows)


class ProfileRecorder:
    """What passes of the rows of a fit while they are scored: what is noted, and scores of some taken at random.

    Parameters
    ----------
    noting : Noting
    n_components : int
    novelty : bool
        Whether tables have a column of novelty.

    Attributes
    ----------
    noting : Noting
    noted : Noted
    """

    def __init__(self, noting: Noting, n_components: int, *, novelty: bool) -> None:
        self.noting, self.noted = noting, Noted()
        self._names = score_names(n_components)[:N_LEADING] + ([NOVELTY] if novelty else [])
        self._novelty = novelty
        self._sample = RowSample(len(self._names))

    def add(self, start: int, table: Any, noted: Noted) -> None:
        """A table of scores, whose first row has this number, and what was noted of the same rows."""
        values = np.column_stack([np.empty((len(table), 0)), *(table[name].to_numpy() for name in self._names)])
        self._sample.add(values, np.arange(start, start + len(values)))
        self.noted.merge(noted)

    def bins(self) -> ScoreBins:
        """Bins of the rows that were taken."""
        values = self._sample.values
        return score_bins(*((values[:, :-1], values[:, -1]) if self._novelty else (values, None)))


def look_at_rows(rows: Rows, scores: Matrix, batch_rows: int, *, columns: bool) -> Noted:
    """What is noted of all rows and their scores (n_samples, k), with or without the statistics of features."""
    noting, found = Noting.of(rows.n_samples, rows.n_features, scores.shape[1], columns=columns), Noted()
    for start, stop in cut(rows.n_samples, batch_rows):
        found.merge(noting.note(start, np.asarray(rows.read(slice(start, stop))), scores[start:stop]))
    return found


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
