"""One writer for an output directory; a lock is broken only on proof that its owner is dead."""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from scalable_kpca.errors import LockedError

__all__ = ["describe_owner", "output_lock", "owner_is_dead"]


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

    Notes
    -----
    The file is a hard link to a file with the owner's identity, so that it appears whole, and linking fails when it
    exists. A dead owner's lock is renamed aside before a new one is linked: of two that find it, one wins.
    """
    identity = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    identity.write_text(json.dumps(_own_identity()))
    try:
        _acquire(path, identity)
        try:
            yield
        finally:
            if path.exists() and path.samefile(identity):
                path.unlink()
    finally:
        identity.unlink(missing_ok=True)


def owner_is_dead(owner: dict[str, Any]) -> bool:
    """Whether it is proven that the process which wrote this identity has ended."""
    if owner.get("host") != platform.node():
        return False
    if owner.get("boot") != _boot_id():
        return True
    try:
        return bool(psutil.Process(owner["pid"]).create_time() != owner["started"])
    except psutil.NoSuchProcess:
        return True
    except (KeyError, TypeError, ValueError, psutil.Error):
        return False


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
            owner = describe_owner(path)
            if owner is None:
                continue
            if not owner_is_dead(owner):
                raise LockedError(
                    f"{path.parent} is being written by process {owner.get('pid', '?')} on "
                    f"{owner.get('host', 'an unknown host')} "
                    f"(lock {path}); wait for it, or remove the lock if that process is certainly gone."
                ) from None
            _set_aside(path, owner)
        else:
            return
    raise LockedError(f"{path} changed hands while it was being taken; run again.")


def _set_aside(path: Path, owner: dict[str, Any]) -> None:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.dead")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if describe_owner(aside) != owner:
        # another process replaced the dead lock in between: give it back
        os.link(aside, path)
        aside.unlink()
        raise LockedError(f"{path} was taken by another process at the same moment; run again when it has finished.")
    aside.unlink()


def _own_identity() -> dict[str, Any]:
    process = psutil.Process()
    return {"host": platform.node(), "boot": _boot_id(), "pid": process.pid, "started": process.create_time()}


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(psutil.boot_time())
