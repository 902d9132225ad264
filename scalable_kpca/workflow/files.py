"""Files that other processes read: whole or absent, never half, and on the disk before anything says so."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scalable_kpca.disk import put, remove_tree, sync
from scalable_kpca.documents import format_json
from scalable_kpca.documents import read_json as read_plain_json
from scalable_kpca.errors import StorageError, UnreadableError, storage_errors
from scalable_kpca.faults import is_loss
from scalable_kpca.source.objects import object_state
from scalable_kpca.source.places import is_object

__all__ = ["file_digest", "file_states", "make_private", "read_json", "remove_file", "replace_page", "write_json"]


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
    staging = path.with_name(f".{path.name}.{os.getpid()}.new")
    with storage_errors(f"writing {path}", path):
        staging.unlink(missing_ok=True)  # never through a link that has its name
        with staging.open("x") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        put(staging, path)


def replace_page(path: Path, text: str) -> None:
    """Replace a file by a text, atomically and durably; only its owner may read it, unless an earlier one was opened.

    Raises
    ------
    StorageError
        When it cannot be written, or its place is taken by a directory.
    """
    staging = path.with_name(f".{path.name}.{os.getpid()}.new")
    with storage_errors(f"writing {path}", path):
        mode = stat.S_IMODE(path.stat().st_mode) if path.is_file() else 0o600
        staging.unlink(missing_ok=True)
        try:
            descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
            staging.replace(path)
        except BaseException:
            staging.unlink(missing_ok=True)
            raise
        sync(path.parent)


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
    except FileNotFoundError:
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


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
