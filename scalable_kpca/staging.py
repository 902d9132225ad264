"""Rows of the caller's array where the tasks of a fit can read them: in memory, or in a directory."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import storage_errors
from scalable_kpca.source import (
    ArrayRows,
    Rows,
    RowSummary,
    SparseRows,
    StoredRows,
    StoredSparseRows,
    as_csr,
    digest_rows,
    is_sparse,
    read_rows,
    write_rows,
    write_sparse_rows,
)
from scalable_kpca.source.rows import cut

__all__ = ["exclusive_directory", "is_dask", "is_zarr", "row_batches", "stage_rows"]


@contextmanager
def exclusive_directory(path: Path) -> Iterator[Path]:
    """Directory that one fit at a time uses: the next one waits, and finds what is reusable; death releases it."""
    with storage_errors(f"opening {path}"):
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield path
    finally:
        os.close(descriptor)


def stage_rows(
    X: Any, engine: Engine, workdir: Path | None, *, tile_rows: int, names: Sequence[str]
) -> tuple[Rows, RowSummary]:
    """Checked rows that tasks can read, and what was learned on the way; X is read once or twice, block by block.

    Parameters
    ----------
    X : ndarray, dask array, zarr array or scipy sparse matrix of shape (n_samples, n_features)
        The caller's rows; never written to. Sparse ones stay sparse, unless so many entries are not 0, or features so
        few, that this saves nothing: see `SparseRows`.
    engine : Engine
        Computes the blocks of a dask array.
    workdir : Path, optional
        Where the rows are copied to; without it they stay, or are gathered, in memory.
    tile_rows : int
        Rows of a block.
    names : sequence of str
        Column names for error messages; may be empty.

    Returns
    -------
    rows : Rows
    summary : RowSummary

    Raises
    ------
    InvalidInputError
        Naming row and column of the first entry that is not finite.
    """
    X = as_csr(X) if is_sparse(X) else X
    n_samples, n_features = X.shape
    dtype = "float32" if X.dtype == np.float32 else "float64"
    batches = row_batches(X, engine, dtype, tile_rows)
    if workdir is None:
        if is_sparse(X):
            return SparseRows(X), read_rows(batches, n_features, tile_rows, names)
        array = X if isinstance(X, np.ndarray) else _gather(batches, X.shape, dtype)
        return ArrayRows(array), read_rows(row_batches(array, engine, dtype, tile_rows), n_features, tile_rows, names)
    for leftover in workdir.glob("rows-*.new"):  # of a fit that was killed: nobody else is here
        shutil.rmtree(leftover, ignore_errors=True)
    fresh = workdir / f"rows-{uuid.uuid4().hex}.new"
    rows: StoredRows | StoredSparseRows
    if is_sparse(X) and not SparseRows(X).is_held_dense:
        summary = read_rows(batches, n_features, tile_rows, names)
        rows = write_sparse_rows(SparseRows(X), fresh, batch_rows=tile_rows)
    else:
        rows, summary = write_rows(
            batches,
            fresh,
            n_samples=n_samples,
            n_features=n_features,
            dtype=dtype,
            tile_rows=tile_rows,
            fingerprint="",
            names=names,
        )
    # named by its contents, so that rows of another fit in the same directory are never replaced
    final = workdir / f"rows-{digest_rows(rows, tile_rows)[:16]}-{tile_rows}.zarr"
    if final.exists():
        shutil.rmtree(fresh)
    else:
        fresh.rename(final)
    return replace(rows, path=str(final)), summary


def is_dask(X: Any) -> bool:
    """Whether X is a dask array."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "chunks")


def is_zarr(X: Any) -> bool:
    """Whether X is a zarr array."""
    return type(X).__module__.partition(".")[0] == "zarr"


def _gather(batches: Iterator[NDArray[Any]], shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    array, start = np.empty(shape, dtype), 0
    for batch in batches:
        array[start : start + len(batch)] = batch
        start += len(batch)
    return array


def row_batches(X: Any, engine: Engine, dtype: str, rows: int) -> Iterator[Any]:
    """Rows of an array in order: the row blocks of a dask array, else so many at a time."""
    if is_sparse(X):
        for piece in cut(X.shape[0], rows):
            yield SparseRows(X).read(slice(*piece)).astype(dtype, copy=False)
    elif is_dask(X):
        for block in engine.row_blocks(X):
            yield np.asarray(block, dtype)
    else:
        for start in range(0, X.shape[0], rows):
            yield np.asarray(X[start : start + rows], dtype)
