"""A drawing as SVG that stands inside a page, which decides its colours; the same numbers give the same bytes."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scalable_kpca.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INK", "PALETTE", "SHADES", "check_plots", "diverging", "look", "shading", "svg_of"]

INK = "#1a1a1b"  # of text and lines; whatever colour the text around the drawing has
# Okabe and Ito's colours, told apart with any colour vision, the yellow darker, for white paper
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#a69b00", "#7a7a7a")
# blue to orange by way of grey: told apart with any colour vision, seen on white and on black
SHADES = ("#1f6fc4", "#5583b8", "#8190a3", "#9d9488", "#b9925f", "#d48d35", "#e98407")

SETTINGS: Any = {
    "font.size": 10,
    "font.family": "DejaVu Sans",  # which comes with matplotlib
    "svg.fonttype": "path",
    "svg.hashsalt": "scalable_kpca",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
    "grid.alpha": 0.25,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
}


@contextmanager
def look() -> Iterator[None]:
    """Settings of matplotlib that all our pictures have, whatever the user's own are, for as long as a block runs.

    Yields
    ------
    None
        For the block that draws.
    """
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # but for the backend
        mpl.rcParams.update(SETTINGS)
        yield


def shading() -> Any:
    """`SHADES` as a colour map of matplotlib, from low to high."""
    return _colours("shades", SHADES)


def diverging() -> Any:
    """Colour map of numbers with a sign: blue below zero, white at it, orange above."""
    return _colours("diverging", (SHADES[0], "#ffffff", SHADES[-1]))


def _colours(name: str, steps: tuple[str, ...]) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, list(steps))


def check_plots() -> None:
    """ConfigError naming the remedy where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            'a report needs matplotlib, which is not installed; `pip install "scalable-kpca[report]"` installs it.'
        )


def svg_of(
    draw: Callable[[Axes], None],
    name: str,
    *,
    width: float = 5.0,
    height: float = 3.4,
    left: float = 0.75,
) -> str:
    """A drawing as an ``<svg>`` element for a page of HTML.

    Parameters
    ----------
    draw : callable
        Draws on the axes that it gets. What it writes there must be its own words: text of others belongs beside the
        drawing, where it is escaped and wrapped.
    name : str
        Letters and digits before the identifiers inside, which are unique in a page then.
    width, height : float
        Inches.
    left : float
        Inches that labels take there.

    Returns
    -------
    str
        Without prologue, metadata and name spaces, which a page of HTML does not need. The colours of `PALETTE` are
        ``var(--c0)``, ``var(--c1)``, … of the page's style, with themselves where it has none; `INK` is the colour of
        the text around it.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    stream = io.StringIO()
    with look():
        figure = Figure(figsize=(width, height))
        FigureCanvasSVG(figure)
        draw(figure.add_axes((left / width, 0.52 / height, 1 - (left + 0.12) / width, 1 - 0.62 / height)))
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    return _for_page(stream.getvalue(), name)


def _for_page(document: str, name: str) -> str:
    text = document[document.index("<svg") :]
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)  # the words that are drawn as paths
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*"', r'<svg \1aria-hidden="true" focusable="false"', text, count=1)
    text = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "currentColor")
    for place, colour in enumerate(PALETTE):
        text = text.replace(colour, f"var(--c{place}, {colour})")
    return re.sub(r"\n\s*", "\n", text).strip()
