"""Files that other processes read: whole or absent, never half, and on the disk before anything says so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from scalable_kpca.errors import StorageError

__all__ = ["file_digest", "read_json", "remove_tree", "sync_tree", "write_json"]


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a JSON value, atomically and durably."""
    staging = path.with_name(f".{path.name}.{os.getpid()}.new")
    with staging.open("w") as stream:
        json.dump(value, stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    staging.replace(path)
    _sync(path.parent)


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


def sync_tree(root: Path) -> None:
    """Flush every file and directory below `root` to the disk."""
    for directory, _, names in os.walk(root):
        for name in names:
            _sync(Path(directory, name))
        _sync(Path(directory))


def remove_tree(root: Path) -> None:
    """Remove a directory of our own that was never committed."""
    shutil.rmtree(root, ignore_errors=False) if root.exists() else None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
