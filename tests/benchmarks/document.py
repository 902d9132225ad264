"""The JSON document: rows as they were measured, each with the machine and the commit that it was measured on."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.children import ROOT, Subject, measure
from tests.benchmarks.findings import Findings, Row, Settings

__all__ = ["describe_surroundings", "load", "row_document", "save"]

FORMAT = 1


def load(path: Path | None) -> dict[str, Any]:
    """The document at `path`, or an empty one."""
    if path is None or not path.exists():
        return {"format": FORMAT, "rows": {}}
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if document.get("format") != FORMAT:
        raise SystemExit(f"{path} has format {document.get('format')}, this program writes {FORMAT}; remove it.")
    return document


def save(document: dict[str, Any], path: Path) -> None:
    """Write the document; an earlier one is replaced when the new one is whole."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(path)


def row_document(row: Row, settings: Settings, surroundings: dict[str, Any], outcome: Findings | str) -> dict[str, Any]:
    """A row as JSON values: what was found, or in a few words why nothing was."""
    described = {
        "title": row.title,
        "n": settings.n,
        "n_of_target": row.n,
        "repeats": settings.repeats,
        "date": datetime.now(UTC).date().isoformat(),
        **surroundings,
    }
    if isinstance(outcome, str):
        return {**described, "error": outcome, "measurements": [], "verdicts": [], "notes": [], "charts": []}
    return {
        **described,
        "error": None,
        "measurements": [found.to_json() for found in outcome.measurements],
        "verdicts": [verdict.to_json() for verdict in outcome.verdicts],
        "notes": list(outcome.notes),
        "charts": [chart.to_json() for chart in outcome.charts],
    }


def describe_surroundings() -> dict[str, Any]:
    """Machine and software: no names of hosts or people, no paths."""
    import psutil

    libraries = next(iter(measure({"libraries": Subject("surroundings")}, 1).values()))
    versions = {name: libraries[name] for name in ("numpy", "scipy", "scikit_learn", "blas")}
    return {
        "machine": {
            "processor": _processor(),
            "cores": len(psutil.Process().cpu_affinity() or []),
            "memory": psutil.virtual_memory().total,
            "system": platform.system(),
            "python": platform.python_version(),
            **versions,
        },
        "package": libraries["package"],
        "commit": _commit() if libraries["from_checkout"] else "not the package of this checkout",
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    """Commit of the checkout, and whether the package in it differs from that commit."""
    git = shutil.which("git")
    if git is None:
        return "unknown"

    def ask(*arguments: str) -> str | None:
        finished = subprocess.run([git, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return finished.stdout.strip() if finished.returncode == 0 else None

    commit, changes = ask("rev-parse", "--short=12", "HEAD"), ask("status", "--porcelain", "--", "scalable_kpca")
    return "unknown" if commit is None else commit + (" with uncommitted changes" if changes else "")
