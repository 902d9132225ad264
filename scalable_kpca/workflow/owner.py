"""Who holds a lock: what tells a process from every other, and when its death is proven."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil

__all__ = ["owner_is_dead", "owner_name", "process_identity"]

HOST_PID_NAMESPACE = "pid:[4026531836]"  # Linux numbers the first one so


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


def owner_name(owner: dict[str, Any]) -> str:
    """An owner in words."""
    return f"process {owner.get('pid', '?')} on {owner.get('host', 'an unknown host')}"


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
