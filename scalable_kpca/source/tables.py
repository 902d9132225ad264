"""Sources on disk: Parquet, .npy and zarr, as batches of rows with the labels that travel beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError, storage_errors
from scalable_kpca.source.location import find_files, source_kind

__all__ = [
    "ArraySource",
    "Batch",
    "ParquetSource",
    "Part",
    "Source",
    "open_source",
]

BATCH_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Part:
    """One input file: how many rows it adds, and where it is."""

    path: str
    n_rows: int


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one part, features and labels from the same read.

    Attributes
    ----------
    part : int
        Index of the part.
    rows : ndarray of shape (m, n_features), float32 or float64
    labels : pyarrow.Table
        Ids and passthrough columns of the same m rows.
    """

    part: int
    rows: NDArray[np.floating[Any]]
    labels: Any


class Source(Protocol):
    """Rows on disk.

    Attributes
    ----------
    parts : tuple of Part
        In natural order of their names; empty ones included.
    feature_names : tuple of str
    label_names : tuple of str
        Columns of the labels: ids, or ``row`` where rows are numbered, and what is passed through.
    dtype : str
        ``"float32"`` when every feature is, else ``"float64"``.
    """

    parts: tuple[Part, ...]
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    dtype: str

    @property
    def n_samples(self) -> int: ...  # noqa: D102
    def batches(self) -> Iterator[Batch]:
        """All rows in order, a few MiB at a time."""

    def fingerprint(self) -> str:
        """SHA-256 of the contents of all files in order, and of the names and roles of the columns in use."""


def open_source(
    uri: str,
    base: Path,
    *,
    id_columns: Sequence[str] = (),
    features: Sequence[str] | None = None,
    passthrough: Sequence[str] = (),
) -> Source:
    """Source behind a path, directory or glob.

    Parameters
    ----------
    uri : str
        Parquet files, one ``.npy`` file or one zarr array.
    base : Path
        What a relative `uri` is relative to.
    id_columns, passthrough : sequence of str
        Columns that travel to the output beside the scores.
    features : sequence of str, optional
        Names or globs; by default every numeric column that is neither id nor passthrough.

    Returns
    -------
    Source

    Raises
    ------
    InvalidInputError
        Naming the file and column at fault.
    """
    files = find_files(uri, base)
    kind = source_kind(files)
    if kind == ".parquet":
        return ParquetSource(files, id_columns, features, passthrough)
    if kind is not None:
        if id_columns or features or passthrough:
            raise InvalidInputError(f"{files[0]} is a bare array; source.id, features and passthrough need a table.")
        return ArraySource(files[0])
    kinds = sorted({file.suffix for file in files} - {""})
    raise InvalidInputError(
        f"source.uri={uri!r} names {len(files)} files of kind {', '.join(kinds) or 'none'}; Parquet files, one .npy "
        "file or one zarr array can be read."
    )


class ParquetSource:
    """Parquet files with one schema for the columns in use.

    Parameters
    ----------
    files : sequence of Path
        In the order of the rows.
    id_columns, features, passthrough
        See `open_source`.
    """

    def __init__(
        self,
        files: Sequence[Path],
        id_columns: Sequence[str],
        features: Sequence[str] | None,
        passthrough: Sequence[str],
    ) -> None:
        import pyarrow.parquet as pq

        self._files = list(files)
        schemas, parts = [], []
        for file in files:
            try:
                metadata = pq.read_metadata(file)
            except (OSError, ValueError) as error:
                raise InvalidInputError(f"{file} is not a Parquet file that can be read: {error}") from error
            schemas.append(metadata.schema.to_arrow_schema())
            parts.append(Part(str(file), metadata.num_rows))
        self.parts = tuple(parts)
        _check_labels(id_columns, passthrough)
        self._ids, self._passthrough = tuple(id_columns), tuple(passthrough)
        self._label_columns = (*id_columns, *passthrough)
        self.label_names = self._label_columns if id_columns else ("row", *passthrough)
        self.feature_names = _select_features(schemas[0], features, self._label_columns, files[0])
        for schema, file in zip(schemas, files, strict=True):
            _check_schema(schema, (*self._label_columns, *self.feature_names), self.feature_names, file)
        single = all(
            str(schema.field(name).type) in ("float", "halffloat") for schema in schemas for name in self.feature_names
        )
        self.dtype = "float32" if single else "float64"

    @property
    def n_samples(self) -> int:
        """Number of rows, from the files' footers."""
        return sum(part.n_rows for part in self.parts)

    def batches(self) -> Iterator[Batch]:
        """All rows in order, a few MiB at a time."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = list(dict.fromkeys((*self._label_columns, *self.feature_names)))
        size = max(1, BATCH_BYTES // (8 * len(columns)))
        start = 0
        for index, file in enumerate(self._files):
            try:
                with storage_errors(f"reading {file}"), pq.ParquetFile(file) as parquet:
                    for batch in parquet.iter_batches(batch_size=size, columns=columns):
                        table = pa.Table.from_batches([batch])
                        yield Batch(index, self._features(table), self._labels(table, start))
                        start += len(batch)
            except (pa.ArrowException, KeyError) as error:
                raise InvalidInputError(
                    f"{file} cannot be read as it was when the source was opened ({error}); it is damaged or has "
                    "changed: put it right and run again."
                ) from error

    def _features(self, table: Any) -> NDArray[np.floating[Any]]:
        import pyarrow as pa

        rows = np.empty((len(table), len(self.feature_names)), self.dtype)
        for column, name in enumerate(self.feature_names):
            rows[:, column] = table[name].cast(pa.float64(), safe=False).to_numpy()
        return rows

    def _labels(self, table: Any, start: int) -> Any:
        import pyarrow as pa

        labels = table.select(self._label_columns)
        # rows without an id are numbered, over all files
        return labels if self._ids else labels.add_column(0, "row", pa.array(range(start, start + len(table))))

    def fingerprint(self) -> str:
        """SHA-256 of the contents of all files in order, and of the names and roles of the columns in use."""
        return _digest(self._files, [self._ids, self._passthrough, self.feature_names])


class ArraySource:
    """One ``.npy`` file or zarr array of shape (n_samples, n_features); its rows are numbered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._array = _open_matrix(path)
        n_samples, n_features = self._array.shape
        self.parts: tuple[Part, ...] = (Part(str(path), n_samples),)
        self.feature_names = tuple(f"x{column}" for column in range(n_features))
        self.label_names: tuple[str, ...] = ("row",)
        self.dtype = "float32" if self._array.dtype == np.float32 else "float64"

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.parts[0].n_rows

    def batches(self) -> Iterator[Batch]:
        """All rows in order, a few MiB at a time."""
        import pyarrow as pa

        size = max(1, BATCH_BYTES // (8 * max(1, len(self.feature_names))))
        for start in range(0, self.n_samples, size):
            rows = np.asarray(self._array[start : start + size], self.dtype)
            yield Batch(0, rows, pa.table({"row": np.arange(start, start + len(rows))}))

    def fingerprint(self) -> str:
        """SHA-256 of the file's contents."""
        files = (
            sorted(file for file in self._path.rglob("*") if file.is_file()) if self._path.is_dir() else [self._path]
        )
        return _digest(files, [str(file.relative_to(self._path)) for file in files])


def _open_matrix(path: Path) -> Any:
    try:
        if path.suffix == ".npy":
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            import zarr

            array = zarr.open_array(str(path), mode="r")
    except Exception as error:
        raise InvalidInputError(f"{path} is not an array that can be read: {error}") from error
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{path} has shape {array.shape} and dtype {array.dtype}; a matrix of numbers is needed."
        )
    if array.shape[1] == 0:
        raise InvalidInputError(f"{path} has shape {array.shape}: no columns; at least one feature is needed.")
    return array


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
        chosen = [field.name for field in schema if field.name in free and _is_numeric(field.type)]
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
        if not _is_numeric(schema.field(name).type):
            raise InvalidInputError(
                f'{file}: column "{name}" is of type {schema.field(name).type}; features are numbers: name the '
                "numeric columns in source.features."
            )


def _is_numeric(kind: Any) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


def _digest(files: Sequence[Path], names: Sequence[Any]) -> str:
    total = hashlib.sha256(json.dumps(names).encode())
    for file in files:
        with storage_errors(f"reading {file}"), file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()
