"""Scores of many rows on disk as a zarr group: a matrix and columns beside it, written in order, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError, storage_errors
from scalable_kpca.source.rows import checked_codecs

__all__ = ["ScoreStore", "rows_of_chunk"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

CHUNK_ROWS = 2**16
CHUNK_BYTES = 32 * 2**20  # of the matrix, at most: beyond 64 components chunks have fewer rows


class ScoreStore:
    """A new zarr group of ``scores`` (n_rows, n_components) and columns (n_rows,), float64, a checksum on each chunk.

    Parameters
    ----------
    path : Path
        Directory that does not exist.
    n_rows, n_components : int
    beside : sequence of str
        Names of the columns beside the scores.
    attributes : mapping
        JSON values that the group says of itself.

    Notes
    -----
    Memory: one chunk of 65 536 rows, or of 32 MiB where that is less, and what zarr encodes of it. The store is whole
    when `close` has returned.
    """

    def __init__(
        self, path: Path, n_rows: int, n_components: int, beside: Sequence[str], attributes: Mapping[str, Any]
    ) -> None:
        import zarr

        self._path, self._n_rows = path, n_rows
        length = max(1, min(rows_of_chunk(n_components), n_rows))
        with storage_errors(f"writing {path}", path):
            group = zarr.create_group(str(path), attributes=dict(attributes))
            self._arrays: dict[str, Any] = {
                name: group.create_array(
                    name,
                    shape=(n_rows, *width),
                    chunks=(length, *(max(1, size) for size in width)),
                    dtype="float64",
                    **checked_codecs(),
                )
                for name, width in {"scores": (n_components,), **dict.fromkeys(beside, ())}.items()
            }
        self._chunk = {"scores": np.empty((length, n_components)), **{name: np.empty(length) for name in beside}}
        self._length, self._start, self._held = length, 0, 0

    def append(self, scores: Matrix, columns: Mapping[str, Vector]) -> None:
        """Add the next rows: scores (b, n_components), and of each column (b,)."""
        values, done = {"scores": scores, **columns}, 0
        if self._start + self._held + len(scores) > self._n_rows:
            raise self._changed(self._start + self._held + len(scores))
        while done < len(scores):
            count = min(len(scores) - done, self._length - self._held)
            for name, chunk in self._chunk.items():
                chunk[self._held : self._held + count] = values[name][done : done + count]
            done, self._held = done + count, self._held + count
            if self._held == self._length:
                self._write()

    def close(self) -> None:
        """Write the last rows; InvalidInputError when they are fewer than announced."""
        self._write()
        if self._start != self._n_rows:
            raise self._changed(self._start)

    def _write(self) -> None:
        if self._held:
            rows = slice(self._start, self._start + self._held)
            with storage_errors(f"writing {self._path}", self._path):
                for name, chunk in self._chunk.items():
                    self._arrays[name][rows] = chunk[: self._held]
        self._start, self._held = self._start + self._held, 0

    def _changed(self, found: int) -> InvalidInputError:
        return InvalidInputError(
            f"the source announced {self._n_rows} rows, and {found} or more came: it changed while it was read; run "
            "again when it is at rest."
        )


def rows_of_chunk(n_components: int) -> int:
    """Rows of a chunk of scores, where there are as many."""
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // (8 * max(1, n_components))))
