"""Tables in other files than Parquet, as sources that are read from Parquet copies, each of which is made once."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalable_kpca.errors import InvalidInputError, StorageError
from scalable_kpca.source.copy_files import find_copy, new_copy, publish_copy, remove_copies, use_directory
from scalable_kpca.source.label_types import Published
from scalable_kpca.source.location import source_kind
from scalable_kpca.source.parquet import ParquetSource
from scalable_kpca.source.parts import digest_files, printable
from scalable_kpca.source.readers import CsvOptions, open_table, reading_identity
from scalable_kpca.source.written import RowGroupWriter, sliced

__all__ = ["CopiedSource", "Copies", "open_copied", "write_copy"]

VERSION = 1  # of what a copy is; where rows become others by it, so does the version of the algorithm


@dataclass(frozen=True)
class Copies:
    """Where copies are kept, and how the files are read.

    Attributes
    ----------
    directory : Path
        Made when the first copy is, for its owner only.
    csv : CsvOptions
    make : bool
        Whether a copy is made that is not there.
    """

    directory: Path
    csv: CsvOptions = field(default_factory=CsvOptions)
    make: bool = True


class CopiedSource(ParquetSource):
    """Files of another kind, read from their Parquet copies; identity, parts and errors are those of the files.

    Parameters
    ----------
    files, id_columns, features, passthrough, categorical, partition, published
        See `ParquetSource`.
    copies : sequence of Path
    reading : list
        How the files were read, as JSON values: part of their identity.
    in_use : int
        Descriptor of the directory of the copies, under a shared lock.

    Notes
    -----
    As long as the object lives and has not been released, nobody removes the copies.
    """

    def __init__(
        self,
        files: Sequence[Path],
        id_columns: Sequence[str],
        features: Sequence[str] | None,
        passthrough: Sequence[str],
        categorical: Sequence[str] = (),
        partition: Sequence[str] = (),
        *,
        copies: Sequence[Path],
        reading: list[Any],
        in_use: int,
        published: Published | None = None,
    ) -> None:
        self._reading, self.release = reading, weakref.finalize(self, os.close, in_use)
        columns = id_columns, features, passthrough, categorical, partition
        super().__init__(files, *columns, copies=copies, published=published)

    @property
    def copy_names(self) -> frozenset[str]:
        """File names of the copies."""
        return frozenset(copy.name for copy in self._copies)

    def _roles(self, *constants: tuple[tuple[str, str | None], ...]) -> list[Any]:
        return [*super()._roles(*constants), self._reading]


def open_copied(
    files: Sequence[Path],
    copies: Copies,
    id_columns: Sequence[str],
    features: Sequence[str] | None,
    passthrough: Sequence[str],
    categorical: Sequence[str] = (),
    partition: Sequence[str] = (),
    *,
    published: Published | None = None,
) -> CopiedSource:
    """Source of CSV or Arrow files; each is copied to Parquet unless its copy is there and whole.

    Raises
    ------
    InvalidInputError
        When a file cannot be read, or changes while it is copied, or has no copy and none is to be made.
    StorageError
        When a copy cannot be written, or its directory is a link.

    Notes
    -----
    Cost: the bytes of each file once, and of its copy; three times, where the copy is made. Memory: see `open_table`.
    Two processes may make the same copy, each under a name of its own until it is whole.
    """
    identities = [reading_identity(file, copies.csv) for file in files]
    in_use = use_directory(copies.directory)
    try:
        remove_copies(copies.directory, None)
        places = [_copy_of(file, read, copies) for file, read in zip(files, identities, strict=True)]
        _check_names(files, places, copies.csv)
        return CopiedSource(
            files,
            id_columns,
            features,
            passthrough,
            categorical,
            partition,
            copies=places,
            reading=identities[0],
            in_use=os.dup(in_use),
            published=published,
        )
    finally:
        os.close(in_use)


def write_copy(file: Path, csv: CsvOptions, place: Path) -> None:
    """Copy one file to a Parquet file; nothing says yet that it is whole.

    Raises
    ------
    InvalidInputError, StorageError
        See `open_copied`.
    """
    with open_table(file, csv) as table:
        _check_types(file, table.schema)
        writer = RowGroupWriter(place, table.schema)
        try:
            for batch in table.batches:
                for piece in sliced(batch):
                    writer.add(piece)
        except BaseException:
            writer.drop()
            with contextlib.suppress(StorageError):
                writer.close()
            raise
        writer.close()


def _copy_of(file: Path, identity: list[Any], copies: Copies) -> Path:
    names = ["copy", VERSION, *identity]
    content = digest_files([file], names)
    found = find_copy(copies.directory, content)
    if found is not None:
        return found
    if not copies.make:
        raise InvalidInputError(f"{file} has no copy in {copies.directory}.")
    with new_copy(copies.directory, content) as staging:
        write_copy(file, copies.csv, staging)
        if digest_files([file], names) != content:
            raise InvalidInputError(f"{file} changed while it was read; run again when it is at rest.")
        return publish_copy(staging, content)


def _check_names(files: Sequence[Path], places: Sequence[Path], csv: CsvOptions) -> None:
    """InvalidInputError for a column that has a type and is in no file."""
    import pyarrow.parquet as pq

    if csv.types and source_kind(files) != ".arrow":
        known = {name for place in places for name in pq.read_schema(place).names}
        wrong = next((name for name, _ in csv.types if name not in known), None)
        if wrong is not None:
            raise InvalidInputError(
                f'source.csv.types: "{wrong}" is no column of {files[0]}, which has {", ".join(sorted(known)[:20])}.'
            )


def _check_types(file: Path, schema: Any) -> None:
    """InvalidInputError naming a column that Parquet has no type for."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for column in schema:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([column])).close()
        except pa.ArrowException as error:
            raise InvalidInputError(
                f'{file}: column "{column.name}" is {column.type}, which Parquet has no type for ({printable(error)}); '
                "write the file without it, or as another type."
            ) from error
