"""What a page says of how new partitions differ from the rows of the fit."""

from __future__ import annotations

from typing import Any

from scalable_kpca.health import MEASURES
from scalable_kpca.markup import Html, html, join, number, section, shorten, table
from scalable_kpca.workflow.account import Account, Deviation
from scalable_kpca.workflow.page_plan import is_above, marked, partition_name

__all__ = ["health", "verdict"]

MOST_PARTITIONS = 40
MOST_NAMES = 3


def verdict(account: Account) -> Html:
    """Which new partitions are above a limit of drift or health, in a sentence; empty where none was compared."""
    metrics = account.metrics
    new = list(dict.fromkeys((*metrics.drift, *metrics.health)))
    if not new:
        return Html()
    above = [path for path in new if _is_unlike(account, path)]
    if not above:
        return html("No new partition is above a limit of drift or health.")
    names = join(map(partition_name, above[:MOST_NAMES]), ", ")
    return html(
        "<strong>$m of $n new partitions $are above a limit of drift or health</strong>: $names$more",
        m=len(above),
        n=len(new),
        are="is" if len(above) == 1 else "are",
        names=names,
        more=", …" if len(above) > MOST_NAMES else ".",
    )


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
    meanings = [_meaning(measure, _limit(account, measure)) for measure in measures]
    more = len(found) - len(shown)
    left = html("<p>The table has the last $m of $n partitions.</p>", m=len(shown), n=len(found)) if more else Html()
    words = html(
        "<p>How far new rows are from those of the fit, less what chance gives so many; 0 is as in the fit. Each "
        "number is of the column or component that is furthest, which stands below it.</p><ul>$meanings</ul>",
        meanings=join(meanings),
    )
    return section("Health", table("New partitions against the fit", ("partition", *measures), rows), left, words)


def _cell(account: Account, path: str, measure: str, found: Deviation | None) -> Any:
    if found is None:
        return "–"
    shown = marked(number(found.value, f"health:{path}:{measure}"), found.value, _limit(account, measure))
    if found.where and (found.value is None or found.value > 0):
        shown = html("$shown <small>$where</small>", shown=shown, where=shorten(found.where, 40))
    return shown


def _meaning(measure: str, warn: float | None) -> Html:
    limit = html("no limit is set") if warn is None else html("the limit is $warn", warn=number(warn))
    return html("<li><em>$name</em>: $text; $limit.</li>", name=measure, text=MEASURES[measure], limit=limit)


def _limit(account: Account, measure: str) -> float | None:
    warn: float | None = getattr(account.run.config.drift, measure).warn
    return warn


def _is_unlike(account: Account, path: str) -> bool:
    metrics, drift = account.metrics, account.run.config.drift
    if path in metrics.drift and is_above(metrics.drift[path], drift.warn):
        return True
    found = metrics.health.get(path, {})
    return any(is_above(found[measure].value, _limit(account, measure)) for measure in MEASURES if measure in found)
