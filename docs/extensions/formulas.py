"""Formulas as drawings, made when the documents are built: readers need no script, no font and no network."""

from __future__ import annotations

import html
import re
from typing import Any

import ziamath

__all__ = ["setup"]

SIZE = 18.0  # pixels of the text around
NOT_DRAWN = set("ᵀ⁰¹²³⁴⁵⁶⁷⁸⁹⁻₀₁₂₃₄₅₆₇₈₉√")

ziamath.config.svg2 = False  # no symbols, whose names would be there once for each formula


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer `drawn`."""
    app.add_html_math_renderer("drawn", (_inline, None), (_block, None))
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}


def _inline(self: Any, node: Any) -> None:
    from docutils import nodes

    self.body.append(_drawn(node.astext(), inline=True))
    raise nodes.SkipNode


def _block(self: Any, node: Any) -> None:
    from docutils import nodes

    number = f'<span class="eqno">({html.escape(str(node["number"]))})</span>' if node["number"] else ""
    identifier = f' id="equation-{html.escape(node["label"])}"' if node["label"] else ""
    self.body.append(f'<div class="math"{identifier}>{_drawn(node.astext(), inline=False)}{number}</div>\n')
    raise nodes.SkipNode


def _drawn(text: str, *, inline: bool) -> str:
    """A formula as an ``<svg>`` in units of the text's own size, which says its LaTeX to whoever cannot see it."""
    missing = NOT_DRAWN & set(text)
    if missing:
        raise ValueError(f"{text!r} has {', '.join(sorted(missing))}, which no font of formulas has; write LaTeX.")
    formula = ziamath.Latex(text, size=SIZE, inline=inline, margin=0)
    below = formula.getyofst() / SIZE
    drawing = formula.svg().replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    drawing = re.sub(r'\b(width|height)="([\d.]+)"', lambda m: f'{m[1]}="{float(m[2]) / SIZE:.3f}em"', drawing, count=2)
    look = f'class="formula" role="img" aria-label="{html.escape(text)}" style="vertical-align: {below:.3f}em"'
    return drawing.replace("<svg ", f"<svg {look} ", 1)
