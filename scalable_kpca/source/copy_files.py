"""Parquet copies of tables on disk: named by what they are of, found when they are whole, swept when left behind.

::

    <content>.<copy>.parquet    SHA-256 of the file and of how it was read; and of the copy: proof that it is whole
    .<content>.<random>.new     while it is made, under a lock of the kernel, which ends with its process
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalable_kpca.disk import locked, locked_where_possible, put
from scalable_kpca.documents import open_plain
from scalable_kpca.errors import StorageError, storage_errors

__all__ = ["find_copy", "new_copy", "publish_copy", "remove_copies", "use_directory"]

_SEALED = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{64}\.parquet")
_STAGING = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{32}\.new")

logger = logging.getLogger(__name__)


def find_copy(directory: Path, content: str) -> Path | None:
    """The whole copy of a content; one that is damaged is removed."""
    for place in sorted(directory.glob(f"{content}.*.parquet")):
        if not _SEALED.fullmatch(place.name):
            continue
        _refuse_link(place)
        with storage_errors(f"reading {place}"), contextlib.suppress(FileNotFoundError), open_plain(place) as stream:
            readable: Any = stream  # which typeshed's BinaryIO does not say
            if hashlib.file_digest(readable, "sha256").hexdigest() == place.name.split(".")[1]:
                return place
            logger.warning("%s", f"{place} is damaged and made again")
            place.unlink()
    return None


@contextmanager
def new_copy(directory: Path, content: str) -> Iterator[Path]:
    """A new file under a lock, gone at the end unless it has been renamed."""
    staging = directory / f".{content}.{uuid.uuid4().hex}.new"
    with storage_errors(f"writing {staging}"):
        staging.touch(exist_ok=False)
    with locked_where_possible(staging):
        try:
            yield staging
        finally:
            staging.unlink(missing_ok=True)


def use_directory(directory: Path) -> int:
    """Descriptor of a directory of copies, made where it is not there, under a lock that many may have.

    Raises
    ------
    StorageError
        For a link, and what the file system refuses.
    """
    with storage_errors(f"creating {directory}"):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
    _refuse_link(directory)
    with storage_errors(f"opening {directory}"):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # a file system without locks: nothing is removed there
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def publish_copy(staging: Path, content: str) -> Path:
    """Name a copy that is whole by its content, after it has reached the disk."""
    with storage_errors(f"writing {staging}"), staging.open("rb") as stream:
        os.fsync(stream.fileno())
        place = staging.with_name(f"{content}.{hashlib.file_digest(stream, 'sha256').hexdigest()}.parquet")
        put(staging, place)
    return place


def remove_copies(directory: Path, keep: Collection[str] | None) -> None:
    """Remove what killed processes left half made, and the copies but for those to keep; None keeps all.

    Notes
    -----
    Copies stay while any process uses the directory, and what is being made stays; whatever cannot be removed is left
    for the next time.
    """
    if directory.is_symlink():
        return
    with contextlib.suppress(OSError):
        for leftover in [place for place in directory.iterdir() if _STAGING.fullmatch(place.name)]:
            with contextlib.suppress(OSError), locked(leftover):  # refused: another process fills it
                leftover.unlink()
        if keep is not None:
            with locked(directory):
                for place in list(directory.iterdir()):
                    if _SEALED.fullmatch(place.name) and place.name not in keep:
                        place.unlink()


def _refuse_link(place: Path) -> None:
    if place.is_symlink():
        raise StorageError(f"{place} is a link, which is not followed; remove the link and run again.")
