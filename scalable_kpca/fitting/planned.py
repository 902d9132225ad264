"""The plan of a fit of an array: how wide its rows are, what of it stays in memory, and which method fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.errors import InvalidInputError, MemoryLimitError
from scalable_kpca.fitting.options import RANDOMIZED, Options
from scalable_kpca.machine import disk_room
from scalable_kpca.planning import plan
from scalable_kpca.source import is_sparse, row_width
from scalable_kpca.tiling import LARGEST_TILE, NystroemPlan, Plan

__all__ = ["plan_fit", "resident_bytes"]

Components = int | float | None


def plan_fit(
    X: Any,
    n_components: Components,
    options: Options,
    workdir: Path,
    *,
    method: str,
    solver: str | None = None,
    stays: bool,
    copies: bool = False,
    held_bytes: int = 0,
) -> Plan | NystroemPlan:
    """Plan for rows, or for a matrix of kernel values.

    Parameters
    ----------
    X : ndarray, CSR array, dask array or zarr array of shape (n_samples, n_features)
    n_components : int, float or None
    options : Options
    workdir : Path
        Where tiles would be stored.
    method, solver : str
        In the place of those of the options; of the solver only if it is given.
    stays : bool
        Whether X stays in the memory of this process.
    copies : bool
        Whether an exact model copies rows that stay.
    held_bytes : int
        Of what X was made from, where the caller has that too.

    Raises
    ------
    InvalidInputError
        For a precomputed kernel that is not square.
    MemoryLimitError
        Naming the smallest limit that works.
    """
    resident = resident_bytes(X, stays=stays)
    choices = {
        **_choices(X, options, workdir, stays=stays),
        "n_components": n_components,
        "directory": workdir,
        "resident_bytes": resident + held_bytes,
        "copied_bytes": resident if copies and options.kernel != "precomputed" else 0,
    }
    if solver is not None:
        choices["solver"] = solver
    n_samples, n_features = X.shape
    if options.kernel != "precomputed":
        return plan(n_samples, row_width(X) if is_sparse(X) else n_features, method=method, **choices)
    if n_samples != n_features:
        raise InvalidInputError(
            f"a precomputed kernel has shape (n_samples, n_samples), and X has {(n_samples, n_features)}."
        )
    if method == "nystroem":
        return plan(n_samples, n_features, method=method, **choices)
    # a task holds a tile of what is on disk, and nothing of what is in memory
    width = 1 if isinstance(X, np.ndarray) and stays else min(n_samples, LARGEST_TILE)
    try:
        return plan(n_samples, width, method="exact", **choices)
    except MemoryLimitError as error:
        if method == "exact":
            raise
        found = plan(n_samples, n_features, method="nystroem", **choices)
        return replace(found, reasons=(f"method=nystroem: exact does not fit: {error}", *found.reasons))


def resident_bytes(X: Any, *, stays: bool) -> int:
    """Bytes of the rows that are in memory during the fit."""
    if is_sparse(X):  # which stay in any case
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    n_samples, n_features = X.shape
    return n_samples * n_features * (4 if X.dtype == np.float32 else 8) if stays else 0


def _choices(X: Any, options: Options, workdir: Path, *, stays: bool) -> dict[str, Any]:
    """What is asked for, by the names that `plan` has for it."""
    is_matrix = options.kernel == "precomputed"
    gram, dtype, solver = options.gram, options.dtype, options.eigen_solver
    if is_matrix and dtype == "auto" and X.dtype == np.float32:
        dtype = "float32"  # it has no more digits
    if is_matrix and gram == "auto" and stays:
        gram = "recompute"  # which reads the caller's matrix where it is
    return {
        "n_landmarks": options.landmark_count,
        "landmarks": options.landmark_method,
        "dtype": dtype,
        "solver": "block_krylov" if solver == RANDOMIZED else solver,
        "gram": gram,
        "kernel": options.kernel_name,
        "memory_limit": options.memory_limit,
        "n_jobs": options.n_jobs,
        "tile_rows": options.tile_rows,
        "disk_limit": disk_room(workdir, "gram-*.zarr") if gram == "auto" else None,
    }
