"""Parquet parts: labels and scores of the same rows, one part for each input file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import ConfigError, StorageError, storage_errors
from scalable_kpca.source.written import RowGroupWriter

NOVELTY, RECONSTRUCTION = "novelty", "reconstruction"  # columns beside the scores

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
    Row groups and memory: see `RowGroupWriter`. A part is whole when the writer has gone on to the next one or is left
    without an error.
    """

    def __init__(self, directory: Path, part_rows: list[int]) -> None:
        self._directory, self._part_rows = directory, part_rows
        self._index, self._schema = -1, None  # type: tuple[int, Any]
        self._writer: RowGroupWriter | None = None

    def __enter__(self) -> PartWriter:
        return self

    def add(self, index: int, table: Any) -> None:
        """Append a table to part `index`; indices never go back."""
        self._schema = table.schema
        if self._writer is None or index != self._index:
            self._close()
            self._index = index
            self._writer = RowGroupWriter(self._directory / part_name(index), table.schema)
        self._writer.add(table)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            if self._writer is not None:
                self._writer.drop()  # a part that is not whole is of no use
            with contextlib.suppress(StorageError):  # what went wrong first is what matters
                self._close()
            return
        self._close()
        if self._schema is not None:
            # an input part without rows still has its output part, so that parts can be matched by number
            for index, n_rows in enumerate(self._part_rows):
                if n_rows == 0:
                    write_part(self._schema.empty_table(), self._directory / part_name(index))

    def _close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def write_part(table: Any, path: Path) -> None:
    """Write a whole part; StorageError when the file system refuses."""
    import pyarrow.parquet as pq

    with storage_errors(f"writing {path}", path):
        pq.write_table(table, path.absolute())  # relative, `a:b/c` is a URI for pyarrow


def part_name(index: int) -> str:
    """File name of a part."""
    return f"part-{index:05d}.parquet"
