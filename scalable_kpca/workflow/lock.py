"""One writer for an output directory; a lock is broken only on proof that its owner is dead."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from scalable_kpca.documents import read_json
from scalable_kpca.errors import LockedError, StorageError, storage_errors

__all__ = [
    "Lock",
    "abandon_locks",
    "describe_owner",
    "output_lock",
    "owner_is_dead",
    "owner_name",
    "process_identity",
    "release_lock",
]

TURN_SECONDS = 10.0  # for another process to write a small file and flush it
LAST_SECONDS = 1.0  # the same, of a process that is about to end
LOOK_SECONDS = 0.02  # between two tries to get a turn
HOST_PID_NAMESPACE = "pid:[4026531836]"  # Linux numbers the first one so

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


def process_identity(pid: int) -> dict[str, Any]:
    """What distinguishes a process of this host and PID namespace from every other, now and later."""
    return {
        "host": platform.node(),
        "machine": _machine_id(),
        "boot": _boot_id(),
        "pid_namespace": _pid_namespace(),
        "pid": pid,
        "started": _state_and_start(pid)[1],
    }


def owner_is_dead(owner: dict[str, Any]) -> bool:
    """Whether it is proven that the process which wrote this identity has ended.

    Notes
    -----
    Another host, or another container that shares this host's name, cannot be looked into: nothing is proven there.
    That this host was started anew since is proven only by a machine that knows itself, outside of containers.
    """
    if owner.get("host") != platform.node():
        return False
    if owner.get("boot") != _boot_id():
        return owner.get("machine") is not None and owner.get("machine") == _machine_id()
    if owner.get("pid_namespace") != _pid_namespace() or not isinstance(owner.get("pid"), int):
        return False
    if not _proc_is_of_this_namespace():
        return False
    try:
        state, started = _state_and_start(owner["pid"])
    except psutil.NoSuchProcess:
        return True
    except (ValueError, OSError, psutil.Error):
        return False
    # a zombie has ended, and waits for its parent to notice
    return state in ("Z", "X") or started != owner.get("started")


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


def owner_name(owner: dict[str, Any]) -> str:
    """An owner in words."""
    return f"process {owner.get('pid', '?')} on {owner.get('host', 'an unknown host')}"


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


def _state_and_start(pid: int) -> tuple[str, int | float]:
    """State letter and start of a process: clock ticks since boot, which unlike a date never move."""
    try:
        # the name in brackets may hold anything; state is the third field and start the twenty-second
        place = "self" if pid == os.getpid() else pid
        fields = Path(f"/proc/{place}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError):
        process = psutil.Process(pid)
        return "Z" if process.status() == psutil.STATUS_ZOMBIE else "?", process.create_time()


def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _machine_id() -> str | None:
    """Of this machine, whatever its name; None in a container, which may be one of many with the same."""
    if _pid_namespace() != HOST_PID_NAMESPACE:
        return None
    try:
        return Path("/etc/machine-id").read_text().strip() or None
    except OSError:
        return None


def _proc_is_of_this_namespace() -> bool:
    """Whether /proc counts processes as this process does; after ``unshare`` it may be the parent's."""
    try:
        return str(Path("/proc/self").readlink()) == str(os.getpid())
    except OSError:
        return _pid_namespace() is None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(psutil.boot_time())
