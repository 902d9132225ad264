"""Sources on disk: tables and arrays, as spans and batches of rows with the labels that travel beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.source.arrays import ArraySource
from scalable_kpca.source.copies import Copies, open_copied
from scalable_kpca.source.label_types import Published
from scalable_kpca.source.location import ARRAYS, COPIED, find_files, local_files, source_kind, split_inner
from scalable_kpca.source.parquet import ParquetSource
from scalable_kpca.source.parts import Part
from scalable_kpca.source.spans import Batch, Span

__all__ = ["Source", "open_source"]


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
    copied_bytes : int
        Of Parquet copies that the rows are read from; 0 where they are read where they are.
    """

    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]
    dtype: str

    @property
    def copied_bytes(self) -> int: ...  # noqa: D102
    @property
    def parts(self) -> tuple[Part, ...]: ...  # noqa: D102
    @property
    def paths(self) -> tuple[str, ...]:
        """Where the parts are; no row is read for it."""

    @property
    def n_samples(self) -> int: ...  # noqa: D102
    def batches(self) -> Iterator[Batch]:
        """All rows in order, a few MiB at a time."""

    def spans(self, span_rows: int) -> Sequence[Span]:
        """All rows in order, at most `span_rows` together, for tasks that read them where they are.

        A span is of one part; parts without rows have none.
        """

    def fingerprint(self) -> str:
        """SHA-256 of the contents of all files in order, and of the names and roles of the columns in use."""

    def part_fingerprints(self) -> tuple[str, ...]:
        """Identity of each part: SHA-256 of its content and of the names and roles of the columns in use.

        The same content has the same one under any name, in any position and in any source with these columns.
        """


def open_source(
    uri: str,
    base: Path,
    *,
    id_columns: Sequence[str] = (),
    features: Sequence[str] | None = None,
    passthrough: Sequence[str] = (),
    categorical: Sequence[str] = (),
    partition: Sequence[str] = (),
    copies: Copies | None = None,
    published: Published | None = None,
) -> ParquetSource | ArraySource:
    """Source behind a path, directory or glob.

    Parameters
    ----------
    uri : str
        Parquet, CSV (``.csv``, ``.tsv``, also ``.gz``) or Arrow files (``.arrow``, ``.feather``, ``.ipc``), one
        ``.npy`` file, one zarr array, or one HDF5 file. ``#`` and a name after a zarr group or an HDF5 file says which
        array of it, where it is not the only one. Objects of S3 (``s3://``) are Parquet.
    base : Path
        What a relative `uri` is relative to.
    id_columns, passthrough : sequence of str
        Columns that travel to the output beside the scores.
    features : sequence of str, optional
        Names, globs or types, such as ``dtype:floating``; by default every numeric column that is nothing else.
    categorical : sequence of str
        Names or globs of columns that `prepare_columns` makes features of.
    partition : sequence of str
        Keys of directories called ``key=value`` above the files; they travel to the output as text.
    copies : Copies, optional
        Where CSV and Arrow files are copied to Parquet, from which they are read; they are not read without it.
    published : Published, optional
        Earlier scores: what travels has the types of these.

    Returns
    -------
    ParquetSource or ArraySource
        A `Source`, unless there are categorical columns, which `prepare_columns` makes features of.

    Raises
    ------
    InvalidInputError
        Naming the file and column at fault.
    """
    files = find_files(uri, base)
    kind = source_kind(files)
    inner = split_inner(uri, base)[1]
    if kind in ARRAYS:
        if id_columns or features or passthrough or categorical or partition:
            raise InvalidInputError(
                f"{files[0]} is a bare array; source.id, features, passthrough, categorical and partition need a table."
            )
        return ArraySource(local_files(files)[0], inner)
    if inner:
        raise InvalidInputError(f"source.uri={uri!r}: {files[0]} holds no arrays; leave out #{inner}.")
    columns = id_columns, features, passthrough, categorical, partition
    if kind == ".parquet":
        return ParquetSource(files, *columns, published=published)
    if kind in COPIED and copies is not None:
        return open_copied(local_files(files), copies, *columns, published=published)
    endings = ", ".join(sorted({file.suffix for file in files} - {""})) or "none"
    named = f"names a file of kind {endings}" if len(files) == 1 else f"names {len(files)} files of kind {endings}"
    raise InvalidInputError(
        f"source.uri={uri!r} {named}; files of one kind can be read, Parquet, CSV or Arrow, or one .npy or HDF5 file "
        "or zarr array."
    )
