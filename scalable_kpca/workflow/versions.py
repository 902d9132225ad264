"""Versions of a model: a run that an update made goes on with the scores of the runs before it."""

from __future__ import annotations

from collections.abc import Iterator

from scalable_kpca.errors import StorageError
from scalable_kpca.workflow.files import read_json
from scalable_kpca.workflow.layout import Output, RunDirectory

__all__ = ["earlier_versions", "problems_of"]


def earlier_versions(output: Output, run: RunDirectory) -> Iterator[RunDirectory]:
    """Runs that an updated one goes on with, the last first: the scores of their partitions are there.

    Raises
    ------
    StorageError
        When what a run calls its predecessor is no run of this output.
    """
    seen = {run.path}
    while run.is_committed:
        try:
            previous = read_json(run.path / "run.json")["previous"]
        except (StorageError, KeyError, TypeError):
            return
        run = output.run(previous)
        if run.path in seen:
            return
        seen.add(run.path)
        yield run


def problems_of(output: Output, run: RunDirectory) -> list[str]:
    """What differs from the commit lists, of a run and of the scores that it goes on with, one sentence each.

    Notes
    -----
    Reads every file of these once.
    """
    found = run.problems()
    try:
        for earlier in earlier_versions(output, run):
            found += earlier.problems(("embedding",))
    except StorageError as error:
        found.append(str(error))
    return found
