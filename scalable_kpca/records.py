"""Records: named arrays in one file that is whole, and as it was written, or counts as absent."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.disk import sync

__all__ = ["digest_arrays", "digest_json", "read_record", "write_record"]

logger = logging.getLogger(__name__)

Array = NDArray[Any]


def write_record(place: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as ``.npz`` with a checksum, flushed, then renamed to its place; the directory is made if needed.

    Raises
    ------
    OSError
        When the file system refuses.
    """
    record: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    record["checksum"] = digest_arrays("", *record.values())
    # one that was cut off has the same name when it is made again: what it left here is written over
    staging = place.with_suffix(".partial")
    if not place.parent.exists():
        place.parent.mkdir()
        sync(place.parent.parent)
    with staging.open("wb") as stream:
        np.savez(stream, **record)
        stream.flush()
        os.fsync(stream.fileno())
    staging.replace(place)
    sync(place.parent)


def read_record(place: Path, names: Sequence[str]) -> dict[str, Array] | None:
    """Arrays of these names, in the order in which they were written; None when the file is absent or damaged."""
    if not place.exists():
        return None
    try:
        # numpy leaves a file that it opened itself open when it is no archive
        with place.open("rb") as stream, np.load(stream, allow_pickle=False) as record:
            stored = {name: record[name] for name in names}
            checksum = record["checksum"]
    except Exception:
        # whatever reading damaged bytes leads to: making it is right in every case
        logger.info("%s cannot be read: it is made again", place, exc_info=True)
        return None
    if not np.array_equal(checksum, digest_arrays("", *stored.values())):
        logger.info("%s differs from its checksum: it is made again", place)
        return None
    return stored


def digest_json(value: Any) -> str:
    """SHA-256 of a JSON value, hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def digest_arrays(label: str, *arrays: Array) -> NDArray[np.uint8]:
    """SHA-256 of a label and of arrays, their dtypes and shapes included, in C order."""
    digest = hashlib.sha256(label.encode())
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return np.frombuffer(digest.digest(), np.uint8)
