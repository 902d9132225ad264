"""Named errors: each is also the built-in that its caller would expect, and knows its exit code."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = [
    "AccuracyWarning",
    "BusyError",
    "ClusterError",
    "CommandError",
    "ConfigError",
    "CorruptTileError",
    "IncompleteGramError",
    "InvalidInputError",
    "KernelPCAError",
    "LockedError",
    "MemoryLimitError",
    "ModelFormatError",
    "NotConvergedError",
    "NotFiniteError",
    "RetryableError",
    "RowError",
    "StorageError",
    "UnreadableError",
    "storage_errors",
]


class AccuracyWarning(UserWarning):
    """The result is certified, but only to few digits."""


class KernelPCAError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes
    ----------
    exit_code : int
        What `skpca` exits with when the error ends a command.
    """

    exit_code: int = 70


class InvalidInputError(KernelPCAError, ValueError):
    """The rows, a kernel parameter or a request does not make sense; nothing was written."""

    exit_code = 65


class RowError(InvalidInputError):
    """A row has an entry that cannot be used.

    Parameters
    ----------
    row : int
        Number of the first such row, from 0.
    text : str
        Which entry it is, and what to do.
    place : str
        Where the row is, when that is known: " of PATH".
    """

    def __init__(self, row: int, text: str, place: str = "") -> None:
        super().__init__(row, text, place)
        self.row, self.text, self.place = row, text, place

    def __str__(self) -> str:
        return f"row {self.row}{self.place}, {self.text}"


class NotFiniteError(RowError):
    """A row has an entry that is NaN or infinite.

    Parameters
    ----------
    row : int
        Number of the first such row, from 0.
    text : str
        Which entry it is, and what to do.
    place : str
        Where the row is, when that is known.
    """


class NotConvergedError(KernelPCAError, ArithmeticError):
    """The eigensolver stopped before every pair reached its tolerance, or a larger eigenvalue shows beside them.

    Parameters
    ----------
    message : str
        What was reached, and the remedy.
    result : optional
        What was found all the same: an `EigenResult` from a solver, a `Model` with its certificate from a fit.
    """

    exit_code = 65

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class ClusterError(KernelPCAError, ConnectionError):
    """The Dask scheduler cannot be reached, or its workers died too often."""

    exit_code = 69


class StorageError(KernelPCAError, OSError):
    """A file cannot be written, read or trusted."""

    exit_code = 74


class UnreadableError(StorageError):
    """The system does not let a file be read now: what it holds may be whole, and is not to be made again."""


class BusyError(StorageError):
    """A server of objects does not answer, or asks to be left alone, for now."""

    exit_code = 75


class ModelFormatError(KernelPCAError, ValueError):
    """A directory is not a saved model, or not one of a format this version reads."""

    exit_code = 74


class LockedError(KernelPCAError, BlockingIOError):
    """Another live process is writing to the same output."""

    exit_code = 75


class ConfigError(KernelPCAError, ValueError):
    """A configuration, or a combination of options, cannot be carried out."""

    exit_code = 78


class MemoryLimitError(KernelPCAError, MemoryError):
    """The memory limit cannot hold the smallest plan; the message names the smallest limit that can.

    Parameters
    ----------
    message : str
        What was needed, and by what.
    needed : int
        That limit, bytes.
    """

    exit_code = 78

    def __init__(self, message: str, needed: int = 0) -> None:
        super().__init__(message)
        self.needed = needed


class CommandError(KernelPCAError, RuntimeError):
    """A command that was started in a process of its own has failed, and would again.

    Parameters
    ----------
    message : str
        How it ended, and its last words.
    exit_code : int
        Its own, negative when a signal has killed it.
    """

    exit_code = 65

    def __init__(self, message: str, exit_code: int = exit_code) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RetryableError(KernelPCAError, RuntimeError):
    """The same of a command that may succeed when it is started again, later.

    Parameters
    ----------
    message : str
        What the command has said.
    exit_code : int
        Of the command.
    """

    exit_code = 75

    def __init__(self, message: str, exit_code: int = exit_code) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class IncompleteGramError(KernelPCAError, LookupError):
    """Tiles of a stored Gram matrix were never committed.

    Parameters
    ----------
    path : str
        The store.
    missing : tuple of (int, int)
        Block coordinates (i, j), i ≤ j, of the missing tiles.
    n_tiles : int
        How many tiles the whole store has.
    """

    exit_code = 75

    def __init__(self, path: str, missing: tuple[tuple[int, int], ...], n_tiles: int) -> None:
        super().__init__(path, missing, n_tiles)
        self.path, self.missing, self.n_tiles = path, missing, n_tiles

    def __str__(self) -> str:
        named = ", ".join(str(tile) for tile in self.missing[:8])
        more = f" and {len(self.missing) - 8} more" if len(self.missing) > 8 else ""
        return (
            f"{self.path} holds {self.n_tiles - len(self.missing)} of {self.n_tiles} tiles, missing {named}{more}; "
            "run the same command again to finish: nothing committed is recomputed."
        )


class CorruptTileError(KernelPCAError, OSError):
    """A stored tile does not decode, or does not reproduce its stored row sums.

    Parameters
    ----------
    i, j : int
        Block coordinates of the tile, i ≤ j.
    path : str
        The file or object that holds it.
    reason : str
        What was found.
    """

    exit_code = 74

    def __init__(self, i: int, j: int, path: str, reason: str) -> None:
        super().__init__(i, j, path, reason)
        self.i, self.j, self.path, self.reason = i, j, path, reason

    def __str__(self) -> str:
        return (
            f"tile ({self.i}, {self.j}) in {self.path} is damaged: {self.reason}; run the same command again: only "
            "damaged and missing tiles are computed again."
        )


@contextmanager
def storage_errors(what: str, place: Path | None = None) -> Iterator[None]:
    """Turn the operating system's refusal into a StorageError: what was being done, why not, what to do about it.

    Parameters
    ----------
    what : str
        Such as "writing PATH".
    place : Path, optional
        Of the file, where a library does not say it.

    Yields
    ------
    None
        For the block that reads or writes.

    Raises
    ------
    StorageError
        For an OSError; errors that are named already pass.
    """
    try:
        yield
    except KernelPCAError:
        raise
    except OSError as error:
        reason = str(error) if error.errno is None else os.strerror(error.errno)
        named = f" ({error.filename})" if error.filename else ""
        raise StorageError(
            f"{what} failed: {reason}{named}; {_remedy(error, place)}, and run the same command again: nothing "
            "finished is done twice."
        ) from error


_REMEDIES = {
    **dict.fromkeys((errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR), "remove what has the name already"),
    **dict.fromkeys((errno.ECONNRESET, errno.ETIMEDOUT, errno.ESTALE), "see that its server is there"),
    errno.EACCES: "correct its permissions",
    errno.EDQUOT: "make room within the quota or have it raised",
    errno.EIO: "look at the disk and at the system's log",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ENOTDIR: "correct the path: something in it is a file and no directory",
    errno.ENOENT: "correct the path, and see that nothing else moves or removes what is there",
    errno.ENFILE: "close files of other programs, as the whole system has too many open",
    errno.ENOMEM: "let the process have more memory (ulimit -v, the control group)",
    errno.EPERM: "correct its permissions",
    errno.EROFS: "mount the file system for writing or choose another one",
}


def _remedy(error: OSError, place: Path | None) -> str:
    """What helps against a refusal of the operating system."""
    if error.errno == errno.ENOSPC:
        path = Path(error.filename) if isinstance(error.filename, str) else place
        return "remove files: it has no inodes left" if path and _has_no_inodes(path) else "make room"
    if error.errno == errno.EFBIG:
        return f"let files be larger than {resource.getrlimit(resource.RLIMIT_FSIZE)[0]} bytes (ulimit -f)"
    if error.errno == errno.EMFILE:
        return f"let more than {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} files be open (ulimit -n)"
    return _REMEDIES.get(error.errno or 0, "make room or correct the path and its permissions")


def _has_no_inodes(path: Path) -> bool:
    """Whether the file system of a path counts its files, and has no room for one more."""
    try:
        state = os.statvfs(next(place for place in (path, *path.absolute().parents) if place.exists()))
    except OSError:
        return False
    return state.f_files > 0 and state.f_favail == 0
