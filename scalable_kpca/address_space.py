"""What ``ulimit -v`` and ``-d`` allow: they count addresses, of which libraries and threads take many and use few.

A process that comes to that limit ends in ways that nothing can name: a thread that dies while it starts is waited for
without end, BLAS ends the process, a library is said not to be there. So it is seen before whether there is enough.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path

from scalable_kpca.errors import MemoryLimitError

__all__ = ["check_addresses", "free_addresses", "spare_addresses"]

# Measured with `spare_addresses` on two processors: small jobs end well with 650 MiB and not with 600 MiB, of which
# 180 MiB are resident; when they are planned, 380 MiB of what is mapped are not.
LIBRARY_BYTES = 480 * 2**20  # mapped and never resident, of a process with every import of a run
LATER_BYTES = 128 * 2**20  # of them after the plan
PROCESSOR_BYTES = 32 * 2**20  # for each processor: stacks of the threads that BLAS, pyarrow and zarr start
THREAD_BYTES = 48 * 2**20  # for each task that runs beside others: a stack, and what BLAS sets aside for its thread
START_BYTES = 256 * 2**20  # resident size of a small job

M_ARENA_MAX, ARENAS = -8, 2  # of glibc: every thread would have 64 MiB of addresses set aside for it


def spare_addresses() -> None:
    """Where addresses are limited, have pyarrow and the allocator set few of them aside; before they are imported."""
    if _limit()[0] == sys.maxsize:
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # the one it has by default begins with a GiB
    os.environ.setdefault("MALLOC_ARENA_MAX", str(ARENAS))  # of processes that this one starts
    try:
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
    except (AttributeError, OSError, TypeError):  # it is not glibc's
        return


def check_addresses(what: str, peak: int = START_BYTES, n_threads: int | None = None, *, remedy: str = "") -> None:
    """See that a process may map what it is going to.

    Parameters
    ----------
    what : str
        Is going to, for the message.
    peak : int
        Bytes of memory that it is planned to use.
    n_threads : int, optional
        Tasks that run beside one another in it; as many as there are processors by default.
    remedy : str
        What else helps.

    Raises
    ------
    MemoryLimitError
        Naming the smallest limit that is accepted.
    """
    limit, name = _limit()
    needed = peak + _idle(n_threads)
    if needed > limit:
        kib = -(-needed // 2**20) * 2**10
        raise MemoryLimitError(
            f"{name} allows this process {limit // 2**20} MiB of addresses, and {what} needs {kib // 2**10} MiB: "
            f"{-(-peak // 2**20)} MiB of memory, and what libraries and threads set aside; raise it ({name} {kib})"
            f"{remedy}.",
            needed,
        )


def free_addresses() -> int:
    """Bytes of memory that the limit leaves this process, those included that it uses already."""
    limit, _ = _limit()
    return sys.maxsize if limit == sys.maxsize else max(0, limit - _idle())


def _limit() -> tuple[int, str]:
    """Bytes that may be mapped, and what says so; what is to be written to, which -d counts, is nearly all of it."""
    names = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
    limits = [(resource.getrlimit(kind)[0], name) for name, kind in names.items()]
    return min((sys.maxsize if limit == resource.RLIM_INFINITY else limit, name) for limit, name in limits)


def _idle(n_threads: int | None = None) -> int:
    """Bytes that are mapped and never resident, now and later."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = THREAD_BYTES * (processors if n_threads is None else n_threads)
    return threads + max(LIBRARY_BYTES + PROCESSOR_BYTES * processors, LATER_BYTES + _idle_now())


def _idle_now() -> int:
    try:
        mapped, resident = map(int, Path("/proc/self/statm").read_text().split()[:2])
    except (OSError, ValueError):
        return 0
    return (mapped - resident) * resource.getpagesize()
