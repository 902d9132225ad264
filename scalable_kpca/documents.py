"""Files of ours that may come from somebody else: opened as plain files only, and JSON in which nothing surprises."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["MAX_JSON_BYTES", "format_json", "open_plain", "parse_json", "read_json", "refuse_links"]

# A commit list has some 200 bytes for a file, a ledger some 400 for a partition, a model's description some 20 for the
# name of a feature: room for 160 000 partitions and 300 000 files. Parsed, hostile JSON takes up to 25 times its bytes.
MAX_JSON_BYTES = 64 * 2**20

MAX_DIGITS = 308  # of an integer: what a float64 can hold


def open_plain(path: Path) -> BinaryIO:
    """A regular file, for reading; OSError for a link, which may lead anywhere, a directory, a pipe or a device."""
    try:
        # a pipe that nobody writes to would be waited for
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "it is a link, which is not followed", str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def refuse_links(root: Path) -> None:
    """ValueError naming a link at or below a directory: none is ever made there, and one may lead anywhere."""
    if root.is_symlink():
        raise ValueError(f"{root} is a link")
    pending = [str(root)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise ValueError(f"{entry.path} is a link")
                if entry.is_dir():
                    pending.append(entry.path)


def read_json(path: Path) -> Any:
    """JSON value of a file of at most `MAX_JSON_BYTES`.

    Raises
    ------
    OSError
        When it cannot be read: see `open_plain`.
    ValueError
        When it is too long, nested too deeply or no JSON: NaN and infinities, keys that are there twice and integers
        beyond 10³⁰⁸ are none.
    """
    with open_plain(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > MAX_JSON_BYTES:
            raise ValueError(f"it has {size} bytes, and at most {MAX_JSON_BYTES} are read")
        return parse_json(stream.read(size))


def parse_json(content: bytes) -> Any:
    """JSON value of the contents of a file; see `read_json` for the ValueErrors."""
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"it has {len(content)} bytes, and at most {MAX_JSON_BYTES} are read")
    try:
        return json.loads(
            content.decode(), object_pairs_hook=_object, parse_constant=_number, parse_float=_number, parse_int=_integer
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def format_json(value: Any) -> str:
    """What `read_json` reads again; ValueError for a number that is not finite, or when it is too long."""
    text = json.dumps(value, indent=1, allow_nan=False)  # ASCII: as many bytes as letters
    if len(text) >= MAX_JSON_BYTES:
        raise ValueError(f"it has {len(text)} bytes, and at most {MAX_JSON_BYTES} are read again")
    return f"{text}\n"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise ValueError(f"the key {key[:80]!r} is there twice")
        fields[key] = value
    return fields


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:80]} is not a finite number")
    return number


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"it holds an integer of {len(text)} digits, and at most {MAX_DIGITS} are read")
    return int(text)
