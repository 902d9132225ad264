"""What the colours of rows mean: a group for each of a few values, or a scale for many numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ABSENT", "LARGEST", "MOST_GROUPS", "OTHERS", "Colouring", "colouring_of"]

Vector = NDArray[np.float64]

MOST_GROUPS = 20
OTHERS, ABSENT = "all other values", "no value"
LARGEST = 1e100  # beyond, no picture has axes


@dataclass(frozen=True, eq=False)
class Colouring:
    """What the colours of rows mean.

    Attributes
    ----------
    groups : ndarray of shape (m,), int64, or None
        Of a column with few values: their places in `names`.
    names : tuple of str
        In their order; the last ones may be all others, beside the most frequent ones, and rows without a value.
    shades : ndarray of shape (m,), float64, or None
        Of a column of numbers: from 0 at `low` to 1 at `high`, NaN where there is none.
    low, high : float
        Quantiles 2 % and 98 %.
    """

    groups: NDArray[np.int64] | None = None
    names: tuple[str, ...] = ()
    shades: Vector | None = None
    low: float = 0.0
    high: float = 0.0


def colouring_of(values: Sequence[Any], most_groups: int = MOST_GROUPS) -> Colouring:
    """Colours of a column: a scale for more than `MOST_GROUPS` different numbers, else at most `most_groups` groups."""
    present = [value for value in values if value is not None]
    counts = Counter(map(_spelled, present))
    if len(counts) > MOST_GROUPS and all(_is_number(value) for value in present):
        numbers = np.array([np.nan if value is None else value for value in values], np.float64)
        numbers[~(np.abs(numbers) < LARGEST)] = np.nan
        if np.isfinite(numbers).any():
            low, high = (float(found) for found in np.nanquantile(numbers, [0.02, 0.98]))
            shades = np.clip((numbers - low) / ((high - low) or 1.0), 0, 1)
            return Colouring(shades=shades, low=low, high=high)
    # of equally frequent ones the first in the alphabet, so that the order of rows decides nothing
    ranked = [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    room = most_groups - (len(present) < len(values))
    shown = sorted(ranked if len(ranked) <= room else ranked[: room - 1], key=_in_order)
    places = {name: place for place, name in enumerate(shown)}
    rest = len(shown) + (len(ranked) > len(shown))
    groups = [rest if value is None else places.get(_spelled(value), len(shown)) for value in values]
    names = (*shown, *([OTHERS] if len(ranked) > len(shown) else []), *([ABSENT] if len(present) < len(values) else []))
    return Colouring(groups=np.array(groups, np.int64), names=names)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _in_order(name: str) -> tuple[float, str]:
    """Numbers by their size, before texts."""
    try:
        value = float(name)
    except ValueError:
        value = float("inf")
    return (value, name) if value == value else (float("inf"), name)


def _spelled(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
