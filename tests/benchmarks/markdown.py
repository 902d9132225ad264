"""Markdown from the JSON document, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from tests.benchmarks.verdicts import AGREEMENT

__all__ = ["page", "section"]

INTRODUCTION = f"""# Benchmarks

Written by `python -m tests.benchmarks`; change the program, not this page.

Rows of 64 features, where nothing else is said: a 6-dimensional manifold with noise, RBF kernel with γ = 1/64, ten
components. Every run is a process of its own; subjects that are compared run in alternation. Seconds are medians around
the fit or the pass alone, lowest and highest in brackets; of subjects that make many (all of `small`, the one strip of
`strip-throughput`, the three kinds of rows of `landmarks`) they are those of all together, and the lines below say what
one takes. Ratios are ratios of medians, with the range of the single rounds in brackets; memory is the highest resident
size of the whole process. Results agree when they differ by at most {AGREEMENT:g} of the largest
eigenvalue, or by what their row says. A target is judged at the size that it is meant for.
"""

REPEAT = """## To repeat

From a checkout, in an environment with the package installed:

```bash
python -m tests.benchmarks --all --json tests/benchmarks/results.json --markdown docs/benchmarks.md
```

One row: its name in place of `--all`, as its section says; the other rows of the file stay. The machine should have
nothing else to do. `python -m tests.benchmarks --help` names the options.
"""


def page(document: Mapping[str, Any]) -> str:
    """The whole page: targets first, then a section for each row."""
    rows = document["rows"]
    shared = _shared([{"machine": row["machine"]} for row in rows.values()])
    parts = [INTRODUCTION]
    if shared:
        parts.append(_machine(shared["machine"]) + "\n")
    parts += [_targets(rows), *(section(name, row, with_machine=not shared) for name, row in rows.items()), REPEAT]
    return "\n".join(parts)


def section(name: str, row: Mapping[str, Any], *, with_machine: bool = True) -> str:
    """One row: what ran, what was found, how to repeat it."""
    lines = [f"## {name}: {row['title']}", ""]
    lines += [f"n = {_thousands(row['n'])}, {_times(row['repeats'])}, {row['date']}, {_package(row)}.", ""]
    if with_machine:
        lines += [_machine(row["machine"]), ""]
    if row["error"]:
        lines += [f"**Nothing was measured: {row['error']}.**", ""]
    if row["measurements"]:
        lines += [*_table(HEADINGS, (_measurement(found) for found in row["measurements"])), ""]
    if row["verdicts"]:
        cells = ([v["what"], _measured(v), _bound(v), _verdict(v, row)] for v in row["verdicts"])
        lines += [*_table(("what", "measured", "target", "verdict"), cells), ""]
    for chart in row.get("charts", []):
        lines += [f"![{chart['alt']}](figures/{chart['name']}.svg)", ""]
    for note in row["notes"]:
        lines += [note, ""]
    size = "" if row["n"] == row["n_of_target"] else f" --n {row['n']}"
    lines += [f"Repeat: `python -m tests.benchmarks {name}{size}`", ""]
    return "\n".join(lines)


HEADINGS = ("subject", "seconds", "whole process", "peak memory", "passes")


def _targets(rows: Mapping[str, Any]) -> str:
    """One line for each target, and how many are met."""
    found = [(name, v, row) for name, row in rows.items() for v in row["verdicts"] if v["bound"] is not None]
    counted = [v for _, v, row in found if _is_at_size(row) and not v["is_correctness"]]
    met, measured = sum(v["met"] is True for v in counted), sum(v["met"] is not None for v in counted)
    wrong = sum(v["is_correctness"] and not v["met"] for _, v, _ in found)
    failed = [name for name, row in rows.items() if row["error"]]
    lines = ["## Targets", "", f"{met} of {len(counted)} targets are met, {measured - met} are missed" + (
        f", {len(counted) - measured} could not be measured." if measured < len(counted) else "."
    )]  # fmt: skip
    lines += [f"**Results disagree in {wrong} places.**" if wrong else "All results that are compared agree."]
    lines += [f"**Without a result: {', '.join(failed)}.**"] if failed else []
    cells = ([name, v["what"], _bound(v), _measured(v), _verdict(v, row)] for name, v, row in found)
    return "\n".join([*lines, "", *_table(("row", "what", "target", "measured", "verdict"), cells), ""])


def _verdict(verdict: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if verdict["bound"] is None:
        return ""
    if verdict["is_correctness"]:
        return "agree" if verdict["met"] else "**disagree**"
    if verdict["met"] is None:
        return "not measured"
    if not _is_at_size(row):
        return f"not judged at n = {_thousands(row['n'])}"
    by = abs(verdict["margin"])
    return f"met, {by:.0%} to spare" if verdict["met"] else f"**missed by {by:.0%}**"


def _is_at_size(row: Mapping[str, Any]) -> bool:
    return bool(row["n"] == row["n_of_target"])


def _measured(verdict: Mapping[str, Any]) -> str:
    if verdict["measured"] is None:
        return "–"
    text = _number(verdict["measured"]) + verdict["unit"]
    if verdict["spread"]:
        low, high = verdict["spread"]
        text += f" ({_number(low)}–{_number(high)})"
    return text


def _bound(verdict: Mapping[str, Any]) -> str:
    return "" if verdict["bound"] is None else f"{verdict['sense']} {_number(verdict['bound'])}{verdict['unit']}"


def _measurement(found: Mapping[str, Any]) -> list[str]:
    passes = found.get("passes")
    return [
        found["label"],
        _seconds(found["seconds"]),
        _seconds(found["process_seconds"]),
        f"{found['peak_memory'] / 1e9:.2f} GB",
        "" if passes is None else str(passes),
    ]


def _seconds(runs: list[float]) -> str:
    middle = f"{_number(median(runs))} s"
    return middle if len(runs) == 1 else f"{middle} ({_number(min(runs))}–{_number(max(runs))})"


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    headings = list(headings)
    return [_line(headings), _line(["---"] * len(headings)), *(_line(row) for row in rows)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _machine(machine: Mapping[str, Any]) -> str:
    return (
        f"Machine: {machine['processor']}, {machine['cores']} processors, {machine['memory'] / 2**30:.0f} GiB; "
        f"{machine['system']}, Python {machine['python']}, numpy {machine['numpy']}, scipy {machine['scipy']}, "
        f"scikit-learn {machine['scikit_learn']}, {machine['blas']}."
    ) + ("" if machine["cores"] == 2 else " The targets are meant for 2 processors.")


def _package(row: Mapping[str, Any]) -> str:
    return f"scalable_kpca {row['package']}, commit {row['commit']}"


def _shared(descriptions: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The description that all have, if they have one."""
    return descriptions[0] if descriptions and all(found == descriptions[0] for found in descriptions) else None


def _number(value: float) -> str:
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.3g}"
    return _thousands(round(value)) if 1000 <= abs(value) < 1e7 else f"{value:.1e}"


def _thousands(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def _times(repeats: int) -> str:
    return "once" if repeats == 1 else f"{repeats} times in alternation"
