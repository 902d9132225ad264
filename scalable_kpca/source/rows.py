"""Training rows as the tasks of an exact fit read them: aligned to the tiles, checked, in memory or in zarr."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError, StorageError, storage_errors
from scalable_kpca.faults import is_loss
from scalable_kpca.source.checks import FiniteCheck, Moments, RowSummary
from scalable_kpca.source.sparse import RowBlock, is_sparse, stack
from scalable_kpca.source.stored_arrays import ROW_DTYPES, open_stored

__all__ = [
    "ArrayRows",
    "Batches",
    "Rows",
    "StoredRows",
    "aligned_blocks",
    "checked_codecs",
    "cut",
    "digest_rows",
    "open_rows",
    "read_rows",
    "reading_rows",
    "write_rows",
]

Block = NDArray[np.floating[Any]]
Batches = Iterator[RowBlock]


class Rows(Protocol):
    """Rows that any task can read by position.

    Attributes
    ----------
    n_samples, n_features : int
    dtype : str
        ``"float32"`` or ``"float64"``, as the source has them.
    """

    @property
    def n_samples(self) -> int: ...  # noqa: D102
    @property
    def n_features(self) -> int: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    def read(self, rows: slice) -> RowBlock:
        """Rows of a slice, shape (stop − start, n_features): an ndarray, or a CSR array where rows are sparse."""


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """Rows of a numpy array in this process; the array is never written to."""

    array: Block

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.array.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.array.shape[1])

    @property
    def dtype(self) -> str:
        """Name of the dtype."""
        return self.array.dtype.name

    def read(self, rows: slice) -> Block:
        """Rows of a slice: a view."""
        return self.array[rows]


@dataclass(frozen=True)
class StoredRows:
    """Rows of a finished ``rows.zarr``: a small handle that any process opens once."""

    path: str
    n_samples: int
    n_features: int
    dtype: str

    def read(self, rows: slice) -> Block:
        """Rows of a slice; StorageError when they do not decode."""
        with reading_rows(rows, self.path):
            block: Block = _open_array(self.path, *_identity(self.path))[rows]
            if np.isnan(block).any():
                # rows are finite when they are stored, and a chunk that is gone reads as NaN
                raise ValueError("a chunk is missing")
        return block


@contextmanager
def reading_rows(rows: slice, path: str) -> Iterator[None]:
    """StorageError for whatever fails: a refusal of the system, after which the copy may be whole, or damage."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and not is_loss(error):
            with storage_errors(f"reading rows {rows.start} to {rows.stop} of {path}"):
                raise
        raise StorageError(
            f"rows {rows.start} to {rows.stop} of {path} cannot be read ({error}); this copy is damaged: run or fit "
            "again to make it from the source."
        ) from error


def aligned_blocks(batches: Batches, tile_rows: int) -> Iterator[RowBlock]:
    """The same rows in blocks of exactly `tile_rows`, the last one shorter; holds less than two blocks."""
    pending: list[RowBlock] = []
    held = 0
    for batch in batches:
        start, length = 0, batch.shape[0]
        while held + length - start >= tile_rows:
            stop = start + tile_rows - held
            pending.append(batch[start:stop])
            yield stack(pending)
            pending, held, start = [], 0, stop
        if start < length:
            pending.append(batch[start:].copy())
            held += length - start
    if held:
        yield stack(pending)


def cut(n_rows: int, length: int) -> Sequence[tuple[int, int]]:
    """Starts and stops of consecutive pieces of at most `length` rows."""
    return [(start, min(start + length, n_rows)) for start in range(0, n_rows, length)]


def read_rows(batches: Batches, n_features: int, tile_rows: int, names: Sequence[str] | None = None) -> RowSummary:
    """Check rows that stay where they are and summarise them; one streaming pass.

    Raises
    ------
    InvalidInputError
        Naming row and column of the first entry that is not finite.
    """
    return _consume(batches, n_features, tile_rows, names, None)


def checked_codecs() -> dict[str, Any]:
    """How every array of ours is stored: little-endian, a checksum on each chunk, NaN where a chunk is gone."""
    from zarr.codecs import BytesCodec, Crc32cCodec

    return {
        "fill_value": float("nan"),
        "filters": None,
        "serializer": BytesCodec(endian="little"),
        "compressors": [Crc32cCodec()],
        "config": {"write_empty_chunks": True},
    }


def write_rows(
    batches: Batches,
    path: Path,
    *,
    n_samples: int,
    n_features: int,
    dtype: str,
    tile_rows: int,
    fingerprint: str,
    names: Sequence[str] | None = None,
    advance: Callable[[int], None] | None = None,
) -> tuple[StoredRows, RowSummary]:
    """Copy rows once into ``rows.zarr``: chunks of (tile_rows, n_features), a checksum on each, every entry finite.

    Parameters
    ----------
    batches : iterator of ndarray
        The rows in order, in pieces of any length.
    path : Path
        Directory of the array; replaced when it is not the finished copy with this `fingerprint`.
    n_samples, n_features, dtype : int, int, str
        What the batches add up to.
    tile_rows : int
        Rows of a chunk.
    fingerprint : str
        Identity of the contents.
    names : sequence of str, optional
        Column names for error messages.
    advance : callable
        Told the number of rows after each block.

    Returns
    -------
    rows : StoredRows
    summary : RowSummary

    Raises
    ------
    InvalidInputError
        For an entry that is not finite, or when the rows are not as many as announced.
    StorageError
        When the file system refuses a write.

    Notes
    -----
    Memory: two blocks. The copy counts as finished when its attributes hold the fingerprint, which are written last.
    """
    import zarr

    with storage_errors(f"writing rows to {path}"):
        array = zarr.create_array(
            str(path),
            shape=(n_samples, n_features),
            chunks=(min(tile_rows, n_samples), n_features),
            dtype=dtype,
            overwrite=True,
            **checked_codecs(),
        )

        def store(start: int, block: Block) -> None:
            if start + len(block) <= n_samples:
                array[start : start + len(block)] = block
            if advance is not None:
                advance(len(block))

        summary = _consume(batches, n_features, tile_rows, names, store)
        if summary.n_samples != n_samples:
            raise InvalidInputError(
                f"the source announced {n_samples} rows and delivered {summary.n_samples}: it changed while it was "
                "read; run again when it is at rest."
            )
        # a variance may overflow, and JSON has no infinity
        described = asdict(summary) | {"variance": str(summary.variance)}
        array.update_attributes({"fingerprint": fingerprint, "summary": described})
    return StoredRows(str(path), n_samples, n_features, dtype), summary


def open_rows(path: Path, fingerprint: str) -> tuple[StoredRows, RowSummary] | None:
    """The finished copy at `path`, or None when there is none with this fingerprint."""
    try:
        array = open_stored(path, ROW_DTYPES, 2)
        if array.attrs["fingerprint"] != fingerprint:
            return None
        n_samples, n_features = array.shape
        summary = RowSummary(n_samples, n_features, float(array.attrs["summary"]["variance"]))
    except Exception:  # absent, unfinished or damaged: in each case it is made again
        return None
    return StoredRows(str(path), n_samples, n_features, array.dtype.name), summary


def digest_rows(rows: Rows, tile_rows: int) -> str:
    """SHA-256 of shape, dtype and contents of rows that tasks can read, hexadecimal; one streaming pass."""
    total = hashlib.sha256(f"{rows.n_samples} {rows.n_features} {rows.dtype}".encode())
    parts: list[Any] = []  # of sparse rows: digests of columns and entries, so that no block boundary shows
    for piece in cut(rows.n_samples, tile_rows):
        block = rows.read(slice(*piece))
        if is_sparse(block):
            parts = parts or [hashlib.sha256(), hashlib.sha256()]
            total.update(np.diff(block.indptr).astype(np.int64).data)
            parts[0].update(block.indices.astype(np.int64).data)
            parts[1].update(np.ascontiguousarray(block.data).data)
        else:
            total.update(np.ascontiguousarray(block).data)
    for part in parts:
        total.update(part.digest())
    return total.hexdigest()


def _consume(
    batches: Batches,
    n_features: int,
    tile_rows: int,
    names: Sequence[str] | None,
    store: Callable[[int, Block], None] | None,
) -> RowSummary:
    moments, finite = Moments(), FiniteCheck(names)
    start = 0
    for block in aligned_blocks(batches, tile_rows):
        finite.add(block)
        if finite.first is None:
            moments.add(block)
            if store is not None:
                store(start, block)
        start += block.shape[0]
    finite.raise_if_any()
    return RowSummary(start, n_features, moments.variance())


def _identity(path: str) -> tuple[int, int]:
    status = Path(path, "zarr.json").stat()
    return status.st_ino, status.st_mtime_ns


@lru_cache(maxsize=8)
def _open_array(path: str, inode: int, changed: int) -> Any:
    del inode, changed  # part of the key: an array that replaced another at the same path is opened anew
    return open_stored(Path(path), ROW_DTYPES, 2)
