"""Pictures of a fit: functions that draw arrays, or what a model makes of a plane, on matplotlib axes."""

from __future__ import annotations

from scalable_kpca.plots.canvas import PALETTE, SHADES, check_plots, look, svg_of
from scalable_kpca.plots.images import draw_images
from scalable_kpca.plots.planes import draw_component, draw_novelty_map
from scalable_kpca.plots.scores import (
    MARKERS,
    draw_directions,
    draw_hexagons,
    draw_histogram,
    draw_novelty,
    draw_scatter,
    draw_side_by_side,
    mark_of,
)
from scalable_kpca.plots.spectrum import (
    draw_cumulative,
    draw_eigenvalues,
    draw_landmark_residuals,
    draw_plan,
    draw_residuals,
    draw_scree,
)

__all__ = [
    "MARKERS",
    "PALETTE",
    "SHADES",
    "check_plots",
    "draw_component",
    "draw_cumulative",
    "draw_directions",
    "draw_eigenvalues",
    "draw_hexagons",
    "draw_histogram",
    "draw_images",
    "draw_landmark_residuals",
    "draw_novelty",
    "draw_novelty_map",
    "draw_plan",
    "draw_residuals",
    "draw_scatter",
    "draw_scree",
    "draw_side_by_side",
    "look",
    "mark_of",
    "svg_of",
]
