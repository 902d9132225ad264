"""Parquet files of one schema as a source: which columns are in use, which rows are a span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from scalable_kpca.errors import InvalidInputError, KernelPCAError
from scalable_kpca.objects import SourceFile, StoredObject, open_object
from scalable_kpca.source.columns import (
    check_labels,
    delimiter_hint,
    described_columns,
    merged_schema,
    partition_values,
    select_categorical,
    select_features,
)
from scalable_kpca.source.decoding import Columns, ParquetSpan, feature_dtype, is_numeric_or_null
from scalable_kpca.source.label_types import Published, label_types
from scalable_kpca.source.parts import OfParts, Part, digest_files, rows_together
from scalable_kpca.source.spans import Batch

__all__ = ["ParquetSource", "pieces"]

PAGE_BYTES = 2**20  # of a page, and of a dictionary, unless the writer of the file was told otherwise


class ParquetSource(OfParts):
    """Parquet files with one schema for the columns in use.

    Parameters
    ----------
    files : sequence of Path or StoredObject
        In the order of the rows.
    id_columns, features, passthrough, categorical, partition
        See `open_source`.
    copies : sequence of Path
        Parquet copies of files of another kind, which are read in their place; errors name the files.
    published : Published, optional
        See `open_source`.

    Attributes
    ----------
    categorical : tuple of str
        Columns that every batch has beside its labels, as they are; they are not among the features.
    group_rows : list of list of int
        Rows of each row group of each file.
    copied_bytes : int
        Of the copies.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        id_columns: Sequence[str],
        features: Sequence[str] | None,
        passthrough: Sequence[str],
        categorical: Sequence[str] = (),
        partition: Sequence[str] = (),
        *,
        copies: Sequence[Path] = (),
        published: Published | None = None,
    ) -> None:
        self._files, self._copies = list(files), list(copies)
        self.copied_bytes = sum(copy.stat().st_size for copy in copies)
        footers = [_read_footer(file) for file in copies or files]
        schemas = [footer.schema.to_arrow_schema() for footer in footers]
        self.parts = tuple(Part(str(file), footer.num_rows) for file, footer in zip(files, footers, strict=True))
        labels = (*id_columns, *passthrough)
        self.id_names = tuple(id_columns) or ("row",)
        self.label_names = (*self.id_names, *passthrough, *partition)
        # a file without rows may know less of their types
        first = next((index for index, part in enumerate(self.parts) if part.n_rows), 0)
        known = merged_schema([schemas[first], *schemas])
        self.categorical = select_categorical(known, categorical, files[first])
        check_labels(id_columns, passthrough, partition, self.categorical)
        taken = (*labels, *self.categorical)
        self.feature_names = select_features(known, features, taken, files[first])
        if not self.feature_names and not self.categorical:
            raise InvalidInputError(
                f"{files[first]} has no numeric column to use as a feature; it has "
                f"{described_columns(known, files[first])}: name columns in source.features or source.categorical."
            )
        for schema, file in zip(schemas, files, strict=True):
            _check_schema(schema, (*labels, *self.categorical, *self.feature_names), self.feature_names, file)
            for name in (*id_columns, *self.categorical):
                _refuse_nested(schema, name, "source.id" if name in id_columns else "source.categorical", file)
        self.dtype = feature_dtype([schema.field(name).type for schema in schemas for name in self.feature_names])
        with_rows = [index for index, part in enumerate(self.parts) if part.n_rows]
        filled = [schemas[index] for index in with_rows], [files[index] for index in with_rows]
        types = label_types(*filled, labels, self.categorical, published)
        self._columns = Columns(
            self.feature_names, tuple(id_columns), tuple(passthrough), self.dtype, self.categorical, types
        )
        self._constants = [partition_values(file, partition) for file in files]
        self.group_rows = [_group_rows(footer) for footer in footers]
        used = {*labels, *self.categorical, *self.feature_names}
        self._cursors = [_cursor_bytes(footer, used) for footer in footers]
        self._fetched = [
            _fetched_bytes(footer, used) if isinstance(file, StoredObject) else []
            for file, footer in zip(files, footers, strict=True)
        ]

    def batches(self) -> Iterator[Batch]:
        """All rows in order, a few MiB at a time."""
        size = rows_together(len({*self.label_names, *self.categorical, *self.feature_names}))
        for whole in self.whole_files():
            yield from whole.batches(size, "all")

    def whole_files(self) -> Iterator[ParquetSpan]:
        """One span a file, for a reader that is alone; also of one without rows: it may have some now."""
        start = 0
        for part, sizes in enumerate(self.group_rows):
            yield self.span(part, start, (0, len(sizes)), 0, sum(sizes), use_threads=True)
            start += sum(sizes)

    def spans(self, span_rows: int) -> list[ParquetSpan]:
        """Spans of at most `span_rows` rows: whole row groups of one file, or slices of a larger one, in order.

        Notes
        -----
        A slice decodes its group from the beginning: with s slices a group, (s + 1)/2 times the rows are decoded.
        """
        spans, start = [], 0
        for part, sizes in enumerate(self.group_rows):
            for groups, skip, n_rows in pieces(sizes, span_rows):
                spans.append(self.span(part, start, groups, skip, n_rows))
                start += n_rows
        return spans

    def fingerprint(self) -> str:
        """SHA-256 of the contents of all files in order, and of the names and roles of the columns in use."""
        return digest_files(self._files, self._roles(*self._constants))

    def part_fingerprints(self) -> tuple[str, ...]:
        """SHA-256 of the contents of each file, of the names and roles of the columns in use, and of partition values.

        Not of the file's name, nor of the rest of its path.
        """
        return tuple(
            digest_files([file], self._roles(constants))
            for file, constants in zip(self._files, self._constants, strict=True)
        )

    def _roles(self, *constants: tuple[tuple[str, str | None], ...]) -> list[Any]:
        roles = [self._columns.ids, self._columns.passthrough, self.feature_names]
        return roles + ([self.categorical, constants] if self.categorical or any(constants) else [])

    def span(
        self, part: int, start: int, groups: tuple[int, int], skip: int, n_rows: int, *, use_threads: bool = False
    ) -> ParquetSpan:
        """Rows of some row groups of a file, the first and the one after the last; see `ParquetSpan`."""
        sizes = self.group_rows[part]
        layout = (sum(sizes[: groups[0]]), sum(sizes[slice(*groups)]), sum(sizes))
        path, constants, cursors = self.parts[part].path, self._constants[part], self._cursors[part]
        columns, copy = self._columns, str(self._copies[part]) if self._copies else ""
        fetched = tuple(self._fetched[part][slice(*groups)])
        return ParquetSpan(
            path, part, start, n_rows, groups, skip, layout, columns, constants, cursors, use_threads, copy, fetched
        )


def pieces(sizes: Sequence[int], span_rows: int) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Row groups (first, stop), rows to skip and rows of each span of a file whose row groups have these sizes."""
    first, held = 0, 0
    for group, size in enumerate(sizes):
        if held and held + size > span_rows:
            yield (first, group), 0, held
            first, held = group, 0
        if size > span_rows:
            n_slices = -(-size // span_rows)
            bounds = [size * k // n_slices for k in range(n_slices + 1)]  # of equal work for the tasks
            for skip, stop in pairwise(bounds):
                yield (group, group + 1), skip, stop - skip
            first = group + 1
        else:
            held += size
    if held:
        yield (first, len(sizes)), 0, held


def _read_footer(file: SourceFile) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(open_object(str(file)) if isinstance(file, StoredObject) else file)
    except KernelPCAError:
        raise
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{file} is not a Parquet file that can be read: {error}") from error


def _group_rows(footer: Any) -> list[int]:
    return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]


def _cursor_bytes(footer: Any, used: set[str]) -> int:
    """What columns that are read side by side hold at most, in the largest row group."""
    sizes = _group_rows(footer)
    if not sizes:
        return 0
    return sum(
        min(2 * chunk.total_uncompressed_size, PAGE_BYTES * (1 + chunk.has_dictionary_page))
        for chunk in _chunks(footer.row_group(sizes.index(max(sizes))), used)
    )


def _fetched_bytes(footer: Any, used: set[str]) -> list[int]:
    """Of the columns in use, as stored, in each row group."""
    groups = (footer.row_group(group) for group in range(footer.num_row_groups))
    return [sum(chunk.total_compressed_size for chunk in _chunks(group, used)) for group in groups]


def _chunks(group: Any, used: set[str]) -> list[Any]:
    chunks = [group.column(index) for index in range(group.num_columns)]
    # of a nested column, which only labels can be, the path begins with its name
    return [c for c in chunks if c.path_in_schema in used or c.path_in_schema.split(".")[0] in used]


def _check_schema(schema: Any, columns: Sequence[str], features: Sequence[str], file: SourceFile) -> None:
    for name in columns:
        if name not in schema.names:
            found = ", ".join(schema.names[:20]) + delimiter_hint(schema, file)
            raise InvalidInputError(f'{file} has no column "{name}"; it has {found}.')
        if schema.names.count(name) > 1:
            raise InvalidInputError(
                f'{file} has {schema.names.count(name)} columns named "{name}", and one is needed; write the file with '
                "different names."
            )
    for name in features:
        if not is_numeric_or_null(schema.field(name).type):
            raise InvalidInputError(
                f'{file}: column "{name}" is of type {schema.field(name).type}; features are numbers: name the '
                "numeric columns in source.features, and those whose values are categories in source.categorical."
            )


def _refuse_nested(schema: Any, name: str, key: str, file: SourceFile) -> None:
    import pyarrow.types as pt

    kind = schema.field(name).type
    is_binary = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)
    if pt.is_nested(kind) or (is_binary and key == "source.categorical"):
        raise InvalidInputError(
            f'{file}: column "{name}" of {key} is of type {kind}, and one value or text is needed; move it '
            "to source.passthrough."
        )
