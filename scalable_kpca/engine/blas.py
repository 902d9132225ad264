"""How many threads BLAS has in this process: one for every task, several for LAPACK between them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["blas_architecture", "several_blas_threads", "single_threaded_blas"]


class _State:
    """Who uses BLAS in this process: changed under the lock, which nobody holds while something computes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.is_lifted = False
        self.originals: list[tuple[Any, int]] = []  # libraries that are limited, and their threads before

    def after_fork(self) -> None:
        """In a child of fork nobody computes; threads that held the lock are gone, and limits are still set."""
        self.lock, self.users, self.is_lifted = threading.Lock(), 0, False


_state = _State()
os.register_at_fork(after_in_child=_state.after_fork)
_scanned: tuple[int, ThreadpoolController] | None = None


def blas_architecture() -> str:
    """Processors that BLAS of this process computes for, such as Haswell: for others it rounds in other places."""
    import numpy  # noqa: F401 - a library is known only when it is loaded
    import scipy.linalg  # noqa: F401

    found = {library.get("architecture") or library["internal_api"] for library in _libraries().info()}
    return ", ".join(sorted(found))


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread in this process until the last user leaves, whichever threads they are.

    Notes
    -----
    The limit belongs to the process, not to a task: a limit set and restored by concurrent tasks lifts the others'.
    Tasks are the parallelism here, and one thread a product also makes its bits independent of the machine's load.
    """
    import numpy  # noqa: F401 - a library is limited only when it is loaded
    import scipy.linalg  # noqa: F401

    with _state.lock:
        _state.users += 1
        if _state.users == 1 and not _state.originals:
            _state.originals = [(library, library.num_threads) for library in _libraries().lib_controllers]
        if _state.users == 1 or _state.is_lifted:
            _set_threads(1)
    try:
        yield
    finally:
        with _state.lock:
            _state.users -= 1
            if _state.users == 0:
                _set_threads(None)
                _state.originals = []


@contextmanager
def several_blas_threads(n_threads: int) -> Iterator[None]:
    """Lift the limit of the one user of `single_threaded_blas` to `n_threads`, while nothing else computes.

    Notes
    -----
    For LAPACK in the thread that has opened the engine, between passes. Where somebody else computes in this process
    the limit stays, since it is theirs too; it comes back when somebody begins. [docs/decisions/0016]
    """
    with _state.lock:
        lifts = _state.users == 1 and n_threads > 1 and not _state.is_lifted
        if lifts:
            _state.is_lifted = True
            _set_threads(n_threads)
    try:
        yield
    finally:
        if lifts:
            with _state.lock:
                _state.is_lifted = False
                _set_threads(1)


def _set_threads(n_threads: int | None) -> None:
    """Set every library that is limited to so many threads, None for what it had.

    In a thread of its own, which ends: since threadpoolctl 3.8 OpenBLAS obeys the first thread that sets a limit for as
    long as it lives, and nobody else, while users of BLAS begin and end here in any thread. Where the caller itself has
    set a limit, it is the caller who is obeyed.
    """
    wanted = [(library, original if n_threads is None else n_threads) for library, original in _state.originals]

    def change() -> None:
        for library, number in wanted:
            library.set_num_threads(number)

    thread = threading.Thread(target=change, name="skpca-blas")
    thread.start()
    thread.join()
    if any(library.num_threads != number for library, number in wanted):
        change()


def _libraries() -> ThreadpoolController:
    """BLAS of this process; looked for again after imports, which alone load more: that takes milliseconds."""
    global _scanned
    if _scanned is None or _scanned[0] != len(sys.modules):
        # the scan may import something itself: counted before, it is made once more then, and never too rarely
        _scanned = len(sys.modules), ThreadpoolController().select(user_api="blas")
    return _scanned[1]
