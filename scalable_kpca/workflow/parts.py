"""Parquet parts: labels and scores of the same rows, one part for each input file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import ConfigError, StorageError, storage_errors

ROW_GROUP_ROWS = 2**16  # a file of many small groups is slow to read, and its footer long
NOVELTY, RECONSTRUCTION = "novelty", "reconstruction"  # columns beside the scores
HELD_BYTES = 32 * 2**20  # of tables that wait for their group to be full

__all__ = ["NOVELTY", "RECONSTRUCTION", "PartWriter", "part_name", "score_names", "with_scores", "write_part"]


def with_scores(labels: Any, scores: NDArray[np.float64], beside: Mapping[str, NDArray[np.float64]]) -> Any:
    """Table of labels with scores (m, k) of the same m rows beside them, pc_000, pc_001, …, and more columns (m,)."""
    import pyarrow as pa

    names, columns = [*score_names(scores.shape[1]), *beside], [*scores.T, *beside.values()]
    taken = set(labels.column_names) & set(names)
    if taken:
        raise ConfigError(f"passthrough columns {sorted(taken)} have the names of scores; rename or leave them out.")
    arrays = [*labels.columns, *(pa.array(np.ascontiguousarray(column)) for column in columns)]
    return pa.table(arrays, names=[*labels.column_names, *names])


def score_names(n_components: int) -> list[str]:
    """Column names of scores."""
    width = max(3, len(str(n_components - 1)))
    return [f"pc_{column:0{width}d}" for column in range(n_components)]


class PartWriter:
    """Parquet parts, one for each input part, each written batch by batch.

    Parameters
    ----------
    directory : Path
        Existing directory for the parts.
    part_rows : list of int
        Rows of each input part; those without rows get an empty part at the end.

    Notes
    -----
    Tables are gathered into row groups of 65 536 rows or more, unless these take more than 32 MiB. Memory: one row
    group. A part is whole when the writer has gone on to the next one or is left without an error.
    """

    def __init__(self, directory: Path, part_rows: list[int]) -> None:
        self._directory, self._part_rows = directory, part_rows
        self._index, self._writer = -1, None  # type: tuple[int, Any]
        self._schema: Any = None
        self._held: list[Any] = []
        self._held_rows, self._held_bytes = 0, 0

    def __enter__(self) -> PartWriter:
        return self

    def add(self, index: int, table: Any) -> None:
        """Append a table to part `index`; indices never go back."""
        import pyarrow.parquet as pq

        self._schema = table.schema
        if index != self._index:
            self._close()
            self._index = index
            with self._writing():
                self._writer = pq.ParquetWriter(self._directory / part_name(index), table.schema)
        self._held.append(table)
        self._held_rows, self._held_bytes = self._held_rows + len(table), self._held_bytes + table.nbytes
        if self._held_rows >= ROW_GROUP_ROWS or self._held_bytes >= HELD_BYTES:
            self._write()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._drop()  # a part that is not whole is of no use
            with contextlib.suppress(StorageError):  # what went wrong first is what matters
                self._close()
            return
        self._close()
        if self._schema is not None:
            # an input part without rows still has its output part, so that parts can be matched by number
            for index, n_rows in enumerate(self._part_rows):
                if n_rows == 0:
                    write_part(self._schema.empty_table(), self._directory / part_name(index))

    def _write(self) -> None:
        import pyarrow as pa

        if self._held_rows:
            with self._writing():
                self._writer.write_table(pa.concat_tables(self._held))
        self._drop()

    def _drop(self) -> None:
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def _close(self) -> None:
        if self._writer is not None:
            try:
                self._write()
            finally:
                writer, self._writer = self._writer, None
                with self._writing():
                    writer.close()

    def _writing(self) -> AbstractContextManager[None]:
        path = self._directory / part_name(self._index)
        return storage_errors(f"writing {path}", path)


def write_part(table: Any, path: Path) -> None:
    """Write a whole part; StorageError when the file system refuses."""
    import pyarrow.parquet as pq

    with storage_errors(f"writing {path}", path):
        pq.write_table(table, path)


def part_name(index: int) -> str:
    """File name of a part."""
    return f"part-{index:05d}.parquet"
