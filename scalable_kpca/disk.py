"""Files and directories: in their place, on the disk for certain, and how much of it they take."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "locked",
    "locked_where_possible",
    "new_directory",
    "put",
    "remove_tree",
    "scratch_directory",
    "sync",
    "sync_tree",
    "tree_bytes",
]


def put(staging: Path, place: Path) -> None:
    """Rename a file of ours to its place and flush that, also where a directory has got its name."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    staging.replace(place)
    sync(place.parent)


@contextmanager
def new_directory(place: Path) -> Iterator[Path]:
    """A directory beside a place that gets its name when it is full and on the disk; what fails leaves nothing.

    Raises
    ------
    OSError
        When something that is no empty directory has the name by then.

    Notes
    -----
    Each has a name of its own and holds a lock of the kernel on it, which ends with its process: whoever comes later
    removes what killed ones left, and nothing that is still being filled.
    """
    with _staging(place) as staging:
        yield staging
        sync_tree(staging)
        staging.rename(place)
        sync(place.parent)


@contextmanager
def scratch_directory(place: Path) -> Iterator[Path]:
    """A directory beside a place, for its owner only, that is gone at the end; see `new_directory`."""
    with _staging(place, mode=0o700) as staging:
        yield staging


@contextmanager
def _staging(place: Path, mode: int = 0o777) -> Iterator[Path]:
    place.parent.mkdir(parents=True, exist_ok=True)
    ours = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{32}}\.new")
    for leftover in place.parent.iterdir():
        if ours.fullmatch(leftover.name):
            with contextlib.suppress(OSError), locked(leftover):  # refused: another process fills it, or who knows
                shutil.rmtree(leftover)
    staging = place.with_name(f".{place.name}.{uuid.uuid4().hex}.new")
    staging.mkdir(mode)
    with locked_where_possible(staging):
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)  # unless it has been renamed


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """A lock of the kernel on a file or directory, which ends with its process; OSError where somebody else has it."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def locked_where_possible(place: Path) -> Iterator[None]:
    """The same for a place of our own, or no lock on a file system without: nobody else gets one there either."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            held.enter_context(locked(place))
        yield


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
    """Bytes of all files below a directory; 0 when it is not there. What another process removes meanwhile is not."""
    total = 0
    for directory, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(directory, name).stat().st_size
    return total
