"""Files and directories: whether they have reached the disk, and how much of it they take."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync", "sync_tree", "tree_bytes"]


def sync_tree(root: Path) -> None:
    """Flush every file and directory below `root` to the disk."""
    for directory, _, names in os.walk(root):
        for name in names:
            sync(Path(directory, name))
        sync(Path(directory))


def sync(path: Path) -> None:
    """Flush one file or directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tree_bytes(root: Path) -> int:
    """Bytes of all files below a directory; 0 when it is not there."""
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
