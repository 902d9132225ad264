"""What a model makes of every point of a plane: the contours of a component, and how novel a point would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.novelty import novelty
from scalable_kpca.plots.arrays import check_model, check_plane
from scalable_kpca.plots.canvas import INK, PALETTE, diverging, shading
from scalable_kpca.plots.scores import draw_scatter
from scalable_kpca.transform import project

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_component", "draw_novelty_map"]

Matrix = NDArray[np.float64]
Groups = NDArray[np.int64]

LEVELS, RESOLUTION, MARGIN = 12, 120, 0.15


def draw_component(
    axes: Axes,
    model: Any,
    component: int,
    X: Matrix,
    *,
    groups: Groups | None = None,
    resolution: int = RESOLUTION,
) -> None:
    """Contours of one component over the plane of the rows: lines along which the score is constant.

    Parameters
    ----------
    axes : Axes
        To draw on.
    model : Model, NystroemModel or fitted KernelPCA
        Of rows with two features.
    component : int
        From 0.
    X : ndarray of shape (m, 2), float64
        Rows that are drawn; the plane reaches a little further than they do.
    groups : ndarray of shape (m,), int64, optional
        As for `draw_scatter`.
    resolution : int
        Points in each direction; as many rows as its square are projected.

    Raises
    ------
    InvalidInputError
        When the rows have not two features, are not finite, or are none; for a component that is not there.
    NotFittedError
        For an estimator that was not fitted.
    """
    X, model = check_plane(X), check_model(model)
    if not 0 <= component < model.n_components:
        raise InvalidInputError(f"component={component} of {model.n_components}; count from 0.")
    first, second, plane = _plane(X, resolution)
    heights = project(model, plane)[:, component].reshape(first.shape)
    reach = float(np.abs(heights).max()) or 1.0
    levels = np.linspace(-reach, reach, 2 * LEVELS + 1)
    axes.contourf(first, second, heights, levels=levels, cmap=diverging(), alpha=0.55)
    axes.contour(first, second, heights, levels=levels, colors=INK, linewidths=0.4, linestyles="solid", alpha=0.7)
    _draw_rows(axes, X, groups)


def draw_novelty_map(
    axes: Axes,
    model: Any,
    X: Matrix,
    *,
    threshold: float | None = None,
    groups: Groups | None = None,
    resolution: int = RESOLUTION,
) -> None:
    """How far every point of the plane is from the components, in feature space.

    Parameters
    ----------
    axes : Axes
        To draw on.
    model : Model, NystroemModel or fitted KernelPCA
        Of rows with two features.
    X : ndarray of shape (m, 2), float64
        Rows that are drawn; the plane reaches a little further than they do.
    threshold : float, optional
        The level at which a point counts as novel, drawn as a line.
    groups : ndarray of shape (m,), int64, optional
        As for `draw_scatter`.
    resolution : int
        Points in each direction; as many rows as its square are scored.

    Raises
    ------
    InvalidInputError
        When the rows have not two features, are not finite, or are none.
    NotFittedError
        For an estimator that was not fitted.
    """
    X, model = check_plane(X), check_model(model)
    first, second, plane = _plane(X, resolution)
    heights = novelty(model, plane).reshape(first.shape)
    filled = axes.contourf(first, second, heights, levels=LEVELS, cmap=shading(), alpha=0.6)
    axes.figure.colorbar(filled, ax=axes, label="novelty")
    if threshold is not None:
        axes.contour(first, second, heights, levels=[threshold], colors=PALETTE[3], linewidths=1.6, linestyles="--")
    _draw_rows(axes, X, groups)


def _draw_rows(axes: Axes, X: Matrix, groups: Groups | None) -> None:
    draw_scatter(axes, X[:, 0], X[:, 1], groups=groups, names=("x₁", "x₂"))
    axes.margins(0)


def _plane(X: Matrix, resolution: int) -> tuple[Matrix, Matrix, Matrix]:
    """Coordinates of points in a rectangle around some rows, and the points as rows."""
    if resolution < 2:
        raise InvalidInputError(f"resolution={resolution}; two points in each direction are the fewest.")
    low, high = X.min(axis=0), X.max(axis=0)
    room = MARGIN * np.maximum(high - low, 1e-12)
    lines = [np.linspace(a, b, resolution) for a, b in zip(low - room, high + room, strict=True)]
    first, second = np.meshgrid(*lines)
    return first, second, np.column_stack([first.ravel(), second.ravel()])
