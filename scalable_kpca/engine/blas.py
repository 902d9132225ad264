"""One BLAS thread per task, for the whole process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

__all__ = ["single_threaded_blas"]

_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: threadpool_limits | None = None


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
            _blas_limit = threadpool_limits(1, user_api="blas")
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0 and _blas_limit is not None:
                _blas_limit.restore_original_limits()
                _blas_limit = None
