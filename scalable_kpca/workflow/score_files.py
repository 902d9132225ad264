"""Where the scores of rows go: into the Parquet parts of their labels, or into a zarr group beside these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from scalable_kpca.source import ScoreStore, rows_of_chunk
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.parts import PartWriter, score_names

__all__ = ["STORE", "TableWriter", "chunk_files", "writing_scores"]

STORE = "embedding.zarr"
PARTS = "embedding"


class TableWriter(Protocol):
    """Takes tables of labels, scores and columns beside them, part by part, in order."""

    def add(self, index: int, table: Any) -> None:
        """Append a table to part `index`; indices never go back."""


def chunk_files(config: Config, n_rows: int, n_components: int) -> int:
    """Files and directories of the zarr group of so many rows, none where scores go to Parquet."""
    if config.output.format != "zarr":
        return 0
    return (1 + len(config.beside)) * (-(-n_rows // rows_of_chunk(n_components)) + 4) + 2


@contextmanager
def writing_scores(
    place: Path,
    part_rows: Sequence[int],
    *,
    form: str,
    n_components: int,
    beside: Sequence[str],
    parts: str = PARTS,
) -> Iterator[TableWriter]:
    """A writer of tables as `with_scores` makes them; whatever it has begun is whole when it is left without an error.

    Parameters
    ----------
    place : Path
        Directory of the results.
    part_rows : sequence of int
        Rows of each part.
    form : {"parquet", "zarr"}
        Whether scores and columns stand beside the labels in the parts, or in the zarr group ``embedding.zarr``:
        ``scores`` (n, k), and an array (n,) of each column, float64. Row i of the parts, one after another, is row i of
        these; the attribute ``boundaries`` says where each part begins, and where the last one ends.
    n_components : int
    beside : sequence of str
        Columns beside the scores.
    parts : str
        Directory of the parts, below `place`, of Parquet that holds the scores; there may be one.

    Notes
    -----
    Memory: see `PartWriter` and `ScoreStore`.
    """
    directory = place / (parts if form == "parquet" else PARTS)
    directory.mkdir(exist_ok=True)
    with PartWriter(directory, list(part_rows)) as labels:
        if form == "parquet":
            yield labels
            return
        names = score_names(n_components)
        boundaries = [0, *accumulate(part_rows)]
        described = {
            "format": "scalable_kpca embedding",
            "format_version": 1,
            "names": names,
            "boundaries": boundaries,
        }
        store = ScoreStore(place / STORE, boundaries[-1], n_components, beside, described)
        yield _SplitWriter(labels, store, names, list(beside))
        store.close()


class _SplitWriter:
    """Labels to their parts, numbers to the store."""

    def __init__(self, labels: PartWriter, store: ScoreStore, names: list[str], beside: list[str]) -> None:
        self._labels, self._store, self._names, self._beside = labels, store, names, beside

    def add(self, index: int, table: Any) -> None:
        self._labels.add(index, table.drop_columns([*self._names, *self._beside]))
        columns = [table[name].to_numpy() for name in self._names]
        scores = np.column_stack(columns) if columns else np.empty((len(table), 0))
        self._store.append(scores, {name: table[name].to_numpy() for name in self._beside})
