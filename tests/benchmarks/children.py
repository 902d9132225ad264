"""Child processes, started one at a time and in alternation; this process stays small and does nothing meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["ChildError", "Measurement", "Subject", "measure"]

ROOT = Path(__file__).parents[2]
LONGEST = 5 * 3600  # seconds, of a single child
MEASURED = ("seconds", "process_seconds", "peak_memory")


class ChildError(RuntimeError):
    """A subject that ended without a result."""


@dataclass(frozen=True)
class Subject:
    """A name in `subjects.SUBJECTS` and its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """All runs of one subject: each a mapping with `seconds`, `process_seconds`, `peak_memory` and its own results."""

    label: str
    runs: Sequence[Mapping[str, Any]]

    @property
    def seconds(self) -> float:
        """Median over the runs."""
        return median(run["seconds"] for run in self.runs)

    @property
    def peak_memory(self) -> int:
        """Largest over the runs, bytes."""
        return max(run["peak_memory"] for run in self.runs)

    def __getitem__(self, name: str) -> Any:
        """A result of the last run."""
        return self.runs[-1][name]

    def to_json(self) -> dict[str, Any]:
        """Times of every run, largest peak, other results of the last run."""
        others = {name: value for name, value in self.runs[-1].items() if name not in MEASURED}
        return {
            "label": self.label,
            "seconds": [run["seconds"] for run in self.runs],
            "process_seconds": [run["process_seconds"] for run in self.runs],
            "peak_memory": self.peak_memory,
            **others,
        }


def measure(subjects: Mapping[str, Subject], repeats: int) -> dict[str, Measurement]:
    """Run every subject `repeats` times: A B C, A B C, …, so that a change of the machine's mood meets all of them."""
    runs: dict[str, list[dict[str, Any]]] = {label: [] for label in subjects}
    for turn in range(repeats):
        for label, subject in subjects.items():
            run = _run(subject)
            sys.stderr.write(
                f"  {label}, {turn + 1} of {repeats}: {run['seconds']:.4g} s, {run['peak_memory'] / 1e9:.2f} GB\n"
            )
            runs[label].append(run)
    return {label: Measurement(label, found) for label, found in runs.items()}


def _run(subject: Subject) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.child", subject.name, json.dumps(dict(subject.options))]
    start = time.perf_counter()
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST)
    seconds = time.perf_counter() - start
    if finished.returncode != 0:
        sys.stderr.write(finished.stderr)
        raise ChildError(f"subject {subject.name!r} ended with exit status {finished.returncode}")
    return {**json.loads(finished.stdout.splitlines()[-1]), "process_seconds": seconds}
