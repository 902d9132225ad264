"""What commands say: lines for people, and with ``--json`` one object for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scalable_kpca.console import say, warn

if TYPE_CHECKING:
    from scalable_kpca.workflow.inspect import Report

__all__ = ["AS_JSON", "NOTHING_TO_DO", "count_partitions", "say_answer", "say_lines", "show"]

NOTHING_TO_DO = 99
AS_JSON = "scalable_kpca.as_json"


def count_partitions(count: int) -> str:
    """Such as "2 partitions"."""
    return f"{count} partition" + ("" if count == 1 else "s")


def say_lines(lines: list[str], as_json: bool) -> None:
    """Print lines: on stderr, where stdout is for a program."""
    for line in lines:
        (warn if as_json else say)(line)


def show(report: Report, as_json: bool, code: int) -> None:
    """Print a report; the exit code of one with problems."""
    say_lines(report.lines(), as_json)
    say_answer(report.to_json(), as_json)
    if report.problems:
        raise SystemExit(code)


def say_answer(value: dict[str, Any], as_json: bool) -> None:
    """Print one line of JSON, where it is asked for."""
    if as_json:
        say(json.dumps(value))
