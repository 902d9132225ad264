"""Rows that are pictures, such as digits and what components make of them, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.plots.canvas import diverging

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_images"]

GAP = 0.15  # of a picture's width


def draw_images(
    axes: Axes,
    images: NDArray[np.float64],
    *,
    row_labels: Sequence[str] = (),
    column_labels: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
    signed: bool = False,
) -> None:
    """A grid of pictures on one pair of axes: components, or digits as they were, with noise, and without.

    Parameters
    ----------
    axes : Axes
        To draw on.
    images : ndarray of shape (r, c, height, width), float64
        What is NaN everywhere leaves its place empty.
    row_labels, column_labels : sequence of str
        Words of ours, r and c of them, or none.
    limits : (float, float), optional
        Values that are white and black; by default the least and the largest. Not used with `signed`.
    signed : bool
        Whether pictures have no black but two colours, one for each sign, each picture as strong as its largest entry:
        of components, whose size means nothing.

    Raises
    ------
    InvalidInputError
        When `images` has not four dimensions, or labels are neither none nor one for each row or column.
    """
    images = np.asarray(images, np.float64)
    if images.ndim != 4 or 0 in images.shape:
        raise InvalidInputError(f"images of shape {images.shape}; (rows, columns, height, width) is needed.")
    n_rows, n_columns, height, width = images.shape
    for labels, count in ((row_labels, n_rows), (column_labels, n_columns)):
        if len(labels) not in (0, count):
            raise InvalidInputError(f"{len(labels)} labels for {count} rows or columns of pictures; give one for each.")
    if signed:
        largest = np.nanmax(np.abs(images), axis=(2, 3), keepdims=True, initial=0.0)
        images, limits = images / np.where(largest > 0, largest, 1.0), (-1.0, 1.0)
    known = images[np.isfinite(images)]
    low, high = limits or ((float(known.min()), float(known.max())) if len(known) else (0.0, 1.0))
    step_down, step_right = height * (1 + GAP), width * (1 + GAP)
    for row in range(n_rows):
        for column in range(n_columns):
            left, top = column * step_right, row * step_down
            axes.imshow(images[row, column], cmap=diverging() if signed else "gray_r", vmin=low, vmax=high,
                        extent=(left, left + width, top + height, top), interpolation="nearest")  # fmt: skip
    axes.set(
        xlim=(-GAP * width, n_columns * step_right),
        ylim=(n_rows * step_down, -GAP * height),
        xticks=[column * step_right + width / 2 for column in range(n_columns)] if len(column_labels) else [],
        yticks=[row * step_down + height / 2 for row in range(n_rows)] if len(row_labels) else [],
    )
    axes.set_xticklabels(list(column_labels))
    axes.set_yticklabels(list(row_labels))
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
