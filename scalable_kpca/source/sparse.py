"""Sparse rows: blocks of them are CSR arrays of scipy, or dense where that takes no more; all that differs is here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError

__all__ = [
    "RowBlock",
    "SparseRows",
    "alike",
    "as_csr",
    "block_of_entries",
    "is_sparse",
    "row_width",
    "squared_norms_of",
    "stack",
]

# A block of rows: an ndarray, or a `scipy.sparse.csr_array` as `as_csr` makes it. `shape`, `dtype`, `astype`, `copy`
# and indexing by slices and row numbers are the same for both; `len` is not.
RowBlock = Any

# Share of entries from which BLAS is faster on all of them than sparse products are on those that are not 0: an entry
# of K takes some 1.5 ns·n_features·share², against 0.04 ns·n_features.
DENSE_SHARE = 1 / 8
RUN_ROWS = 256  # over which the share is measured: a tile has no fewer rows, or few enough
DENSE_BYTES = 64 * 2**20  # of a sparse block that is made dense because the other side of a tile is


def is_sparse(X: Any) -> bool:
    """Whether X is a matrix or array of `scipy.sparse`; does not import it."""
    if isinstance(X, np.ndarray):
        return False
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(X))


def as_csr(X: Any) -> RowBlock:
    """The same rows as a canonical CSR array: sorted indices, no duplicates, no stored zeros, float32 or float64.

    Parameters
    ----------
    X : matrix or array of `scipy.sparse` of shape (n_samples, n_features)
        In any format, with any real numbers; never written to. Repeated entries are added.

    Returns
    -------
    scipy.sparse.csr_array of shape (n_samples, n_features)
        float32 where X is, else float64. Shares memory with X where that is canonical already.

    Raises
    ------
    InvalidInputError
        For entries that are not real numbers, another number of dimensions, or indices outside the shape.
    """
    from scipy.sparse import csr_array

    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"sparse X has shape {X.shape} and dtype {X.dtype}; a matrix of real numbers is needed, rows × features."
        )
    # numbers first: repeated entries of small integers are added where their sum fits
    rows = X.astype(np.float32 if X.dtype == np.float32 else np.float64, copy=False).tocsr()
    rows = csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    try:
        rows.check_format(full_check=True)
    except ValueError as error:
        raise InvalidInputError(f"sparse X is damaged: {error}.") from error
    if not rows.has_canonical_format or np.count_nonzero(rows.data) < rows.nnz:
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    return rows


def row_width(X: Any) -> int:
    """How many float64 numbers a row takes as part of a tile: what a plan counts in the place of n_features.

    Parameters
    ----------
    X : sparse matrix or array of shape (n_samples, n_features)

    Returns
    -------
    int
        n_features where blocks of the rows are held dense; else 12 bytes an entry, in the densest run of 256 rows on
        average, and what products of the blocks need on the way.
    """
    rows = X if X.format == "csr" else X.tocsr()
    return int(rows.shape[1]) if _held_dense(rows) else _csr_width(rows)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse matrix in this process.

    Attributes
    ----------
    matrix : scipy.sparse.csr_array of shape (n_samples, n_features)
        As `as_csr` makes it; never written to.
    """

    matrix: RowBlock

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    @property
    def dtype(self) -> str:
        """Name of the dtype."""
        return str(self.matrix.dtype.name)

    @cached_property
    def is_held_dense(self) -> bool:
        """Whether blocks are ndarrays: so many entries are not 0, or features so few, that sparse ones save nothing."""
        return _held_dense(self.matrix)

    def read(self, rows: slice) -> RowBlock:
        """Rows of a slice: a CSR array, or an ndarray."""
        lengths = self.matrix.indptr[rows.start : rows.stop + 1]
        entries = slice(int(lengths[0]), int(lengths[-1]))
        block = block_of_entries(self.matrix.data[entries], self.matrix.indices[entries], lengths, self.n_features)
        return block.toarray() if self.is_held_dense else block


def block_of_entries(data: NDArray[Any], indices: NDArray[Any], ends: NDArray[Any], n_features: int) -> RowBlock:
    """CSR array of consecutive rows from their entries and the entry numbers at which rows begin and end."""
    from scipy.sparse import csr_array

    kind = np.int32 if max(n_features, len(data)) <= np.iinfo(np.int32).max else np.int64
    block = csr_array(
        (data, indices.astype(kind, copy=False), (ends - ends[0]).astype(kind)), shape=(len(ends) - 1, n_features)
    )
    block.has_canonical_format = True  # else it is looked up, entry by entry, before products
    return block


def stack(blocks: Sequence[RowBlock]) -> RowBlock:
    """Blocks of rows one below the other, a copy: an ndarray where all are, else a CSR array."""
    if not any(is_sparse(block) for block in blocks):
        return np.concatenate(blocks)
    from scipy.sparse import csr_array, vstack

    return vstack([block if is_sparse(block) else csr_array(block) for block in blocks], format="csr")


def alike(rows: RowBlock, columns: RowBlock) -> tuple[RowBlock, RowBlock]:
    """Both sides of a tile as ndarrays or as CSR arrays: dense, unless the sparse one would be too large."""
    if is_sparse(rows) == is_sparse(columns):
        return rows, columns
    sparse, dense = (rows, columns) if is_sparse(rows) else (columns, rows)
    if sparse.shape[0] * sparse.shape[1] * 8 <= DENSE_BYTES:
        made: RowBlock = sparse.toarray()
        return (made, dense) if sparse is rows else (dense, made)
    from scipy.sparse import csr_array

    made = csr_array(dense)
    return (sparse, made) if sparse is rows else (made, sparse)


def squared_norms_of(rows: RowBlock) -> NDArray[np.float64]:
    """‖x‖² of each row of a sparse block, shape (n_rows,), added one by one: as products of equal rows are."""
    from scipy.sparse import csr_array

    rows = rows.tocsr()
    squares = csr_array((np.square(rows.data), rows.indices, rows.indptr), shape=rows.shape)
    norms: NDArray[np.float64] = squares @ np.ones(rows.shape[1])
    return norms


def _entries_of_run(rows: Any) -> float:
    """Entries of a row, on average over the densest run."""
    length = min(RUN_ROWS, rows.shape[0])
    ends = rows.indptr.astype(np.int64, copy=False)
    return float((ends[length:] - ends[:-length]).max(initial=0)) / length if length else 0.0


def _csr_width(rows: Any) -> int:
    # an entry is 8 + 4 bytes. A tile has both of its sides thrice; beside them, products of some rows come as CSR
    # arrays of 12 bytes an entry, and where each feature's column of a side ends is 4 bytes
    return int(1.5 * _entries_of_run(rows)) + 16 + int(rows.shape[1]) // (12 * RUN_ROWS)


def _held_dense(rows: Any) -> bool:
    n_features = int(rows.shape[1])
    return n_features <= _csr_width(rows) or _entries_of_run(rows) >= DENSE_SHARE * n_features
