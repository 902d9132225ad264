"""What stays of an output when a run has been published: everything, results only, or so many runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from scalable_kpca.disk import remove_tree
from scalable_kpca.errors import LockedError
from scalable_kpca.objects import StoredObject, list_objects, remove_objects
from scalable_kpca.source import CopiedSource, PreparedSource, Source, remove_copies
from scalable_kpca.workflow.layout import TILES, WORK, Output, RunDirectory
from scalable_kpca.workflow.publishing import Writer
from scalable_kpca.workflow.versions import earlier_versions

__all__ = ["retain", "retain_copies", "retain_tiles"]

logger = logging.getLogger(__name__)


def retain(writer: Writer, run: RunDirectory, keep: str | int) -> None:
    """Remove what `keep` does not ask for, after `run` has been put in force.

    Parameters
    ----------
    writer : Writer
        Of the output.
    run : RunDirectory
        In force.
    keep : {"all", "results"} or int
        ``"results"`` removes rows and tiles of committed runs. A number keeps so many runs, the last ones that were
        committed, and with them those whose scores they go on with; others are removed, unfinished ones too. Journals
        of committed runs go in every case.

    Notes
    -----
    A run loses its commit list first, so that what is half removed never looks whole; whatever cannot be removed is
    left for the next time, and said.
    """
    try:
        for other in writer.output.runs():
            if other.is_committed and other.path != run.path:  # its writer was killed before it could
                writer.require()
                remove_tree(other.path / "journal")
        if keep == "results":
            for other in writer.output.runs():
                if other.is_committed:
                    writer.require()
                    for name in WORK:
                        remove_tree(other.path / name)
        elif keep != "all":
            for other in _superfluous(writer.output, run, int(keep)):
                writer.withdraw(other)
                remove_tree(other.path)
        if writer.remote is not None and isinstance(keep, int):
            writer.remote.retain(writer.fence, keep)
    except LockedError as error:
        logger.warning("%s", f"the lock was lost after publishing, and nothing more is removed ({error})")
    except OSError as error:
        logger.warning("%s", f"keep={keep}: not everything could be removed ({error}); the next run tries again")


def retain_tiles(tiles: StoredObject | None, run: RunDirectory, keep: str | int) -> None:
    """Remove the tiles of a published run from S3, unless everything is kept.

    Notes
    -----
    Their sums come first, so that no tile looks whole that is not; the description of the store comes last.
    """
    if tiles is None or keep == "all":
        return
    try:
        remove_objects(sorted(list_objects(tiles), key=str))
        remove_tree(run.path / TILES)
    except OSError as error:
        logger.warning(
            "%s", f"keep={keep}: the tiles in {tiles} could not all be removed ({error}); remove what is left"
        )


def retain_copies(output: Output, source: Source | None, keep: str | int) -> None:
    """Remove the Parquet copies of sources that `keep` does not ask for, when `source` is read no more.

    Notes
    -----
    ``"results"`` removes all, a number those that are not of `source`. While another process reads any, all stay.
    """
    if keep == "all":
        return
    wanted: frozenset[str] = frozenset()
    source = source.raw if isinstance(source, PreparedSource) else source
    if isinstance(source, CopiedSource):
        wanted = frozenset() if keep == "results" else source.copy_names
        source.release()
    remove_copies(output.tables, wanted)


def _superfluous(output: Output, run: RunDirectory, keep: int) -> Iterator[RunDirectory]:
    """Runs to be removed; StorageError as soon as it cannot be told which ones a kept one needs."""
    needed = {run.path, *(earlier.path for earlier in earlier_versions(output, run))}
    others = [other for other in output.runs() if other.path != run.path]
    yield from (other for other in others if not other.is_committed and other.path not in needed)
    committed = sorted((other for other in others if other.is_committed), key=lambda other: other.fence, reverse=True)
    for other in committed[: keep - 1]:
        needed |= {other.path, *(earlier.path for earlier in earlier_versions(output, other))}
    yield from (other for other in committed if other.path not in needed)
