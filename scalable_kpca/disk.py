"""Files and directories: in their place, on the disk for certain, and how much of it they take."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["put", "remove_tree", "sync", "sync_tree", "tree_bytes"]


def put(staging: Path, place: Path) -> None:
    """Rename a file of ours to its place and flush that, also where a directory has got its name."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    staging.replace(place)
    sync(place.parent)


def remove_tree(root: Path) -> None:
    """Remove a directory of our own, or whatever stands in its place, that is not or no longer committed."""
    if root.is_dir() and not root.is_symlink():
        shutil.rmtree(root)
    else:
        root.unlink(missing_ok=True)


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
