"""Arrays of ours in zarr, opened only when their description and their files are what we write, and nothing else.

zarr opens whatever a ``zarr.json`` describes: any codec that is installed, any dtype, any shape. Ours are uncompressed,
so that the bytes on disk are known from the description, and are compared with it before anything of that size is
allocated.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.documents import read_json, refuse_links

__all__ = ["ROW_DTYPES", "ArrayDescription", "array_description", "check_group", "group_attributes", "open_stored"]

ROW_DTYPES = ("float32", "float64")

CHECKSUM_BYTES = 4  # of a chunk, its last ones

# what `checked_codecs` makes zarr write; the rest is checked by `_array_of`
_FIXED = {
    "zarr_format": 3,
    "node_type": "array",
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
    "storage_transformers": [],
}
_OTHERS = {"shape", "data_type", "chunk_grid", "fill_value", "attributes"}


@dataclass(frozen=True)
class ArrayDescription:
    """What a ``zarr.json`` says of an array."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str

    @property
    def chunk_bytes(self) -> int:
        """Size of the file of a chunk."""
        return math.prod(self.chunks) * np.dtype(self.dtype).itemsize + CHECKSUM_BYTES

    def chunk_names(self) -> Iterator[str]:
        """Path of every chunk below the array, in order; one at a time, as there may be any number."""
        grid = [-(-length // chunk) for length, chunk in zip(self.shape, self.chunks, strict=True)]
        for number in range(math.prod(grid)):
            place, rest = [], number
            for length in reversed(grid):
                rest, at = divmod(rest, length)
                place.append(str(at))
            yield "/".join(["c", *reversed(place)])


def check_group(path: Path) -> dict[str, Any]:
    """Attributes of a group of ours; ValueError or OSError when it is none, such as one with consolidated metadata."""
    return group_attributes(_read(path), path)


def group_attributes(described: Any, path: Path | str) -> dict[str, Any]:
    """Attributes of a group of ours, by the JSON value that describes it: see `check_group`."""
    fields = _fields(described, path, {"zarr_format": 3, "node_type": "group"}, {"attributes"})
    return _attributes(path, fields)


def open_stored(path: Path, dtypes: Sequence[str], n_dims: int) -> Any:
    """The zarr array at a path, after everything that its description asks for has been checked.

    Parameters
    ----------
    path : Path
        Directory of the array.
    dtypes : sequence of str
        Any of which it may have.
    n_dims : int

    Raises
    ------
    ValueError, OSError
        When it is not one of ours, or its files do not have the bytes that it declares.

    Notes
    -----
    Cost: one look at each file, none is read. A link anywhere below `path` is refused.
    """
    import zarr

    refuse_links(path)
    found = array_description(_read(path), path)
    if found.dtype not in dtypes or len(found.shape) != n_dims:
        raise ValueError(f"{path} is {found}; needed is {n_dims} dimensions of {' or '.join(dtypes)}")
    _check_chunks(path, found)
    return zarr.open_array(str(path), mode="r", zarr_format=3)


def array_description(described: Any, path: Path | str) -> ArrayDescription:
    """What the JSON value that describes an array says of it; ValueError when that is none of ours."""
    fields = _fields(described, path, _FIXED, _OTHERS)
    _attributes(path, fields)
    try:
        shape, dtype, grid = fields["shape"], fields["data_type"], fields["chunk_grid"]
        chunks = grid["configuration"]["chunk_shape"]
        fits = grid == {"name": "regular", "configuration": {"chunk_shape": chunks}} and len(shape) == len(chunks)
        fits = fits and all(type(length) is int and length >= 0 for length in shape)
        fits = fits and all(type(length) is int and length >= 1 for length in chunks)
        fits = fits and fields["fill_value"] == {"float32": "NaN", "float64": "NaN", "int32": -1, "int64": -1}[dtype]
    except (KeyError, TypeError):
        fits = False
    if not fits:
        raise ValueError(f"{path} has a shape, dtype, chunk grid or fill value that no array of ours has")
    return ArrayDescription(tuple(shape), tuple(chunks), dtype)


def _read(path: Path) -> Any:
    """JSON value that describes a node."""
    file = path / "zarr.json"
    try:
        return read_json(file)
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}") from error


def _fields(described: Any, path: Path | str, fixed: dict[str, Any], others: set[str]) -> dict[str, Any]:
    """Description of a node, in which `fixed` holds and there is nothing beside the `others`."""
    file = f"{path}/zarr.json"
    if not isinstance(described, dict):
        raise ValueError(f"{file} is damaged: it describes nothing")  # noqa: TRY004 - of a file, not of an argument
    # how versions of zarr write the same thing
    present = {name: value for name, value in described.items() if value is not None}
    fields: dict[str, Any] = {name: _bare(value) if name == "codecs" else value for name, value in present.items()}
    for name, value in fixed.items():
        if fields.get(name, [] if name == "storage_transformers" else None) != value:
            raise ValueError(f"{file} has {name} {str(fields.get(name))[:200]}; only {value} is read")
    unknown = sorted(fields.keys() - fixed.keys() - others)
    if unknown:
        raise ValueError(f"{file} has {unknown[0][:80]!r}, which is not read")
    return fields


def _bare(codecs: Any) -> Any:
    """Codecs without configurations that are empty."""
    if not isinstance(codecs, list) or not all(isinstance(codec, dict) for codec in codecs):
        return codecs
    return [{key: value for key, value in codec.items() if value != {}} for codec in codecs]


def _attributes(path: Path | str, fields: dict[str, Any]) -> dict[str, Any]:
    attributes = fields.get("attributes", {})
    if not isinstance(attributes, dict):
        raise ValueError(f"{path}/zarr.json is damaged: its attributes are none")  # noqa: TRY004
    return attributes


def _check_chunks(path: Path, found: ArrayDescription) -> None:
    """ValueError for the first chunk whose file is not there with its size."""
    for name in found.chunk_names():
        try:
            status = (path / name).lstat()
        except OSError as error:
            raise ValueError(f"{path / name}, one of its chunks, is missing") from error
        if not stat.S_ISREG(status.st_mode) or status.st_size != found.chunk_bytes:
            raise ValueError(f"{path / name} has {status.st_size} bytes; a chunk has {found.chunk_bytes}")
