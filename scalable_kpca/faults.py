"""One answer to every error that is not named: does it pass by itself, is something damaged, or is it for good?"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Any, Literal

from scalable_kpca.errors import BusyError, CorruptTileError, KernelPCAError, StorageError

__all__ = ["ATTEMPTS", "LONGEST_WAIT", "attempt", "classify", "is_loss", "lacks_memory"]

logger = logging.getLogger(__name__)

ATTEMPTS = 6  # of a task, in all
LONGEST_WAIT = 8.0  # seconds between two of them; less than 30 in all

# What a system says of a moment: too many of something, a server that restarts, a connection that broke.
PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *("EAGAIN", "EBUSY", "EINTR", "EMFILE", "ENFILE", "ENOBUFS", "ESTALE", "ETIMEDOUT", "ECONNRESET"),
        *("ECONNABORTED", "ECONNREFUSED", "ENETDOWN", "ENETRESET", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH"),
        *("EREMOTEIO", "ENOLCK"),
    )
    if hasattr(errno, name)
)
# What it says of contents that are lost. Whatever else (no permission, no room), they may be whole, and are not to be
# thrown away.
LOST = frozenset((errno.EIO, errno.EBADMSG, errno.EISDIR, errno.ENOTDIR, errno.ENOENT))

Kind = Literal["transient", "damage", "permanent"]


def classify(error: BaseException) -> Kind:
    """Kind of an error: of the first operating system error among it and its causes.

    Returns
    -------
    {"transient", "damage", "permanent"}
        Worth another attempt; contents that have to be made again; no use to try again.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CorruptTileError):
            return "damage"
        if isinstance(cause, BusyError):
            return "transient"
        if isinstance(cause, KernelPCAError) and not isinstance(cause, StorageError):
            return "permanent"  # it has been judged, whatever led to it
        if isinstance(cause, OSError):
            if isinstance(cause, TimeoutError) or cause.errno in PASSING:
                return "transient"
            if cause.errno is not None:
                return "damage" if cause.errno in LOST else "permanent"
        cause = cause.__cause__
    return "permanent"


def is_loss(error: OSError) -> bool:
    """Whether a read error means that the contents are lost; one without a number is ours or zarr's, about contents."""
    return error.errno is None or error.errno in LOST


def lacks_memory(error: BaseException | None) -> bool:
    """Whether there was no memory, or none for a thread or for a library, by what an error says or came from."""
    while error is not None:
        no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
        no_library = isinstance(error, ImportError) and "failed to map segment" in str(error)
        no_room = isinstance(error, OSError) and error.errno == errno.ENOMEM
        if no_thread or no_library or no_room or isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def attempt(task: Callable[..., Any], *arguments: Any) -> Any:
    """The value of a task; one that fails by what passes by itself is tried again, each time after a longer wait.

    Notes
    -----
    Tasks may be run twice: they write under names of their own and rename. The waits are random, so that tasks that
    failed together do not come back together.
    """
    try:
        return task(*arguments)
    except Exception as error:
        if classify(error) != "transient":
            raise
    from tenacity import Retrying, before_sleep_log, retry_if_exception, stop_after_attempt, wait_random_exponential

    retrying = Retrying(
        stop=stop_after_attempt(ATTEMPTS - 1),
        wait=wait_random_exponential(multiplier=0.25, max=LONGEST_WAIT),
        retry=retry_if_exception(lambda error: classify(error) == "transient"),
        before_sleep=before_sleep_log(logger, logging.WARNING),
        reraise=True,
    )
    return retrying(task, *arguments)
