"""What a command did as metrics of Prometheus, in the text that node_exporter's textfile collector reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalable_kpca.workflow.parts import score_names

__all__ = ["MEANINGS", "N_EIGENVALUES", "Ending", "metrics_text"]

N_EIGENVALUES = 100  # each is a series of its own

MEANINGS = {
    "skpca_exit_code": "Exit code of the last command: 0 done, 99 nothing to do, 75 run again, others as documented.",
    "skpca_last_run_timestamp_seconds": "When the last command ended, Unix time.",
    "skpca_last_success_timestamp_seconds": "When a command last ended with exit code 0 or 99, Unix time.",
    "skpca_duration_seconds": "Wall time of the last command.",
    "skpca_peak_memory_bytes": "Largest resident size of the process of the last command, without worker processes.",
    "skpca_rows": "Rows of the model in force; of transform, rows that were scored.",
    "skpca_components": "Components of the model in force.",
    "skpca_passes": "Passes over the Gram matrix that the model in force took.",
    "skpca_explained_variance_ratio": "Share of the variance that the components of the model in force explain.",
    "skpca_complete": "Whether it is certain that no larger eigenvalue of the model in force was missed, 1 or 0.",
    "skpca_eigenvalue": f"Eigenvalue of the centred Gram matrix, of the first {N_EIGENVALUES} components.",
    "skpca_drift": "Largest value of a measure over the partitions of the last command, as in metrics.json.",
    "skpca_landmark_drift_ratio": "What the landmarks leave out of an added partition, over that of the base; largest.",
}

SUCCESS = "skpca_last_success_timestamp_seconds"

Labels = dict[str, str]
Sample = tuple[str, Labels, float]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a command ended.

    Attributes
    ----------
    exit_code : int
    ended : float
        Unix time, seconds.
    seconds : float
        Wall time.
    peak_memory : int or None
        Bytes.
    rows : int or None
        That were scored; None where those of the model count.
    model : mapping
        ``metrics.json`` of the run in force; empty where a command failed.
    drift : mapping of str to float
        Largest value of each measure.
    landmark_drift : sequence of float
        Of each added partition.
    """

    exit_code: int
    ended: float
    seconds: float
    peak_memory: int | None = None
    rows: int | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)
    landmark_drift: Sequence[float] = ()

    @property
    def succeeded(self) -> bool:
        """Whether it did what was asked, or there was nothing to do."""
        return self.exit_code in (0, 99)


def metrics_text(job: str, command: str, ending: Ending, earlier: str = "") -> str:
    """Text of a file ``*.prom``.

    Parameters
    ----------
    job, command : str
        Labels of every series; text that UTF-8 can hold.
    ending : Ending
    earlier : str
        The file as it is: series of other jobs and commands stay, and so does when this one last succeeded. Text that
        is none of ours is left out.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    ours = {"job": job, "command": command}
    before = list(_samples(earlier))
    samples = [sample for sample in before if not _is_of(sample, ours)]
    samples += [(name, ours | labels, value) for name, labels, value in _series(ending)]
    if not ending.succeeded:
        samples += [sample for sample in before if _is_of(sample, ours) and sample[0] == SUCCESS]
    families = {name: GaugeMetricFamily(name, meaning) for name, meaning in MEANINGS.items()}
    for name, labels, value in samples:
        families[name].add_sample(name, labels, value)

    class Families(Collector):
        def collect(self) -> Iterable[GaugeMetricFamily]:
            return [family for family in families.values() if family.samples]

    registry = CollectorRegistry()
    registry.register(Families())
    return generate_latest(registry).decode()


def _series(ending: Ending) -> Iterator[Sample]:
    """Name, further labels and value of everything that is known."""
    yield "skpca_exit_code", {}, ending.exit_code
    yield "skpca_last_run_timestamp_seconds", {}, ending.ended
    if ending.succeeded:
        yield SUCCESS, {}, ending.ended
    yield "skpca_duration_seconds", {}, ending.seconds
    if ending.peak_memory is not None:
        yield "skpca_peak_memory_bytes", {}, ending.peak_memory
    if ending.model:
        yield from _series_of_model(ending.model, ending.rows)
    for measure, value in ending.drift.items():
        yield "skpca_drift", {"measure": measure}, value
    if ending.landmark_drift:
        yield "skpca_landmark_drift_ratio", {}, max(ending.landmark_drift)


def _series_of_model(model: Mapping[str, Any], rows: int | None) -> Iterator[Sample]:
    yield "skpca_rows", {}, model["n_samples"] if rows is None else rows
    yield "skpca_components", {}, model["n_components"]
    yield "skpca_passes", {}, model["n_passes"]
    yield "skpca_explained_variance_ratio", {}, _number(model["explained_variance"])
    yield "skpca_complete", {}, float(model["certificate"]["complete"])
    values = model["eigenvalues"][:N_EIGENVALUES]
    for component, value in zip(score_names(len(values)), values, strict=True):
        yield "skpca_eigenvalue", {"component": component}, _number(value)


def _number(value: float | None) -> float:
    """What is null in JSON was not a number."""
    return math.nan if value is None else float(value)


def _samples(text: str) -> Iterator[Sample]:
    """Samples of ours in a file, none when it is damaged: the next commands say everything again."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(text))
    except (ValueError, KeyError, IndexError):
        return
    for family in families:
        for sample in family.samples:
            if sample.name in MEANINGS and {"job", "command"} <= sample.labels.keys():
                yield sample.name, sample.labels, sample.value


def _is_of(sample: Sample, labels: Labels) -> bool:
    return all(sample[1][name] == value for name, value in labels.items())
