"""Records: named arrays in one file that is whole, and as it was written, or counts as absent."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.disk import put, remove_tree, sync
from scalable_kpca.documents import open_plain

__all__ = ["digest_arrays", "digest_json", "read_record", "write_record"]

logger = logging.getLogger(__name__)

Array = NDArray[Any]


def write_record(place: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as ``.npz`` with a checksum, flushed, then renamed to its place, whatever stands there.

    The directory is made if needed.

    Raises
    ------
    OSError
        When the file system refuses.
    """
    record: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    record["checksum"] = digest_arrays("", *record.values())
    # one that was cut off has the same name when it is made again: what it left here goes
    staging = place.with_suffix(".partial")
    if not place.parent.is_dir():
        remove_tree(place.parent)
        place.parent.mkdir()
        sync(place.parent.parent)
    remove_tree(staging)
    with staging.open("xb") as stream:
        np.savez(stream, **record)
        stream.flush()
        os.fsync(stream.fileno())
    put(staging, place)


def read_record(place: Path, names: Sequence[str]) -> dict[str, Array] | None:
    """Arrays of these names, in the order in which they were written; None when the file is absent or damaged.

    Notes
    -----
    Memory: the size of the file, whatever it says of itself. A link, an array of objects, a compressed one and one that
    is not as long as it declares count as damage.
    """
    if not place.exists():
        return None
    try:
        with open_plain(place) as stream, zipfile.ZipFile(stream) as archive:
            _check_members(archive, os.fstat(stream.fileno()).st_size)
            stored = {name: _read_array(archive, f"{name}.npy") for name in names}
            checksum = _read_array(archive, "checksum.npy")
    except Exception:
        # whatever reading damaged bytes leads to: making it is right in every case
        logger.info("%s cannot be read: it is made again", place, exc_info=True)
        return None
    if not np.array_equal(checksum, digest_arrays("", *stored.values())):
        logger.info("%s differs from its checksum: it is made again", place)
        return None
    return stored


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """ValueError unless members are stored as they are, one beside the other, as `numpy.savez` does it."""
    members = archive.infolist()
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise ValueError(f"{member.filename} is compressed")
    if sum(member.file_size for member in members) > size:
        raise ValueError("the members are longer than the file")


def _read_array(archive: zipfile.ZipFile, name: str) -> Array:
    """Array of numbers in a member; ValueError, before anything is allocated, when that has not as many bytes."""
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"{name} has version {version} of numpy's format; 1.0 is written")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        declared = member.tell() + math.prod(shape) * dtype.itemsize
        if dtype.kind not in "fiu" or min(shape, default=0) < 0 or declared != archive.getinfo(name).file_size:
            raise ValueError(f"{name} is no array of numbers of the length that it declares")
        member.seek(0)
        array: Array = np.lib.format.read_array(member, allow_pickle=False)
    return array


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
