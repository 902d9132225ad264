"""Parquet copies of tables in other kinds of files: made once, named by what they are of, and swept when left behind.

::

    <content>.<copy>.parquet    SHA-256 of the file and of how it was read; and of the copy: proof that it is whole
    .<content>.<random>.new     while it is made, under a lock of the kernel, which ends with its process
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import uuid
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalable_kpca.disk import put
from scalable_kpca.documents import open_plain
from scalable_kpca.errors import InvalidInputError, StorageError, storage_errors
from scalable_kpca.source.parquet import ParquetSource
from scalable_kpca.source.parts import digest_files, printable
from scalable_kpca.source.readers import CsvOptions, open_table, reading_identity
from scalable_kpca.source.written import RowGroupWriter, sliced

__all__ = ["CopiedSource", "Copies", "open_copied", "remove_copies", "write_copy"]

VERSION = 1  # of what a copy is; where rows become others by it, so does the version of the algorithm

_SEALED = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{64}\.parquet")
_STAGING = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{32}\.new")

logger = logging.getLogger(__name__)


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
    files, id_columns, features, passthrough
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
        *,
        copies: Sequence[Path],
        reading: list[Any],
        in_use: int,
    ) -> None:
        self._reading, self.release = reading, weakref.finalize(self, os.close, in_use)
        super().__init__(files, id_columns, features, passthrough, copies=copies)

    @property
    def copy_names(self) -> frozenset[str]:
        """File names of the copies."""
        return frozenset(copy.name for copy in self._copies)

    def _roles(self) -> list[Any]:
        return [*super()._roles(), self._reading]


def open_copied(
    files: Sequence[Path],
    copies: Copies,
    id_columns: Sequence[str],
    features: Sequence[str] | None,
    passthrough: Sequence[str],
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
    with storage_errors(f"creating {copies.directory}"):
        copies.directory.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            copies.directory.mkdir(mode=0o700)
    in_use = _shared(copies.directory)
    try:
        remove_copies(copies.directory, None)
        places = [_copy_of(file, read, copies) for file, read in zip(files, identities, strict=True)]
        return CopiedSource(
            files, id_columns, features, passthrough, copies=places, reading=identities[0], in_use=os.dup(in_use)
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


def remove_copies(directory: Path, keep: Collection[str] | None) -> None:
    """Remove what killed processes left half made, and the copies but for those to keep; None keeps all.

    Notes
    -----
    Copies stay while any process uses the directory, and what is being made stays; whatever cannot be removed is left
    for the next time.
    """
    if directory.is_symlink():
        return
    with contextlib.suppress(OSError):
        for leftover in [place for place in directory.iterdir() if _STAGING.fullmatch(place.name)]:
            with contextlib.suppress(OSError), _locked(leftover):  # refused: another process fills it
                leftover.unlink()
        if keep is not None:
            with _locked(directory, os.O_DIRECTORY):
                for place in list(directory.iterdir()):
                    if _SEALED.fullmatch(place.name) and place.name not in keep:
                        place.unlink()
            directory.rmdir()  # refused unless it is empty


def _copy_of(file: Path, identity: list[Any], copies: Copies) -> Path:
    names = ["copy", VERSION, *identity]
    content = digest_files([file], names)
    found = _find(copies.directory, content)
    if found is not None:
        return found
    if not copies.make:
        raise InvalidInputError(f"{file} has no copy in {copies.directory}.")
    with _staging(copies.directory, content) as staging:
        write_copy(file, copies.csv, staging)
        if digest_files([file], names) != content:
            raise InvalidInputError(f"{file} changed while it was read; run again when it is at rest.")
        with storage_errors(f"writing {staging}"), staging.open("rb") as stream:
            os.fsync(stream.fileno())
            place = copies.directory / f"{content}.{hashlib.file_digest(stream, 'sha256').hexdigest()}.parquet"
            put(staging, place)
    return place


def _find(directory: Path, content: str) -> Path | None:
    """The whole copy of a content; one that is damaged is removed."""
    for place in sorted(directory.glob(f"{content}.*.parquet")):
        if not _SEALED.fullmatch(place.name):
            continue
        with storage_errors(f"reading {place}"), contextlib.suppress(FileNotFoundError), open_plain(place) as stream:
            readable: Any = stream  # which typeshed's BinaryIO does not say
            if hashlib.file_digest(readable, "sha256").hexdigest() == place.name.split(".")[1]:
                return place
            logger.warning("%s", f"{place} is damaged and made again")
            place.unlink()
    return None


@contextmanager
def _staging(directory: Path, content: str) -> Iterator[Path]:
    """A new file under a lock, gone at the end unless it has been renamed."""
    staging = directory / f".{content}.{uuid.uuid4().hex}.new"
    with storage_errors(f"writing {staging}"):
        staging.touch(exist_ok=False)
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # a file system without locks: nobody else gets one either
            held.enter_context(_locked(staging))
        try:
            yield staging
        finally:
            staging.unlink(missing_ok=True)


def _shared(directory: Path) -> int:
    """Descriptor of a directory, under a lock that many may have; StorageError for a link."""
    with storage_errors(f"opening {directory}"):
        if directory.is_symlink():
            raise StorageError(f"{directory} is a link, which is not followed; remove the link and run again.")
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with contextlib.suppress(OSError):  # a file system without locks: nothing is removed there
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def _locked(place: Path, flags: int = 0) -> Iterator[None]:
    """A lock that nobody else has on it; OSError where somebody has."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


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
