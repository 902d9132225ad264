"""How far rows are from those of a fit, each way of being so as one number, less what chance alone would give.

A few rows differ from many by chance: from each difference, what it exceeds less than once in 15 000 times when nothing
has changed (four standard deviations of a normal variable) is taken away, so that a threshold means the same for a
hundred rows and for a million. That is of one column or component, and the furthest of all is what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrik, chdtri, ndtr

from scalable_kpca.health.profile import NOVEL, Profile, ScoreBins
from scalable_kpca.source import Survey

__all__ = ["MEASURES", "Finding", "compare_columns", "compare_novelty", "compare_scores"]

Vector = NDArray[np.float64]

SIGMAS = 4.0
LIKELY = float(ndtr(SIGMAS))

MEASURES = {
    "missing": "share of its rows without a value, beyond that of the fit",
    "outside": "share of its values that are outside of what the fit has seen",
    "mean": "its mean has moved by so many standard deviations of the fit",
    "spread": "its standard deviation is by this multiple larger than that of the fit, or smaller (1: twice, or half)",
    "unknown": "share of its categories that the fit has not seen",
    "psi": "population stability index of its scores",
    "novelty": "share of rows that are more novel than all but one in a hundred of the fit's, beyond that one",
}


@dataclass(frozen=True)
class Finding:
    """How far some rows are from those of a fit, in one way, where that is furthest.

    Attributes
    ----------
    measure : str
        One of `MEASURES`.
    value : float
        0 or more; infinity where a column that was constant in the fit is not what it was.
    where : str
        Column or component; empty where it is of all rows.
    """

    measure: str
    value: float
    where: str = ""


def compare_columns(profile: Profile, found: Survey) -> list[Finding]:
    """Findings about the columns of rows that were surveyed with the ends of the profile as what is expected."""
    if found.n_rows == 0:
        return []
    columns, m = found.columns, found.n_rows
    # of values like those of the fit, the next one is the smallest or the largest of all with this probability
    extreme = 2 / (profile.count + 1)
    findings = [
        _largest(
            "missing",
            _beyond_chance(found.missing, m, _at_most(profile.missing, profile.n_rows)),
            (*profile.numeric, *profile.categorical),
        ),
        _largest("outside", _beyond_chance(found.outside, columns.count, extreme), profile.numeric),
        _largest("mean", _shift(profile, found), profile.numeric),
        _largest("spread", _spread(profile, found), profile.numeric),
        _largest("unknown", _beyond_chance(found.unknown, m, 1 / (profile.n_rows + 1)), profile.categorical),
    ]
    return [finding for finding in findings if finding.measure != "unknown" or profile.categorical]


def compare_scores(bins: ScoreBins, counts: NDArray[np.float64]) -> list[Finding]:
    """Population stability index of rows that are in the bins so many times, shape (k', 10), of the worst component.

    Notes
    -----
    PSI = Σ (q − p)·ln(q/p) over the bins that have rows, p and q the shares of the fit's rows and of these, a bin
    without any counted as half a row. Without a change it is (1/n + 1/m)·χ² with a degree of freedom less than there
    are bins, of which the quantile that `SIGMAS` deviations of a normal variable are is taken away. The scores of the
    rows of an exact fit are larger than those of new rows where there are not many more rows than features: then there
    is something to report though nothing has changed.

    References
    ----------
    Yurdakul and Naranjo (2020), Statistical properties of the population stability index.
    """
    m = counts[0].sum() if len(counts) else 0.0
    if not m or not bins.n_rows:
        return []
    p = np.maximum(bins.shares, 0.5 / bins.n_rows)
    q = np.maximum(counts / m, 0.5 / m)
    there = (bins.shares > 0) | (counts > 0)
    freedom = np.maximum(there.sum(axis=1) - 1, 1)
    chance = (1 / bins.n_rows + 1 / m) * chdtri(freedom, 1 - LIKELY)
    index = ((q - p) * np.log(q / p) * there).sum(axis=1) - chance
    return [_largest("psi", index, [f"pc_{component:03d}" for component in range(len(index))])]


def compare_novelty(bins: ScoreBins, n_novel: int, n_rows: int) -> list[Finding]:
    """Share of rows beyond the novelty that one in a hundred of the fit's rows exceeds."""
    if bins.novel is None or not n_rows:
        return []
    return [Finding("novelty", float(_beyond_chance(n_novel, n_rows, _at_most(1 - NOVEL, bins.n_rows))))]


def _at_most(share: ArrayLike, n_rows: int) -> Vector:
    """What a share may be that was found of so many rows; 0 where none had it."""
    found = np.asarray(share, np.float64)
    return np.asarray(np.minimum(found + SIGMAS * np.sqrt(found * (1 - found) / max(1, n_rows)), 1.0))


def _beyond_chance(count: ArrayLike, n: ArrayLike, share: ArrayLike) -> Vector:
    """Share of n by which a count is larger than a binomial one of mean n·share is by chance; 0 or more."""
    total = np.maximum(n, 1)
    likely = np.where(np.equal(share, 0), 0.0, bdtrik(LIKELY, total, np.minimum(share, 1 - 1e-12)))
    return np.asarray(np.maximum(np.asarray(count) - np.minimum(np.ceil(likely), total), 0.0) / total)


def _shift(profile: Profile, found: Survey) -> Vector:
    """|mean − mean of the fit| over the standard deviation of the fit."""
    columns = found.columns
    distance = np.abs(columns.mean - profile.mean)
    error = SIGMAS * np.sqrt(1 / np.maximum(columns.count, 1) + 1 / np.maximum(profile.count, 1))
    ratio = _ratio(distance, profile.deviation) - error
    return np.where((columns.count > 0) & (profile.count > 0), ratio, 0.0)


def _spread(profile: Profile, found: Survey) -> Vector:
    """Ratio of standard deviations, the larger over the smaller, less 1; 0 where they agree but for chance."""
    columns = found.columns
    own = np.sqrt(columns.squares / np.maximum(columns.count, 1))
    ratio = np.maximum(_ratio(own, profile.deviation), _ratio(profile.deviation, own))
    # of normal values; the logarithm of a standard deviation of m of them is off by 1/√(2m)
    error = SIGMAS * np.sqrt(0.5 / np.maximum(columns.count, 1) + 0.5 / np.maximum(profile.count, 1))
    with np.errstate(divide="ignore"):
        excess = np.expm1(np.maximum(np.log(ratio) - error, 0.0))
    return np.where((columns.count > 1) & (profile.count > 1), excess, 0.0)


def _ratio(a: Vector, b: Vector) -> Vector:
    """a/b, where 0/0 is 0 for a distance and infinity stands for a > 0 = b; 0 where both are beyond float64."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(a == 0, 0.0, np.nan_to_num(a / b, nan=0.0, posinf=np.inf))


def _largest(measure: str, values: Vector, names: Sequence[str]) -> Finding:
    if len(values) == 0:
        return Finding(measure, 0.0)
    at = int(np.argmax(values))
    return Finding(measure, max(0.0, float(values[at])), names[at])
