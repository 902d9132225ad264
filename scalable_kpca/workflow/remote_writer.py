"""Publishing to S3: by the holder of a lease, and what is removed there by it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from scalable_kpca.errors import StorageError, storage_errors
from scalable_kpca.objects import StoredObject
from scalable_kpca.workflow.layout import Output, RunDirectory, fence_of
from scalable_kpca.workflow.lease import Lease, remote_lease
from scalable_kpca.workflow.mirror import bring, is_there
from scalable_kpca.workflow.remote import Publication, RemoteOutput
from scalable_kpca.workflow.versions import known_versions

__all__ = ["RemoteWriter", "remote_writing"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteWriter:
    """The one process that may publish to an output on S3.

    Attributes
    ----------
    here : Output
        Its working directory.
    output : RemoteOutput
    lease : Lease
    known : str or None
        ETag of the pointer when the lease was taken: whoever has replaced it since has won.
    last : int
        Highest number of a writer that has left anything there.
    """

    here: Output
    output: RemoteOutput
    lease: Lease
    known: str | None
    last: int

    def upload(self, run: RunDirectory, fence: int) -> StoredObject:
        """Put the results of a run there, and those that it goes on with where they are not; where they are."""
        there = self.output.publications()
        for earlier in known_versions(self.here, run):
            if not is_there(earlier, there):
                self.output.upload(earlier, fence, self.lease.require)
        with storage_errors(f"publishing {run.path} to {self.output.place}"):
            return self.output.upload(run, fence, self.lease.require)

    def point_to(self, run: RunDirectory, place: StoredObject, fence: int) -> None:
        """Put it in force; see `RemoteOutput.point_to`."""
        self.lease.require()
        self.output.point_to(run, place, fence, self.known)

    def sweep(self, fence: int) -> None:
        """Remove what writers that have died left half written, and other places of a run than the last one.

        Notes
        -----
        A committed place that has lost objects stays: it may be all that there is of a version.
        """
        with _warnings(self.output):
            there, rest = self._sorted_out(self.output.read_pointer()[0])
            self._remove([one for one in rest if not one.is_committed or one.fingerprint in there], fence)

    def retain(self, fence: int, keep: int) -> None:
        """Remove all but the last `keep` runs, and those that they go on with; nothing where that cannot be told."""
        with _warnings(self.output):
            pointer, _ = self.output.read_pointer()
            there, _ = self._sorted_out(pointer)
            needed = self._needed(there, "" if pointer is None else pointer["run"], keep)
            self._remove([one for name, one in there.items() if name not in needed], fence)

    def _remove(self, publications: Sequence[Publication], fence: int) -> None:
        """Remove places of earlier writers, as the one that surely has the lease now; never the one in force."""
        self.lease.confirm()
        pointer, _ = self.output.read_pointer()
        current = None if pointer is None else self.output.place / pointer["path"]
        self.output.remove([one for one in publications if one.number <= fence and one.place != current])

    def _sorted_out(self, pointer: dict[str, Any] | None) -> tuple[dict[str, Publication], list[Publication]]:
        """Each run that is there whole, in the place that is in force or was written last, and everything else."""
        current = None if pointer is None else self.output.place / pointer["path"]
        there: dict[str, Publication] = {}
        rest = []
        for one in sorted(self.output.publications(), key=lambda one: one.place != current):
            if one.fingerprint in there or one.commit_list() is None:
                rest.append(one)
            else:
                there[one.fingerprint] = one
        return there, rest

    def _needed(self, there: dict[str, Publication], current: str, keep: int) -> set[str]:
        """Runs that stay, with the one in force; StorageError where one is missing that a later one goes on with."""
        others = [name for name in there if name != current]  # the last written first
        needed: set[str] = set()
        for name in (current, *others[: keep - 1]):
            following: str | None = name
            while following is not None and following not in needed:
                if following not in there:
                    raise StorageError(f"run {following} is not whole there, with which others go on")
                needed.add(following)
                following = self.output.previous(there[following])
        return needed


@contextmanager
def remote_writing(output: Output) -> Iterator[RemoteWriter | None]:
    """The lock of an output on S3 and its run in force, for the holder of the lock of the working directory.

    Raises
    ------
    LockedError
        When another process writes there.
    BusyError, StorageError
        When the server does not answer now or refuses, or what is there is damaged.
    """
    if output.remote is None:
        yield None
        return
    remote = RemoteOutput(output.remote)
    with remote_lease(remote.lock) as lease:
        pointer, known = bring(output, remote)
        numbers = [one.number for one in remote.publications()]
        yield RemoteWriter(output, remote, lease, known, max([fence_of(pointer), *numbers]))


@contextmanager
def _warnings(output: RemoteOutput) -> Iterator[None]:
    """What cannot be removed now is left for the next time, and said: results are published by then."""
    try:
        yield
    except OSError as error:
        logger.warning("%s", f"{output.place}: not everything could be removed there: {error}")
