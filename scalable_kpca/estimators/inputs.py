"""Rows in whatever form the caller has them, as what a fit reads: numpy, CSR, dask or zarr arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.source import check_width, is_sparse
from scalable_kpca.staging import is_dask, is_zarr

__all__ = ["copy_is_needed", "held_bytes", "read_input"]

_PARTS = ("data", "indices", "indptr", "row", "col", "offsets")  # of sparse matrices


def read_input(estimator: Any, X: Any, *, reset: bool, accept_sparse: bool = True) -> Any:
    """Matrix of numbers, and the number and names of its columns kept in, or compared with, the estimator.

    Parameters
    ----------
    estimator : BaseEstimator
        Gets ``n_features_in_`` and ``feature_names_in_``, or has them.
    X : array-like, dask array or dataframe, zarr array, table of pandas or pyarrow, sparse matrix or array
        Of shape (n_samples, n_features); never written to.
    reset : bool
        Whether this is a fit.
    accept_sparse : bool
        Whether scipy's sparse matrices are rows of this kernel.

    Returns
    -------
    ndarray (float32 or float64), csr matrix or array, dask array with known chunks, or zarr array
        Not checked to be finite: who reads it all does that, and names row and column.

    Raises
    ------
    InvalidInputError
        For what is no matrix of real numbers.
    ValueError
        As scikit-learn raises it, for other shapes, other names and other widths.
    """
    if _is_frame_of_dask(X):
        _keep_names(estimator, list(X.columns), reset=reset)
        return _counted(estimator, _array_of_frame(X), reset=reset)
    if hasattr(X, "read_next_batch"):
        raise InvalidInputError(
            f"{type(X).__name__} can be read only once, and a fit reads its rows more often; give X.read_all() where "
            "that fits in memory, or write it to Parquet with scalable_kpca.source.write_table and run a job on that."
        )
    if _is_arrow(X):
        _keep_names(estimator, X.column_names, reset=reset)
        return _counted(estimator, _array_of_arrow(X), reset=reset)
    if is_dask(X) or is_zarr(X):
        if reset:
            _forget_names(estimator)
        return _counted(estimator, X, reset=reset)
    return _in_memory(estimator, X, reset=reset, accept_sparse=accept_sparse)


def copy_is_needed(rows: Any, X: Any) -> bool:
    """Whether a model that keeps `rows` would change when the caller writes to X.

    Files that are mapped to be read stay files, and what is computed or read block by block is gathered in an array of
    its own.
    """
    if not isinstance(rows, np.ndarray):
        return rows is X and is_sparse(X)
    if isinstance(X, np.memmap) and X.mode == "r":
        return False
    # of a frame the first column: only what is one block is not copied
    part = X if isinstance(X, np.ndarray) else X.iloc[:, 0].to_numpy() if hasattr(X, "iloc") else None
    return not rows.flags.owndata if part is None else bool(np.may_share_memory(rows, part))


def held_bytes(rows: Any, X: Any) -> int:
    """Memory of X beside the rows that were made from it; 0 where they are the same, or where X does not say."""
    if rows is X or (isinstance(rows, np.ndarray) and copy_is_needed(rows, X)):
        return 0
    if isinstance(X, np.memmap) or is_dask(X) or _is_frame_of_dask(X):
        return 0
    if is_sparse(X):
        return sum(int(part.nbytes) for part in (getattr(X, name, None) for name in _PARTS) if part is not None)
    used = getattr(X, "memory_usage", None)  # of pandas
    return int(np.sum(used())) if callable(used) else int(getattr(X, "nbytes", 0))


def _in_memory(estimator: Any, X: Any, *, reset: bool, accept_sparse: bool) -> Any:
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise InvalidInputError(
            f"X is a masked array, and {int(np.ma.getmaskarray(X).sum())} of its entries are missing; fill them, or "
            "leave out their rows: np.ma.compress_rows(X)."
        )
    # finiteness is checked by our own streaming check, which names the row and column
    options: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}
    try:
        return validate_data(estimator, X, reset=reset, accept_sparse="csr" if accept_sparse else False, **options)
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise InvalidInputError(
            f"X holds something that is not a number ({error}); encode or leave out columns of text and other objects."
        ) from error


def _counted(estimator: Any, X: Any, *, reset: bool) -> Any:
    """A matrix that scikit-learn does not look at, its width kept or compared."""
    if len(X.shape) != 2 or 0 in X.shape:
        raise InvalidInputError(f"X has shape {X.shape}; a matrix with at least one row and column is needed.")
    if X.dtype.kind not in "fiub":
        raise InvalidInputError(f"X has dtype {X.dtype}; real numbers are needed: encode or leave out other columns.")
    if reset:
        estimator.n_features_in_ = X.shape[1]
    check_width(X.shape[1], estimator.n_features_in_)
    if is_dask(X) and np.isnan(X.shape[0]):
        # a copy, which shares the graph: what is counted is written into the array itself
        X = X.copy().compute_chunk_sizes()
        if X.shape[0] == 0:
            raise InvalidInputError("X has no rows; at least one is needed.")
    return X


def _is_frame_of_dask(X: Any) -> bool:
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_dask_array")


def _array_of_frame(X: Any) -> Any:
    """Columns side by side; rows are counted by who needs to know: lengths=True fails on a selection of columns."""
    array = X.to_dask_array()
    if array.dtype.kind == "O":
        raise InvalidInputError("X has columns of objects; real numbers are needed: encode or leave them out.")
    return array


def _is_arrow(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] == "pyarrow" and hasattr(X, "column_names")


def _array_of_arrow(X: Any) -> np.ndarray[Any, Any]:
    """Columns side by side, float64 unless all are float32; a null is NaN."""
    import pyarrow as pa

    wrong = [field for field in X.schema if not (_is_number(field.type) or pa.types.is_null(field.type))]
    if wrong:
        raise InvalidInputError(
            f'column "{wrong[0].name}" is {wrong[0].type} (1 of {len(wrong)} such columns); real numbers are needed: '
            "encode or leave out other columns."
        )
    narrow = all(pa.types.is_float32(field.type) for field in X.schema)
    matrix = np.empty((X.num_rows, X.num_columns), np.float32 if narrow else np.float64)
    for position, column in enumerate(X.columns):
        matrix[:, position] = column.to_numpy() if column.null_count == 0 else column.cast("float64").to_numpy()
    return matrix


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _keep_names(estimator: Any, names: Sequence[Any], *, reset: bool) -> None:
    """Names of the columns of a table that scikit-learn does not read, kept or compared as it does: all are text."""
    if not all(isinstance(name, str) for name in names):
        if reset:
            _forget_names(estimator)
        return
    if reset:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
        return
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is not None and list(fitted) != list(names):
        pairs = zip(names, fitted, strict=False)
        other = next((pair for pair in pairs if pair[0] != pair[1]), (len(names), len(fitted)))
        raise InvalidInputError(
            f"the columns are not those of the fit: {other[0]!r} where {other[1]!r} was; give the same columns in the "
            "same order."
        )


def _forget_names(estimator: Any) -> None:
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
