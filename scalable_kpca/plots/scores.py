"""Rows in the plane of two components, along one, and by their novelty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.plots.arrays import finite, group_numbers, vectors
from scalable_kpca.plots.canvas import INK, PALETTE, shading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MARKERS",
    "draw_directions",
    "draw_hexagons",
    "draw_histogram",
    "draw_novelty",
    "draw_scatter",
    "draw_side_by_side",
    "mark_of",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Groups = NDArray[np.int64]

# and as letters of a legend
MARKERS = {"o": "●", "^": "▲", "s": "■", "D": "◆"}
GRID, FAINTEST = 36, 0.4
NAMES = ("pc_000", "pc_001")


def mark_of(group: int) -> tuple[int, str]:
    """What a group looks like: the first four differ in colour and in marker.

    Parameters
    ----------
    group : int
        From 0.

    Returns
    -------
    colour : int
        Place in `PALETTE`.
    marker : str
        Key of `MARKERS`.
    """
    colour, times = group % len(PALETTE), group // len(PALETTE)
    return colour, list(MARKERS)[(colour + times) % len(MARKERS)]


def draw_scatter(
    axes: Axes,
    x: Vector,
    y: Vector,
    *,
    groups: Groups | None = None,
    shades: Vector | None = None,
    names: tuple[str, str] = NAMES,
) -> None:
    """Every row a mark.

    Parameters
    ----------
    axes : Axes
        To draw on.
    x, y : ndarray of shape (m,), float64
        Places of the rows.
    groups : ndarray of shape (m,), int64, optional
        From 0 to 31, each with a look of its own; see `mark_of`.
    shades : ndarray of shape (m,), float64, optional
        Between 0 and 1, in the place of `groups`; NaN is grey.
    names : (str, str)
        Of the axes.

    Raises
    ------
    InvalidInputError
        For arrays of different lengths, and groups that are no whole numbers ≥ 0.
    """
    if shades is not None:
        x, y, shades = vectors(x=x, y=y, shades=shades)
    else:
        x, y = vectors(x=x, y=y)
    numbers = group_numbers(groups, len(x))
    size = 22 if len(x) < 500 else 11 if len(x) < 2000 else 6
    look: dict[str, Any] = {"s": size, "linewidths": 0, "alpha": 0.75}
    if shades is not None:
        known = np.isfinite(shades)
        axes.scatter(x[~known], y[~known], color=PALETTE[7], **look)
        axes.scatter(x[known], y[known], c=shades[known], cmap=shading(), vmin=0, vmax=1, **look)
    else:
        for group in np.unique(numbers):
            here, (colour, marker) = numbers == group, mark_of(int(group))
            axes.scatter(x[here], y[here], color=PALETTE[colour], marker=marker, **look)
    _name_plane(axes, names)


def draw_hexagons(
    axes: Axes, x: Vector, y: Vector, *, groups: Groups | None = None, shades: Vector | None = None
) -> None:
    """Rows counted in hexagons, the fuller the stronger.

    Parameters
    ----------
    axes : Axes
        To draw on.
    x, y : ndarray of shape (m,), float64
        Places of the rows.
    groups : ndarray of shape (m,), int64, optional
        From 0 to 7: a hexagon has the colour of the group that most of its rows are in.
    shades : ndarray of shape (m,), float64, optional
        Between 0 and 1, in the place of `groups`: a hexagon has the mean; NaN is left out.

    Raises
    ------
    InvalidInputError
        As by `draw_scatter`.
    """
    from matplotlib.colors import ListedColormap

    x, y, values = vectors(x=x, y=y, shades=np.zeros(len(x)) if shades is None else shades)
    if shades is None:
        values = group_numbers(groups, len(x)).astype(np.float64)
    known = np.isfinite(x) & np.isfinite(y) & np.isfinite(values)
    x, y, values = x[known], y[known], values[known]
    extent = (*_range(x), *_range(y))
    grid: dict[str, Any] = {"gridsize": GRID, "extent": extent, "mincnt": 1, "linewidths": 0.2, "edgecolors": "face"}
    counted = axes.hexbin(x, y, C=np.zeros(len(x)), reduce_C_function=len, **grid)
    counts = np.asarray(counted.get_array(), np.float64)
    counted.remove()
    look: dict[str, Any] = {"cmap": shading(), "vmin": 0, "vmax": 1, "reduce_C_function": np.mean}
    if shades is None:
        look = {
            "cmap": ListedColormap(PALETTE),
            "vmin": -0.5,
            "vmax": len(PALETTE) - 0.5,
            "reduce_C_function": _mode,
        }
    # the same hexagons in the same order
    cells = axes.hexbin(x, y, C=values, **grid, **look)
    if len(counts):
        cells.set_alpha(FAINTEST + (1 - FAINTEST) * np.log(counts) / max(np.log(counts.max()), 1e-9))
    _name_plane(axes)


def draw_side_by_side(
    left: Axes, right: Axes, pca_scores: Matrix, scores: Matrix, *, groups: Groups | None = None
) -> None:
    """The same rows by PCA and by kernel PCA, in the plane of the first two components of each.

    Parameters
    ----------
    left, right : Axes
        To draw on.
    pca_scores, scores : ndarray of shape (m, ≥ 2), float64
        Of the same rows.
    groups : ndarray of shape (m,), int64, optional
        As for `draw_scatter`.

    Raises
    ------
    InvalidInputError
        For scores of different rows, or of fewer than two components.
    """
    pca_scores, scores = np.asarray(pca_scores, np.float64), np.asarray(scores, np.float64)
    shapes = pca_scores.shape, scores.shape
    if any(len(shape) != 2 or shape[1] < 2 for shape in shapes) or len(pca_scores) != len(scores):
        raise InvalidInputError(f"scores of shapes {shapes}; two or more components of the same rows are needed.")
    for axes, title, values in ((left, "PCA", pca_scores), (right, "kernel PCA", scores)):
        draw_scatter(axes, values[:, 0], values[:, 1], groups=groups)
        axes.set_title(title)


def draw_directions(axes: Axes, mean: Vector, directions: Matrix) -> None:
    """Lines through the mean of some rows in the plane, along the directions of components, the first one thicker.

    Their labels, for a legend, count from 1, as `draw_eigenvalues` does.

    Parameters
    ----------
    axes : Axes
        With the rows on them: the lines end where these do.
    mean : ndarray of shape (2,), float64
        Of the rows.
    directions : ndarray of shape (2, c), float64
        Columns.

    Raises
    ------
    InvalidInputError
        For other shapes, and a direction of length zero.
    """
    mean, directions = np.asarray(mean, np.float64), np.asarray(directions, np.float64)
    if mean.shape != (2,) or directions.ndim != 2 or len(directions) != 2 or not directions.any(axis=0).all():
        raise InvalidInputError(
            f"a mean of shape {mean.shape} and directions of shape {directions.shape}; (2,) and columns of (2, c) that "
            "are not zero are needed."
        )
    for place, direction in enumerate(directions.T):
        look: dict[str, Any] = (
            {"linewidth": 1.6, "linestyle": "-"} if place == 0 else {"linewidth": 0.9, "linestyle": "--"}
        )
        axes.axline(tuple(mean), tuple(mean + direction), color=INK, label=f"component {place + 1}", **look)


def draw_histogram(axes: Axes, values: Vector) -> None:
    """How many rows have which score along the first component.

    Parameters
    ----------
    axes : Axes
        To draw on.
    values : ndarray of shape (m,), float64
        The scores; what is not finite has no place.
    """
    values = finite(*vectors(values=values))
    axes.hist(values, bins=min(60, max(10, int(np.sqrt(len(values))))), color=PALETTE[0])
    axes.set_xlabel("pc_000")
    axes.set_ylabel("rows")


def draw_novelty(axes: Axes, values: Vector, quantiles: Mapping[str, float]) -> None:
    """How many rows have which novelty, on a logarithmic axis, and where some quantiles are.

    Parameters
    ----------
    axes : Axes
        To draw on.
    values : ndarray of shape (m,), float64
        Novelty of the rows; what is not finite has no place.
    quantiles : mapping
        Names to values.
    """
    counts, _, _ = axes.hist(finite(*vectors(values=values)), bins=50, color=PALETTE[0])
    axes.set_ylim(0.7, 2.5 * max(2.0, float(np.max(counts))))
    axes.set_yscale("log")
    for place, (name, value) in enumerate(quantiles.items()):
        axes.axvline(value, color=PALETTE[3], linestyle=("--", "-.", ":")[place % 3], linewidth=1.2)
        # each label lower than the one before, so that close ones can be read
        axes.annotate(name, (value, 1), (3, -2 - 12 * place), xycoords=("data", "axes fraction"),
                      textcoords="offset points", va="top", color=INK)  # fmt: skip
    axes.set_xlabel("novelty")
    axes.set_ylabel("rows")


def _name_plane(axes: Axes, names: tuple[str, str] = NAMES) -> None:
    axes.axhline(0, color=INK, linewidth=0.5, alpha=0.4, zorder=0)
    axes.axvline(0, color=INK, linewidth=0.5, alpha=0.4, zorder=0)
    axes.margins(0.04)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])


def _range(values: Vector) -> tuple[float, float]:
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    room = 1e-6 * max(abs(low), abs(high), 1e-12)
    return (low, high) if high - low > room else (low - room, high + room)


def _mode(groups: object) -> float:
    """The commonest of some groups, the first of equals."""
    return float(np.bincount(np.asarray(groups, np.int64)).argmax())
