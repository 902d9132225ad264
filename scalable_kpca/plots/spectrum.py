"""Eigenvalues with their bounds, what they explain, how a solver came to them, and what was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.plots.arrays import vectors
from scalable_kpca.plots.canvas import INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "draw_cumulative",
    "draw_eigenvalues",
    "draw_landmark_residuals",
    "draw_plan",
    "draw_residuals",
    "draw_scree",
]

Vector = NDArray[np.float64]

MARKED = 60  # components up to which each has a mark of its own


def draw_scree(axes: Axes, eigenvalues: Vector, below: Vector, above: Vector) -> None:
    """Eigenvalues over their number, each with the interval that is certified.

    Parameters
    ----------
    axes : Axes
        To draw on.
    eigenvalues : ndarray of shape (k,), float64
        Descending; those that are 0 have no place on the logarithmic axis and are left out.
    below, above : ndarray of shape (k,), float64
        How far the certified interval reaches down and up; what is not finite is not drawn.
    """
    eigenvalues, below, above = vectors(eigenvalues=eigenvalues, below=below, above=above)
    shown = np.isfinite(eigenvalues) & (eigenvalues > 0)
    numbers, values = np.flatnonzero(shown) + 1, eigenvalues[shown]
    if len(values):
        # down to zero is down to the axis
        floor = values.min() / 10
        reach = [_finite(below[shown]), _finite(above[shown])]
        reach[0] = np.minimum(reach[0], np.maximum(values - floor, 0))
        axes.errorbar(
            numbers,
            values,
            yerr=reach,
            fmt="o" if len(values) <= MARKED else "-",
            markersize=4,
            capsize=2.5,
            color=PALETTE[0],
            ecolor=PALETTE[3],
            elinewidth=1.2,
        )
        axes.set_yscale("log")
        axes.set_ylim(bottom=values.min() / 2 if (reach[0] < values * 0.4).all() else floor)
        _plain_decades(axes)
    _number_components(axes, len(eigenvalues))
    axes.set_ylabel("eigenvalue λ")


def draw_eigenvalues(axes: Axes, eigenvalues: Vector) -> None:
    """Eigenvalues as bars from zero, for spectra of a few.

    Parameters
    ----------
    axes : Axes
        To draw on.
    eigenvalues : ndarray of shape (k,), float64
        Descending.
    """
    axes.bar(np.arange(1, len(eigenvalues) + 1), eigenvalues, width=0.7, color=PALETTE[0])
    _number_components(axes, len(eigenvalues))
    axes.set_ylabel("eigenvalue λ")


def draw_cumulative(axes: Axes, cumulative: Vector, *, level: float = 0.95, upper: float | None = None) -> None:
    """Share of the variance that the first components explain together, and the line that is asked for.

    Parameters
    ----------
    axes : Axes
        To draw on.
    cumulative : ndarray of shape (k,), float64
        From 0 to 1.
    level : float
        Where the line is.
    upper : float, optional
        What all of them explain at most, where `cumulative` is a lower bound.
    """
    numbers = np.arange(1, len(cumulative) + 1)
    style = "o-" if len(cumulative) <= MARKED else "-"
    axes.plot(numbers, cumulative, style, color=PALETTE[0], markersize=4, linewidth=1.2)
    if upper is not None and len(cumulative):
        axes.plot([numbers[-1]] * 2, [cumulative[-1], upper], "_-", color=PALETTE[3], linewidth=1.2, markersize=9)
    axes.axhline(level, color=PALETTE[3], linestyle="--", linewidth=1)
    axes.annotate(
        f"{100 * level:.0f} %", (1, level), (0, -3), xycoords=("axes fraction", "data"), textcoords="offset points",
        ha="right", va="top", color=INK,
    )  # fmt: skip
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    axes.grid(visible=True, axis="y")
    _number_components(axes, len(cumulative))
    axes.set_ylabel("explained variance")


def draw_residuals(axes: Axes, largest: Vector, smallest: Vector) -> None:
    """Residual norms of the wanted pairs, relative to the first eigenvalue, after each pass that measured them.

    Parameters
    ----------
    axes : Axes
        To draw on.
    largest, smallest : ndarray of shape (p,), float64
        Of each pass; what is not above 0 has no place on the logarithmic axis and is left out.
    """
    largest, smallest = vectors(largest=largest, smallest=smallest)
    numbers = np.arange(1, len(largest) + 1)
    for values, label, colour, marker, line in (
        (largest, "largest", PALETTE[0], "o", "-"),
        (smallest, "smallest", PALETTE[1], "s", "--"),
    ):
        shown = np.isfinite(values) & (values > 0)
        axes.plot(numbers[shown], values[shown], line, marker=marker, color=colour, label=label, markersize=4)
    axes.set_yscale("log")
    axes.grid(visible=True, axis="y")
    axes.legend(frameon=False)
    _whole_numbers(axes)
    axes.set_xlabel("measurement")
    axes.set_ylabel("residual norm / λ₁")


def draw_landmark_residuals(axes: Axes, n_landmarks: Vector, residuals: Mapping[str, Vector]) -> None:
    """Share of the trace that so many landmarks leave out, for one way to choose them or for several.

    Parameters
    ----------
    axes : Axes
        To draw on.
    n_landmarks : ndarray of shape (p,), numbers
        Ascending.
    residuals : mapping
        Names, words of ours, to ndarrays of shape (p,); what is not above 0 is not drawn.
    """
    n_landmarks, *curves = vectors(n_landmarks=n_landmarks, **residuals)
    for place, (name, values) in enumerate(zip(residuals, curves, strict=True)):
        shown = np.isfinite(values) & (values > 0)
        line, marker = (("-", "o"), ("--", "s"), ("-.", "^"), (":", "D"))[place % 4]
        axes.plot(n_landmarks[shown], values[shown], line, marker=marker, color=PALETTE[place % len(PALETTE)],
                  label=name, markersize=4, linewidth=1.2)  # fmt: skip
    if any((line.get_xdata() > 0).any() for line in axes.lines):  # type: ignore[union-attr, operator]
        axes.set_xscale("log")
        axes.set_yscale("log")
    if curves:
        axes.legend(frameon=False)
    axes.grid(visible=True)
    axes.set_xlabel("landmarks m")
    axes.set_ylabel("share of the trace left out")


def draw_plan(axes: Axes, names: Sequence[str], ratios: Vector) -> None:
    """What was used, over what was planned: bars that end at 1 are as planned.

    Parameters
    ----------
    axes : Axes
        To draw on.
    names : sequence of str
        Words of ours.
    ratios : ndarray of shape (p,), float64
        One for each name.
    """
    places = np.arange(len(names))[::-1]
    axes.barh(places, ratios, height=0.55, color=PALETTE[0])
    axes.axvline(1, color=PALETTE[3], linestyle="--", linewidth=1.2)
    top = max(1.0, float(ratios.max(initial=0.0)))
    for place, ratio in zip(places, ratios, strict=True):
        axes.text(ratio + 0.025 * top, place, f"{ratio:.2g}", va="center")
    axes.set_yticks(places, list(names))
    axes.set_xlim(0, 1.15 * top)
    axes.set_xlabel("actual / planned")


def _number_components(axes: Axes, n_components: int) -> None:
    axes.set_xlim(0.4, max(n_components, 1) + 0.6)
    _whole_numbers(axes)
    axes.set_xlabel("component")


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))


def _plain_decades(axes: Axes) -> None:
    """Ticks of a logarithmic axis in plain numbers, also within a decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _finite(values: Vector) -> Vector:
    return np.where(np.isfinite(values), np.maximum(values, 0), 0)
