"""A Gram matrix that the caller has evaluated: columns and diagonal for landmarks, entries for an exact fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError, storage_errors
from scalable_kpca.source.rows import Batches, Rows, aligned_blocks, checked_codecs
from scalable_kpca.source.spans import cut

__all__ = [
    "ASYMMETRY",
    "GramColumns",
    "MatrixEntries",
    "NoRows",
    "RowNumbers",
    "check_landmark_block",
    "gram_columns",
    "refuse_asymmetric",
    "write_matrix",
]

Block = NDArray[np.floating[Any]]

READ_BYTES = 16 * 2**20  # of whole rows of K at a time
DIAGONAL_ROWS = 256  # of which a square is read for the sake of its diagonal
ASYMMETRY = 1000  # times eps of the dtype and the largest entry: what rounding of long inner products leaves


@dataclass(frozen=True, eq=False)
class GramColumns:
    """Some columns of a Gram matrix (n, n), and its diagonal behind them: what the kernel "precomputed" evaluates.

    Attributes
    ----------
    matrix : Rows
        K, row by row.
    columns : ndarray of shape (m,), int64
    square : bool
        Whether row i has k(x, x) in column i; new rows, whose scores do not ask for it, have 0 in its place.
    """

    matrix: Rows
    columns: NDArray[np.int64]
    square: bool = True

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.matrix.n_samples

    @property
    def n_features(self) -> int:
        """Columns and diagonal: m + 1."""
        return len(self.columns) + 1

    @property
    def dtype(self) -> str:
        """Name of the dtype."""
        return "float32" if self.matrix.dtype == "float32" else "float64"

    def read(self, rows: slice) -> Block:
        """Rows of a slice, shape (stop − start, m + 1); whole rows of K are in memory a few MiB at a time."""
        selected = np.empty((rows.stop - rows.start, self.n_features), self.dtype)
        for start, stop in cut(len(selected), max(1, READ_BYTES // (8 * self.matrix.n_features))):
            first = rows.start + start
            block = self.matrix.read(slice(first, rows.start + stop))
            selected[start:stop] = gram_columns(block, self.columns, first if self.square else None)
        return selected


def gram_columns(block: Block, columns: NDArray[np.int64], start: int | None) -> Block:
    """Columns of rows of K, and K[i, i] behind them where the first row's number is known; else 0."""
    diagonal = np.zeros(len(block)) if start is None else block[np.arange(len(block)), start + np.arange(len(block))]
    return np.column_stack([block[:, columns], diagonal])


def check_landmark_block(block: Block, columns: NDArray[np.int64]) -> None:
    """Refuse a precomputed matrix that is not symmetric where landmarks meet, beyond the rounding of its dtype."""
    inside = block[:, :-1]
    difference = np.abs(inside - inside.T)
    allowed = ASYMMETRY * float(np.finfo(inside.dtype).eps) * float(np.abs(inside).max(initial=0.0))
    if difference.max(initial=0.0) > allowed:
        i, j = np.unravel_index(int(difference.argmax()), difference.shape)
        refuse_asymmetric(int(columns[i]), int(columns[j]), float(inside[i, j]), float(inside[j, i]))


def refuse_asymmetric(i: int, j: int, upper: float, lower: float) -> None:
    """Raise InvalidInputError for entries [i, j] and [j, i]."""
    raise InvalidInputError(
        f"the precomputed kernel is not symmetric: K[{i}, {j}] = {upper:.6g} and K[{j}, {i}] = {lower:.6g}; pass "
        "(K + K.T) / 2 if that is what you mean."
    )


@dataclass(frozen=True)
class NoRows:
    """Of a precomputed kernel: rows that were never seen.

    Attributes
    ----------
    n_samples : int
    """

    n_samples: int
    dtype = "float64"

    @property
    def n_features(self) -> int:
        """Of a new row: its kernel values with the training rows."""
        return self.n_samples

    def read(self, rows: slice) -> Block:
        """Nothing can be read."""
        raise InvalidInputError(f"rows {rows.start} to {rows.stop} of a precomputed kernel are not known.")


@dataclass(frozen=True)
class RowNumbers:
    """Rows that are their own numbers, shape (n, 1), float64: what a kernel of entries is evaluated on.

    Attributes
    ----------
    n_samples : int
    """

    n_samples: int
    n_features = 1
    dtype = "float64"

    def read(self, rows: slice) -> Block:
        """Numbers of a slice."""
        return np.arange(rows.start, rows.stop, dtype=np.float64)[:, None]


@dataclass(frozen=True, eq=False)
class MatrixEntries:
    """Entries of a square matrix: a numpy array, or a zarr array, which tasks may open by its path.

    Attributes
    ----------
    array : ndarray, zarr array or str
        Never written to.

    Notes
    -----
    Of an array on disk whole chunks are read: best where they are no larger than a tile.
    """

    array: Any

    def read(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Block:
        """Entries of some rows and columns, shape (a, b): a view of a numpy array where both are consecutive."""
        matrix = self._open()
        down, across = _as_slice(rows), _as_slice(columns)
        if down is not None and across is not None:
            return _floating(matrix[down, across])
        found = np.empty((len(rows), len(columns)))
        for start, stop in cut(len(rows), max(1, READ_BYTES // (8 * int(matrix.shape[1])))):
            piece = _as_slice(rows[start:stop])
            whole = matrix[piece] if piece is not None else np.stack([matrix[int(row)] for row in rows[start:stop]])
            found[start:stop] = whole[:, columns]
        return found

    def diagonal(self, numbers: NDArray[np.int64]) -> Block:
        """Entries [i, i], shape (a,)."""
        values = np.empty(len(numbers))
        for start, stop in cut(len(numbers), DIAGONAL_ROWS):
            values[start:stop] = np.diagonal(self.read(numbers[start:stop], numbers[start:stop]))
        return values

    def _open(self) -> Any:
        if not isinstance(self.array, str):
            return self.array
        import zarr

        return zarr.open_array(self.array, mode="r")


def write_matrix(batches: Batches, path: Path, *, n_samples: int, dtype: str, tile_rows: int) -> MatrixEntries:
    """Copy the rows of a matrix into a zarr array of square chunks, a checksum on each.

    Parameters
    ----------
    batches : iterator of ndarray
        Whole rows in order, in pieces of any length.
    path : Path
        A new directory.
    n_samples, dtype, tile_rows : int, str, int
        Size; of the entries; of a chunk.

    Raises
    ------
    StorageError
        When the file system refuses a write.

    Notes
    -----
    Memory: two blocks of tile_rows whole rows.
    """
    import zarr

    with storage_errors(f"writing the precomputed kernel to {path}"):
        t = min(tile_rows, n_samples)
        array = zarr.create_array(
            str(path), shape=(n_samples, n_samples), chunks=(t, t), dtype=dtype, **checked_codecs()
        )
        start = 0
        for block in aligned_blocks(batches, t):
            array[start : start + len(block)] = block
            start += len(block)
    return MatrixEntries(str(path))


def _as_slice(numbers: NDArray[np.int64]) -> slice | None:
    """Slice of consecutive numbers, None for others."""
    if len(numbers) == 0:
        return slice(0, 0)
    first, last = int(numbers[0]), int(numbers[-1])
    is_run = last - first + 1 == len(numbers) and bool((np.diff(numbers) == 1).all())
    return slice(first, last + 1) if is_run else None


def _floating(block: NDArray[Any]) -> Block:
    return block if block.dtype in (np.float64, np.float32) else block.astype(np.float64)
