"""What a page compares: the plan with what happened, and new partitions with the rows of the base run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from scalable_kpca.markup import (
    Html,
    bytes_of,
    facts,
    figure,
    html,
    join,
    number,
    percent,
    seconds_of,
    section,
    shorten,
    table,
)
from scalable_kpca.plots import draw_plan, svg_of
from scalable_kpca.workflow.account import Account
from scalable_kpca.workflow.ledger import Partition

__all__ = ["is_above", "marked", "partition_name", "partitions", "plan_and_actual"]

MOST_PARTITIONS = 100
MOST_TIMES = 1e6  # of what was planned, in a picture


@dataclass(frozen=True)
class _Compared:
    """One quantity: what it is called, what was planned, what happened, where that is from, how it is written."""

    name: str
    planned: float | None
    actual: float | None
    from_plan: str
    from_run: str
    written: Callable[[Any, str], Html | None] = number

    @property
    def row(self) -> tuple[Any, ...]:
        """For a table."""
        before = None if self.planned is None else self.written(self.planned, self.from_plan)
        after = None if self.actual is None else self.written(self.actual, self.from_run)
        return self.name, before or "–", after or "not recorded"


def plan_and_actual(account: Account) -> Html:
    """What was planned beside what happened, as a table and a picture."""
    run, notes = account.run, join(html("<p>$note</p>", note=note) for note in _notes(account))
    if run.plan is None:
        words = "An update keeps no plan." if account.is_update else "This run keeps no plan."
        took = facts(
            [("time", seconds_of(run.seconds, "run:seconds")), ("memory", bytes_of(run.peak_memory, "run:peak_memory"))]
        )
        return section("What it took", html("<p>$words</p>", words=words), took, notes)
    lines = list(_compared(account))
    listed = table("Planned and actual", ("", "planned", "actual"), [line.row for line in lines])
    return section("Plan and what happened", listed, _bars(lines), notes)


def _bars(lines: list[_Compared]) -> Html:
    pairs = [(line.name, line.actual, line.planned) for line in lines if line.planned and line.actual is not None]
    ratios = {name: float(actual) / float(planned) for name, actual, planned in pairs}
    ratios = {name: ratio for name, ratio in ratios.items() if ratio < MOST_TIMES}
    if not ratios:
        return Html()
    names, values = list(ratios), np.array(list(ratios.values()))
    height = 0.9 + 0.42 * len(names)
    drawing = svg_of(lambda axes: draw_plan(axes, names, values), "plan", height=height, left=0.95)
    words = ", ".join(f"{name} {ratio:.2g}" for name, ratio in ratios.items())
    caption = html("What was used over what was planned; the dashed line is the plan.")
    return figure(drawing, f"What was used over what was planned: {words}.", caption)


def _compared(account: Account) -> Iterator[_Compared]:
    run, plan, metrics = account.run, account.run.plan, account.metrics
    if plan is None:
        return
    yield _Compared("time", plan.seconds, run.seconds, "run:plan.seconds", "run:seconds", seconds_of)
    yield _Compared("memory", plan.peak_memory, run.peak_memory, "run:plan.peak_memory", "run:peak_memory", bytes_of)
    if metrics.method == "exact":
        yield _Compared("passes", plan.expected_passes, metrics.n_passes, "run:plan.expected_passes", "n_passes")
        made = None if run.tiles is None else run.tiles.computed + run.tiles.read
        yield _Compared("tiles", plan.n_tiles, made, "run:plan.n_tiles", "")
    else:
        kept = metrics.certificate.n_landmarks
        yield _Compared("landmarks", plan.n_landmarks, kept, "run:plan.n_landmarks", "certificate.n_landmarks")
        yield _Compared("row reads", plan.row_passes, None, "run:plan.row_passes", "")


def _notes(account: Account) -> Iterator[Html]:
    run = account.run
    if run.tiles is not None and (run.tiles.read or run.tiles.repaired):
        counts = {name: number(value, f"run:tiles.{name}") for name, value in dict(run.tiles).items()}
        yield html("Tiles: $computed computed, $read found from earlier work, $repaired repaired.", **counts)
    if run.resumed_passes or run.resumed_spans or (run.tiles is not None and run.tiles.read):
        yield html("This run went on with earlier work: the time is that of its last command alone.")
    if run.peak_memory is not None:
        if run.config.cluster.kind in ("local", "address"):
            yield html("Memory is that of the command; what its workers took is not recorded.")
        else:
            yield html("Memory is the peak of the whole process since it began, with its libraries.")


def partitions(account: Account) -> Html:
    """Which partitions are in the model, and how far the landmarks reach each."""
    ledger, run = account.ledger, account.run
    if ledger is None:
        return Html()
    shown = ledger.partitions[-MOST_PARTITIONS:]
    left = len(ledger.partitions) - len(shown)
    header = ("partition", "rows", "came by", "left out", "drift")
    rows = [_partition(account, part) for part in shown]
    words = [
        html(
            "<p>$n partitions are in the model; the table has the last $m.</p>",
            n=number(len(ledger.partitions)),
            m=len(shown),
        )
        if left
        else Html(),
        html(
            "<p>“Left out” is the share of a partition’s trace that the landmarks do not reach; “drift” is that over "
            "the share of the base run’s rows, $base.</p>",
            base=percent(ledger.residual),
        ),
    ]
    if run.withdrawn:
        names = ", ".join(_name(path) for path in run.withdrawn[:20])
        words.append(html("<p>This update took away: $names.</p>", names=names))
    title = "Drift" if account.is_update else "Partitions"
    return section(title, table("Partitions of the model", header, rows), *words)


def _partition(account: Account, part: Partition) -> tuple[Any, ...]:
    drift, warn = account.metrics.drift, account.run.config.drift.warn
    name = partition_name(part.path)
    if part.own is None or account.ledger is None:
        return name, number(part.rows), "base", "–", "–"
    is_new = part.path in drift
    ratio = drift[part.path] if is_new else account.ledger.drift([part])[part.path]
    shown = number(ratio, f"drift:{part.path}" if is_new else "")
    came_by = "this update" if is_new else "an update"
    return name, number(part.rows), came_by, percent(part.residual), marked(shown, ratio, warn)


def marked(shown: Html, value: float | None, warn: float | None) -> Html:
    """A number, which stands out with its limit where it is above that."""
    if not is_above(value, warn):
        return shown
    return html("<strong>$shown</strong> <small>above $warn</small>", shown=shown, warn=number(warn))


def is_above(value: float | None, warn: float | None) -> bool:
    """Whether a number, None for an infinite one, is above a limit, where there is one."""
    return warn is not None and (value is None or value > warn)


def partition_name(path: str) -> Html:
    """The file name of a partition, and its path where one points at it."""
    return html('<span class="name" title="$path">$name</span>', path=shorten(path), name=_name(path))


def _name(path: str) -> str:
    return shorten(PurePath(path).name or path)
