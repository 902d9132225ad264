"""Pictures of a fit: functions that draw arrays on matplotlib axes, and a drawing as SVG for a page."""

from __future__ import annotations

from scalable_kpca.plots.canvas import PALETTE, SHADES, check_plots, svg_of
from scalable_kpca.plots.scores import (
    MARKERS,
    draw_hexagons,
    draw_histogram,
    draw_novelty,
    draw_scatter,
)
from scalable_kpca.plots.spectrum import draw_cumulative, draw_plan, draw_residuals, draw_scree

__all__ = [
    "MARKERS",
    "PALETTE",
    "SHADES",
    "check_plots",
    "draw_cumulative",
    "draw_hexagons",
    "draw_histogram",
    "draw_novelty",
    "draw_plan",
    "draw_residuals",
    "draw_scatter",
    "draw_scree",
    "svg_of",
]
