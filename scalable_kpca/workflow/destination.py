"""Scores of another source, in a directory of this machine or on S3: nothing is there, or all of it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalable_kpca.disk import scratch_directory
from scalable_kpca.errors import ConfigError, StorageError, storage_errors
from scalable_kpca.objects import (
    ReplacedObjectError,
    StoredObject,
    is_object,
    list_objects,
    put_object,
    remove_objects,
    replace_object,
)
from scalable_kpca.workflow.checks import check_separate
from scalable_kpca.workflow.layout import EMBEDDING, Output
from scalable_kpca.workflow.loading import check_place
from scalable_kpca.workflow.parts import part_name
from scalable_kpca.workflow.remote import upload_files
from scalable_kpca.workflow.scoring import transform_source

__all__ = ["transform_to"]

STARTED, DONE = "_STARTED", "_SUCCESS"  # the second as Hadoop and Spark do; readers leave out what is called _…


def transform_to(
    output: Output,
    uri: str,
    base: Path,
    destination: str,
    overrides: Sequence[str] = (),
    *,
    reconstruct: bool = False,
) -> tuple[int, dict[str, Any]]:
    """Scores of another source's rows with the model in force, at a new place: a directory or ``s3://BUCKET/PREFIX``.

    Parameters
    ----------
    output, uri, base, overrides, reconstruct
        As of `transform_source`.
    destination : str
        On S3 it holds nothing before, and an object ``_SUCCESS`` when all of the scores are there.

    Returns
    -------
    n_rows, health
        As of `transform_source`.

    Raises
    ------
    InvalidInputError, StorageError
        As of `transform_source`.
    ConfigError
        When the destination lies in the output or in the source.

    Notes
    -----
    For S3 the scores are written to the directory of the output first, and are gone there at the end.
    """
    check_place("--to", destination)
    if not is_object(destination):
        return transform_source(output, uri, base, Path(destination), overrides, reconstruct=reconstruct)
    place = StoredObject.of(destination)
    check_separate("--to", place, (part_name(0), *(f"{name}/{part_name(0)}" for name in EMBEDDING)), uri, base)
    remote = output.remote
    if remote is not None and place.bucket == remote.bucket and place.parts[: len(remote.parts)] == remote.parts:
        raise ConfigError(f"--to={destination} lies in {remote}, which only runs write to; choose a place of its own.")
    with _claimed(place), storage_errors(f"writing {output.path}"), scratch_directory(output.path / "scores") as work:
        scores = work / "scores"
        answer = transform_source(output, uri, base, scores, overrides, reconstruct=reconstruct)
        upload_files(
            scores, [str(file.relative_to(scores)) for file in sorted(scores.rglob("*")) if file.is_file()], place
        )
        put_object(place / DONE, b"")
    return answer


@contextmanager
def _claimed(place: StoredObject) -> Iterator[None]:
    """The only writer of a place on S3 that holds nothing; what it has put there is gone again when it fails."""
    claim = place / STARTED
    try:
        replace_object(claim, uuid.uuid4().hex.encode(), None)
    except ReplacedObjectError as error:
        raise StorageError(
            f"{claim} is there: another process writes its scores to {place}, or was killed while it did; name another "
            "place, or remove everything there."
        ) from error
    try:
        if any(found != claim for found in list_objects(place)):
            raise StorageError(f"{place} holds objects; name a new place for the scores.")
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                remove_objects([found for found in list_objects(place) if found != claim])
            raise
    finally:
        with contextlib.suppress(OSError):
            remove_objects([claim])
