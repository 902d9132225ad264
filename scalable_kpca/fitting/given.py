"""Kernel values from the caller: a function of rows, or a matrix that is there already."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.engine import Engine
from scalable_kpca.errors import storage_errors
from scalable_kpca.gram import check_matrix
from scalable_kpca.kernels import GramEntries
from scalable_kpca.source import MatrixEntries, write_matrix
from scalable_kpca.staging import is_zarr, row_batches
from scalable_kpca.tiling import Plan

__all__ = ["entries_of", "passing_directory", "stays_in_place"]


def stays_in_place(K: Any, engine: Engine) -> bool:
    """Whether tasks read the caller's matrix where it is; else it is copied to a directory."""
    return is_zarr(K) or (isinstance(K, np.ndarray) and engine.shares_memory)


def entries_of(K: Any, plan: Plan, engine: Engine, directory: Path | None) -> GramEntries:
    """Kernel of row numbers: entries of the caller's matrix, checked tile by tile, copied where tasks can read them.

    Parameters
    ----------
    K : ndarray, dask array or zarr array of shape (n_samples, n_samples)
        Never written to.
    plan : Plan
    engine : Engine
    directory : Path, optional
        For the copy, n² entries; not needed where K stays in place.

    Raises
    ------
    InvalidInputError
        For entries that are not finite, and where K is not symmetric beyond rounding.
    """
    dtype = "float32" if K.dtype == np.float32 else "float64"
    if directory is None or stays_in_place(K, engine):
        matrix = MatrixEntries(K)
    else:
        batches = row_batches(K, engine, dtype, plan.tile_rows)
        matrix = write_matrix(
            batches, directory / "matrix.zarr", n_samples=K.shape[0], dtype=dtype, tile_rows=plan.tile_rows
        )
    check_matrix(matrix, plan.tiling, dtype, engine, plan.tiles_per_task)
    return GramEntries(matrix)


@contextmanager
def passing_directory(workdir: Path) -> Iterator[Path]:
    """Directory for what no later fit can use: it has no name by its contents. Gone after the fit, or with the next."""
    with storage_errors(f"writing to {workdir}"):
        for leftover in workdir.glob("passing-*"):  # of a fit that was killed: nobody else is here
            shutil.rmtree(leftover, ignore_errors=True)
        directory = Path(tempfile.mkdtemp(prefix="passing-", dir=workdir))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
