"""A saved model on disk: ``model.json`` and ``arrays.zarr`` in one directory, read without executing anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import ModelFormatError, StorageError, storage_errors
from scalable_kpca.source import checked_codecs

__all__ = ["FORMAT_VERSION", "check_finite", "create_array", "new_model", "open_arrays", "read_description"]

FORMAT_VERSION = 4


@contextmanager
def new_model(path: str | Path, description: Mapping[str, Any]) -> Iterator[Any]:
    """Zarr group for the arrays of a new model; its description is written last: without it nothing loads.

    Raises
    ------
    StorageError
        When the directory holds something or cannot be written.
    """
    import zarr

    directory = Path(path)
    with storage_errors(f"writing the model to {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise StorageError(f"{directory} is not empty; save a model in a new directory.")
        yield zarr.create_group(str(directory / "arrays.zarr"))
        fields = {"format": "scalable_kpca model", "format_version": FORMAT_VERSION, **description}
        (directory / "model.json").write_text(json.dumps(fields, indent=1))


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
        fields = json.loads(file.read_text())
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
        raise ModelFormatError(f"{directory} has model format {found!r}; this version reads {FORMAT_VERSION}.")
    return fields


def open_arrays(directory: Path) -> Any:
    """The zarr group of the arrays, for reading."""
    import zarr

    return zarr.open_group(str(directory / "arrays.zarr"), mode="r")


def check_finite(arrays: Mapping[str, float | NDArray[Any]]) -> None:
    """ValueError naming the first array with an entry that is not finite: a chunk that is gone reads as NaN."""
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(f"{name} has entries that are missing or not finite")
