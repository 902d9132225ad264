"""What the rows of a fit were like: what later ones are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.source import Survey

__all__ = ["N_BINS", "N_LEADING", "Profile", "ScoreBins", "score_bins", "shares_of"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

N_LEADING = 5  # components whose scores are compared
N_BINS = 10
SAME = 1e-9  # scores nearer than that, relative to the largest, are those of equal rows
NOVEL = 0.99  # quantile of the novelty of a fit's rows, beyond which a row is counted as novel


@dataclass(frozen=True, eq=False)
class ScoreBins:
    """How the scores of a fit's rows are spread, in ten bins of each leading component, and how novel they are.

    Attributes
    ----------
    edges : ndarray of shape (k', 9), float64
        Between the tenths of each component, k' ≤ 5, in the middle between two scores; equal ones have nothing between
        them.
    shares : ndarray of shape (k', 10), float64
        Of the rows in each bin: a tenth where no scores repeat.
    n_rows : int
        That they are taken from.
    novel : float or None
        Novelty that one in a hundred of these rows exceeds; None where it is not known.
    weights, offset : ndarray of shapes (m, k') and (k',), float64, or None
        Of a Nyström model: what makes these scores of a row, also when updates have turned the components.
    """

    edges: Matrix
    shares: Matrix
    n_rows: int
    novel: float | None = None
    weights: Matrix | None = None
    offset: Vector | None = None


@dataclass(frozen=True, eq=False)
class Profile:
    """The rows of a fit.

    Attributes
    ----------
    numeric, categorical : tuple of str
        Names of the columns, as they are before they are prepared.
    n_rows : int
        Also those that were left out.
    count, mean, deviation, low, high : ndarray of shape (d,), float64
        Of each numeric column, over the rows that were kept: values, their mean, standard deviation and ends.
    missing : ndarray of shape (d + d_categorical,), float64
        Share of rows without a value.
    scores : ScoreBins
    """

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    n_rows: int
    count: Vector
    mean: Vector
    deviation: Vector
    low: Vector
    high: Vector
    missing: Vector
    scores: ScoreBins

    @classmethod
    def of(cls, numeric: tuple[str, ...], categorical: tuple[str, ...], found: Survey, scores: ScoreBins) -> Profile:
        """Profile of surveyed rows and their scores."""
        columns = found.columns
        deviation = np.sqrt(columns.squares / np.maximum(columns.count, 1))
        there = columns.count > 0
        return cls(
            numeric,
            categorical,
            found.n_rows,
            columns.count.astype(np.float64),
            np.nan_to_num(columns.mean),  # of values whose sums are beyond float64
            np.nan_to_num(deviation),
            np.where(there, columns.low, 0.0),
            np.where(there, columns.high, 0.0),
            found.missing / max(1, found.n_rows),
            scores,
        )

    @property
    def ends(self) -> tuple[Vector, Vector]:
        """Smallest and largest value of each numeric column."""
        return self.low, self.high

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values; see `from_json`."""
        names = ("count", "mean", "deviation", "low", "high", "missing")
        numbers = {name: getattr(self, name).tolist() for name in names}
        scores = {"edges": self.scores.edges.tolist(), "shares": self.scores.shares.tolist()}
        scores |= {"rows": self.scores.n_rows, "novel": self.scores.novel}
        for name in ("weights", "offset"):
            values = getattr(self.scores, name)
            scores[name] = None if values is None else values.tolist()
        head = {"numeric": list(self.numeric), "categorical": list(self.categorical), "rows": self.n_rows}
        return {**head, **numbers, "scores": scores}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Profile:
        """The profile that `to_json` described; ValueError, TypeError or KeyError when it is none."""
        numeric, categorical = tuple(fields["numeric"]), tuple(fields["categorical"])
        scores = fields["scores"]
        novel = None if scores["novel"] is None else float(scores["novel"])
        edges = np.array(scores["edges"], np.float64).reshape(-1, N_BINS - 1)
        shares = np.array(scores["shares"], np.float64).reshape(-1, N_BINS)
        weights, offset = (None if scores[name] is None else np.array(scores[name]) for name in ("weights", "offset"))
        bins = ScoreBins(edges, shares, int(scores["rows"]), novel, weights, offset)
        names = ("count", "mean", "deviation", "low", "high", "missing")
        numbers = {name: np.array(fields[name], np.float64) for name in names}
        n, d = len(numeric) + len(categorical), len(numeric)
        fits = (
            all(isinstance(name, str) for name in (*numeric, *categorical))
            and all(values.shape == ((n if name == "missing" else d),) for name, values in numbers.items())
            and all(np.isfinite(values).all() for values in (*numbers.values(), edges, shares))
            and len(edges) == len(shares)
            and (np.diff(edges, axis=1) >= 0).all()
            and (weights is None) == (offset is None)
            and (weights is None or offset is None or _are_weights(weights, offset, len(edges)))
        )
        if not fits:
            raise ValueError("the profile of the rows is not one that is written")
        return cls(numeric, categorical, int(fields["rows"]), **numbers, scores=bins)


def _are_weights(weights: Matrix, offset: Vector, k: int) -> bool:
    fits = weights.ndim == 2 and weights.shape[1:] == offset.shape == (k,)
    return fits and bool(np.isfinite(weights).all() and np.isfinite(offset).all())


def score_bins(scores: Matrix, novelty: Vector | None) -> ScoreBins:
    """Bins of the scores (m, k) of a fit's rows, or of some taken at random, and their novelty (m,)."""
    leading = scores[:, :N_LEADING]
    edges = np.zeros((leading.shape[1], N_BINS - 1))
    if leading.size:
        edges = np.array([_edges(column) for column in leading.T]).reshape(edges.shape)
    novel = None if novelty is None else float(np.quantile(novelty, NOVEL, method="inverted_cdf"))
    return ScoreBins(edges, shares_of(leading, edges) / max(1, len(scores)), len(scores), novel)


def _edges(scores: Vector) -> Vector:
    """Nine values that cut scores into tenths, none of them through scores that are equal but for rounding."""
    values = np.sort(scores)
    same = SAME * max(float(np.abs(values).max()), np.finfo(np.float64).tiny / SAME)
    ends = np.append(np.flatnonzero(np.diff(values) > same), len(values) - 1)  # last of each group of equal ones
    wanted = np.ceil(np.arange(1, N_BINS) * len(values) / N_BINS).astype(int) - 1
    found = ends[np.searchsorted(ends, wanted)]
    above = np.minimum(found + 1, len(values) - 1)
    return np.asarray(np.where(found < len(values) - 1, (values[found] + values[above]) / 2, values[-1] + same))


def shares_of(scores: Matrix, edges: Matrix) -> Matrix:
    """How many of some scores (m, k' or more) are in each bin of `edges` (k', 9): shape (k', 10), float64.

    A score that is an edge is in the bin below it.
    """
    counts = np.zeros((len(edges), N_BINS))
    for component, own in enumerate(edges):
        bins = np.searchsorted(own, scores[:, component], side="left")
        counts[component] = np.bincount(bins, minlength=N_BINS)
    return counts
