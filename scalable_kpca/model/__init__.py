"""Fitted models: numbers in frozen objects, saved as JSON and zarr, loaded without executing anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalable_kpca.errors import InvalidInputError, ModelFormatError
from scalable_kpca.kernels import CallableKernel, kernel_from_json
from scalable_kpca.model.exact import Model, in_memory, read_exact, save_exact
from scalable_kpca.model.files import check_arrays, check_saved, read_description
from scalable_kpca.model.nystroem import NystroemModel, read_nystroem, save_nystroem
from scalable_kpca.model.ridge import RidgeMap, as_array, check_ridge_kernel, check_scores

__all__ = [
    "AnyModel",
    "Model",
    "NystroemModel",
    "RidgeMap",
    "as_array",
    "check_ridge_kernel",
    "check_scores",
    "in_memory",
    "load_model",
    "save_model",
]

AnyModel = Model | NystroemModel

_READERS: dict[str, Callable[[Path, dict[str, Any]], AnyModel]] = {"exact": read_exact, "nystroem": read_nystroem}


def save_model(model: AnyModel, path: str | Path) -> None:
    """Write a model as ``model.json`` and ``arrays.zarr`` in a new directory.

    Parameters
    ----------
    model : Model or NystroemModel
        What to write.
    path : str or Path
        Directory that does not exist or is empty.

    Raises
    ------
    StorageError
        When the directory holds something or cannot be written.
    """
    if isinstance(model, NystroemModel):
        save_nystroem(model, path)
    else:
        save_exact(model, path)


def load_model(path: str | Path, *, kernel: Callable[..., Any] | None = None) -> AnyModel:
    """Model from a directory that `save_model` wrote.

    Training rows of an exact model stay on disk until they are needed, and are compared with their checksums then; a
    file that is not the one that was saved is seen at once. Nothing that a model holds is executed, and nothing outside
    its directory is read; it takes no more memory than it has bytes.

    Parameters
    ----------
    path : str or Path
        The directory.
    kernel : callable, optional
        The function, of a model whose kernel is one: no code is kept with it.

    Returns
    -------
    Model or NystroemModel
        What `project` and `reconstruct` take.

    Raises
    ------
    ModelFormatError
        When the directory is no model, or one of a format that this version does not read.
    InvalidInputError
        When a function is needed and not given, or given and not needed.
    """
    directory = Path(path)
    fields = read_description(directory)
    _check_function(directory, fields.get("kernel"), kernel)
    try:
        check_arrays(directory)
        fields["kernel"] = kernel_from_json(fields["kernel"], kernel)
        model = _READERS[fields["method"]](directory, fields)
        check_saved(directory, fields)
    except MemoryError:
        raise
    except Exception as error:
        raise ModelFormatError(f"{directory} is damaged or incomplete: {str(error)[:400]}.") from error
    return model


def _check_function(directory: Path, stored: Any, function: Callable[..., Any] | None) -> None:
    """InvalidInputError unless a function is given exactly when the kernel of a model is one."""
    name = stored.get("name") if isinstance(stored, dict) else stored
    if name == CallableKernel.name and function is None:
        described = str(stored.get("function"))[:200]
        raise InvalidInputError(
            f"the kernel of {directory} is a function, {described}, and no code is loaded with a model; "
            "give it: load_model(path, kernel=function)."
        )
    if name != CallableKernel.name and function is not None:
        raise InvalidInputError(
            f"the kernel of {directory} is {repr(name)[:80]}, and a function was given: leave it out."
        )
