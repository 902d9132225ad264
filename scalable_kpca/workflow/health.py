"""The health of later rows: compared with the profile of the fit, judged by the limits of a configuration."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
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
from scalable_kpca.source import PreparedSource, Source, Survey, survey_parts
from scalable_kpca.workflow.config import Config, DriftConfig, Limits
from scalable_kpca.workflow.files import read_json, write_json
from scalable_kpca.workflow.watching import Comparison, Tally

__all__ = ["PROFILE", "Health", "check_limits", "judge_again", "read_profile", "worst", "write_profile"]

PROFILE = "profile.json"

logger = logging.getLogger(__name__)


def write_profile(run: Path, source: Source, found: Survey, scores: ScoreBins) -> None:
    """Write what the rows of a fit are like."""
    numeric, categorical = source.feature_names, ()  # type: tuple[str, ...], tuple[str, ...]
    if isinstance(source, PreparedSource):
        numeric, categorical = source.preparation.numeric, source.preparation.categorical
    write_json(run / PROFILE, Profile.of(numeric, categorical, found, scores).to_json())


def read_profile(run: Path, config: Config) -> Profile | None:
    """What the rows of the fit of a run are like; StorageError when it is damaged.

    None where it was not kept, or `config` wants nothing compared.
    """
    fields = read_json(run / PROFILE) if config.health else None
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
    profile : Profile or None
        Of the fit; nothing is compared without one.
    drift : DriftConfig
    source : Source or None
    places : mapping of int to str
        What each part that is compared is called, by its number in the source.
    """

    def __init__(
        self, profile: Profile | None, drift: DriftConfig, source: Source | None, places: Mapping[int, str]
    ) -> None:
        self._profile, self._drift, self._source, self._places = profile, drift, source, dict(places)
        self._findings: dict[int, list[Finding]] = {part: [] for part in self._places}

    def judge_columns(self) -> None:
        """Compare columns; InvalidInputError for a partition that is too far from the fit."""
        if self._profile is None or self._source is None:
            return
        for part, found in survey_parts(self._source, self._places, self._profile.ends):
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
        check_limits(
            finding.value,
            limits,
            f"drift.{finding.measure}",
            f"{place}{where}: {MEASURES[finding.measure]}: {finding.value:.3g}",
            f"look at these rows, allow more (--set drift.{finding.measure}.fail=…), or fit anew with rows like them",
        )


def check_limits(value: float, limits: Limits, key: str, text: str, remedy: str) -> None:
    """Warn of a measure that is above its limit to warn of.

    Parameters
    ----------
    value : float
    limits : Limits
    key : str
        Where the limits are in a configuration.
    text, remedy : str
        What was found, and what to do about it.

    Raises
    ------
    InvalidInputError
        For one that is above its limit to fail at.
    """
    if limits.fail is not None and value > limits.fail:
        raise InvalidInputError(f"{text}, and {key}.fail is {limits.fail:g}; nothing is published: {remedy}.")
    if limits.warn is not None and value > limits.warn:
        logger.warning("%s", f"{text}; {key}.warn is {limits.warn:g}")


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
