"""One writer for an output directory; a lock is broken only on proof that its owner is dead."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalable_kpca.documents import read_json
from scalable_kpca.errors import LockedError, StorageError, storage_errors
from scalable_kpca.workflow.owner import owner_is_dead, owner_name, process_identity

__all__ = [
    "Lock",
    "abandon_locks",
    "describe_owner",
    "output_lock",
    "release_lock",
]

TURN_SECONDS = 10.0  # for another process to write a small file and flush it
LAST_SECONDS = 1.0  # the same, of a process that is about to end
LOOK_SECONDS = 0.02  # between two tries to get a turn

_held: set[Lock] = set()  # by this process


@dataclass(frozen=True)
class Lock:
    """A lock that was taken.

    Attributes
    ----------
    path : Path
        The lock file.
    identity : Path
        The owner's own name of the same file.
    """

    path: Path
    identity: Path

    def require(self) -> None:
        """LockedError when the lock is somebody else's by now: whoever was asleep must not touch what is theirs."""
        if not self._is_held():
            raise LockedError(
                f"{self.path} was taken away from this process, process {os.getpid()}, while it held it; another run "
                "may be writing there: nothing is published; run again."
            )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While nobody else of this host takes or breaks the lock, which is still held at the beginning."""
        with _turn(self.path.parent):
            self.require()
            yield

    def release(self) -> None:
        """Give the lock back if it is still held; what cannot be removed does not hide how a run ended."""
        _held.discard(self)
        with contextlib.suppress(OSError), _turn(self.path.parent, LAST_SECONDS):
            if self._is_held():
                self.path.unlink()
        with contextlib.suppress(OSError):
            self.identity.unlink()

    def _is_held(self) -> bool:
        try:
            return os.path.samestat(self.path.lstat(), self.identity.lstat())
        except OSError:
            return False


@contextmanager
def output_lock(path: Path) -> Iterator[Lock]:
    """Hold the lock file `path` for the time of a run.

    Parameters
    ----------
    path : Path
        The file; its directory exists.

    Raises
    ------
    LockedError
        When a process that may be alive holds it; the message names process and host.
    StorageError
        When the directory cannot be written to, or something that is no file has the lock's name.

    Notes
    -----
    The file is a hard link to a file with the owner's identity, so that it appears whole, and linking fails when it
    exists. Death can be proven on the owner's own host only, so those who may break a lock take turns by a lock of
    that host's kernel on the directory: none of them removes what another has just taken.
    """
    lock = Lock(path, path.with_name(f".{path.name}.{uuid.uuid4().hex}"))
    try:
        with storage_errors(f"locking {path.parent}"):
            lock.identity.write_text(json.dumps(process_identity(os.getpid())))
            _acquire(path, lock.identity)
            _held.add(lock)
            _sweep(path, lock.identity)
        yield lock
    finally:
        lock.release()


def abandon_locks() -> None:
    """Give back every lock of this process, which is about to end without unwinding."""
    for lock in tuple(_held):
        lock.release()


def release_lock(path: Path, *, force: bool = False) -> dict[str, Any] | None:
    """Remove the lock of a dead owner, or with `force` any; who held it, None when nobody did.

    Raises
    ------
    LockedError
        When the owner may be alive and `force` is not set.
    StorageError
        When what has the lock's name is no file.
    """
    with storage_errors(f"unlocking {path.parent}"), _turn(path.parent):
        owner = describe_owner(path)
        if owner is not None and not force and not owner_is_dead(owner):
            raise LockedError(
                f"{path} is held by {owner_name(owner)}, whose death is not proven; wait for it, or see that it has "
                "ended and use --force. A process that sleeps and wakes up finds its lock gone, and publishes nothing."
            )
        if owner is not None:
            path.unlink(missing_ok=True)
    return owner


def describe_owner(path: Path) -> dict[str, Any] | None:
    """Identity in a lock file; None when there is no file, an empty one when it cannot be read.

    Raises
    ------
    StorageError
        When something else has the lock's name: a directory, or what would never end to be read.
    """
    try:
        owner = read_json(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:
            kind = "a directory" if path.is_dir() else "no file"
            text = f"{path} is {kind}, and the lock is a file of that name; remove it and run again."
            raise StorageError(text) from error
        return {}  # a link, too: what it points to is nobody's identity
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _acquire(path: Path, identity: Path) -> None:
    for _ in range(2):
        try:
            os.link(identity, path)
        except FileExistsError:
            _break(path)
        else:
            return
    raise LockedError(f"{path} changed hands while it was being taken; run again.")


def _break(path: Path) -> None:
    """Remove the lock of a dead owner; an error when there is another owner."""
    with _turn(path.parent):
        owner = describe_owner(path)
        if owner is None:
            return
        if not owner_is_dead(owner):
            raise LockedError(
                f"{path.parent} is being written by {owner_name(owner)} (lock {path}); wait for it, or remove the lock "
                f"if that process is certainly gone: skpca unlock {path.parent} --force."
            )
        path.unlink(missing_ok=True)


@contextmanager
def _turn(directory: Path, seconds: float | None = None) -> Iterator[None]:
    """The only process of this host that looks at the lock, where the file system supports it.

    Raises
    ------
    LockedError
        When another process has its turn for longer than writing a small file takes.
    """
    seconds = TURN_SECONDS if seconds is None else seconds
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        deadline = time.monotonic() + seconds
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise LockedError(
                    f"{directory} has been held by another process of this host for {seconds:g} s: one that "
                    "publishes there and was stopped, or whose disk hangs; let it go on, or end it, and run again."
                )
            time.sleep(LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks
        pass
    return True


def _sweep(path: Path, identity: Path) -> None:
    """Remove the identities that killed processes left beside the lock."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}")
    for leftover in path.parent.iterdir():
        if leftover == identity or not ours.fullmatch(leftover.name):
            continue
        with contextlib.suppress(StorageError):  # what is no file is not ours
            owner = describe_owner(leftover)
            if owner and owner_is_dead(owner):
                leftover.unlink(missing_ok=True)
