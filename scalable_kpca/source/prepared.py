"""A table whose columns are prepared while they are read: the same rows, numbered and labelled as they are stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import RowError
from scalable_kpca.records import digest_json
from scalable_kpca.source.decoding import PIECE_BYTES
from scalable_kpca.source.learning import fit_preparation
from scalable_kpca.source.parquet import pieces
from scalable_kpca.source.parts import Part, changed_file, rows_together
from scalable_kpca.source.preparation import Preparation, Recipe, Vocabulary
from scalable_kpca.source.spans import Batch, Labels
from scalable_kpca.source.survey import Ends, RawSource, Survey, survey, survey_batch
from scalable_kpca.source.tables import Source

__all__ = ["PreparedSource", "PreparedSpan", "prepare_columns", "sample_columns", "survey_parts"]

SAMPLE_SPANS, SAMPLE_ROWS = 16, 4096  # places from which rows are taken, and how many of each


class RawSpan(Protocol):
    """A span whose numeric columns are not prepared yet; its tables have the categorical ones too."""

    @property
    def path(self) -> str: ...
    @property
    def part(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def first_row(self) -> int:
        """Number of the first row in its file."""

    @property
    def dtype(self) -> str: ...
    @property
    def held_bytes(self) -> int: ...
    def batches(self, batch_rows: int, labels: Labels = "none") -> Iterator[Batch]: ...


@dataclass(frozen=True)
class PreparedSpan:
    """Consecutive rows of a table that are not left out, prepared.

    Parameters
    ----------
    raw : RawSpan
        Where they are, with those that are left out.
    preparation : Preparation
    id_names, label_names : tuple of str
        Columns of the labels, in order: those that name a row, and all that travel.
    start, n_rows : int
        See `Span`: of the rows that stay.
    skip : int
        Rows of `raw` that stay and come before this span.
    counted : bool
        Whether `n_rows` is known, and not merely at most so many.

    Notes
    -----
    Memory beside a batch: what `ParquetSpan` holds for pieces of 1 MiB, and two copies of such a piece.
    """

    raw: RawSpan
    preparation: Preparation
    id_names: tuple[str, ...]
    label_names: tuple[str, ...]
    start: int
    n_rows: int
    skip: int = 0
    counted: bool = True

    @property
    def part(self) -> int:
        """Index of the part of the source."""
        return self.raw.part

    @property
    def held_bytes(self) -> int:
        """Bytes that reading holds beside the batch, estimated; labels not counted."""
        return self.raw.held_bytes + 3 * PIECE_BYTES

    def batches(self, batch_rows: int, labels: Labels = "none") -> Iterator[Batch]:
        """The rows in order, at most `batch_rows` at a time; with their ids, or with every column that travels.

        Raises
        ------
        InvalidInputError
            As `ParquetSpan.batches`; and for a value that the preparation does not take, naming file, row and column.
        """
        done, at, tables = 0, 0, []  # type: int, int, list[Any]
        block = self._block(batch_rows)
        for values, table, numbers in self._pieces(labels):
            used = 0
            while used < len(values):
                count = min(len(values) - used, len(block) - at)
                piece = slice(used, used + count)
                own = None if table is None else table.slice(used, count)
                self._apply(values[piece], own, block[at : at + count], numbers[piece])
                tables.append(own)
                used, at = used + count, at + count
                if at == len(block):
                    yield self._batch(block, tables, done, labels)
                    done += at
                    block, tables, at = self._block(min(batch_rows, self.n_rows - done)), [], 0
        if done + at < self.n_rows and self.counted:
            raise changed_file(self.raw.path, f"{self.n_rows - done - at} of {self.n_rows} rows are missing")
        if at:
            yield self._batch(block[:at], tables, done, labels)

    def _pieces(self, labels: Labels) -> Iterator[tuple[NDArray[Any], Any, NDArray[np.int64]]]:
        """Numeric columns, labels and numbers in the file of rows that stay, from the first of this span on."""
        skip, left = self.skip, self.n_rows
        first = self.raw.first_row - self.raw.start  # of a row's number over all files, in its own
        width = len(self.preparation.numeric) + len(self.preparation.categorical)
        for batch in self.raw.batches(max(1, PIECE_BYTES // (8 * width)), labels):
            numbers = np.arange(batch.start, batch.start + len(batch.rows)) + first
            values, table = batch.rows, batch.labels
            keep = self.preparation.kept(values, table)
            if keep is not None:
                values, numbers = values[keep], numbers[keep]
                table = None if table is None else table.filter(keep)
            own = slice(min(skip, len(values)), min(skip + left, len(values)))
            skip -= own.start
            left -= own.stop - own.start
            yield values[own], None if table is None else table.slice(own.start, own.stop - own.start), numbers[own]
            if not left:
                return

    def _apply(self, values: NDArray[Any], table: Any, out: NDArray[Any], numbers: NDArray[np.int64]) -> None:
        try:
            self.preparation.apply(values, table, out)
        except RowError as error:
            raise RowError(int(numbers[error.row]), error.text, f" of {self.raw.path}") from error

    def _block(self, n_rows: int) -> NDArray[Any]:
        return np.empty((min(n_rows, self.n_rows), self.preparation.n_features), self.raw.dtype)

    def _batch(self, block: NDArray[Any], tables: list[Any], done: int, labels: Labels) -> Batch:
        import pyarrow as pa

        table = None
        if labels != "none":
            joined = pa.concat_tables(tables)
            table = joined.select(list(self.label_names if labels == "all" else self.id_names))
        return Batch(self.part, block, table, self.start + done)


class PreparedSource:
    """Rows of a table, prepared.

    Parameters
    ----------
    raw : ParquetSource or ArraySource
        Its features are the numeric columns, and its categorical ones those of the preparation.
    preparation : Preparation
    kept : list of list of int, optional
        Rows of each row group of each file that are not left out; they are counted when they are first asked for.
    counted : bool
        Whether `kept` is known, and not merely at most so many.
    found : Survey, optional
        Of all rows, when the preparation was fitted on them.
    of_parts : mapping of int to Survey, optional
        Of some parts, as `survey_parts` has them.

    Attributes
    ----------
    raw, preparation, found, of_parts
        See above.
    feature_names, label_names, dtype
        See `Source`.
    """

    def __init__(
        self,
        raw: RawSource,
        preparation: Preparation,
        kept: list[list[int]] | None = None,
        *,
        counted: bool = True,
        found: Survey | None = None,
        of_parts: Mapping[int, Survey] | None = None,
    ) -> None:
        self.raw, self.preparation, self.found, self.of_parts = raw, preparation, found, of_parts or {}
        self._given, self._counted = kept, counted
        self.feature_names = preparation.feature_names
        self.label_names = raw.label_names
        self.dtype = raw.dtype

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Files, with their rows that are not left out."""
        return tuple(
            Part(part.path, sum(kept), part.inner) for part, kept in zip(self.raw.parts, self._kept, strict=True)
        )

    @property
    def copied_bytes(self) -> int:
        """Of the copies that the table is read from."""
        return self.raw.copied_bytes

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the parts are; no row is counted for it."""
        return self.raw.paths

    def only(self, parts: Collection[int], expected: Ends | None = None) -> PreparedSource:
        """The same source, of which all parts but these have no rows: theirs need not be counted.

        Parts whose rows have to be counted are surveyed for it, with what is `expected`: see `survey_parts`.
        """
        counts = self.preparation.recipe.nulls == "drop" and self._given is None
        of_parts = dict(survey_parts(self, parts, expected)) if counts else {}
        every = {part: found.kept[part] for part, found in of_parts.items()} if counts else dict(enumerate(self._kept))
        kept = [every[part] if part in parts else [0] * len(sizes) for part, sizes in enumerate(self.raw.group_rows)]
        return PreparedSource(self.raw, self.preparation, kept, of_parts=of_parts)

    @property
    def n_samples(self) -> int:
        """Number of rows that are not left out."""
        return sum(part.n_rows for part in self.parts)

    def batches(self) -> Iterator[Batch]:
        """All rows in order, a few MiB at a time."""
        start, files = 0, self.raw.whole_files()  # type: int, Iterator[RawSpan]
        for raw, kept in zip(files, self._kept, strict=True):
            yield from self._span(raw, start, sum(kept)).batches(self._batch_rows, "all")
            start += sum(kept)

    def spans(self, span_rows: int) -> list[PreparedSpan]:
        """Spans of at most `span_rows` rows, as `ParquetSource.spans` makes them of the rows that are not left out."""
        spans, start, raw_start = [], 0, 0
        for part, (sizes, kept) in enumerate(zip(self.raw.group_rows, self._kept, strict=True)):
            before_group = [0, *accumulate(sizes)]
            for groups, skip, n_rows in pieces(kept, span_rows):
                before = before_group[groups[0]]
                inside = before_group[groups[1]] - before
                raw: RawSpan
                if kept == sizes:  # nothing is left out: the span is where it would be
                    raw, skipped = self.raw.span(part, raw_start + before + skip, groups, skip, n_rows), 0
                else:
                    raw, skipped = self.raw.span(part, raw_start + before, groups, 0, inside), skip
                spans.append(self._span(raw, start, n_rows, skipped))
                start += n_rows
            raw_start += sum(sizes)
        return spans

    def fingerprint(self) -> str:
        """SHA-256 of the contents of all files in order, of the roles of columns, and of how they are prepared."""
        return self.fingerprint_of(self.raw.fingerprint())

    def fingerprint_of(self, contents: str) -> str:
        """What `fingerprint` is when that of the table is `contents`."""
        return digest_json([contents, self.preparation.recipe.identity])

    def part_fingerprints(self) -> tuple[str, ...]:
        """SHA-256 of the content of each file, of the roles of columns, and of the numbers they are prepared with."""
        return tuple(digest_json([name, self.preparation.digest]) for name in self.raw.part_fingerprints())

    @cached_property
    def _kept(self) -> list[list[int]]:
        if self._given is not None:
            return self._given
        if self.preparation.recipe.nulls != "drop":
            return self.raw.group_rows
        return survey(self.raw, self.preparation.recipe, known=self.preparation.vocabularies).kept

    @property
    def _batch_rows(self) -> int:
        return rows_together(len(self.feature_names) + len(self.label_names))

    def _span(self, raw: RawSpan, start: int, n_rows: int, skip: int = 0) -> PreparedSpan:
        ids, labels = self.raw.id_names, self.label_names
        return PreparedSpan(raw, self.preparation, ids, labels, start, n_rows, skip, self._counted)


def prepare_columns(raw: RawSource, recipe: Recipe) -> PreparedSource:
    """A table with its columns prepared as a recipe asks for, after one pass over all its rows: see `survey`."""
    found = survey(raw, recipe)
    return PreparedSource(raw, fit_preparation(raw, recipe, found), found.kept, found=found)


def survey_parts(source: Source, parts: Collection[int], expected: Ends | None = None) -> Iterator[tuple[int, Survey]]:
    """Number and survey of some parts of a source, its columns as they are before they are prepared.

    Parameters
    ----------
    source : Source
        ParquetSource, ArraySource or PreparedSource.
    parts : collection of int
    expected : tuple of ndarray of shape (d,), optional
        Ends of the numeric columns in the rows of a fit; the same ones wherever the same source is surveyed.
    """
    done: Mapping[int, Survey] = {}
    known: Sequence[Vocabulary] = ()
    raw: Any = source
    recipe = Recipe()
    if isinstance(source, PreparedSource):
        raw, done = source.raw, source.of_parts
        recipe, known = source.preparation.recipe, source.preparation.vocabularies
    size = survey_batch(raw)
    for part, whole in enumerate(raw.whole_files()):
        if part not in parts:
            continue
        found = done.get(part)
        if found is None:
            found = survey(raw, recipe, batches=whole.batches(size), known=known, expected=expected)
        yield part, found


def sample_columns(raw: RawSource, recipe: Recipe) -> PreparedSource:
    """The same from some of the rows, for plans: no row is left out yet, and categories may be missing."""
    spans = raw.spans(SAMPLE_ROWS)
    chosen = [spans[int(at)] for at in np.unique(np.linspace(0, len(spans) - 1, SAMPLE_SPANS).astype(int))]
    found = survey(raw, recipe, batches=(next(iter(span.batches(SAMPLE_ROWS))) for span in chosen))
    preparation = fit_preparation(raw, replace(recipe, unknown="ignore"), found, sampled=True)
    return PreparedSource(raw, preparation, raw.group_rows, counted=False)
