"""Parts of a source: one for each input file, known by what they contain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalable_kpca.errors import InvalidInputError, RowError, storage_errors
from scalable_kpca.objects import ReplacedObjectError, SourceFile, StoredObject, is_object, open_object
from scalable_kpca.source.checks import said_of_source

__all__ = [
    "BATCH_BYTES",
    "OfParts",
    "Part",
    "changed_file",
    "digest_files",
    "naming_files",
    "printable",
    "rows_together",
]

BATCH_BYTES = 16 * 2**20  # of a batch of `Source.batches`, as float64
DIGEST_BYTES = 8 * 2**20  # of an object that are asked for at once


def rows_together(n_columns: int) -> int:
    """Rows with so many columns that are read together by a reader that is alone: `BATCH_BYTES` of them."""
    return max(1, BATCH_BYTES // (8 * n_columns))


@dataclass(frozen=True)
class Part:
    """One input file: how many rows it adds, where it is, and the array in it where it may have several."""

    path: str
    n_rows: int
    inner: str = ""

    @property
    def uri(self) -> str:
        """What finds it again from anywhere."""
        path = self.path if is_object(self.path) else str(Path(self.path).resolve())
        return f"{path}#{self.inner}" if self.inner else path


class OfParts:
    """What a source knows of itself by its parts.

    Attributes
    ----------
    parts : tuple of Part
    """

    parts: tuple[Part, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the parts are."""
        return tuple(part.path for part in self.parts)

    @property
    def n_samples(self) -> int:
        """Number of rows: of a sample, about."""
        return sum(part.n_rows for part in self.parts)


def digest_files(files: Sequence[SourceFile], names: Sequence[Any]) -> str:
    """SHA-256 of names (what JSON can hold) and of the contents of files, in order; each file is read once."""
    total = hashlib.sha256(json.dumps(names).encode())
    for file in files:
        if isinstance(file, StoredObject):
            total.update(_digest_object(str(file)))
            continue
        with storage_errors(f"reading {file}"), file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def _digest_object(uri: str) -> bytes:
    content, stream = hashlib.sha256(), open_object(uri)
    try:
        while piece := stream.read(DIGEST_BYTES):
            content.update(piece)
    except ReplacedObjectError as error:
        raise changed_file(uri, error) from error
    return content.digest()


@contextmanager
def naming_files(parts: Sequence[Part]) -> Iterator[None]:
    """A row that cannot be used is named by its file and its number in that, from 0, instead of that over all parts.

    What to do is said for a source, too: see `said_of_source`.
    """
    try:
        yield
    except RowError as error:
        row = error.row
        for part in () if error.place else parts:
            if row < part.n_rows:
                raise type(error)(row, said_of_source(error.text), f" of {part.path}") from error
            row -= part.n_rows
        raise


def changed_file(path: str, reason: object) -> InvalidInputError:
    """What to raise for a file that is not, or no longer, what it was when its source was opened."""
    return InvalidInputError(
        f"{path} cannot be read as it was when the source was opened ({printable(reason)}); it is damaged or has "
        "changed: put it right and run again."
    )


def printable(reason: object) -> str:
    """What a library says, on one line: they quote bytes that they do not understand."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(reason)).split())
