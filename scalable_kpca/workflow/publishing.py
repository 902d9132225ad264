"""Putting results in force: by the holder of the lock only, and never over what a later holder has published."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scalable_kpca.disk import remove_tree
from scalable_kpca.errors import LockedError, StorageError, UnreadableError
from scalable_kpca.source import remove_copies
from scalable_kpca.workflow.files import read_json, remove_file, write_json
from scalable_kpca.workflow.layout import PAGE, Output, RunDirectory, fence_of
from scalable_kpca.workflow.lock import Lock, output_lock
from scalable_kpca.workflow.mirror import claim
from scalable_kpca.workflow.remote_writer import RemoteWriter, remote_writing

__all__ = ["Writer", "sweep", "writing"]


@dataclass(frozen=True)
class Writer:
    """The one process that may change an output.

    Attributes
    ----------
    output : Output
    lock : Lock
        Held.
    fence : int
        Number of this writer: above that of everyone who has published before.
    remote : RemoteWriter, optional
        The same of the output on S3 that this one is the working directory of.

    Notes
    -----
    A process can be stopped for so long that somebody takes its lock away by hand, and then go on. It finds out before
    each step that others would see, and once more, in its host's turn, at the moment of publishing: the lock must still
    be its own, and nobody of its own or a higher number may have published.
    """

    output: Output
    lock: Lock
    fence: int
    remote: RemoteWriter | None = None

    def require(self) -> None:
        """LockedError when the lock is lost; to be asked before anything is written over."""
        self.lock.require()
        if self.remote is not None:
            self.remote.lease.require()

    def withdraw(self, run: RunDirectory) -> None:
        """Take a commit back, before anything of the run is touched."""
        self.lock.require()
        if run.is_committed:
            remove_file(run.path / "COMMIT.json")

    def commit(self, run: RunDirectory, inherited: Mapping[str, str] | None = None) -> None:
        """List every result file with size and digest, after all of them have reached the disk.

        Parameters
        ----------
        run : RunDirectory
        inherited : mapping, optional
            Digests of files that were taken over from another run, as that has committed them.

        Raises
        ------
        StorageError
            When one of these is not what was committed: damage must not be listed as what it should be.
        """
        listed = run.flushed_results()
        for entry in listed:
            if (inherited or {}).get(entry["path"], entry["sha256"]) != entry["sha256"]:
                raise StorageError(
                    f"{run.path / entry['path']} was taken over from an earlier run, and differs from what that has "
                    "committed; put it back from a copy, or take its partition away (skpca update --withdraw) and add "
                    "it again."
                )
        with self.lock.turn():
            write_json(run.path / "COMMIT.json", {"fingerprint": run.fingerprint, "fence": self.fence, "files": listed})

    def point_to(self, run: RunDirectory) -> None:
        """Put a committed run in force, on S3 first where it goes there."""
        uploaded = None if self.remote is None else self.remote.upload(run, self.fence)
        with self.lock.turn():
            published = _published(self.output)
            if published >= self.fence:
                raise LockedError(
                    f"{self.output.path} was written by another run, number {published}, while this one, number "
                    f"{self.fence}, slept; its results stay, and nothing is published: run again."
                )
            if self.remote is not None and uploaded is not None:
                self.remote.point_to(run, uploaded, self.fence)
            write_json(self.output.path / "latest.json", {"run": run.fingerprint, "fence": self.fence})
        if self.remote is not None:
            self.remote.sweep(self.fence)


@contextmanager
def writing(output: Output, run: RunDirectory) -> Iterator[Writer]:
    """The lock of an output, for the time of a run; what killed writers left of half-written files is removed.

    Raises
    ------
    LockedError, StorageError
        See `output_lock`, and for an output on S3 `remote_writing`, which may wait for its lock.
    ConfigError
        See `claim`.
    """
    claim(output)
    with output_lock(output.lock) as lock, remote_writing(output) as remote:
        _clear(output, run)
        # a pointer that is gone or damaged does not set the numbers back
        last = max([_published(output), *(run.fence for run in output.runs()), 0 if remote is None else remote.last])
        writer = Writer(output, lock, last + 1, remote)
        try:
            yield writer
        except StorageError:
            writer.require()  # whoever took the lock away has removed what was half written: that is the reason
            raise


def sweep(output: Output, run: RunDirectory) -> None:
    """Remove what a crash after the commit left: its lock, its journal; what cannot be removed now does no harm."""
    locks, journal = output.path.glob(f"*{output.lock.name}*"), run.path / "journal"
    remove_copies(output.tables, None)
    if any(locks) or journal.exists() or any(_half_written(output, run)):
        with contextlib.suppress(LockedError, OSError), output_lock(output.lock):
            _clear(output, run)
            remove_tree(journal)


def _clear(output: Output, run: RunDirectory) -> None:
    """Remove what killed writers left half made."""
    for leftover in _half_written(output, run):
        with contextlib.suppress(OSError):
            remove_tree(leftover)
    remove_copies(output.tables, None)


def _half_written(output: Output, run: RunDirectory) -> Iterator[Path]:
    """What is renamed once it is whole, and was not; beside it in an output there may be what is not ours."""
    for name in (".latest.json.*.new", f".{PAGE}.*.new"):
        yield from output.path.glob(name)
    yield from (run.path / "labels").glob(".KEY.json.*.new")
    for name in (".*.json.*.new", "gram.zarr.*.new"):
        yield from run.path.glob(name)


def _published(output: Output) -> int:
    """Number of the writer that has published last; 0 where none has, or the pointer is damaged."""
    try:
        return fence_of(read_json(output.path / "latest.json"))
    except UnreadableError:
        raise
    except StorageError:
        return 0
