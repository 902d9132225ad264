"""What stays of an output when a run has been published: everything, results only, or so many runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from scalable_kpca.disk import remove_tree
from scalable_kpca.workflow.layout import WORK, Output, RunDirectory
from scalable_kpca.workflow.publishing import Writer
from scalable_kpca.workflow.versions import earlier_versions

__all__ = ["retain"]

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
        ``"results"`` removes rows, tiles and journals of committed runs. A number keeps so many runs, the last ones
        that were committed, and with them those whose scores they go on with; others are removed, unfinished ones too.

    Notes
    -----
    A run loses its commit list first, so that what is half removed never looks whole; whatever cannot be removed is
    left for the next time, and said.
    """
    if keep == "all":
        return
    try:
        if keep == "results":
            for other in writer.output.runs():
                if other.is_committed:
                    for name in WORK:
                        remove_tree(other.path / name)
            return
        for other in _superfluous(writer.output, run, int(keep)):
            writer.withdraw(other)
            remove_tree(other.path)
    except OSError as error:
        logger.warning("%s", f"keep={keep}: not everything could be removed ({error}); the next run tries again")


def _superfluous(output: Output, run: RunDirectory, keep: int) -> Iterator[RunDirectory]:
    runs = output.runs()
    order = sorted(runs, key=lambda other: (other.path == run.path, other.fence), reverse=True)
    kept = {other.path for other in order[:keep] if other.is_committed}
    for other in order[:keep]:
        kept.update(earlier.path for earlier in earlier_versions(output, other))
    yield from (other for other in runs if other.path not in kept)
