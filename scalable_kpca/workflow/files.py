"""Files that other processes read: whole or absent, never half, and on the disk before anything says so."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import math
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalable_kpca.disk import put, remove_tree, sync
from scalable_kpca.documents import format_json
from scalable_kpca.documents import read_json as read_plain_json
from scalable_kpca.errors import StorageError, UnreadableError, storage_errors
from scalable_kpca.faults import is_loss
from scalable_kpca.objects import is_object, object_state

__all__ = [
    "alone_in",
    "append_line",
    "file_digest",
    "file_states",
    "make_private",
    "read_json",
    "remove_file",
    "replace_file",
    "replace_page",
    "write_json",
]

LOCK_SECONDS = 1.0


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a JSON value, atomically and durably; numbers that are not finite become null.

    Raises
    ------
    StorageError
        When it is longer than what `read_json` takes.
    """
    try:
        text = format_json(_finite(value))
    except ValueError as error:
        raise StorageError(f"{path} cannot be written: {error}; use fewer, larger parts.") from error
    with storage_errors(f"writing {path}", path):
        put(_staged(path, text), path)


def replace_file(path: Path, text: str, mode: int | None = None) -> None:
    """Replace a file by a text, atomically and durably; OSError when that fails, which leaves what was there.

    `mode` is that of the new file; without one it has what the umask says.
    """
    staging = _staged(path, text, mode)
    try:
        staging.replace(path)
    except OSError:  # a directory has the name: it is not ours
        staging.unlink()
        raise
    sync(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, durably, whatever became of the one before; OSError when there is no room for all of it.

    Notes
    -----
    One call writes it, to the end that the file has then: lines of several processes do not mix, and a process that is
    killed has written it or not. Where a last line is broken off all the same, the next one begins below it.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        alone = _lock(descriptor)
        size = os.fstat(descriptor).st_size
        broken = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        content = (b"\n" if broken else b"") + line.encode() + b"\n"
        written = os.write(descriptor, content)
        if written < len(content):
            if alone:
                os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if size == 0:
        sync(path.parent)


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, for as long as it takes to replace a file in it by what follows from itself."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def replace_page(path: Path, text: str) -> None:
    """Replace a file by a text, atomically and durably; only its owner may read it, unless an earlier one was opened.

    Raises
    ------
    StorageError
        When it cannot be written, or its place is taken by a directory.
    """
    with storage_errors(f"writing {path}", path):
        replace_file(path, text, stat.S_IMODE(path.stat().st_mode) if path.is_file() else 0o600)


def read_json(path: Path) -> Any:
    """JSON value of a file, None when there is no file; see `documents.read_json`.

    Raises
    ------
    UnreadableError
        When the system refuses.
    StorageError
        When it is damaged.
    """
    try:
        return read_plain_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        reason = error.strerror or error
        if is_loss(error) or error.errno in (errno.ELOOP, errno.EINVAL):  # the last two are ours: no file of its own
            raise StorageError(f"{path} is damaged: {reason}; remove it and run again.") from error
        raise UnreadableError(f"{path} cannot be read now: {reason}; run again when it can.") from error
    except ValueError as error:
        raise StorageError(f"{path} is damaged: {error}; remove it and run again.") from error


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal; StorageError for a link, which may lead anywhere."""
    if path.is_symlink():
        raise StorageError(f"{path} is a link, which is not followed; remove it and run again.")
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_states(paths: Iterable[str]) -> list[list[Any]]:
    """What changes whenever one of some files, or of files in directories, is written or replaced: size, times, inode.

    Of an object: size, ETag, time.

    A pass that was cut off has read what was there then, which a digest of what is there now says nothing about.
    """
    return [state for path in paths for state in (_object_states if is_object(path) else _local_states)(path)]


def _object_states(uri: str) -> list[list[Any]]:
    state = object_state(uri)
    return [] if state is None else [state]


def _local_states(path: str) -> list[list[Any]]:
    place = Path(path)
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    states = [file.stat() for file in files if file.exists()]  # who reads one that is gone says so
    return [[state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino] for state in states]


def remove_file(path: Path) -> None:
    """Remove a file, or whatever stands in its place, so that it stays removed after a crash."""
    remove_tree(path)
    sync(path.parent)


def make_private(run: Path) -> None:
    """Make the directory of a run, ``OUT/runs/<fingerprint>``, which nobody else may look into, and flush its name.

    Raises
    ------
    StorageError
        When it cannot be made. Links are refused by `Output.run`, which names it.
    """
    output = run.parents[1]
    with storage_errors(f"creating {output}"):
        output.mkdir(parents=True, exist_ok=True)
        for place in (run.parent, run):
            place.mkdir(mode=0o700, exist_ok=True)
            sync(place.parent)


def _lock(descriptor: int) -> bool:
    """Lock a file of ours or its directory until it is closed; False after a second, and where there are no locks."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK or time.monotonic() > deadline:
                return False
        else:
            return True
        time.sleep(0.01)


def _staged(path: Path, text: str, mode: int | None = None) -> Path:
    """A file beside a place, flushed, that is to be renamed to it; what fails leaves none where that is possible."""
    staging = path.with_name(f".{path.name}.{os.getpid()}.new")
    staging.unlink(missing_ok=True)  # never through a link that has its name
    with staging.open("x", encoding="utf-8") as stream:
        try:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)  # before there is anything to read
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                staging.unlink()
            raise
    return staging


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
