"""Files that other processes read: whole or absent, never half, and on the disk before anything says so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scalable_kpca.disk import sync
from scalable_kpca.errors import StorageError

__all__ = ["file_digest", "file_states", "read_json", "remove_file", "remove_tree", "write_json"]


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a JSON value, atomically and durably."""
    staging = path.with_name(f".{path.name}.{os.getpid()}.new")
    with staging.open("w") as stream:
        json.dump(value, stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    staging.replace(path)
    sync(path.parent)


def read_json(path: Path) -> Any:
    """JSON value of a file, None when there is no file; StorageError when it is damaged."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged: {error}; remove it and run again.") from error


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_states(paths: Iterable[str]) -> list[list[int]]:
    """What changes whenever one of some files, or of files in directories, is written or replaced: size, times, inode.

    A pass that was cut off has read what was there then, which a digest of what is there now says nothing about.
    """
    places = [Path(path) for path in paths]
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    states = [file.stat() for file in files if file.exists()]  # who reads one that is gone says so
    return [[state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino] for state in states]


def remove_tree(root: Path) -> None:
    """Remove a directory of our own, or whatever stands in its place, that is not or no longer committed."""
    if root.is_dir() and not root.is_symlink():
        shutil.rmtree(root)
    else:
        root.unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file, or whatever stands in its place, so that it stays removed after a crash."""
    remove_tree(path)
    sync(path.parent)
