"""What can be refused before anything is written: places that feed on themselves, names that clash, missing room."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from dask.utils import format_bytes

from scalable_kpca.address_space import check_addresses
from scalable_kpca.disk import tree_bytes
from scalable_kpca.errors import ConfigError, StorageError
from scalable_kpca.machine import resolve_memory_limit
from scalable_kpca.objects import StoredObject, check_bucket, is_object
from scalable_kpca.source import Source
from scalable_kpca.source.location import find_files, local_files, split_uri, would_find
from scalable_kpca.tiling import NystroemPlan, Plan
from scalable_kpca.tiling.costs import PROBE_PASSES
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.layout import REMOTE_WRITES, WRITES, Output, RunDirectory
from scalable_kpca.workflow.parts import score_names

FEW_FILES = 64  # of a model, its scores, descriptions and journal

__all__ = [
    "check_apart",
    "check_budget",
    "check_memory",
    "check_names",
    "check_room",
    "check_scores_room",
    "check_separate",
    "check_tiles",
    "journal_bytes",
    "sums_bytes",
]


def check_separate(key: str, place: Path | StoredObject, writes: Sequence[str], uri: str, base: Path) -> None:
    """Refuse a place for results that lies in the input or around it: nothing may ever read what it wrote.

    Parameters
    ----------
    key : str
        What the place is called in the message.
    place : Path or StoredObject
        Resolved directory for the results, or where on S3 they go.
    writes : sequence of str
        Files and directories that will be in it, relative to it.
    uri, base : str, Path
        Where the source is found; files that are not there yet count too.
    """
    advice = "choose another output, outside what the source reads"
    if isinstance(place, StoredObject) or is_object(uri):
        if isinstance(place, StoredObject) and is_object(uri) and _share_objects(place, writes, uri):
            raise ConfigError(f"{key}={place} and source.uri={uri!r} lie in one another; {advice}.")
        return
    for found in local_files(find_files(uri, base)):
        file = found.resolve()
        if place == file or place in file.parents or (file.is_dir() and file in place.parents):
            raise ConfigError(f"{key}={place} and the source {file} lie in one another; {advice}.")
        if place == file.parent:
            raise ConfigError(f"{key}={place} is the directory of the source; {advice}.")
    if _would_read(uri, base, place, writes):
        raise ConfigError(f"{key}={place} lies where source.uri={uri!r} finds its files; {advice}.")


def check_apart(key: str, output: Output, uri: str, base: Path) -> None:
    """Refuse an output, and a working directory of one on S3, that a source lies in or around: see `check_separate`."""
    if output.remote is not None:
        check_separate(key, output.remote, REMOTE_WRITES, uri, base)
        key = "its working directory"
    check_separate(key, output.path.resolve(), WRITES, uri, base)


def check_names(labels: Sequence[str], n_components: int | float | None, beside: Sequence[str]) -> None:
    """Refuse columns that travel to the output and have the names of scores, or of columns beside them."""
    if isinstance(n_components, int):
        taken = sorted(set(labels) & set(score_names(n_components)))
    else:
        taken = sorted(name for name in labels if re.fullmatch(r"pc_\d{3,}", name))
    taken += [name for name in beside if name in labels]
    if taken:
        raise ConfigError(
            f"columns {', '.join(taken)} of source.id, source.passthrough and source.partition have the names of "
            "scores; rename them in the source or leave them out."
        )


def check_budget(config: Config, plan: Plan | NystroemPlan, source: Source) -> None:
    """Refuse a plan that a limit has no room for.

    Raises
    ------
    ConfigError
        When what it writes beside the scores is more than ``budget.disk``, whatever of it exists.
    MemoryLimitError
        See `check_memory`.
    """
    check_memory(plan)
    budget, tiles = config.budget, config.output.tiles
    needed = sum(_planned_bytes(plan, source, tiles)) if isinstance(plan, Plan) else sums_bytes(plan)
    needed += source.copied_bytes
    if budget.disk is not None and needed > resolve_memory_limit(budget.disk):
        of_exact = "rows, tiles and journal" if tiles is None else "rows and journal"
        what = of_exact if isinstance(plan, Plan) else "sums over landmarks"
        what += " and copies of the source" if source.copied_bytes else ""
        raise ConfigError(
            f"budget.disk={budget.disk} cannot hold {format_bytes(needed)} of {what}; raise it to {needed}."
        )


def check_memory(plan: Plan | NystroemPlan) -> None:
    """MemoryLimitError when ``ulimit`` leaves less than a plan needs: who comes to that limit can say nothing."""
    remedy = ", or set budget.memory or cluster.n_threads lower"
    check_addresses("this plan", plan.peak_memory, plan.n_threads, remedy=remedy)


def check_tiles(tiles: str, plan: Plan | NystroemPlan) -> None:
    """Ask S3 whether the bucket of the tiles is there, before rows are copied for hours.

    Raises
    ------
    MissingObjectError, BusyError, StorageError
        When it is not there, when the server does not answer now, or refuses.
    """
    if isinstance(plan, Plan):
        check_bucket(StoredObject.of(tiles))


def sums_bytes(plan: NystroemPlan) -> int:
    """Of a Nyström model and its checkpoint: sums, projection and landmarks, and the sums once more while it runs."""
    m = plan.n_landmarks
    return 8 * (4 * m * m + m * (plan.n_features + (plan.n_components or m)))


def check_scores_room(path: Path, plan: NystroemPlan, *, beside: int = 0, n_parts: int = 0, n_kept: int = 0) -> None:
    """StorageError when the file system cannot take the model and the scores of a Nyström run; labels not counted.

    Parameters
    ----------
    path : Path
        Directory of the run; what it holds already is replaced or used.
    plan : NystroemPlan
    beside : int
        Bytes of what is written beside the scores, and of a map in the model.
    n_parts : int
        Files of scores.
    n_kept : int
        Sums of single partitions that are kept.
    """
    scores = 8 * plan.n_samples * (plan.n_components or plan.n_landmarks)
    needed = sums_bytes(plan) + scores + beside + n_kept * 8 * plan.n_landmarks**2
    _check_bytes(path, needed - tree_bytes(path), "model and scores")
    _check_files(path, FEW_FILES + n_parts + n_kept - _count_files(path))


def check_room(
    run: RunDirectory, plan: Plan, source: Source, *, beside: int = 0, n_chunks: int = 0, tiles: str | None = None
) -> None:
    """StorageError when the file system cannot take what a run has still to write; labels not counted.

    `beside` are the bytes of what is written beside the scores, and of a map in the model; `n_chunks` the files of a
    zarr group of scores; `tiles` is where tiles lie that take none of this disk.

    Notes
    -----
    What the run directory holds already, its own or taken over from another run, is not written again; one of its
    pieces that turns out to be of no use is removed before it is replaced.
    """
    rows, model_rows, stored, journal = _planned_bytes(plan, source, tiles)
    scores = 8 * plan.n_samples * plan.n_components  # 0 where the spectrum decides how many
    pieces = {
        "rows.zarr": rows,
        "model": model_rows + scores,  # as eigenvectors
        "embedding": scores + beside,
        "gram.zarr": stored,
        "journal": journal,
    }
    needed = sum(max(0, size - tree_bytes(run.path / name)) for name, size in pieces.items())
    _check_bytes(run.path, needed, "rows, tiles, journal, model and scores to be written")
    n_files = _planned_files(plan, tiles) + 2 * len(source.parts) + FEW_FILES + n_chunks - _count_files(run.path)
    _check_files(run.path, n_files, ", or set tile_rows higher")


def journal_bytes(plan: Plan) -> int:
    """Of the log of a solve that takes as many passes as expected: 8·n·(b + 1) for one of b vectors, see `journal`."""
    vectors = plan.expected_passes * plan.block_columns
    if plan.solver in ("arpack", "dense"):
        # one a pass, but for those of the certificate, which take every pair once, and those of a probe
        vectors = plan.expected_passes + (plan.n_components or plan.n_samples) + PROBE_PASSES * plan.block_columns
    return 8 * plan.n_samples * (vectors + plan.expected_passes)


def _planned_bytes(plan: Plan, source: Source, tiles: str | None) -> tuple[int, int, int, int]:
    """Of the stored rows, of their copy in the model, of the stored tiles, and of the journal."""
    rows = plan.n_samples * plan.n_features * (4 if source.dtype == "float32" else 8)
    return rows, rows, plan.gram_bytes if plan.gram == "zarr" and tiles is None else 0, journal_bytes(plan)


def _planned_files(plan: Plan, tiles: str | None) -> int:
    """Of stored rows, tiles with their sums, the directories around them, and the rows of the model."""
    blocks = plan.tiling.n_blocks
    stored = plan.tiling.n_tiles + 2 * blocks * (blocks + 1) if plan.gram == "zarr" and tiles is None else 0
    return stored + 2 * blocks


def _count_files(root: Path) -> int:
    return sum(1 for _ in root.rglob("*"))


def _check_bytes(path: Path, needed: int, what: str) -> None:
    free = shutil.disk_usage(path).free
    if needed > free:
        raise StorageError(
            f"{path} has {format_bytes(free)} free, the {what} need {format_bytes(needed)}; make room or choose "
            "another output.path."
        )


def _check_files(path: Path, needed: int, remedy: str = "") -> None:
    """StorageError when the file system cannot take so many more files and directories."""
    state = os.statvfs(path)
    if state.f_files and needed > state.f_favail:  # where files are not counted, their number is 0
        raise StorageError(
            f"{path} has room for {state.f_favail} more files (inodes), and up to {needed} are needed; remove files or "
            f"choose another output.path{remedy}."
        )


def _share_objects(place: StoredObject, writes: Sequence[str], uri: str) -> bool:
    """Whether a source has objects below a place on S3, or could find what is written there."""
    source, above = StoredObject.of(uri), len(place.parts)
    is_below = source.bucket == place.bucket and source.parts[:above] == place.parts
    return is_below or any(would_find(uri, place / name) for name in writes)


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
