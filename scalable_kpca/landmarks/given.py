"""Landmarks that the user names, as rows or by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.landmarks.priorities import row_priorities
from scalable_kpca.source import FiniteCheck, RowBlock, RowSummary, Span, as_csr, is_sparse, stack
from scalable_kpca.streaming import BlockSpan, map_spans

__all__ = ["choose_columns", "fetch_rows", "given_rows"]

Numbers = NDArray[np.int64]


def given_rows(
    given: Any, summary: RowSummary, engine: Engine, spans: Sequence[Span | BlockSpan], batch_rows: int
) -> tuple[RowBlock, Numbers, int]:
    """Rows behind an array of rows or of row numbers.

    Parameters
    ----------
    given : array-like or sparse matrix of shape (m, n_features), or integers of shape (m,)
    summary : RowSummary
        Of the source.
    engine, spans, batch_rows
        See `fetch_rows`.

    Returns
    -------
    rows : ndarray or scipy CSR array of shape (m, n_features), float32 or float64
    numbers : ndarray of shape (m,), int64
        -1 for given rows.
    n_passes : int
        0 or 1.

    Raises
    ------
    InvalidInputError
        For another shape or dtype, no landmark at all, an entry that is not finite, a number that no row has.
    """
    if is_sparse(given):
        rows = as_csr(given)
        _check_rows(rows, summary.n_features)
        return rows, np.full(rows.shape[0], -1, np.int64), 0
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InvalidInputError(f"the landmarks given are no array: {error}.") from error
    if array.ndim not in (1, 2) or array.dtype.kind not in ("iu" if array.ndim == 1 else "iuf"):
        raise InvalidInputError(
            f"the landmarks given have shape {array.shape} and dtype {array.dtype}; rows of shape (n_landmarks, "
            f"{summary.n_features}) are needed, or row numbers, integers of shape (n_landmarks,)."
        )
    if array.ndim == 1:
        if len(array) == 0:
            _refuse_none()
        _check_numbers(array, summary.n_samples)
        numbers = array.astype(np.int64)
        return fetch_rows(engine, spans, numbers, batch_rows=batch_rows), numbers, 1
    _check_rows(array, summary.n_features)
    rows = array.astype("float32" if array.dtype == np.float32 else "float64")
    return rows, np.full(len(rows), -1, np.int64), 0


def fetch_rows(
    engine: Engine,
    spans: Sequence[Span | BlockSpan],
    numbers: Numbers,
    *,
    batch_rows: int,
    stage: str = "landmarks",
) -> RowBlock:
    """Rows by their numbers, in that order; one pass over the spans that have any of them.

    Parameters
    ----------
    engine : Engine
        Where the pass runs.
    spans : sequence of Span
        All rows, in order.
    numbers : ndarray of shape (m,), int64
        m ≥ 1 numbers of rows that there are, repeated ones included.
    batch_rows : int
        Rows that a task reads at a time.
    stage : str
        Name in progress events.

    Returns
    -------
    ndarray or scipy CSR array of shape (m, n_features)
        In the dtype of the source.
    """
    wanted, places = np.unique(numbers, return_inverse=True)
    shares = [wanted[(wanted >= span.start) & (wanted < span.start + span.n_rows)] for span in spans]
    some = [index for index, share in enumerate(shares) if len(share)]
    picked = map_spans(
        engine,
        [spans[index] for index in some],
        _pick,
        batch_rows,
        each=[shares[index] for index in some],
        stage=stage,
    )
    return stack(list(picked))[places]


def _pick(span: Span, wanted: Numbers, batch_rows: int) -> RowBlock:
    picked = []
    for batch in span.batches(batch_rows):
        stop = batch.start + batch.rows.shape[0]
        here = wanted[(wanted >= batch.start) & (wanted < stop)]
        if len(here):
            picked.append(batch.rows[here - batch.start])
        if stop > wanted[-1]:
            break
    return stack(picked)


def _check_numbers(numbers: NDArray[Any], n_samples: int) -> None:
    bad = np.flatnonzero((numbers < 0) | (numbers >= n_samples))
    if len(bad):
        raise InvalidInputError(
            f"landmark {bad[0]} is row number {numbers[bad[0]]} (1 of {len(bad)} such landmarks); rows are numbered "
            f"from 0 to {n_samples - 1}."
        )


def _refuse_none() -> NoReturn:
    raise InvalidInputError("no landmarks are given; at least one row or row number is needed.")


def _check_rows(rows: RowBlock, n_features: int) -> None:
    if rows.shape[0] == 0:
        _refuse_none()
    if rows.shape[1] != n_features:
        raise InvalidInputError(
            f"the landmarks given have {rows.shape[1]} features and the source has {n_features}; give the same columns "
            "in the same order."
        )
    finite = FiniteCheck()
    finite.add(rows)
    if finite.first is not None:
        row, column, value = finite.first
        raise InvalidInputError(f"landmark {row}, column {column} is {value}; landmarks are rows of finite numbers.")


def choose_columns(landmarks: Any, n_samples: int, n_landmarks: int, *, seed: int) -> Numbers:
    """Columns of a precomputed Gram matrix that are landmarks: drawn uniformly, or given by their numbers.

    Parameters
    ----------
    landmarks : "uniform" or array-like of integers
    n_samples, n_landmarks, seed : int

    Returns
    -------
    ndarray of shape (m,), int64
    """
    import pyarrow as pa

    if isinstance(landmarks, str):
        if landmarks != "uniform":
            raise ConfigError(
                f"landmarks={landmarks!r} looks at rows, and of a precomputed kernel there are none; choose 'uniform', "
                "or give row numbers."
            )
        priorities = row_priorities(pa.table({"row": np.arange(n_samples)}), seed)
        return np.sort(np.argsort(priorities, kind="stable")[:n_landmarks]).astype(np.int64)
    numbers = np.asarray(landmarks)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InvalidInputError(
            f"landmarks of a precomputed kernel are row numbers, and an array of shape {numbers.shape} and dtype "
            f"{numbers.dtype} was given; give integers of shape (m,)."
        )
    _check_numbers(numbers, n_samples)
    return numbers.astype(np.int64)
