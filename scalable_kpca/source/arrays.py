"""Bare matrices on disk: one .npy file, zarr array or HDF5 dataset, whose rows are numbered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.source.matrices import open_matrix, place_of_matrix
from scalable_kpca.source.parts import OfParts, Part, changed_file, digest_files, rows_together
from scalable_kpca.source.spans import Batch, Labels, cut, row_numbers

__all__ = ["ArraySource", "ArraySpan"]

GROUP_ROWS = 16_384


@dataclass(frozen=True)
class ArraySpan:
    """Consecutive rows of an array on disk.

    Parameters
    ----------
    path : str
    start, n_rows : int
    shape : tuple of (int, int)
        Of the whole array when the source was opened.
    stored : str
        Its dtype then, as numpy writes it.
    dtype : str
        ``"float32"`` or ``"float64"``: what rows become.
    chunk_rows : int
        Rows that are decoded together: those of a chunk, 1 for a file that is not compressed.
    part : int
    dataset : str
        Of an HDF5 file.

    Notes
    -----
    Memory: a batch; of an array in chunks at least those that its rows are in, each decoded once.
    """

    path: str
    start: int
    n_rows: int
    shape: tuple[int, int]
    stored: str
    dtype: str
    chunk_rows: int = 1
    part: int = 0
    dataset: str = ""

    held_bytes = 0  # what is decoded is the batch

    @property
    def first_row(self) -> int:
        """Number of the first row in its file."""
        return self.start

    def batches(self, batch_rows: int, labels: Labels = "none") -> Iterator[Batch]:
        """The rows in order, at most `batch_rows` at a time; labels are row numbers.

        Raises
        ------
        InvalidInputError
            When the array cannot be read, or is not what it was when the source was opened.
        """
        # a span begins with a chunk, or lies within one
        step = max(self.chunk_rows, batch_rows // self.chunk_rows * self.chunk_rows)
        for done, stop in cut(self.n_rows, step):
            first = self.start + done
            block = self._read(first, self.start + stop)
            for a, b in cut(stop - done, batch_rows):
                numbers = None if labels == "none" else row_numbers(first + a, first + b)
                yield Batch(self.part, block[a:b], numbers, first + a)

    def _read(self, first: int, last: int) -> NDArray[np.floating[Any]]:
        # opened anew for each block: pages of a mapped file count as this process's memory until it is closed
        with open_matrix(Path(self.path), self.dataset) as array:
            if (array.shape, array.dtype.str) != (self.shape, self.stored):
                was, found = f"shape {self.shape} and dtype {self.stored}", f"{array.shape} and {array.dtype.str}"
                raise changed_file(self.path, f"it had {was}, and has {found}")
            try:
                return np.array(array[first:last], self.dtype, order="C")
            except MemoryError:
                raise
            except Exception as error:  # whatever the codecs of a zarr array raise
                raise changed_file(self.path, error) from error


class ArraySource(OfParts):
    """One ``.npy`` file, zarr array or HDF5 dataset of shape (n_samples, n_features); its rows are numbered.

    Parameters
    ----------
    path : Path
    inner : str
        Name of the array in a zarr group or an HDF5 file, where it is not the only one.

    Attributes
    ----------
    group_rows : list of list of int
        Rows of pieces of the array, of whole chunks, as row groups are of a table.
    """

    categorical: tuple[str, ...] = ()
    copied_bytes = 0

    def __init__(self, path: Path, inner: str = "") -> None:
        self._path, self._dataset = place_of_matrix(path, inner)
        with open_matrix(self._path, self._dataset) as array:
            self._shape: tuple[int, int] = (int(array.shape[0]), int(array.shape[1]))
            self._stored, self._chunk_rows = array.dtype.str, _chunk_rows(array)
            self.dtype = "float32" if array.dtype == np.float32 else "float64"
        self.parts: tuple[Part, ...] = (Part(str(self._path), self._shape[0], self._dataset),)
        self.feature_names = tuple(f"x{column}" for column in range(self._shape[1]))
        self.id_names: tuple[str, ...] = ("row",)
        self.label_names: tuple[str, ...] = ("row",)
        self._group = self._chunk_rows * max(1, GROUP_ROWS // self._chunk_rows)
        self.group_rows = [[stop - start for start, stop in cut(self._shape[0], self._group)]]

    def batches(self) -> Iterator[Batch]:
        """All rows in order, a few MiB at a time."""
        size = rows_together(self._shape[1])
        for whole in self.whole_files():
            yield from whole.batches(size, "all")

    def whole_files(self) -> Iterator[ArraySpan]:
        """All rows as one span."""
        yield self._span(0, self.n_samples)

    def span(self, part: int, start: int, groups: tuple[int, int], skip: int, n_rows: int) -> ArraySpan:
        """Rows of some pieces, the first and the one after the last, as `ParquetSource.span` gives them."""
        first = groups[0] * self._group + skip
        return replace(self._span(first, first + n_rows), part=part, start=start)

    def spans(self, span_rows: int) -> list[ArraySpan]:
        """Spans of at most `span_rows` rows, of whole chunks or within one, in order."""
        n, chunk = self.n_samples, self._chunk_rows
        if chunk <= span_rows:
            pieces = list(cut(n, span_rows // chunk * chunk))
        else:
            pieces = [(top + a, top + b) for top, end in cut(n, chunk) for a, b in cut(end - top, span_rows)]
        return [self._span(start, stop) for start, stop in pieces]

    def fingerprint(self) -> str:
        """SHA-256 of the contents of the file, or of those of the array, and of the name of a dataset."""
        files = (
            sorted(file for file in self._path.rglob("*") if file.is_file()) if self._path.is_dir() else [self._path]
        )
        names = [str(file.relative_to(self._path)) for file in files]
        return digest_files(files, [*names, self._dataset] if self._dataset else names)

    def part_fingerprints(self) -> tuple[str, ...]:
        """`fingerprint` of the only part."""
        return (self.fingerprint(),)

    def _span(self, start: int, stop: int) -> ArraySpan:
        path = str(self._path)
        layout = self._shape, self._stored, self.dtype, self._chunk_rows
        return ArraySpan(path, start, stop - start, *layout, dataset=self._dataset)


def _chunk_rows(array: Any) -> int:
    chunks = getattr(array, "chunks", None)  # None of an HDF5 dataset that is in one piece
    return max(1, int(chunks[0])) if chunks else 1
