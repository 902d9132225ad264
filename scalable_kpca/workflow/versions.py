"""Versions of a model: a run that an update made goes on with the scores of the runs before it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from scalable_kpca.errors import StorageError, UnreadableError
from scalable_kpca.workflow.files import read_json
from scalable_kpca.workflow.layout import EMBEDDING, Output, RunDirectory

__all__ = ["REMEDY", "earlier_versions", "known_versions", "problems_of"]

logger = logging.getLogger(__name__)

REMEDY = "put it back from a copy, or `skpca run` with the configuration of this output, and add the updates again"


def earlier_versions(output: Output, run: RunDirectory) -> Iterator[RunDirectory]:
    """Runs that an updated one goes on with, the last first: the scores of their partitions are there.

    Raises
    ------
    StorageError
        When it cannot be told which these are: one is gone, or does not say truly what it goes on with. Until that is
        repaired, none of them may be removed.
    """
    seen = {run.path}
    while (previous := _previous(run)) is not None:
        run = output.run(previous)
        if run.path in seen:
            raise StorageError(f"{run.path} goes on with scores of runs that go on with its own; {REMEDY}.")
        seen.add(run.path)
        yield run


def known_versions(output: Output, run: RunDirectory) -> Iterator[RunDirectory]:
    """The same as far as it can be told; a warning says what cannot."""
    try:
        yield from earlier_versions(output, run)
    except UnreadableError:
        raise
    except StorageError as error:
        logger.warning("%s", str(error))


def problems_of(output: Output, run: RunDirectory) -> list[str]:
    """What differs from the commit lists, of a run and of the scores that it goes on with, one sentence each.

    Notes
    -----
    Reads every file of these once.
    """
    found = run.problems()
    if found:
        return found  # it may not even say what it goes on with
    try:
        for earlier in earlier_versions(output, run):
            found += earlier.problems(EMBEDDING)
    except StorageError as error:
        found.append(str(error))
    return found


def _previous(run: RunDirectory) -> str | None:
    problems = run.problems(("run.json",))
    try:
        previous = None if problems else read_json(run.path / "run.json").get("previous")
    except (StorageError, AttributeError) as error:
        problems = [str(error)]
    if problems:
        raise StorageError(f"{problems[0]}, and it says what it goes on with; {REMEDY}.")
    return previous
