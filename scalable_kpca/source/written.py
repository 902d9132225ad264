"""Parquet files of ours: row groups that are good to read, and any stream of record batches as a source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from scalable_kpca.disk import new_directory
from scalable_kpca.errors import ConfigError, InvalidInputError, StorageError, storage_errors

__all__ = ["HELD_BYTES", "ROW_GROUP_ROWS", "RowGroupWriter", "sliced", "write_table"]

ROW_GROUP_ROWS = 2**16  # a file of many small groups is slow to read, and its footer long
HELD_BYTES = 32 * 2**20  # of tables that wait for their group to be full


class RowGroupWriter:
    """A Parquet file, written table by table.

    Parameters
    ----------
    path : Path
    schema : pyarrow.Schema
        Of every table.

    Raises
    ------
    StorageError
        When the file system refuses a write.

    Notes
    -----
    Tables are gathered into row groups of 65 536 rows or more, unless these take more than 32 MiB. Memory: one row
    group. The file is whole when it has been closed.
    """

    def __init__(self, path: Path, schema: Any) -> None:
        import pyarrow.parquet as pq

        self._path = path
        self._held: list[Any] = []
        self._held_rows, self._held_bytes = 0, 0
        with self._writing():
            self._writer = pq.ParquetWriter(path.absolute(), schema)  # relative, `a:b/c` is a URI for pyarrow

    def add(self, table: Any) -> None:
        """Append a table."""
        self._held.append(table)
        self._held_rows, self._held_bytes = self._held_rows + table.num_rows, self._held_bytes + table.nbytes
        if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= HELD_BYTES:
            self._write()

    def drop(self) -> None:
        """Forget what is not written yet: the file is of no use."""
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def close(self) -> None:
        """Write what is held, and the end of the file."""
        try:
            self._write()
        finally:
            with self._writing():
                self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa

        if self._held_rows:
            with self._writing():
                self._writer.write_table(pa.concat_tables(self._held))
        self.drop()

    def _writing(self) -> AbstractContextManager[None]:
        return storage_errors(f"writing {self._path}", self._path)


def sliced(batch: Any) -> Iterator[Any]:
    """A record batch as tables of at most a row group each, which share its memory."""
    import pyarrow as pa

    step = max(1, min(ROW_GROUP_ROWS, HELD_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, step):
        yield pa.Table.from_batches([batch.slice(start, step)])


def write_table(table: Any, path: str | Path, *, part_rows: int = 2**22) -> int:
    """Write a stream of record batches as a new directory of Parquet files, which is a source for jobs.

    What reads from Delta Lake, Iceberg, a database or another program gives such a stream: see `pipelines/from_sql.py`.

    Parameters
    ----------
    table : pyarrow.RecordBatchReader, or whatever has ``__arrow_c_stream__``
        Read once, to its end; such as a table of pyarrow, polars or DuckDB.
    path : str or Path
        Of the directory, which is not there yet; it appears whole, or not at all.
    part_rows : int
        Rows of each file but the last.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    StorageError
        When something has the name, or the file system refuses a write.
    InvalidInputError
        For what is no such stream.

    Notes
    -----
    Memory: one record batch of the stream and one row group. An error of the stream passes, and leaves nothing.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"id": [1, 2, 3], "x": [0.5, 1.5, 2.5]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(pa.RecordBatchReader.from_batches(batch.schema, [batch]), f"{folder}/rows")
    3
    """
    if part_rows < 1:
        raise ConfigError(f"part_rows={part_rows}; a file has at least one row.")
    reader, place = _reader_of(table), Path(path)
    if place.exists() or place.is_symlink():
        raise StorageError(f"{place} exists; name a new directory.")
    with storage_errors(f"writing {place}"), new_directory(place) as staging:
        return _write_parts(reader, staging, part_rows)


def _reader_of(table: Any) -> Any:
    import pyarrow as pa

    if isinstance(table, pa.RecordBatchReader):
        return table
    if not hasattr(table, "__arrow_c_stream__"):
        raise InvalidInputError(
            f"{type(table).__name__} is no stream of record batches; give a pyarrow.RecordBatchReader, or what has "
            "__arrow_c_stream__."
        )
    return pa.RecordBatchReader.from_stream(table)


def _write_parts(reader: Any, directory: Path, part_rows: int) -> int:
    """Parts of a stream; an empty one where it has no rows."""
    number, room, total = 0, part_rows, 0
    writer = RowGroupWriter(directory / _name(number), reader.schema)
    try:
        for batch in reader:
            for piece in sliced(batch):
                while piece.num_rows:
                    if room == 0:
                        writer.close()
                        number, room = number + 1, part_rows
                        writer = RowGroupWriter(directory / _name(number), reader.schema)
                    own = piece.slice(0, room)
                    writer.add(own)
                    piece, room, total = piece.slice(len(own)), room - len(own), total + len(own)
    except BaseException:
        writer.drop()
        raise
    finally:
        writer.close()
    return total


def _name(number: int) -> str:
    return f"part-{number:05d}.parquet"
