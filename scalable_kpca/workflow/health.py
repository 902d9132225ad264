"""The health of later rows: compared with the profile of the fit, judged by the limits of a configuration."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalable_kpca.errors import InvalidInputError, StorageError
from scalable_kpca.health import (
    MEASURES,
    Finding,
    Profile,
    ScoreBins,
    compare_columns,
)
from scalable_kpca.model import AnyModel
from scalable_kpca.source import (
    PreparedSource,
    Recipe,
    Source,
    Survey,
    Vocabulary,
    survey,
)
from scalable_kpca.source.survey import survey_batch
from scalable_kpca.workflow.config import Config, DriftConfig
from scalable_kpca.workflow.files import read_json, write_json
from scalable_kpca.workflow.watching import Comparison, Tally

__all__ = ["PROFILE", "Health", "judge_again", "read_profile", "survey_parts", "worst", "write_profile"]

PROFILE = "profile.json"

logger = logging.getLogger(__name__)


def survey_parts(
    source: Source, parts: Collection[int] | None = None, profile: Profile | None = None
) -> Iterator[tuple[int, Survey]]:
    """Number and survey of some parts of a source, with the ends of a profile as what is expected; see `survey`."""
    raw, recipe, known = _raw(source)
    size = survey_batch(raw)
    expected = None if profile is None else (profile.low, profile.high)
    for part, whole in enumerate(raw.whole_files()):
        if parts is None or part in parts:
            yield part, survey(raw, recipe, batches=whole.batches(size), known=known, expected=expected)


def _raw(source: Source) -> tuple[Any, Recipe, Sequence[Vocabulary]]:
    """The table with its columns as they are, and how they are prepared."""
    if isinstance(source, PreparedSource):
        return source.raw, source.preparation.recipe, source.preparation.vocabularies
    return source, Recipe(), ()


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
