"""What a page says of how new partitions differ from the rows of the fit."""

from __future__ import annotations

from typing import Any

from scalable_kpca.health import MEASURES
from scalable_kpca.markup import Html, html, join, number, section, shorten, table
from scalable_kpca.workflow.account import Account, Deviation
from scalable_kpca.workflow.page_plan import partition_name

__all__ = ["health"]

MOST_PARTITIONS = 40


def health(account: Account) -> Html:
    """A table of partitions and measures; what is above its limit stands out. Empty where nothing was compared."""
    found = account.metrics.health
    measures = [measure for measure in MEASURES if any(measure in entries for entries in found.values())]
    if not measures:
        return Html()
    shown = list(found.items())[-MOST_PARTITIONS:]
    rows = [
        (partition_name(path), *(_cell(account, path, measure, entries.get(measure)) for measure in measures))
        for path, entries in shown
    ]
    meanings = [html("<li>$name: $text.</li>", name=measure, text=MEASURES[measure]) for measure in measures]
    more = len(found) - len(shown)
    left = html("<p>The table has the last $m of $n partitions.</p>", m=len(shown), n=len(found)) if more else Html()
    words = html(
        "<p>New rows against those of the fit, less what chance gives so many; 0 is as in the fit. Each "
        "number is of the column or component that is furthest.</p><ul>$meanings</ul>",
        meanings=join(meanings),
    )
    return section("Health", table("New partitions against the fit", ("partition", *measures), rows), left, words)


def _cell(account: Account, path: str, measure: str, found: Deviation | None) -> Any:
    if found is None:
        return "–"
    warn = getattr(account.run.config.drift, measure).warn
    shown = number(found.value, f"health:{path}:{measure}")
    if found.where and (found.value is None or found.value > 0):
        shown = html("$shown <small>$where</small>", shown=shown, where=shorten(found.where, 40))
    if warn is not None and (found.value is None or found.value > warn):
        shown = html("<strong>$shown</strong> above $warn", shown=shown, warn=number(warn))
    return shown
