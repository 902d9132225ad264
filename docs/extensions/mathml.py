"""Formulas as MathML, which browsers draw themselves: no script, no font and no network."""

from __future__ import annotations

import html
from typing import Any

import latex2mathml.converter

__all__ = ["setup"]


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _inline(self: Any, node: Any) -> None:
    from docutils import nodes

    self.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def _block(self: Any, node: Any) -> None:
    from docutils import nodes

    formula = latex2mathml.converter.convert(node.astext(), display="block")
    number = f'<span class="eqno">({html.escape(str(node["number"]))})</span>' if node["number"] else ""
    identifier = f' id="equation-{html.escape(node["label"])}"' if node["label"] else ""
    self.body.append(f'<div class="math"{identifier}>{number}{formula}</div>\n')
    raise nodes.SkipNode
