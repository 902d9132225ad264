"""Run benchmarks: `python -m tests.benchmarks NAME`, or `--all`.

Progress goes to stderr, the rows that ran go to stdout as Markdown. `--json` keeps them in a document, beside the rows
that are there already, and `--markdown` renders that document.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.charts import draw_charts
from tests.benchmarks.children import ChildError
from tests.benchmarks.document import describe_surroundings, load, row_document, save
from tests.benchmarks.findings import Findings, Settings
from tests.benchmarks.markdown import page, section
from tests.benchmarks.rows import ROWS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 1 when a row failed or gave wrong eigenvalues, whatever the speed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in ROWS]
    if unknown:
        parser.error(f"no row is called {', '.join(unknown)}; choose from {', '.join(ROWS)}")
    if not (options.all or options.names or options.markdown):
        parser.error("nothing to do; name a row, or give --all, or --json and --markdown to render what was measured")
    names = [name for name, row in ROWS.items() if row.in_all] if options.all else options.names
    document = load(options.json)
    surroundings = describe_surroundings() if names else {}
    failed = False
    for name in names:
        found = _run(name, options, surroundings)
        failed |= bool(found["error"]) or any(v["is_correctness"] and not v["met"] for v in found["verdicts"])
        document["rows"] = _in_order({**document["rows"], name: found})
        if options.json is not None:
            save(document, options.json)  # after each row: a row that was measured is not lost with a later one
        sys.stdout.write(section(name, found) + "\n")
        sys.stdout.flush()
    if options.markdown is not None:
        draw_charts(document, options.markdown.parent / "figures")
        options.markdown.write_text(page(document), encoding="utf-8")
    return int(failed)


def _run(name: str, options: argparse.Namespace, surroundings: dict[str, Any]) -> dict[str, Any]:
    row = ROWS[name]
    settings = Settings(options.n or row.n, options.repeats or row.repeats, options.scratch)
    sys.stderr.write(f"{name}: {row.title}, n = {settings.n}\n")
    outcome: Findings | str
    try:
        outcome = row.run(settings)
    except ChildError as error:
        sys.stderr.write(f"  {error}\n")
        outcome = str(error)
    return row_document(row, settings, surroundings, outcome)


def _in_order(rows: dict[str, Any]) -> dict[str, Any]:
    return {name: rows[name] for name in ROWS if name in rows}


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:18}{row.title}, n = {row.n}" for name, row in ROWS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        epilog=f"rows:\n{listed}\n\n--all leaves out: {', '.join(name for name in ROWS if not ROWS[name].in_all)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows to run")
    parser.add_argument("--all", action="store_true", help="every row that takes minutes, not hours")
    parser.add_argument("--n", type=int, help="number of rows, in place of the one that the targets are meant for")
    parser.add_argument("--repeats", type=int, help="rounds of the alternation")
    parser.add_argument("--json", type=Path, metavar="PATH", help="document to keep the rows in")
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="page to write from the document")
    parser.add_argument(
        "--scratch", type=Path, default=Path(tempfile.gettempdir()), help="directory on the disk to measure"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
