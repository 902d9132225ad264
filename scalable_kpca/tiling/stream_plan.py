"""What a Nyström fit will do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["NystroemPlan"]


@dataclass(frozen=True)
class NystroemPlan:
    """What a Nyström fit will do, decided before anything is computed.

    Attributes
    ----------
    n_samples, n_features, n_components : int
        Shape of the job. `n_components` is 0 where the number is decided by the spectrum.
    n_landmarks : int
    landmarks : str
        How they are chosen.
    dtype : str
        Of the kernel values with landmarks.
    batch_rows, span_rows, n_spans, n_threads, n_workers : int
        Rows that a task reads at a time, rows of a task and their number (of sources that are cut into spans),
        concurrent tasks of a process, processes.
    sum_wave, score_wave : int
        Tasks of a pass of sums that are given out together, tasks whose scores are in memory together.
    row_passes : int
        Reads of the rows: the first look, those of the landmark method, the sums, the scores.
    kernel_values : int
        Evaluations in all.
    peak_memory, memory_limit : int
        Planned and allowed peak of the process, bytes.
    seconds : float or None
        Expected time; None when the plan was made without rates.
    reasons : tuple of str
        Why each choice was made, one sentence each.
    """

    n_samples: int
    n_features: int
    n_components: int
    n_landmarks: int
    landmarks: str
    dtype: str
    batch_rows: int
    span_rows: int
    n_spans: int
    sum_wave: int
    score_wave: int
    n_threads: int
    n_workers: int
    row_passes: int
    kernel_values: int
    peak_memory: int
    memory_limit: int
    seconds: float | None
    reasons: tuple[str, ...]

    @property
    def n_parallel(self) -> int:
        """Tasks at the same time, in all processes."""
        return self.n_threads * self.n_workers

    @property
    def method(self) -> str:
        """``"nystroem"``."""
        return "nystroem"

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return {"method": self.method, **asdict(self), "reasons": list(self.reasons)}
