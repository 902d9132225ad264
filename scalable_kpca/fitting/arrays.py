"""Arrays of the caller as spans, wherever tasks can read them; and the scores of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.landmarks import look
from scalable_kpca.model import NystroemModel
from scalable_kpca.nystroem import Spans, training_scores
from scalable_kpca.source import ArrayRows, GramColumns, Rows, SparseRows, as_csr, is_sparse, row_spans, row_width
from scalable_kpca.staging import is_dask, is_zarr, row_batches, stage_rows
from scalable_kpca.streaming import block_spans, gram_spans
from scalable_kpca.tiling import rows_of_batch

__all__ = ["first_rows", "scores_of", "spans_of"]

Columns = NDArray[np.int64]

SCORE_ROWS = 8192  # of a task


def spans_of(
    X: Any,
    engine: Engine,
    workdir: Path | None,
    span_rows: int,
    *,
    columns: Columns | None = None,
    square: bool = True,
    names: Sequence[str] = (),
) -> Spans:
    """Spans of an array where it is, if tasks can read it there, else of a copy.

    Parameters
    ----------
    X : ndarray, dask array, zarr array or scipy sparse matrix of shape (n, n_features)
        A dask array is read by its own blocks.
    engine : Engine
    workdir : Path, optional
        For a copy; without it tasks run in this process.
    span_rows : int
        Rows of a span of an array without blocks.
    columns : ndarray of shape (m,), int64, optional
        Of a precomputed kernel: those of the landmarks.
    square : bool
        Whether X is the whole Gram matrix, so that its diagonal is read too.
    names : sequence of str
        Of the columns.
    """
    if is_dask(X):
        return block_spans(X) if columns is None else gram_spans(X, columns, square=square)
    rows: Rows = SparseRows(as_csr(X)) if is_sparse(X) else ArrayRows(X)
    if workdir is not None and not (is_zarr(X) or engine.shares_memory):
        rows, _ = stage_rows(X, engine, workdir, tile_rows=span_rows, names=names)
    return row_spans(rows if columns is None else GramColumns(rows, columns, square), span_rows)


def first_rows(X: Any, engine: Engine) -> NDArray[np.float64]:
    """The first three rows, or fewer, float64."""
    return next(row_batches(X[:3], engine, "float64", 3))


def scores_of(X: Any, model: NystroemModel, engine: Engine, *, checked: bool) -> NDArray[np.float64]:
    """Scores of all rows of an array, shape (n, k), float64, by the tasks of an engine.

    Parameters
    ----------
    X : ndarray, dask array, zarr array or scipy sparse matrix of shape (n, n_features)
        Finite numbers.
    model : NystroemModel
    engine : Engine
        Runs in this process, unless X is a dask array.
    checked : bool
        Whether the rows are known to be finite.
    """
    width = model.basis.landmarks.shape[1]
    batch_rows = rows_of_batch(row_width(X) if is_sparse(X) else width)
    spans = spans_of(X, engine, None, SCORE_ROWS, columns=model.columns, square=False)
    if not checked:
        names = model.feature_names
        look(engine, spans, n_features=width, names=names, batch_rows=batch_rows)
    return np.concatenate(list(training_scores(spans, model.projection, engine, batch_rows)))
