"""Work in progress of a run: rows, their labels and the tiles, kept, taken over, thrown away when damaged.

Rows and labels are one piece of work: ``labels/KEY.json`` is written last and says what each of their files is, and
whose they are. Nothing here is a result: whatever is damaged is made again, with a warning.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.disk import remove_tree, sync_tree
from scalable_kpca.engine import Engine
from scalable_kpca.errors import InvalidInputError, StorageError, UnreadableError
from scalable_kpca.exact import open_gram
from scalable_kpca.faults import classify, is_loss
from scalable_kpca.gram import Gram
from scalable_kpca.kernels import Kernel
from scalable_kpca.source import Rows, RowSummary, Source, open_rows, write_rows
from scalable_kpca.source.parts import naming_files
from scalable_kpca.workflow.files import file_digest, file_states, read_json, write_json
from scalable_kpca.workflow.identity import Prepared
from scalable_kpca.workflow.layout import TILES, RunDirectory
from scalable_kpca.workflow.parts import PartWriter

__all__ = ["StoredWork", "copy_rows", "obtain_gram", "take_over", "unchanged_source"]

StoredWork = tuple[Rows, RowSummary]

logger = logging.getLogger(__name__)


def take_over(prepared: Prepared, run: RunDirectory) -> StoredWork | None:
    """Rows with their labels, and tiles, that this run or another one of the output has already; rows when found.

    Notes
    -----
    Other runs give theirs away by renaming. Cost: what is kept of the rows and labels is read once and checked; tiles
    are checked when they are read.
    """
    found = _own_rows(prepared, run) or _adopt_rows(prepared, run)
    if found is not None:
        _adopt_gram(prepared, run, prepared.kernel_on(*found))
    return found


def copy_rows(prepared: Prepared, run: RunDirectory, engine: Engine) -> StoredWork:
    """Copy the rows of the source and, from the same read, their labels.

    Raises
    ------
    InvalidInputError
        When an entry is not finite, or the source is not what was prepared; nothing of the copy stays.
    """
    source, path, done = prepared.source, run.path / "rows.zarr", 0
    _discard_rows(run)

    def advance(n_rows: int) -> None:
        nonlocal done
        done += n_rows
        engine.notify("rows", done, source.n_samples)

    try:
        with unchanged_source(prepared):
            (run.path / "labels").mkdir()
            rows, summary = write_rows(
                _rows_beside_labels(source, run.path / "labels"),
                path,
                n_samples=source.n_samples,
                n_features=len(source.feature_names),
                dtype=source.dtype,
                tile_rows=prepared.exact_plan.tile_rows,
                fingerprint=prepared.rows_key,
                names=source.feature_names,
                advance=advance,
            )
    except Exception:
        _discard_rows(run)
        raise
    _seal(prepared, run)
    return rows, summary


def obtain_gram(prepared: Prepared, run: RunDirectory, rows: Rows, kernel: Kernel, engine: Engine) -> Gram:
    """The Gram matrix in its home; stored tiles that cannot be opened are thrown away, but for those on S3.

    Raises
    ------
    StorageError
        When something else has the name that the tiles have on S3: others may use it.
    """
    fingerprint, place = prepared.gram_key(kernel), prepared.tiles_at(kernel)
    if place is not None:
        write_json(run.path / TILES, {"place": str(place)})
        return open_gram(rows, kernel, prepared.exact_plan, engine, path=place, fingerprint=fingerprint)
    remove_tree(run.path / TILES)
    path, plan = run.path / "gram.zarr", prepared.exact_plan
    _adopt_gram(prepared, run, kernel)
    try:
        return open_gram(rows, kernel, plan, engine, path=path, fingerprint=fingerprint)
    except StorageError as error:
        if plan.gram != "zarr" or not path.exists():
            raise
        _discard(path, error)
    return open_gram(rows, kernel, plan, engine, path=path, fingerprint=fingerprint)


def _own_rows(prepared: Prepared, run: RunDirectory) -> StoredWork | None:
    try:
        return _open_rows(prepared, run)
    except UnreadableError:
        raise
    except StorageError as error:
        logger.warning("%s", f"rows and labels in {run.path} are made again: {error}")
        _discard_rows(run)
        return None


def _adopt_rows(prepared: Prepared, run: RunDirectory) -> StoredWork | None:
    for other in _others(prepared, run):
        try:
            fits = _open_rows(prepared, other) is not None
        except OSError as error:
            logger.info("%s", f"rows and labels in {other.path} are not taken over: {error}")
            continue
        if fits:
            _discard_rows(run)
            # between the two renames neither run has both, and a copy is made
            for name in ("labels", "rows.zarr"):
                (other.path / name).rename(run.path / name)
            return open_rows(run.path / "rows.zarr", prepared.rows_key)
    return None


def _open_rows(prepared: Prepared, run: RunDirectory) -> StoredWork | None:
    """Rows of a run when they and their labels are whole and of this source, None when there are none.

    Raises
    ------
    StorageError
        When they should be whole and are not.
    """
    key, labels = read_json(run.path / "labels" / "KEY.json"), run.path / "labels"
    if key is None:
        return None
    if not isinstance(key, dict) or key.get("key") != prepared.rows_key:
        return None
    if key.get("rows") != [part.n_rows for part in prepared.source.parts]:
        raise StorageError(f"{labels} has other numbers of rows than the source.")
    try:
        sealed, digests = key.get("sha256"), _digests(run)
    except OSError as error:
        if not is_loss(error):  # they may be whole
            raise
        raise StorageError(f"{error.filename or labels} cannot be read: {error.strerror or error}.") from error
    if sealed != digests:
        known = sealed if isinstance(sealed, dict) else {}
        names = sorted(name for name in known.keys() | digests.keys() if known.get(name) != digests.get(name))
        raise StorageError(f"{', '.join(names[:4]) or 'labels/KEY.json'} in {run.path}: missing, damaged or swapped.")
    found = open_rows(run.path / "rows.zarr", prepared.rows_key)
    if found is None:
        raise StorageError(f"{run.path / 'rows.zarr'} is of other contents than {labels}.")
    return found


def _rows_beside_labels(source: Source, directory: Path) -> Iterator[NDArray[np.floating[Any]]]:
    """Feature rows of a source, while their labels are written from the same read."""
    with PartWriter(directory, [part.n_rows for part in source.parts]) as parts:
        for batch in source.batches():
            parts.add(batch.part, batch.labels)
            yield batch.rows


@contextmanager
def unchanged_source(prepared: Prepared) -> Iterator[None]:
    """InvalidInputError when the source is not what was prepared: after it was read, or where that is why it failed."""
    try:
        with naming_files(prepared.source.parts):
            yield
    except Exception as error:
        _refuse_changed(prepared, error)
        raise
    _refuse_changed(prepared)


def _refuse_changed(prepared: Prepared, error: Exception | None = None) -> None:
    """InvalidInputError when the source is not what it was when the job was prepared; `error` is why reading failed."""
    try:
        unchanged = prepared.source.fingerprint() == prepared.source_digest
    except OSError as refused:
        if classify(refused) != "damage":  # no file of it is gone: the system does not let it be read
            if error is None:
                raise
            return
        unchanged = False
    if not unchanged:
        names = [path for path, state in prepared.source_states.items() if file_states([path]) != state]
        which = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        raise InvalidInputError(
            f"the source changed while it was read: {which or prepared.config.source.uri} is not what this run was "
            "prepared for; nothing is published: run again when it is at rest."
        ) from error


def _seal(prepared: Prepared, run: RunDirectory) -> None:
    sync_tree(run.path / "labels")
    parts = [part.n_rows for part in prepared.source.parts]
    write_json(run.path / "labels" / "KEY.json", {"key": prepared.rows_key, "rows": parts, "sha256": _digests(run)})


def _digests(run: RunDirectory) -> dict[str, str]:
    """Of labels and rows, file by file: a checksum on each chunk does not say that it is in its place."""
    files = [file for name in ("labels", "rows.zarr") for file in sorted((run.path / name).rglob("*"))]
    names = {str(file.relative_to(run.path)): file for file in files if file.is_file() and file.name[0] != "."}
    return {name: file_digest(file) for name, file in names.items() if name != "labels/KEY.json"}


def _discard_rows(run: RunDirectory) -> None:
    # the key first: what is half removed must not look whole
    for name in ("labels/KEY.json", "labels", "rows.zarr"):
        if (run.path / name).parent.is_dir():
            remove_tree(run.path / name)


def _adopt_gram(prepared: Prepared, run: RunDirectory, kernel: Kernel) -> None:
    if prepared.exact_plan.gram != "zarr" or prepared.config.output.tiles is not None:
        return
    path, fingerprint = run.path / "gram.zarr", prepared.gram_key(kernel)
    if path.exists():
        if _is_store_of(path, fingerprint):
            return
        _discard(path, "its description is missing, damaged or of other contents")
    for other in _others(prepared, run):
        with contextlib.suppress(UnreadableError):
            if _is_store_of(other.path / "gram.zarr", fingerprint):
                (other.path / "gram.zarr").rename(path)
                return


def _is_store_of(path: Path, fingerprint: str) -> bool:
    try:
        arrays = [read_json(path / name / "zarr.json") for name in ("tiles", "row_sums")]
        found = read_json(path / "zarr.json")["attributes"]["fingerprint"]
    except UnreadableError:
        raise
    except (StorageError, KeyError, TypeError):
        return False
    return None not in arrays and bool(found == fingerprint)


def _discard(path: Path, reason: object) -> None:
    logger.warning("%s", f"{path} is made again: {reason}")
    remove_tree(path)


def _others(prepared: Prepared, run: RunDirectory) -> list[RunDirectory]:
    return [other for other in prepared.output.runs() if other.path != run.path]
