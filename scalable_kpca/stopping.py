"""Being told to stop: a command ends with exit code 75 within ten seconds, or when LAPACK returns."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["GRACE_SECONDS", "INTERRUPTED", "leaving_when_told", "terminable"]

INTERRUPTED = 75
GRACE_SECONDS = 7.0  # to unwind: a running task ends by itself in about one
IN_THE_MIDDLE = "stopped in the middle of a computation; the same command resumes."
STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGINT are interrupts while a command runs: work is kept, locks are released, exit code 75.

    Notes
    -----
    Python hears a signal between two of its own instructions, and one of them may be a long product or wait for a task.
    The system itself writes to a socket when the signal comes; a thread reads it there, waits for the command to
    unwind, and ends the process after `GRACE_SECONDS`: what is on the disk is as good as after a kill, and the lock is
    given back. scipy's LAPACK lets no other thread run, and both are late by it. [docs/decisions/0019]
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what signals do
        return
    told, tells = socket.socketpair()
    told.setblocking(True)
    tells.setblocking(False)
    before = {number: signal.signal(number, _interrupt) for number in STOPS}
    old = signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    ended = threading.Event()
    threading.Thread(target=_watch, args=(told, ended), name="skpca-stop", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            if signal.getsignal(number) is not _once_more or handler is not _leave:
                signal.signal(number, handler)
        tells.close()


@contextmanager
def leaving_when_told() -> Iterator[None]:
    """SIGTERM and SIGINT end this process with their exit code also where no command runs; it ends with the block.

    Afterwards they are not heard: of an interpreter that takes itself apart the system would kill the process.
    """
    for number in STOPS:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)


def _leave(number: int, frame: object) -> None:
    del number, frame
    raise SystemExit(INTERRUPTED)


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    for stop in STOPS:
        signal.signal(stop, _once_more)
    raise KeyboardInterrupt


def _once_more(number: int, frame: object) -> None:
    """One is enough: a second one must not stop what the first one lets unwind."""


def _watch(told: socket.socket, ended: threading.Event) -> None:
    with told:
        while number := told.recv(1):
            if number[0] in STOPS:
                if not ended.wait(GRACE_SECONDS):
                    _end()
                return


def _tell() -> None:
    """Tell who watches this command that it was stopped, where that takes no longer than a second."""
    monitoring = sys.modules.get("scalable_kpca.workflow.monitoring")  # importing might wait for what hangs
    if monitoring is not None:
        told = threading.Thread(target=monitoring.end_watches, args=(INTERRUPTED, IN_THE_MIDDLE), daemon=True)
        told.start()
        told.join(1)


def _end() -> None:
    """End this process and what it has started, now."""
    try:
        import psutil

        from scalable_kpca.workflow.lease import abandon_leases
        from scalable_kpca.workflow.lock import abandon_locks

        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended by itself meanwhile
                child.kill()
        abandon_locks()
        abandon_leases()
        sys.stderr.write(f"Error: {IN_THE_MIDDLE}\n")
        sys.stderr.flush()
        _tell()
    finally:
        os._exit(INTERRUPTED)
