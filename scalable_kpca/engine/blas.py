"""How many threads BLAS has in this process: one for every task, several for LAPACK between them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["several_blas_threads", "single_threaded_blas"]

_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: Any = None
_scanned: tuple[int, ThreadpoolController] | None = None


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread in this process until the last user leaves.

    Notes
    -----
    The limit belongs to the process, not to a task: a limit set and restored by concurrent tasks lifts the others'.
    Tasks are the parallelism here, and one thread a product also makes its bits independent of the machine's load.
    """
    import numpy  # noqa: F401 - a library is limited only when it is loaded
    import scipy.linalg  # noqa: F401

    global _blas_users, _blas_limit
    with _blas_lock:
        _blas_users += 1
        if _blas_users == 1:
            _blas_limit = _libraries().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0 and _blas_limit is not None:
                _blas_limit.restore_original_limits()
                _blas_limit = None


@contextmanager
def several_blas_threads(n_threads: int) -> Iterator[None]:
    """Lift the limit of the one user of `single_threaded_blas` to `n_threads`, while nothing else computes.

    Notes
    -----
    For LAPACK in the thread that has opened the engine, between passes. Who else wants to compute in this process waits
    meanwhile; where somebody computes already the limit stays, since it is theirs too. [docs/decisions/0016]
    """
    with _blas_lock:
        is_alone = _blas_users == 1 and n_threads > 1
        with _libraries().limit(limits=n_threads, user_api="blas") if is_alone else nullcontext():
            if is_alone:
                yield
                return
    yield


def _libraries() -> ThreadpoolController:
    """The libraries of this process; looked for again after imports, which alone load more: that takes milliseconds."""
    global _scanned
    if _scanned is None or _scanned[0] != len(sys.modules):
        # the scan may import something itself: counted before, it is made once more then, and never too rarely
        _scanned = len(sys.modules), ThreadpoolController()
    return _scanned[1]
