"""What was asked for beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log
from statistics import linear_regression, median
from typing import Any

from tests.benchmarks.children import Measurement

__all__ = ["AGREEMENT", "Verdict", "agreement", "exponent", "ratio"]

AGREEMENT = 1e-6  # of λ₁: what two programs' eigenvalues may differ by


@dataclass(frozen=True)
class Verdict:
    """One number and its target.

    Attributes
    ----------
    what : str
    measured : float, or None when it could not be measured
    sense, bound : "≥" or "≤" and the target; both None for a number that has none
    unit : str
    spread : (lowest, highest) over the alternating runs, when there are several
    is_correctness : bool
        Whether a miss means wrong results, not slow ones.
    """

    what: str
    measured: float | None
    sense: str | None = None
    bound: float | None = None
    unit: str = ""
    spread: tuple[float, float] | None = None
    is_correctness: bool = False

    @property
    def margin(self) -> float | None:
        """Share of the target by which it is met (positive) or missed (negative)."""
        if self.measured is None or not self.bound:
            return None
        excess = (self.measured - self.bound) / self.bound
        return excess if self.sense == "≥" else -excess

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one, or without a measurement."""
        if self.measured is None or self.bound is None:
            return None
        # written so that NaN is a miss
        return self.measured >= self.bound if self.sense == "≥" else self.measured <= self.bound

    def to_json(self) -> dict[str, Any]:
        """Fields, `met` and `margin`."""
        return {**asdict(self), "met": self.met, "margin": self.margin}


def ratio(
    what: str,
    above: Measurement,
    below: Measurement,
    sense: str | None = None,
    bound: float | None = None,
    *,
    of: str = "seconds",
) -> Verdict:
    """Ratio of medians of two subjects that ran in alternation, and its range over the single rounds."""
    pairs = [(a[of], b[of]) for a, b in zip(above.runs, below.runs, strict=True)]
    single = [a / b for a, b in pairs]
    spread = (min(single), max(single)) if len(single) > 1 else None
    return Verdict(what, median(a for a, _ in pairs) / median(b for _, b in pairs), sense, bound, "×", spread)


def agreement(
    what: str,
    found: Sequence[float],
    reference: Sequence[float],
    *,
    is_asserted: bool = True,
    bound: float = AGREEMENT,
    unit: str = "·λ₁",
) -> Verdict:
    """Largest difference of two lists of numbers, eigenvalues for example, relative to the first of the reference."""
    difference = max(abs(a - b) for a, b in zip(found, reference, strict=True)) / reference[0]
    if not is_asserted:
        return Verdict(what, difference, unit=unit)
    return Verdict(what, difference, "≤", bound, unit, is_correctness=True)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """Slope of log(value) over log(size) by least squares; None with fewer than two positive values."""
    points = [(log(size), log(value)) for size, value in zip(sizes, values, strict=True) if value > 0]
    return linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else None
