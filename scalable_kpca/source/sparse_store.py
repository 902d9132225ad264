"""Sparse rows on disk: a zarr group of entries, their columns, and where rows end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.errors import storage_errors
from scalable_kpca.source.rows import Rows, checked_codecs, cut, reading_rows
from scalable_kpca.source.sparse import RowBlock, block_of_entries
from scalable_kpca.source.stored_arrays import ROW_DTYPES, check_group, open_stored

__all__ = ["StoredSparseRows", "write_sparse_rows"]

CHUNK_ENTRIES = 2**17  # 1 MiB of float64; a read decodes the chunks that it touches, each whole


@dataclass(frozen=True)
class StoredSparseRows:
    """Rows of a finished group: a small handle that any process opens once.

    Attributes
    ----------
    path : str
        Of a zarr group with ``data`` and ``indices`` of shape (n_entries,) and ``ends`` of shape (n_samples + 1,).
    n_samples, n_features : int
    dtype : str
        Of the entries.
    """

    path: str
    n_samples: int
    n_features: int
    dtype: str

    def read(self, rows: slice) -> RowBlock:
        """Rows of a slice, a CSR array; StorageError when they do not decode."""
        with reading_rows(rows, self.path):
            data, indices, ends = _open_arrays(self.path, *_identity(self.path))
            lengths = ends[rows.start : rows.stop + 1]
            # a chunk that is gone reads as −1; scipy believes what it is given, and would read beyond it
            if lengths[0] < 0 or (np.diff(lengths) < 0).any() or lengths[-1] > data.shape[0]:
                raise ValueError("a chunk of where rows end is missing")
            entries = slice(int(lengths[0]), int(lengths[-1]))
            columns = indices[entries]
            if columns.min(initial=0) < 0 or columns.max(initial=0) >= self.n_features:
                raise ValueError("a chunk of columns is missing")
            block = block_of_entries(data[entries], columns, lengths, self.n_features)
            if np.isnan(block.data).any():  # finite when they are stored
                raise ValueError("a chunk is missing")
        return block


def write_sparse_rows(rows: Rows, path: Path, *, batch_rows: int) -> StoredSparseRows:
    """Copy sparse rows into a new zarr group.

    Parameters
    ----------
    rows : SparseRows or StoredSparseRows
        Finite; their blocks are CSR arrays.
    path : Path
        Directory of the group, which is not there yet.
    batch_rows : int
        Rows in memory at a time; their entries are counted in a first reading.

    Returns
    -------
    StoredSparseRows

    Raises
    ------
    StorageError
        When the file system refuses a write.

    Notes
    -----
    Bytes: 12 an entry, or 8 of float32, and 8 a row; a checksum on every chunk.
    """
    import zarr

    with storage_errors(f"writing rows to {path}"):
        _write(rows, zarr.create_group(str(path)), batch_rows)
    return StoredSparseRows(str(path), rows.n_samples, rows.n_features, rows.dtype)


def _write(rows: Rows, group: Any, batch_rows: int) -> None:
    pieces = cut(rows.n_samples, batch_rows)
    n_entries = sum(rows.read(slice(*piece)).nnz for piece in pieces)
    data = _create(group, "data", n_entries, rows.dtype)
    indices = _create(group, "indices", n_entries, "int32" if rows.n_features <= np.iinfo(np.int32).max else "int64")
    ends = _create(group, "ends", rows.n_samples + 1, "int64")
    done, every = 0, np.zeros(rows.n_samples + 1, np.int64)
    for start, stop in pieces:
        block = rows.read(slice(start, stop))
        every[start : stop + 1] = done + block.indptr.astype(np.int64)
        data[done : done + block.nnz] = block.data
        indices[done : done + block.nnz] = block.indices
        done += block.nnz
    ends[...] = every


def _create(group: Any, name: str, length: int, dtype: str) -> Any:
    codecs = checked_codecs()
    if np.dtype(dtype).kind == "i":
        codecs["fill_value"] = -1
    # an array without entries has no chunk, and zarr wants one to be possible
    return group.create_array(
        name, shape=(length,), chunks=(max(1, min(length, CHUNK_ENTRIES)),), dtype=dtype, **codecs
    )


def _identity(path: str) -> tuple[int, int]:
    status = Path(path, "zarr.json").stat()
    return status.st_ino, status.st_mtime_ns


@lru_cache(maxsize=8)
def _open_arrays(path: str, inode: int, changed: int) -> tuple[Any, Any, Any]:
    del inode, changed  # part of the key: a group that replaced another at the same path is opened anew
    group = Path(path)
    check_group(group)
    data, indices = open_stored(group / "data", ROW_DTYPES, 1), open_stored(group / "indices", ("int32", "int64"), 1)
    if data.shape != indices.shape:
        raise ValueError(f"{data.shape[0]} entries have {indices.shape[0]} columns")
    return data, indices, open_stored(group / "ends", ("int64",), 1)
