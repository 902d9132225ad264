"""Spans of Parquet files: row groups, or a slice of a large one, decoded into blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import KernelPCAError, storage_errors
from scalable_kpca.objects import is_object, open_object
from scalable_kpca.source.fetching import fetch_buffer, fetch_runs, fetched_whole, held_of_object
from scalable_kpca.source.label_types import as_types
from scalable_kpca.source.parts import changed_file
from scalable_kpca.source.spans import Batch, Labels, cut, row_numbers

__all__ = ["Columns", "ParquetSpan", "feature_dtype", "is_numeric", "is_numeric_or_null"]

Block = NDArray[np.floating[Any]]

BUFFER_BYTES = 16 * 2**10  # of each column that is being read, in place of its whole chunk of the row group
PIECE_BYTES = 2**20  # decoded at a time: stays in the cache until it is copied into the block
CURSOR_BYTES = 32 * 2**20  # what columns that are read side by side may hold: below it one pass over them is worth more
CACHE_LINE = 64


@dataclass(frozen=True)
class Columns:
    """Columns of a table in use, and what features become.

    Attributes
    ----------
    features, ids, passthrough : tuple of str
    dtype : str
        ``"float32"`` or ``"float64"``.
    extra : tuple of str
        Columns that are read as they are beside the labels, whatever labels are asked for.
    types : tuple of (str, pyarrow.DataType)
        What labels become that not all files hold as the same type.
    """

    features: tuple[str, ...]
    ids: tuple[str, ...]
    passthrough: tuple[str, ...]
    dtype: str
    extra: tuple[str, ...] = ()
    types: tuple[tuple[str, Any], ...] = ()

    def labels(self, labels: Labels) -> tuple[str, ...]:
        """Those that are read when `labels` are asked for, each once."""
        wanted = {"none": (), "ids": self.ids, "all": (*self.ids, *self.passthrough)}[labels]
        return tuple(dict.fromkeys((*wanted, *self.extra)))


@dataclass(frozen=True)
class ParquetSpan:
    """Consecutive rows of one Parquet file: whole row groups, or a slice of one.

    Parameters
    ----------
    path : str
    part, start, n_rows : int
        See `Span`.
    groups : tuple of (int, int)
        First row group, and the one after the last.
    skip : int
        Rows of the first group that come before the span; they are decoded and dropped.
    layout : tuple of (int, int, int)
        Rows of the file before these groups, in them and altogether, when the source was opened.
    columns : Columns
    constants : tuple of (str, str or None)
        Labels that all rows of the file have in common, from its path, and their values.
    cursor_bytes : int
        What pyarrow may hold while it reads all columns of this file side by side.
    use_threads : bool
        Whether columns are decoded in parallel: for a reader that is alone.
    copy : str
        Parquet copy of a file of another kind, which is read in its place.
    fetched : tuple of int
        Of an object: bytes as stored of the columns in use, in each of these row groups.

    Notes
    -----
    The file is opened by the process that reads it, and checked against `layout` first.

    Memory beside a batch: see `held_bytes`. pyarrow keeps the dictionary and the page of each column that it is in,
    by default 1 MiB each however few rows a batch has. Where this is more than the whole span, the span is decoded
    16 (float32) or 8 (float64) columns at a time, a cache line of each row.

    Of an object the columns in use of some row groups come with a few requests, as long as they have at most 32 MiB;
    a larger group is read column by column, up to 1 MiB a request.
    """

    path: str
    part: int
    start: int
    n_rows: int
    groups: tuple[int, int]
    skip: int
    layout: tuple[int, int, int]
    columns: Columns
    constants: tuple[tuple[str, str | None], ...] = ()
    cursor_bytes: int = 0
    use_threads: bool = False
    copy: str = ""
    fetched: tuple[int, ...] = ()

    @property
    def first_row(self) -> int:
        """Number of the first row in its file."""
        return self.layout[0] + self.skip

    @property
    def dtype(self) -> str:
        """Of the features."""
        return self.columns.dtype

    @property
    def held_bytes(self) -> int:
        """Bytes that reading holds beside the batch, estimated from the footer; labels not counted."""
        held = self._group_bytes if self._in_groups else self.cursor_bytes
        return 2 * PIECE_BYTES + held + held_of_object(self.fetched, self._n_columns)

    def batches(self, batch_rows: int, labels: Labels = "none") -> Iterator[Batch]:
        """The rows in order, at most `batch_rows` at a time; with their ids, or with every column that travels.

        Raises
        ------
        InvalidInputError
            When the file is damaged, or not what it was when the source was opened.
        StorageError
            When it cannot be opened.
        """
        with (
            _named_errors(self.path),
            self._opened() as file,
        ):
            self._check(file)
            read = self._by_groups if self._in_groups else self._side_by_side
            yield from read(file, batch_rows, labels)

    def _opened(self) -> Any:
        import pyarrow.parquet as pq

        if is_object(self.path):
            buffer, whole = fetch_buffer(self._n_columns), fetched_whole(self.fetched)
            return pq.ParquetFile(open_object(self.path), buffer_size=buffer, pre_buffer=whole)
        # pre_buffer would read the chunks of all columns at once
        return pq.ParquetFile(self.copy or self.path, buffer_size=BUFFER_BYTES, pre_buffer=False)

    @property
    def _n_columns(self) -> int:
        return len({*self.columns.features, *self.columns.labels("all")})

    @property
    def _in_groups(self) -> bool:
        return self.cursor_bytes > max(CURSOR_BYTES, self._group_bytes)

    @property
    def _group_bytes(self) -> int:
        """The rows of the span, and the columns that are read together with their share of what all would hold."""
        width, n_features = CACHE_LINE // self._itemsize, len(self.columns.features)
        block = self.n_rows * n_features * self._itemsize
        return block + self.cursor_bytes * min(width, n_features) // max(1, n_features)

    @property
    def _itemsize(self) -> int:
        return np.dtype(self.columns.dtype).itemsize

    def _check(self, file: Any) -> None:
        metadata, (first, stop) = file.metadata, self.groups
        sizes = [metadata.row_group(group).num_rows for group in range(min(stop, metadata.num_row_groups))]
        found = (sum(sizes[:first]), sum(sizes[first:]), metadata.num_rows)
        if found[2] != self.layout[2]:
            raise changed_file(self.path, f"it had {self.layout[2]} rows and has {found[2]}")
        if found != self.layout or metadata.num_row_groups < stop:
            raise changed_file(self.path, f"its {self.layout[2]} rows are in other row groups")
        schema = file.schema_arrow
        names = (*self.columns.features, *self.columns.labels("all"))
        types = [schema.field(name).type for name in names][: len(self.columns.features)]  # KeyError names what is gone
        if not all(map(is_numeric_or_null, types)) or (
            self.columns.dtype == "float32" and feature_dtype(types) != "float32"
        ):
            kinds = ", ".join(sorted({str(kind) for kind in types}))
            raise changed_file(self.path, f"its features were {self.columns.dtype} and are {kinds}")

    def _side_by_side(self, file: Any, batch_rows: int, labels: Labels) -> Iterator[Batch]:
        """All columns at once; the next block is filled while they are read."""
        features, names = self.columns.features, self.columns.labels(labels)
        done, at = 0, 0
        block, tables = self._block(batch_rows), []
        for piece in self._pieces(file, (*names, *features)):
            while len(piece):
                part = piece.slice(0, len(block) - at)
                _fill(block[at : at + len(part)], part, features)
                tables.append(part.select(list(names)))
                piece, at = piece.slice(len(part)), at + len(part)
                if at == len(block):
                    yield self._batch(block, self._joined(tables, names), done, labels)
                    done += at
                    block, tables, at = self._block(min(batch_rows, self.n_rows - done)), [], 0

    def _by_groups(self, file: Any, batch_rows: int, labels: Labels) -> Iterator[Batch]:
        """Some columns after the others, into a block of the whole span."""
        names, width = self.columns.labels(labels), CACHE_LINE // self._itemsize
        block = self._block(self.n_rows)
        for first in range(0, len(self.columns.features), width):
            features, at = self.columns.features[first : first + width], 0
            for piece in self._pieces(file, features):
                _fill(block[at : at + len(piece), first : first + width], piece, features)
                at += len(piece)
        table = self._joined(list(self._pieces(file, names)), names) if names else None
        for done, stop in cut(self.n_rows, batch_rows):
            own = None if table is None else table.slice(done, stop - done)
            yield self._batch(block[done:stop], own, done, labels)

    def _pieces(self, file: Any, names: Sequence[str]) -> Iterator[Any]:
        """Record batches of some columns that hold the rows of the span, and no others."""
        skip, left = self.skip, self.n_rows
        if not left:
            return
        rows = min(max(PIECE_BYTES // (self._itemsize * len(names)), 512), 2**16)
        runs = fetch_runs(self.groups[0], self.fetched) if self.fetched else [list(range(*self.groups))]
        found = (file.iter_batches(rows, run, list(names), use_threads=self.use_threads) for run in runs)
        for piece in chain.from_iterable(found):
            if skip < len(piece):
                own = piece.slice(skip, left)
                left -= len(own)
                yield own
            skip = max(0, skip - len(piece))
            if not left:
                return
        raise changed_file(self.path, f"{left} of {self.n_rows} rows are missing")

    def _joined(self, pieces: Sequence[Any], names: Sequence[str]) -> Any:
        import pyarrow as pa

        return as_types(pa.Table.from_batches(pieces), self.columns.types) if names else None

    def _block(self, n_rows: int) -> Block:
        return np.empty((min(n_rows, self.n_rows), len(self.columns.features)), self.columns.dtype)

    def _batch(self, block: Block, table: Any, done: int, labels: Labels) -> Batch:
        import pyarrow as pa

        start = self.start + done
        if labels != "none" and not self.columns.ids:
            # rows without an id are numbered, over all files
            numbers = row_numbers(start, start + len(block))
            table = numbers if table is None else table.add_column(0, "row", numbers["row"])
        if labels == "all":
            for name, value in self.constants:
                table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(block)))
        return Batch(self.part, block, table, start)


def _fill(block: Block, piece: Any, features: Sequence[str]) -> None:
    """Columns of a record batch into a block of the same rows; nulls become NaN."""
    import pyarrow as pa

    if not features:
        return
    wanted = pa.from_numpy_dtype(block.dtype)
    columns = [piece.column(name) for name in features]
    columns = [column if column.type == wanted else column.cast(wanted, safe=False) for column in columns]
    # pyarrow transposes faster than a loop over columns in numpy
    block[...] = pa.RecordBatch.from_arrays(columns, list(features)).to_tensor(null_to_nan=True).to_numpy()


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Errors of pyarrow, which name no file, as ours."""
    import pyarrow as pa

    try:
        with storage_errors(f"reading {path}"):
            try:
                yield
            except KernelPCAError:
                raise
            except OSError as error:
                if error.errno is None:  # not the operating system's: pages that do not decode
                    raise changed_file(path, error) from error
                raise
    except MemoryError:  # pyarrow's own is an ArrowException, too
        raise
    except (pa.ArrowException, KeyError) as error:
        raise changed_file(path, error) from error


def feature_dtype(types: Sequence[Any]) -> str:
    """``"float32"`` when every feature is, or is shorter; else ``"float64"``; what has no value is of any type."""
    return "float32" if all(str(kind) in ("float", "halffloat", "null") for kind in types) else "float64"


def is_numeric(kind: Any) -> bool:
    """Whether a column of this pyarrow type can be a feature."""
    import pyarrow.types as pt

    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_decimal(kind))


def is_numeric_or_null(kind: Any) -> bool:
    """Whether a column of this type may be a feature: one without any value has rows that are refused, or none."""
    import pyarrow.types as pt

    return is_numeric(kind) or bool(pt.is_null(kind))
