"""One writer for an output directory; a lock is broken only on proof that its owner is dead."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from scalable_kpca.errors import LockedError, StorageError, storage_errors
from scalable_kpca.workflow.files import remove_tree

__all__ = ["describe_owner", "output_lock", "owner_is_dead", "process_identity", "sweep"]


@contextmanager
def output_lock(path: Path) -> Iterator[None]:
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
    identity = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with storage_errors(f"locking {path.parent}"):
            identity.write_text(json.dumps(process_identity(os.getpid())))
            _acquire(path, identity)
            _sweep(path, identity)
        try:
            yield
        finally:
            # the lock may be gone by hand, and the file system read-only by now: neither hides how the run ended
            with contextlib.suppress(OSError):
                if path.samefile(identity):
                    path.unlink()
    finally:
        with contextlib.suppress(OSError):
            identity.unlink()


def process_identity(pid: int) -> dict[str, Any]:
    """What distinguishes a process of this host and PID namespace from every other, now and later."""
    return {
        "host": platform.node(),
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
    """
    if owner.get("host") != platform.node():
        return False
    if owner.get("boot") != _boot_id():
        return True
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
    """Identity in a lock file; None when there is no file, an empty one when it cannot be read."""
    try:
        owner = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
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
    if path.is_dir():
        raise StorageError(f"{path} is a directory, and the lock is a file of that name; remove it and run again.")
    with _turn(path.parent):
        owner = describe_owner(path)
        if owner is None:
            return
        if not owner_is_dead(owner):
            raise LockedError(
                f"{path.parent} is being written by process {owner.get('pid', '?')} on "
                f"{owner.get('host', 'an unknown host')} (lock {path}); wait for it, or remove the lock if that "
                "process is certainly gone."
            )
        path.unlink(missing_ok=True)


def sweep(path: Path, leftover: Path) -> None:
    """Remove the journal that a crash after the commit left; one that cannot be removed now does no harm."""
    if leftover.exists():
        with contextlib.suppress(LockedError, OSError), output_lock(path):
            remove_tree(leftover)


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """The only process of this host that looks at the lock, where the file system supports it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(path: Path, identity: Path) -> None:
    """Remove the identities that killed processes left beside the lock."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        owner = describe_owner(leftover)
        if leftover != identity and owner and owner_is_dead(owner):
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
