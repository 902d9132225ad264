"""What can be refused before anything is written: places that feed on themselves, names that clash, missing room."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from dask.utils import format_bytes

from scalable_kpca.disk import tree_bytes
from scalable_kpca.errors import ConfigError, StorageError
from scalable_kpca.machine import resolve_memory_limit
from scalable_kpca.source import Source
from scalable_kpca.source.location import split_uri
from scalable_kpca.tiling import NystroemPlan, Plan
from scalable_kpca.tiling.costs import PROBE_PASSES
from scalable_kpca.workflow.config import BudgetConfig
from scalable_kpca.workflow.layout import RunDirectory
from scalable_kpca.workflow.parts import score_names

__all__ = [
    "check_budget",
    "check_names",
    "check_room",
    "check_scores_room",
    "check_separate",
    "journal_bytes",
    "sums_bytes",
]


def check_separate(key: str, place: Path, writes: Sequence[str], source: Source, uri: str, base: Path) -> None:
    """Refuse a place for results that lies in the input or around it: nothing may ever read what it wrote.

    Parameters
    ----------
    key : str
        What the place is called in the message.
    place : Path
        Resolved directory for the results.
    writes : sequence of str
        Files and directories that will be in it, relative to it.
    source : Source
    uri, base : str, Path
        Where the source was found; files that are not there yet count too.
    """
    advice = "choose another output, outside what the source reads"
    for part in source.parts:
        file = Path(part.path).resolve()
        if place == file or place in file.parents or (file.is_dir() and file in place.parents):
            raise ConfigError(f"{key}={place} and the source {file} lie in one another; {advice}.")
        if place == file.parent:
            raise ConfigError(f"{key}={place} is the directory of the source; {advice}.")
    if _would_read(uri, base, place, writes):
        raise ConfigError(f"{key}={place} lies where source.uri={uri!r} finds its files; {advice}.")


def check_names(labels: Sequence[str], n_components: int | float | None) -> None:
    """Refuse columns that travel to the output and have the names of scores."""
    if isinstance(n_components, int):
        taken = sorted(set(labels) & set(score_names(n_components)))
    else:
        taken = sorted(name for name in labels if re.fullmatch(r"pc_\d{3,}", name))
    if taken:
        raise ConfigError(
            f"columns {', '.join(taken)} of source.id and source.passthrough have the names of scores; rename them in "
            "the source or leave them out."
        )


def check_budget(budget: BudgetConfig, plan: Plan | NystroemPlan, source: Source) -> None:
    """ConfigError when what a plan writes beside the scores is more than ``budget.disk``, whatever of it exists."""
    needed = sum(_planned_bytes(plan, source)) if isinstance(plan, Plan) else sums_bytes(plan)
    if budget.disk is not None and needed > resolve_memory_limit(budget.disk):
        what = "rows, tiles and journal" if isinstance(plan, Plan) else "sums over landmarks"
        raise ConfigError(
            f"budget.disk={budget.disk} cannot hold {format_bytes(needed)} of {what}; raise it to {needed}."
        )


def sums_bytes(plan: NystroemPlan) -> int:
    """Of a Nyström model and its checkpoint: sums, projection and landmarks, and the sums once more while it runs."""
    m = plan.n_landmarks
    return 8 * (4 * m * m + m * (plan.n_features + (plan.n_components or m)))


def check_scores_room(path: Path, plan: NystroemPlan) -> None:
    """StorageError when the file system cannot take the model and the scores of a Nyström run; labels not counted."""
    needed = sums_bytes(plan) + 8 * plan.n_samples * (plan.n_components or plan.n_landmarks)
    free = shutil.disk_usage(path).free
    if needed > free:
        raise StorageError(
            f"{path} has {format_bytes(free)} free, the model and the scores need {format_bytes(needed)}; make room or "
            "choose another output.path."
        )


def check_room(run: RunDirectory, plan: Plan, source: Source) -> None:
    """StorageError when the file system cannot take what a run has still to write.

    Notes
    -----
    What the run directory holds already, its own or taken over from another run, is not written again; one of its
    pieces that turns out to be of no use is removed before it is replaced.
    """
    rows, model_rows, tiles, journal = _planned_bytes(plan, source)
    needed = (
        max(0, rows - tree_bytes(run.path / "rows.zarr"))
        + max(0, model_rows - tree_bytes(run.path / "model"))
        + max(0, tiles - tree_bytes(run.path / "gram.zarr"))
        + max(0, journal - tree_bytes(run.path / "journal"))
    )
    free = shutil.disk_usage(run.path).free
    if needed > free:
        raise StorageError(
            f"{run.path} has {format_bytes(free)} free, the rows, tiles and journal to be written need "
            f"{format_bytes(needed)}; make room or choose another output.path."
        )


def journal_bytes(plan: Plan) -> int:
    """Of the log of a solve that takes as many passes as expected: 8·n·(b + 1) for one of b vectors, see `journal`."""
    vectors = plan.expected_passes * plan.block_columns
    if plan.solver in ("arpack", "dense"):
        # one a pass, but for those of the certificate, which take every pair once, and those of a probe
        vectors = plan.expected_passes + (plan.n_components or plan.n_samples) + PROBE_PASSES * plan.block_columns
    return 8 * plan.n_samples * (vectors + plan.expected_passes)


def _planned_bytes(plan: Plan, source: Source) -> tuple[int, int, int, int]:
    """Of the stored rows, of their copy in the model, of the stored tiles, and of the journal."""
    rows = plan.n_samples * plan.n_features * (4 if source.dtype == "float32" else 8)
    return rows, rows, plan.gram_bytes if plan.gram == "zarr" else 0, journal_bytes(plan)


def _would_read(uri: str, base: Path, place: Path, writes: Sequence[str]) -> bool:
    """Whether a later reading of a source could find `place` or what is written to it."""
    root, glob = split_uri(uri, base)
    root = root.resolve()
    if place != root and root not in place.parents:
        return False
    below = place.relative_to(root).parts
    if not glob:
        return root.is_dir() and not any(name.startswith((".", "_")) for name in below)
    if "**" in glob or ".." in glob:
        return True
    if not all(fnmatchcase(name, pattern) for name, pattern in zip(below, glob, strict=False)):
        return False
    rest = glob[len(below) :]
    return not rest or any(_matches(Path(name).parts, rest) for name in writes)


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))
