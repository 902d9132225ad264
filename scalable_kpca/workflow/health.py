"""The health of later rows: compared with the profile of the fit, judged by the limits of a configuration."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError, StorageError
from scalable_kpca.health import (
    MEASURES,
    N_LEADING,
    Finding,
    Profile,
    ScoreBins,
    compare_columns,
    compare_novelty,
    compare_scores,
    score_bins,
    shares_of,
)
from scalable_kpca.model import AnyModel, NystroemModel
from scalable_kpca.nystroem import Projection
from scalable_kpca.source import (
    ColumnStatistics,
    PreparedSource,
    Recipe,
    Rows,
    RowSample,
    Source,
    Survey,
    Vocabulary,
    survey,
)
from scalable_kpca.source.parts import BATCH_BYTES
from scalable_kpca.source.spans import cut
from scalable_kpca.workflow.config import Config, DriftConfig
from scalable_kpca.workflow.files import read_json, write_json
from scalable_kpca.workflow.parts import NOVELTY, score_names

__all__ = [
    "PROFILE",
    "Comparison",
    "Watch",
    "judge_again",
    "read_profile",
    "survey_parts",
    "survey_rows",
    "survey_source",
    "worst",
    "write_profile",
]

Matrix = NDArray[np.float64]

PROFILE = "profile.json"

logger = logging.getLogger(__name__)


def survey_rows(rows: Rows, batch_rows: int) -> Survey:
    """Survey of rows that are features as they are, each of which has every value."""
    d = rows.n_features
    found = Survey(ColumnStatistics.empty(d), np.zeros(d, np.int64), np.zeros(d, np.int64), [])
    for start, stop in cut(rows.n_samples, batch_rows):
        found.columns.add(np.asarray(rows.read(slice(start, stop))))
    found.n_rows = found.n_kept = rows.n_samples
    return found


def survey_parts(
    source: Source, parts: Collection[int] | None = None, profile: Profile | None = None
) -> Iterator[tuple[int, Survey]]:
    """Number and survey of some parts of a source, with the ends of a profile as what is expected; see `survey`."""
    raw, recipe, known = _raw(source)
    size = max(1, BATCH_BYTES // (8 * (len(raw.feature_names) + len(raw.categorical))))
    expected = None if profile is None else (profile.low, profile.high)
    for part, whole in enumerate(raw.whole_files()):
        if parts is None or part in parts:
            yield part, survey(raw, recipe, batches=whole.batches(size), known=known, expected=expected)


def survey_source(source: Source) -> Survey:
    """Survey of all rows of a source."""
    raw, recipe, known = _raw(source)
    return survey(raw, recipe, known=known)


def _raw(source: Source) -> tuple[Any, Recipe, Sequence[Vocabulary]]:
    """The table with its columns as they are, and how they are prepared."""
    if isinstance(source, PreparedSource):
        return source.raw, source.preparation.recipe, source.preparation.vocabularies
    return source, Recipe(), ()


class Watch:
    """Rows taken at random from tables of scores that pass: what the bins of a profile are made of."""

    def __init__(self, n_components: int, *, novelty: bool) -> None:
        self._names = score_names(n_components)[:N_LEADING] + ([NOVELTY] if novelty else [])
        self._novelty = novelty
        self._sample = RowSample(len(self._names))

    def add(self, start: int, table: Any) -> None:
        """A table of scores, whose first row has this number."""
        values = np.column_stack([table[name].to_numpy() for name in self._names]) if self._names else None
        if values is not None:
            self._sample.add(values, np.arange(start, start + len(values)))

    def bins(self) -> ScoreBins:
        """Bins of the rows that were taken."""
        values = self._sample.values
        return score_bins(*((values[:, :-1], values[:, -1]) if self._novelty else (values, None)))


def write_profile(run: Path, source: Source, found: Survey, scores: ScoreBins) -> None:
    """Write what the rows of a fit are like."""
    numeric, categorical = source.feature_names, ()  # type: tuple[str, ...], tuple[str, ...]
    if isinstance(source, PreparedSource):
        numeric, categorical = source.preparation.numeric, source.preparation.categorical
    write_json(run / PROFILE, Profile.of(numeric, categorical, found, scores).to_json())


def read_profile(run: Path) -> Profile | None:
    """What the rows of the fit of a run are like, None where it was not kept; StorageError when it is damaged."""
    fields = read_json(run / PROFILE)
    if fields is None:
        return None
    try:
        return Profile.from_json(fields)
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(
            f"{run / PROFILE} is damaged: {error}; `skpca run` with the configuration of this output repairs it."
        ) from error


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


class Health:
    """How the new partitions of an update, or the rows of a transform, compare with the fit; judged as that is known.

    Parameters
    ----------
    before : Path
        Run whose profile they are compared with; nothing is, where it has none or `config` does not want it.
    config : Config
    source : Source or None
    places : mapping of int to Partition or str
        What each part that is compared is called, by its number in the source.
    """

    def __init__(self, before: Path, config: Config, source: Source | None, places: Mapping[int, Any]) -> None:
        self._profile = read_profile(before) if config.health else None
        self._drift, self._source = config.drift, source
        self._places = {part: getattr(place, "path", place) for part, place in places.items()}
        self._findings: dict[int, list[Finding]] = {part: [] for part in self._places}

    def judge_columns(self) -> None:
        """Compare columns; InvalidInputError for a partition that is too far from the fit."""
        if self._profile is None or self._source is None:
            return
        for part, found in survey_parts(self._source, self._places, self._profile):
            self._add(part, compare_columns(self._profile, found))

    def comparison(self, model: AnyModel) -> Comparison | None:
        """How scores are to be compared."""
        return None if self._profile is None else Comparison.of(self._profile, model)

    def judge_scores(self, tallies: Mapping[int, Tally]) -> None:
        """Compare scores and novelty; InvalidInputError for a partition that is too far from the fit."""
        for part, tally in tallies.items():
            self._add(part, tally.findings())

    def to_json(self) -> dict[str, Any]:
        """Findings of each partition, by its name."""
        if self._profile is None:
            return {}
        return {self._places[part]: _to_json(findings) for part, findings in self._findings.items()}

    def keep(self, run: Path) -> None:
        """Write the profile that was compared with in another run."""
        if self._profile is not None:
            write_json(run / PROFILE, self._profile.to_json())

    def _add(self, part: int, findings: Sequence[Finding]) -> None:
        self._findings[part] += findings
        _judge(findings, self._drift, self._places[part])


def _judge(findings: Sequence[Finding], drift: DriftConfig, place: str) -> None:
    """Warn of what is above a limit to warn of.

    Raises
    ------
    InvalidInputError
        For what is above a limit to fail at.
    """
    for finding in findings:
        limits = drift.limits(finding.measure)
        where = f', "{finding.where}"' if finding.where else ""
        text = f"{place}{where}: {MEASURES[finding.measure]}: {finding.value:.3g}"
        if limits.fail is not None and finding.value > limits.fail:
            raise InvalidInputError(
                f"{text}, and drift.{finding.measure}.fail is {limits.fail:g}; nothing is published: look at these "
                f"rows, allow more (--set drift.{finding.measure}.fail=…), or fit anew with rows like them."
            )
        if limits.warn is not None and finding.value > limits.warn:
            logger.warning("%s", f"{text}; drift.{finding.measure}.warn is {limits.warn:g}")


def worst(health: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of `Health.to_json`, the largest value of each measure, with its partition."""
    found: dict[str, Any] = {}
    for place, measures in health.items():
        for measure, entry in measures.items():
            size = math.inf if entry["value"] is None else entry["value"]
            if measure not in found or size > found[measure][0]:
                found[measure] = (size, entry | {"path": place})
    return {measure: entry for measure, (_, entry) in found.items()}


def judge_again(health: Mapping[str, Mapping[str, Any]], drift: DriftConfig) -> None:
    """Judge what `Health.to_json` said, perhaps by other limits."""
    for place, measures in health.items():
        findings = [
            Finding(measure, math.inf if entry["value"] is None else float(entry["value"]), str(entry["where"]))
            for measure, entry in measures.items()
        ]
        _judge(findings, drift, place)


def _to_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings as JSON values, by measure; what is infinite is null."""
    return {
        finding.measure: {"value": finding.value if math.isfinite(finding.value) else None, "where": finding.where}
        for finding in findings
    }
