"""What this process may use: processors and memory, as the system and its control groups allow; and libraries."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from dask.utils import parse_bytes

from scalable_kpca.address_space import free_addresses
from scalable_kpca.disk import tree_bytes
from scalable_kpca.errors import ConfigError

__all__ = [
    "available_memory",
    "available_processors",
    "cache_directory",
    "disk_room",
    "installed_version",
    "peak_memory",
    "release_memory",
    "resolve_memory_limit",
    "resolve_threads",
]

MEMORY_SHARE = 0.6  # of what the process may have, when no limit is given


def cache_directory() -> Path | None:
    """Ours below ``$XDG_CACHE_HOME``, or ``~/.cache``, whether it is there or not; None for a user without a home."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return root / "scalable_kpca"


def available_processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Bytes of memory that this process may have: the machine's, or less by a control group or by ``ulimit``."""
    total = int(psutil.virtual_memory().total)
    for place in _control_groups():
        try:
            total = min(total, int(place.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(total, free_addresses())


def _control_groups() -> Iterator[Path]:
    """Files with the limit of the control group of this process and of those around it, in both versions."""
    root = Path("/sys/fs/cgroup")
    yield root / "memory.max"
    yield root / "memory" / "memory.limit_in_bytes"
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        version_2 = not controllers
        if not version_2 and "memory" not in controllers.split(","):
            continue
        below = Path(path.lstrip("/"))
        for group in (below, *below.parents):
            yield root / group / "memory.max" if version_2 else root / "memory" / group / "memory.limit_in_bytes"


def installed_version(name: str) -> str:
    """Version of a distribution; "unknown" for one without metadata, such as a bare source tree on the path."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def peak_memory() -> int | None:
    """Most memory that this process has had so far, bytes, libraries included; None where the system does not say.

    It is that of this program alone: ``ru_maxrss`` would begin with that of the process that started it.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def release_memory() -> None:
    """Give back to the system what the allocator keeps of freed blocks; nothing where it is not glibc's.

    glibc keeps blocks of up to 32 MiB in the arena of the thread that freed them: those of wide rows, some 100 MiB on
    two threads, would lie beside what the next stage needs. Cost: well below a millisecond.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def disk_room(directory: Path, reusable: str) -> int:
    """Bytes that tiles may take in a directory: what its file system has free, and what earlier work takes already.

    Parameters
    ----------
    directory : Path
        It need not exist yet.
    reusable : str
        Glob, relative to the directory, of stores that the new work would use or replace.
    """
    existing = next(place for place in (directory, *directory.absolute().parents) if place.is_dir())
    stores = directory.glob(reusable) if directory.is_dir() else iter(())
    return shutil.disk_usage(existing).free + sum(map(tree_bytes, stores))


def resolve_memory_limit(limit: int | str | None) -> int:
    """Bytes of a limit given as a number, as text such as ``"700MiB"``, or not at all (60 % of what is available).

    Raises
    ------
    ConfigError
        When the text is not a size or the number not positive.
    """
    if limit is None:
        return int(MEMORY_SHARE * available_memory())
    try:
        size = 0 if isinstance(limit, bool) else int(parse_bytes(limit) if isinstance(limit, str) else limit)
    except (OverflowError, TypeError, ValueError):
        size = 0
    if size <= 0:
        raise ConfigError(f'memory_limit={limit!r} is not a size; give bytes or text such as "4GiB".')
    return size


def resolve_threads(n_jobs: int | None) -> int:
    """Number of threads for scikit-learn's `n_jobs`: None and −1 are all processors, −2 all but one.

    Raises
    ------
    ConfigError
        For zero.
    """
    processors = available_processors()
    if n_jobs is None:
        return processors
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise ConfigError(f"n_jobs={n_jobs!r}; a positive or negative integer, or None for all processors, is needed.")
    n_jobs = int(n_jobs)
    return n_jobs if n_jobs > 0 else max(1, processors + 1 + n_jobs)
