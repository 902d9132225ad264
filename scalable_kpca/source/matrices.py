"""One matrix in a file: what .npy, zarr and HDF5 hold, opened for a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.errors import InvalidInputError, KernelPCAError
from scalable_kpca.source.location import source_kind

__all__ = ["open_matrix", "place_of_matrix"]

N_NAMED = 8  # of the arrays in a file, in a message


def place_of_matrix(path: Path, inner: str = "") -> tuple[Path, str]:
    """Where a matrix is: a ``.npy`` file, the directory of a zarr array, or an HDF5 file and the name of its dataset.

    Parameters
    ----------
    path : Path
    inner : str
        Name of an array in a zarr group or an HDF5 file; where it is empty, the only matrix of numbers there.

    Raises
    ------
    InvalidInputError
        When there is no such array, or more than one and none is named.
    """
    kind = source_kind([path])
    if kind == ".npy" and inner:
        raise InvalidInputError(f"{path} is one array; leave out #{inner}.")
    if kind == ".npy" or (kind == ".zarr" and not inner and _is_array(path)):
        return path, ""
    with _named_errors(path), ExitStack() as opened:
        if kind == ".h5":
            file = opened.enter_context(_h5py().File(path, "r"))
            name = inner.strip("/") or _only(path, _datasets(file))
            _dataset(path, file, name)
            return path, name
        name = inner.strip("/") or _only(path, _zarr_arrays(path))
        if ".." in Path(name).parts:
            raise InvalidInputError(f"{path}#{inner} leaves its store; name an array in it.")
        return path / name, ""


@contextmanager
def open_matrix(path: Path, dataset: str = "") -> Iterator[Any]:
    """What can be sliced to rows of shape (·, n_features), with shape and dtype; closed at the end.

    Raises
    ------
    InvalidInputError
        When it is no matrix of numbers.
    """
    with ExitStack() as opened:
        with _named_errors(path):
            array = _open(path, dataset, opened)
        named = f"{path}#{dataset}" if dataset else path
        if array.ndim != 2 or array.dtype.kind not in "fiub":
            raise InvalidInputError(
                f"{named} has shape {array.shape} and dtype {array.dtype}; a matrix of numbers is needed."
            )
        if array.shape[1] == 0:
            raise InvalidInputError(f"{named} has shape {array.shape}: no columns; at least one feature is needed.")
        yield array


def _open(path: Path, dataset: str, opened: ExitStack) -> Any:
    if dataset:
        return _dataset(path, opened.enter_context(_h5py().File(path, "r")), dataset)
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    import zarr

    return zarr.open_array(str(path), mode="r")


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (KernelPCAError, MemoryError):
        raise
    except Exception as error:
        raise InvalidInputError(f"{path} is not an array that can be read: {error}") from error


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise InvalidInputError(
            "HDF5 is read by h5py, which is not installed; pip install 'scalable-kpca[hdf5]'."
        ) from error
    return h5py


def _datasets(file: Any) -> list[str]:
    """Names of the matrices of numbers in an HDF5 file; no link is followed."""
    found: list[str] = []

    def look(name: str, item: Any) -> None:
        if getattr(item, "ndim", None) == 2 and item.dtype.kind in "fiub":
            found.append(name)

    file.visititems(look)
    return found


def _dataset(path: Path, file: Any, name: str) -> Any:
    """A dataset whose numbers are in the file itself."""
    h5py, node = _h5py(), file
    for part in name.split("/"):
        link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
        if link is None:
            raise InvalidInputError(f"{path} has no dataset {name!r}; it has {_listed(_datasets(file))}.")
        if not isinstance(link, h5py.HardLink):
            raise InvalidInputError(f"{path}#{name} is a link, which is not followed; name the dataset itself.")
        node = node[part]
    if not isinstance(node, h5py.Dataset):
        raise InvalidInputError(f"{path}#{name} is a group; it has {_listed(_datasets(node))}.")
    if node.is_virtual or node.external:
        raise InvalidInputError(f"{path}#{name} keeps its numbers in other files, which are not read; copy them.")
    return node


def _is_array(path: Path) -> bool:
    return (path / ".zarray").exists() or not _is_group(path)


def _is_group(path: Path) -> bool:
    import zarr

    if not any((path / name).exists() for name in ("zarr.json", ".zgroup")):
        return False
    try:
        return isinstance(zarr.open(str(path), mode="r"), zarr.Group)
    except Exception:  # whatever a damaged description raises: it is named when it is opened as an array
        return False


def _zarr_arrays(path: Path) -> list[str]:
    import zarr

    members = zarr.open_group(str(path), mode="r").members(max_depth=None)
    arrays = [(name, item) for name, item in members if isinstance(item, zarr.Array)]
    return sorted(name for name, item in arrays if item.ndim == 2 and item.dtype.kind in "fiub")


def _only(path: Path, names: list[str]) -> str:
    if len(names) != 1:
        raise InvalidInputError(
            f"{path} has {len(names)} matrices of numbers, one is needed; name it: {path}#NAME, of {_listed(names)}."
        )
    return names[0]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    return (", ".join(names[:N_NAMED]) or "none") + more
