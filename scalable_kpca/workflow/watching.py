"""What passes while rows are scored: what a profile is made of, and what is compared with one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.health import (
    N_LEADING,
    Finding,
    JointMoments,
    LinearShare,
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
from scalable_kpca.tiling import MOMENT_BYTES, moment_bytes
from scalable_kpca.workflow.parts import NOVELTY, score_names

__all__ = ["Comparison", "ProfileRecorder", "RowLook", "RowsSeen", "Tally", "look_at_rows"]

Matrix = NDArray[np.float64]
Statistics = TypeVar("Statistics", ColumnStatistics, JointMoments)


@dataclass(frozen=True)
class RowLook:
    """What is looked for in the rows of a fit while they pass: a function of rows that tasks can be sent.

    Attributes
    ----------
    columns : bool
        Statistics of the features.
    moments : bool
        Moments of features and scores.
    """

    columns: bool
    moments: bool

    @classmethod
    def of(cls, n_features: int, n_components: int, *, columns: bool) -> RowLook:
        """With moments where there are scores and those are small."""
        return cls(columns, n_components > 0 and moment_bytes(n_features, n_components) <= MOMENT_BYTES)

    def at(self, rows: NDArray[np.floating[Any]], scores: Matrix) -> RowsSeen:
        """Of rows (b, n_features) and their scores (b, k), b > 0."""
        columns = ColumnStatistics.of(rows) if self.columns else None
        return RowsSeen(columns, JointMoments.of(rows, scores) if self.moments else None)


@dataclass(eq=False)
class RowsSeen:
    """What was found in some rows, merged in their order.

    Attributes
    ----------
    columns : ColumnStatistics or None
    moments : JointMoments or None
    """

    columns: ColumnStatistics | None = None
    moments: JointMoments | None = None

    def merge(self, later: RowsSeen) -> None:
        """Merge what was found in the rows that follow; that is not used again."""
        self.columns, self.moments = _merged(self.columns, later.columns), _merged(self.moments, later.moments)

    def linear_share(self) -> LinearShare | None:
        """How much of the scores is linear in the rows; None where that cannot be said."""
        return None if self.moments is None else self.moments.linear_share()

    def survey(self) -> Survey:
        """Of rows that have every value."""
        columns = ColumnStatistics.empty(0) if self.columns is None else self.columns
        n_rows, none = int(columns.count.max(initial=0)), np.zeros(len(columns.count), np.int64)
        return Survey(columns, none, none.copy(), [], none[:0], n_rows=n_rows, n_kept=n_rows)


def _merged(own: Statistics | None, later: Statistics | None) -> Statistics | None:
    """Statistics of rows, with those of the rows that follow."""
    if own is None or later is None:
        return own or later
    own.merge(later)
    return own


class ProfileRecorder:
    """What passes of the rows of a fit while they are scored: what they are like, and scores of some at random.

    Parameters
    ----------
    look : RowLook
        What tasks look for.
    n_components : int
    novelty : bool
        Whether tables have a column of novelty.

    Attributes
    ----------
    look : RowLook
    seen : RowsSeen
    """

    def __init__(self, look: RowLook, n_components: int, *, novelty: bool) -> None:
        self.look, self.seen = look, RowsSeen()
        self._names = score_names(n_components)[:N_LEADING] + ([NOVELTY] if novelty else [])
        self._novelty = novelty
        self._sample = RowSample(len(self._names))

    def add(self, start: int, table: Any, seen: RowsSeen) -> None:
        """A table of scores, whose first row has this number, and what was found in the same rows."""
        values = np.column_stack([np.empty((len(table), 0)), *(table[name].to_numpy() for name in self._names)])
        self._sample.add(values, np.arange(start, start + len(values)))
        self.seen.merge(seen)

    def bins(self) -> ScoreBins:
        """Bins of the rows that were taken."""
        values = self._sample.values
        return score_bins(*((values[:, :-1], values[:, -1]) if self._novelty else (values, None)))


def look_at_rows(rows: Rows, scores: Matrix, batch_rows: int, *, columns: bool) -> RowsSeen:
    """What is found in all rows and their scores (n_samples, k), with or without statistics of the features.

    Notes
    -----
    Cost: one read of the rows, and none where nothing is looked for.
    """
    look, seen = RowLook.of(rows.n_features, scores.shape[1], columns=columns), RowsSeen()
    if look.columns or look.moments:
        for start, stop in cut(rows.n_samples, batch_rows):
            seen.merge(look.at(np.asarray(rows.read(slice(start, stop))), scores[start:stop]))
    return seen


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
