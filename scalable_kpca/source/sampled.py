"""The first rows of CSV and Arrow files, and about how many more there are: what a plan is made from."""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from scalable_kpca.source.location import source_kind
from scalable_kpca.source.parquet import ParquetSource
from scalable_kpca.source.parts import OfParts, Part
from scalable_kpca.source.preparation import Recipe
from scalable_kpca.source.prepared import sample_columns
from scalable_kpca.source.readers import CsvOptions, open_decompressed, open_table
from scalable_kpca.source.spans import Batch, Span
from scalable_kpca.source.tables import Source
from scalable_kpca.source.written import RowGroupWriter, sliced

__all__ = ["SampledSource"]

SAMPLE_BYTES = 2**20  # of the text of each file


class _Sample(NamedTuple):
    read: int
    about: int


class SampledSource(OfParts):
    """First rows of each file, as Parquet in a temporary directory that goes with the object.

    Parameters
    ----------
    files, id_columns, features, passthrough, categorical, partition
        See `ParquetSource`.
    csv : CsvOptions
    recipe : Recipe, optional
        How the columns are prepared.

    Attributes
    ----------
    note : str
        What is a guess; empty where every row has been read.

    Notes
    -----
    Cost: a MiB of the text of each CSV file, the first record batch of each Arrow file, and the headers of those of a
    stream. Nothing is written but the sample. Rows of CSV are counted from the bytes that the first ones take.
    """

    def __init__(
        self,
        files: Sequence[Path],
        csv: CsvOptions,
        id_columns: Sequence[str],
        features: Sequence[str] | None,
        passthrough: Sequence[str],
        categorical: Sequence[str] = (),
        partition: Sequence[str] = (),
        *,
        recipe: Recipe | None = None,
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="skpca-plan-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        places = [folder / f"{number}.parquet" for number in range(len(files))]
        samples = [_sample(file, csv, place) for file, place in zip(files, places, strict=True)]
        raw = ParquetSource(files, id_columns, features, passthrough, categorical, partition, copies=places)
        self._rows: Source = raw if recipe is None or not raw.n_samples else sample_columns(raw, recipe)
        self.parts = tuple(Part(str(file), sample.about) for file, sample in zip(files, samples, strict=True))
        self.feature_names, self.label_names = self._rows.feature_names, self._rows.label_names
        self.dtype = self._rows.dtype
        n_read = sum(sample.read for sample in samples)
        self.copied_bytes = math.ceil(raw.copied_bytes * self.n_samples / max(1, n_read))
        self.note = ""
        if n_read != self.n_samples:
            self.note = (
                f"rows: about {self.n_samples}, guessed from the first {n_read}; the files are copied to Parquet and "
                "counted when the job is run"
            )

    def batches(self) -> Iterator[Batch]:
        """The rows of the sample."""
        return self._rows.batches()

    def spans(self, span_rows: int) -> Sequence[Span]:
        """The rows of the sample, in spans."""
        return self._rows.spans(span_rows)

    def fingerprint(self) -> str:
        """SHA-256 of the contents of all files, as of a source that is read whole but for how."""
        return self._rows.fingerprint()

    def part_fingerprints(self) -> tuple[str, ...]:
        """SHA-256 of the contents of each file."""
        return self._rows.part_fingerprints()


def _sample(file: Path, csv: CsvOptions, place: Path) -> _Sample:
    """Write the first rows of a file; how many these are, and about how many it has."""
    is_text = source_kind([file]) != ".arrow"
    with open_table(file, csv, block_bytes=SAMPLE_BYTES) as table:
        writer, read, later = RowGroupWriter(place, table.schema), 0, 0
        try:
            for batch in islice(table.batches, 1):
                for piece in islice(sliced(batch), 1):
                    writer.add(piece)
                    read = piece.num_rows
                later = batch.num_rows - read
        finally:
            writer.close()
        if not is_text:
            return _Sample(read, read + later + sum(batch.num_rows for batch in table.batches))
    share = _share_read(file)
    return _Sample(read, read + later if share >= 1 else math.ceil((read + later) / share))


def _share_read(file: Path) -> float:
    """Which part of a text a block of it is."""
    size = file.stat().st_size
    with ExitStack() as opened:
        raw, text = open_decompressed(file, opened)
        if len(text.read(SAMPLE_BYTES)) < SAMPLE_BYTES or not text.read(1):
            return 1.0
        return min(1.0, raw.tell() / size) if raw is not text else SAMPLE_BYTES / size
