"""What the security tests share: payloads, snapshots of trees, and a guard that sees who opens or changes files."""

from __future__ import annotations

import os
import stat
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LITTLE = 2**24  # bytes: far more than refusing takes, far less than any bomb here asks for

_watched: list[Path] = []
_seen: list[str] = []


class Payload:
    """Pickled, an instruction to create a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.marker,)


def tree(root: Path) -> dict[str, tuple[int, int, object]]:
    """Kind, time and contents of everything below a directory, links not followed."""
    found: dict[str, tuple[int, int, object]] = {}
    for place in (root, *(() if root.is_symlink() else root.rglob("*"))):
        status = place.lstat()
        what = place.readlink() if place.is_symlink() else status.st_size
        small = stat.S_ISREG(status.st_mode) and status.st_size < LITTLE
        found[str(place)] = (status.st_mode, status.st_mtime_ns, place.read_bytes() if small else what)
    return found


@contextmanager
def untouched(*roots: Path) -> Iterator[None]:
    """Nothing below the directories changes meanwhile, and little memory is taken."""
    before = [tree(root) for root in roots]
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LITTLE
    assert [tree(root) for root in roots] == before


@contextmanager
def out_of_reach(place: Path) -> Iterator[None]:
    """Nothing below a directory is opened, listed, renamed or removed meanwhile, nor changed."""
    before = tree(place)
    if not _watched:
        sys.addaudithook(_record)
    _watched.append(place.resolve())
    try:
        yield
    finally:
        seen = _seen.copy()
        _seen.clear()
        _watched[:] = [Path("/nowhere")]
    assert seen == []
    assert tree(place) == before


def _record(event: str, arguments: tuple[object, ...]) -> None:
    if event not in ("open", "os.scandir", "os.listdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"):
        return
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_NOFOLLOW:
        return  # refused where it is a link
    for name in arguments[:2] if event == "os.rename" else arguments[:1]:
        if isinstance(name, str | bytes | os.PathLike):
            place = Path(os.fsdecode(name))
            # removing or renaming a link is what happens to the link
            real = (place.parent.resolve() / place.name) if event.startswith("os.re") else place.resolve()
            if any(real.is_relative_to(watched) for watched in _watched):
                _seen.append(f"{event} {place}")
