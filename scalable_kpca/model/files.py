"""A saved model on disk: ``model.json`` and ``arrays.zarr`` in one directory, read without executing anything.

The description holds a digest of itself and one of the arrays, so that a model that was copied without its commit list
is as safe from a changed digit or a chunk in the place of another as a run. Digests are no signatures: who changes a
model on purpose changes them too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.documents import format_json, open_plain, read_json, refuse_links
from scalable_kpca.errors import ModelFormatError, StorageError, storage_errors
from scalable_kpca.records import digest_json
from scalable_kpca.source import ROW_DTYPES, Preparation, check_group, checked_codecs, open_stored
from scalable_kpca.source.stored_arrays import CHECKSUM_BYTES

__all__ = [
    "FORMAT_VERSION",
    "arrays_digest",
    "arrays_path",
    "check_arrays",
    "check_fields",
    "check_finite",
    "check_saved",
    "create_array",
    "new_model",
    "read_array",
    "read_description",
    "read_preparation",
    "sealed",
]

FORMAT_VERSION = 6


@contextmanager
def new_model(path: str | Path, description: Mapping[str, Any]) -> Iterator[Any]:
    """Zarr group for the arrays of a new model; its description is written last: without it nothing loads.

    Raises
    ------
    StorageError
        When the directory holds something or cannot be written, or the description could not be read again.
    """
    import zarr

    directory = Path(path)
    fields = {"format": "scalable_kpca model", "format_version": FORMAT_VERSION, **description}
    try:
        format_json(sealed({**fields, "arrays": 64 * "0"}))
    except ValueError as error:
        raise StorageError(
            f"the model cannot be described in {directory / 'model.json'}, as it could not be loaded again: {error}; "
            "kernel_params must be finite, and feature names shorter."
        ) from error
    with storage_errors(f"writing the model to {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise StorageError(f"{directory} is not empty; save a model in a new directory.")
        yield zarr.create_group(str(arrays_path(directory)))
        text = format_json(sealed({**fields, "arrays": arrays_digest(directory)}))
        (directory / "model.json").write_text(text)


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A description with the digest of all its other fields."""
    others = {name: value for name, value in fields.items() if name != "sha256"}
    return {**others, "sha256": digest_json(others)}


def arrays_digest(directory: Path) -> str:
    """SHA-256 of what the arrays are and of the checksum of each chunk, hexadecimal; files of other names are not read.

    Reads four bytes of a chunk, whatever its size: each is compared with its checksum when it is read, and this tells
    whether it is the one that was saved there.
    """
    digest, root = hashlib.sha256(), arrays_path(directory)
    for file in sorted(root.rglob("*")):
        name = file.relative_to(root)
        is_chunk = "c" in name.parts[:-1] and name.name.isdigit()
        if file.is_dir() or not (is_chunk or name.name == "zarr.json"):
            continue
        with open_plain(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if is_chunk:
                stream.seek(max(0, size - CHECKSUM_BYTES))
            digest.update(f"{name.as_posix()} {size} ".encode() + stream.read(size))
    return digest.hexdigest()


def create_array(group: Any, name: str, shape: tuple[int, ...], dtype: str, chunk_rows: int) -> Any:
    """New array in chunks of so many rows, with a checksum on each; integers are ≥ 0, and −1 where a chunk is gone."""
    chunks = tuple(
        max(1, min(chunk_rows, length)) if axis == 0 else max(1, length) for axis, length in enumerate(shape)
    )
    codecs = checked_codecs()
    if np.dtype(dtype).kind == "i":
        codecs["fill_value"] = -1
    return group.create_array(name, shape=shape, chunks=chunks, dtype=dtype, **codecs)


def read_description(directory: Path) -> dict[str, Any]:
    """Contents of ``model.json``; ModelFormatError when it is absent, damaged or of another format."""
    file = directory / "model.json"
    try:
        fields = read_json(file)
    except OSError as error:
        raise ModelFormatError(
            f"{directory} holds no model.json that can be read: {error.strerror or error}."
        ) from error
    except ValueError as error:
        raise ModelFormatError(f"{file} is damaged: {error}.") from error
    if not isinstance(fields, dict):
        raise ModelFormatError(f"{file} is damaged: it holds no description of a model.")
    found = fields.get("format_version")
    if found != FORMAT_VERSION:
        raise ModelFormatError(f"{directory} has model format {repr(found)[:80]}; this version reads {FORMAT_VERSION}.")
    if fields != sealed(fields):
        raise ModelFormatError(f"{file} is damaged: it differs from the digest that it holds of itself.")
    return fields


def arrays_path(directory: Path) -> Path:
    """The zarr group of the arrays."""
    return directory / "arrays.zarr"


def check_arrays(directory: Path) -> None:
    """ValueError or OSError unless the arrays are in a group of ours, from which no link leads away."""
    refuse_links(arrays_path(directory))
    check_group(arrays_path(directory))


def check_saved(directory: Path, fields: Mapping[str, Any]) -> None:
    """ValueError unless the files of the arrays are those that were saved with this description."""
    if arrays_digest(directory) != fields["arrays"]:
        raise ValueError("chunks of arrays.zarr are not those that were saved there")


def read_array(directory: Path, name: str, n_dims: int, *dtypes: str) -> NDArray[Any]:
    """An array of a model, whole, float64 or one of these dtypes; any exception when it is none of ours.

    Memory: no more than the bytes of its files.
    """
    array: NDArray[Any] = np.asarray(open_stored(arrays_path(directory) / name, dtypes or ("float64",), n_dims)[...])
    return array


def check_fields(fields: Mapping[str, Any], *counts: str) -> None:
    """ValueError unless these fields of a description are whole numbers, its dtype is ours, and its names are text."""
    for name in counts:
        if type(fields[name]) is not int or fields[name] < 0:
            raise ValueError(f"{name} is {repr(fields[name])[:80]}")
    if fields["dtype"] not in ROW_DTYPES:
        raise ValueError(f"dtype is {repr(fields['dtype'])[:80]}")
    names = fields["feature_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("feature_names are not all text")


def read_preparation(fields: Mapping[str, Any]) -> Preparation | None:
    """How columns were prepared, from a description; any exception when that does not fit the features."""
    if fields["preparation"] is None:
        return None
    found = Preparation.from_json(fields["preparation"])
    if list(found.feature_names) != fields["feature_names"]:
        raise ValueError("the columns are not prepared for these features")
    return found


def check_finite(arrays: Mapping[str, float | NDArray[Any]]) -> None:
    """ValueError naming the first array with an entry that is not finite: a chunk that is gone reads as NaN."""
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has entries that are missing or not finite")
