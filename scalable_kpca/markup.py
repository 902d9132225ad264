"""HTML from templates in which every field is escaped, and numbers as people read them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from string import Template
from typing import Any

from dask.utils import format_bytes

from scalable_kpca.report import format_duration

__all__ = [
    "Html",
    "bytes_of",
    "facts",
    "figure",
    "html",
    "join",
    "number",
    "percent",
    "seconds_of",
    "section",
    "shorten",
    "spell",
    "table",
]

THIN = "\u202f"  # a narrow space at which no line breaks
NOT_FINITE = "not finite"
MOST_LETTERS = 300  # of a text that comes from elsewhere
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Html(str):
    """Finished markup, which is not escaped again; only `html` and drawings of our own make it."""

    __slots__ = ()


def html(template: str, **fields: Any) -> Html:
    """A template of ours with fields, ``$name``, of which all that are no `Html` are escaped."""
    known = {name: _escaped(value) for name, value in fields.items()}
    return Html(Template(template).substitute(known))


def join(parts: Iterable[Any], between: str = "") -> Html:
    """Some parts in a row, escaped where they are no `Html`."""
    return Html(between.join(map(_escaped, parts)))


def _escaped(value: Any) -> str:
    """What is no `Html` as text, with a mark for what no encoding has: halves of pairs, bytes of foreign file names."""
    return value if isinstance(value, Html) else escape(str(value).encode("utf-8", "replace").decode())


def facts(pairs: Iterable[tuple[str, Any]]) -> Html:
    """Names and what they are, as a list of definitions; those that are None are left out."""
    items = (
        html("<dt>$name</dt><dd>$value</dd>", name=name, value=value) for name, value in pairs if value is not None
    )
    return html("<dl>$items</dl>", items=join(items))


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Html:
    """A table that scrolls inside itself where the page is narrow; its first column names the row."""
    head = join(html('<th scope="col">$name</th>', name=name) for name in header)
    body = join(
        html(
            '<tr><th scope="row">$name</th>$rest</tr>',
            name=row[0],
            rest=join(html("<td>$value</td>", value=value) for value in row[1:]),
        )
        for row in rows
    )
    return html(
        '<div class="wide" tabindex="0" role="region" aria-label="$caption"><table><caption>$caption</caption>'
        "<thead><tr>$head</tr></thead><tbody>$body</tbody></table></div>",
        caption=caption,
        head=head,
        body=body,
    )


def section(title: str, *parts: Html) -> Html:
    """A part of the page with its title."""
    return html("<section><h2>$title</h2>$parts</section>", title=title, parts=join(parts))


def figure(svg: str, alt: str, caption: Html) -> Html:
    """A drawing with what it shows, for those who do not see it, and what it says."""
    return html(
        '<figure><div class="plot" role="img" aria-label="$alt">$svg</div><figcaption>$caption</figcaption></figure>',
        alt=alt,
        svg=Html(svg),
        caption=caption,
    )


def number(value: float | None, key: str = "", *, text: str | None = None) -> Html:
    """A number for people, with all its digits for programs; `key` says where it is from."""
    if value is None or not math.isfinite(value):
        return html("<em>$text</em>", text=NOT_FINITE)
    exact = json.dumps(value)
    return html(
        '<data value="$exact" title="$exact"$key>$text</data>',
        exact=exact,
        key=html(' data-key="$key"', key=key) if key else Html(),
        text=spell(value) if text is None else text,
    )


def percent(value: float | None, key: str = "") -> Html:
    """A share as per cent; what is not all or nothing is not rounded to it."""
    if value is None:
        return number(value)
    text = f"{100 * value:.2f}"
    if text in ("100.00", "0.00") and value not in (0.0, 1.0):
        text = spell(100 * value) if value < 0.5 else f"{100 * value:.10g}"
    return number(value, key, text=f"{text}{THIN}%")


def bytes_of(value: int | None, key: str = "") -> Html | None:
    """A size; None where there is none."""
    return None if value is None else number(value, key, text=format_bytes(value))


def seconds_of(value: float | None, key: str = "") -> Html | None:
    """A duration; None where there is none."""
    return None if value is None else number(value, key, text=format_duration(value))


def spell(value: float) -> str:
    """Four digits of a number, thousands apart, powers of ten where it is very large or small."""
    if isinstance(value, int) and abs(value) < 10**15:
        return _signed(f"{value:,}".replace(",", THIN))
    size = abs(value)
    if size == 0:
        return "0"
    if 1e-3 <= size < 1e6:
        decimals = max(0, 3 - math.floor(math.log10(size)))
        text = f"{value:,.{decimals}f}".replace(",", THIN)
        return _signed(text.rstrip("0").rstrip(".") if decimals else text)
    mantissa, exponent = f"{float(value):.3e}".split("e")
    return f"{_signed(mantissa.rstrip('0').rstrip('.'))}{THIN}×{THIN}10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def _signed(text: str) -> str:
    """With a minus sign in the place of a hyphen, at which a line may break."""
    return text.replace("-", "−")


def shorten(text: str, length: int = MOST_LETTERS) -> str:
    """At most so many letters of a text, with a sign where some are left out."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
