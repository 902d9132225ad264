"""Pictures from the JSON document: curves over a size in panels beside each other, drawn by matplotlib."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Chart", "Curve", "Panel", "draw_charts"]

# Okabe and Ito's colours, told apart with any colour vision; markers and dashes for those who see none
STYLES = (("#0072B2", "o", "-"), ("#E69F00", "s", "-"), ("#009E73", "^", "-"), ("#555555", "", ":"))
INCHES_A_PANEL, HEIGHT = 2.6, 3.4
SETTINGS = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "benchmarks",  # the same numbers are the same file
}


@dataclass(frozen=True)
class Curve:
    """Values over a size, with their range where there is one."""

    label: str
    x: Sequence[int]
    middle: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class Panel:
    """Curves that share axes; all panels share the vertical one."""

    title: str
    curves: Sequence[Curve]


@dataclass(frozen=True)
class Chart:
    """What becomes the picture figures/NAME.svg beside the page."""

    name: str
    alt: str
    x_label: str
    y_label: str
    panels: Sequence[Panel]

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return asdict(self)


def draw_charts(document: Mapping[str, Any], directory: Path) -> None:
    """Write the picture of every chart in the document."""
    charts = [chart for row in document["rows"].values() for chart in row.get("charts", [])]
    if not charts:
        return
    try:
        import matplotlib as mpl
    except ImportError:
        names = ", ".join(f"{chart['name']}.svg" for chart in charts)
        sys.stderr.write(f"matplotlib is not installed, and {names} is left as it is; pip install matplotlib.\n")
        return
    mpl.use("svg")
    directory.mkdir(exist_ok=True)
    for chart in charts:
        with mpl.rc_context(SETTINGS):
            _draw(chart, directory / f"{chart['name']}.svg")


def _draw(chart: Mapping[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    panels = chart["panels"]
    figure = Figure(figsize=(INCHES_A_PANEL * len(panels), HEIGHT), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels, strict=True):
        for curve, (colour, marker, line) in zip(panel["curves"], STYLES, strict=False):
            axes.plot(
                curve["x"], curve["middle"], line, color=colour, marker=marker, markersize=5, label=curve["label"]
            )
            if curve["low"] is not None:
                axes.fill_between(curve["x"], curve["low"], curve["high"], color=colour, alpha=0.25, linewidth=0)
        axes.set(title=panel["title"], xscale="log", yscale="log", xlabel=chart["x_label"])
        axes.set_xticks(panel["curves"][0]["x"], [str(x) for x in panel["curves"][0]["x"]])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
    first = figure.axes[0]
    first.set_ylabel(chart["y_label"])
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=len(STYLES), frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
