"""What goes into a row and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.charts import Chart
from tests.benchmarks.children import Measurement, Subject
from tests.benchmarks.verdicts import Verdict

__all__ = ["GIGABYTE", "OURS", "Findings", "K", "Row", "Settings", "fit"]

K = 10  # components, everywhere
GIGABYTE = 1e9
OURS = "scalable_kpca"


@dataclass(frozen=True)
class Settings:
    """Size, repeats and a directory on the disk that is to be measured."""

    n: int
    repeats: int
    scratch: Path


@dataclass(frozen=True)
class Findings:
    """What a row found."""

    measurements: Sequence[Measurement]
    verdicts: Sequence[Verdict]
    notes: Sequence[str] = ()
    charts: Sequence[Chart] = ()


@dataclass(frozen=True)
class Row:
    """A benchmark with the size and repeats that its targets are meant for."""

    title: str
    n: int
    repeats: int
    run: Callable[[Settings], Findings] = field(repr=False)
    in_all: bool = True


def fit(n: int, **settings: object) -> Subject:
    """A fit of the package."""
    return Subject("ours", {"n": n, "k": K, **settings})
