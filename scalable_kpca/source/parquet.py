"""Parquet files of one schema as a source: which columns are in use, which rows are a span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.source.decoding import Columns, ParquetSpan, feature_dtype, is_numeric, is_numeric_or_null
from scalable_kpca.source.parts import BATCH_BYTES, Part, digest_files
from scalable_kpca.source.spans import Batch

__all__ = ["ParquetSource"]

PAGE_BYTES = 2**20  # of a page, and of a dictionary, unless the writer of the file was told otherwise


class ParquetSource:
    """Parquet files with one schema for the columns in use.

    Parameters
    ----------
    files : sequence of Path
        In the order of the rows.
    id_columns, features, passthrough
        See `open_source`.
    copies : sequence of Path
        Parquet copies of files of another kind, which are read in their place; errors name the files.

    Attributes
    ----------
    copied_bytes : int
        Of the copies.
    """

    def __init__(
        self,
        files: Sequence[Path],
        id_columns: Sequence[str],
        features: Sequence[str] | None,
        passthrough: Sequence[str],
        *,
        copies: Sequence[Path] = (),
    ) -> None:
        self._files, self._copies = list(files), list(copies)
        self.copied_bytes = sum(copy.stat().st_size for copy in copies)
        footers = [_read_footer(file) for file in copies or files]
        schemas = [footer.schema.to_arrow_schema() for footer in footers]
        self.parts = tuple(Part(str(file), footer.num_rows) for file, footer in zip(files, footers, strict=True))
        _check_labels(id_columns, passthrough)
        labels = (*id_columns, *passthrough)
        self.label_names = labels if id_columns else ("row", *passthrough)
        # a file without rows may know less of their types
        first = next((index for index, part in enumerate(self.parts) if part.n_rows), 0)
        self.feature_names = _select_features(schemas[first], features, labels, files[first])
        for schema, file in zip(schemas, files, strict=True):
            _check_schema(schema, (*labels, *self.feature_names), self.feature_names, file)
            _check_ids(schema, id_columns, file)
        self.dtype = feature_dtype([schema.field(name).type for schema in schemas for name in self.feature_names])
        self._columns = Columns(self.feature_names, tuple(id_columns), tuple(passthrough), self.dtype)
        self._groups = [_group_rows(footer) for footer in footers]
        used = {*labels, *self.feature_names}
        self._cursors = [_cursor_bytes(footer, used) for footer in footers]

    @property
    def n_samples(self) -> int:
        """Number of rows, from the files' footers."""
        return sum(part.n_rows for part in self.parts)

    def batches(self) -> Iterator[Batch]:
        """All rows in order, a few MiB at a time."""
        size = max(1, BATCH_BYTES // (8 * len({*self.label_names, *self.feature_names})))
        start = 0
        for part, sizes in enumerate(self._groups):
            # one span a file, also of one without rows: it may have some now
            whole = self._span(part, start, (0, len(sizes)), 0, sum(sizes), use_threads=True)
            yield from whole.batches(size, "all")
            start += sum(sizes)

    def spans(self, span_rows: int) -> list[ParquetSpan]:
        """Spans of at most `span_rows` rows: whole row groups of one file, or slices of a larger one, in order.

        Notes
        -----
        A slice decodes its group from the beginning: with s slices a group, (s + 1)/2 times the rows are decoded.
        """
        spans, start = [], 0
        for part, sizes in enumerate(self._groups):
            for groups, skip, n_rows in _pieces(sizes, span_rows):
                spans.append(self._span(part, start, groups, skip, n_rows))
                start += n_rows
        return spans

    def fingerprint(self) -> str:
        """SHA-256 of the contents of all files in order, and of the names and roles of the columns in use."""
        return digest_files(self._files, self._roles())

    def part_fingerprints(self) -> tuple[str, ...]:
        """SHA-256 of the contents of each file and of the names and roles of the columns in use; not of its name."""
        return tuple(digest_files([file], self._roles()) for file in self._files)

    def _roles(self) -> list[Any]:
        return [self._columns.ids, self._columns.passthrough, self.feature_names]

    def _span(
        self, part: int, start: int, groups: tuple[int, int], skip: int, n_rows: int, *, use_threads: bool = False
    ) -> ParquetSpan:
        sizes = self._groups[part]
        layout = (sum(sizes[: groups[0]]), sum(sizes[slice(*groups)]), sum(sizes))
        path, cursors = self.parts[part].path, self._cursors[part]
        copy = str(self._copies[part]) if self._copies else ""
        return ParquetSpan(path, part, start, n_rows, groups, skip, layout, self._columns, cursors, use_threads, copy)


def _pieces(sizes: Sequence[int], span_rows: int) -> Iterator[tuple[tuple[int, int], int, int]]:
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


def _read_footer(file: Path) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(file)
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{file} is not a Parquet file that can be read: {error}") from error


def _group_rows(footer: Any) -> list[int]:
    return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]


def _cursor_bytes(footer: Any, used: set[str]) -> int:
    """What columns that are read side by side hold at most, in the largest row group."""
    sizes = _group_rows(footer)
    if not sizes:
        return 0
    group = footer.row_group(sizes.index(max(sizes)))
    chunks = [group.column(index) for index in range(group.num_columns)]
    # of a nested column, which only labels can be, the path begins with its name
    return sum(
        min(2 * chunk.total_uncompressed_size, PAGE_BYTES * (1 + chunk.has_dictionary_page))
        for chunk in chunks
        if chunk.path_in_schema in used or chunk.path_in_schema.split(".")[0] in used
    )


def _check_labels(ids: Sequence[str], passthrough: Sequence[str]) -> None:
    """Refuse output columns that would have the same name."""
    names = [*ids, *passthrough]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f'column "{twice}" is named twice in source.id and source.passthrough; both travel to the output: name it '
            "once."
        )
    if not ids and "row" in passthrough:
        raise InvalidInputError(
            'source.passthrough names a column "row", and rows without an id are numbered in a column of that name; '
            'move it to source.id ("id: [row]"), or name another id.'
        )


def _select_features(schema: Any, patterns: Sequence[str] | None, labels: Sequence[str], file: Path) -> tuple[str, ...]:
    free = [name for name in schema.names if name not in labels]
    if patterns is None:
        chosen = [field.name for field in schema if field.name in free and is_numeric(field.type)]
        chosen = chosen or [field.name for field in schema if field.name in free and is_numeric_or_null(field.type)]
    else:
        chosen = []
        for pattern in patterns:
            found = [name for name in free if fnmatchcase(name, pattern) and name not in chosen]
            if not found:
                raise InvalidInputError(
                    f'source.features: "{pattern}" matches no free column of {file}, which has '
                    f"{', '.join(schema.names[:20])}."
                )
            chosen += found
    if not chosen:
        raise InvalidInputError(f"{file} has no numeric column to use as a feature; name them in source.features.")
    return tuple(chosen)


def _check_ids(schema: Any, ids: Sequence[str], file: Path) -> None:
    import pyarrow.types as pt

    for name in ids:
        if pt.is_nested(schema.field(name).type):
            raise InvalidInputError(
                f'{file}: column "{name}" of source.id is of type {schema.field(name).type}, and an id is one value; '
                "move it to source.passthrough."
            )


def _check_schema(schema: Any, columns: Sequence[str], features: Sequence[str], file: Path) -> None:
    for name in columns:
        if name not in schema.names:
            raise InvalidInputError(f'{file} has no column "{name}"; it has {", ".join(schema.names[:20])}.')
        if schema.names.count(name) > 1:
            raise InvalidInputError(
                f'{file} has {schema.names.count(name)} columns named "{name}", and one is needed; write the file with '
                "different names."
            )
    for name in features:
        if not is_numeric_or_null(schema.field(name).type):
            raise InvalidInputError(
                f'{file}: column "{name}" is of type {schema.field(name).type}; features are numbers: name the '
                "numeric columns in source.features."
            )
