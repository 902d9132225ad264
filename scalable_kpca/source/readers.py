"""Tables in CSV and Arrow files as streams of record batches, and what is wrong with one, by file, row and column."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scalable_kpca.errors import InvalidInputError, storage_errors
from scalable_kpca.source.location import source_kind
from scalable_kpca.source.parts import printable

__all__ = ["BLOCK_BYTES", "CsvOptions", "Table", "open_decompressed", "open_table", "reading_identity"]

# of text that is parsed at a time, where the first block decides on the types of columns; pyarrow reads 32 ahead
BLOCK_BYTES = 2 * 2**20

_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (.+?): (.*)", re.DOTALL)
_RAGGED = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


@dataclass(frozen=True)
class CsvOptions:
    """How CSV files are read; the same for every file of a source.

    Attributes
    ----------
    delimiter : str or None
        Between fields; by default a comma, of ``.tsv`` files a tab.
    header : bool
        Whether the first row names the columns.
    names : tuple of str
        Of the columns where there is no header; by default f0, f1, ….
    null_values : tuple of str or None
        Texts that are no value, quoted or not, in columns of text too. By default pyarrow's (empty, NA, NaN, null, …),
        but in columns of text, where every text is a value.
    types : tuple of (str, str)
        Columns and their pyarrow types, in place of those that the first block of a file suggests.
    """

    delimiter: str | None = None
    header: bool = True
    names: tuple[str, ...] = ()
    null_values: tuple[str, ...] | None = None
    types: tuple[tuple[str, str], ...] = ()

    def delimiter_of(self, file: Path) -> str:
        """Between fields of this file."""
        return self.delimiter or ("\t" if source_kind([file]) == ".tsv" else ",")


class Table(NamedTuple):
    """Schema of a file, and its record batches, to be read once."""

    schema: Any
    batches: Iterator[Any]


def reading_identity(file: Path, options: CsvOptions) -> list[Any]:
    """What the rows of a file depend on beside its contents, as JSON values."""
    if source_kind([file]) == ".arrow":
        return ["arrow"]
    # once they were no values but in columns of text: copies of that time are others
    nulls = None if options.null_values is None else ["in text too", *options.null_values]
    return ["csv", options.delimiter_of(file), options.header, list(options.names), nulls, sorted(options.types)]


@contextmanager
def open_table(file: Path, options: CsvOptions, *, block_bytes: int = BLOCK_BYTES) -> Iterator[Table]:
    """Rows of a CSV or Arrow file.

    Raises
    ------
    InvalidInputError
        When it is damaged, or a row does not fit; also while the batches are read.
    StorageError
        When it cannot be opened.

    Notes
    -----
    Memory: of CSV some 40 blocks; of Arrow a record batch, as the file has them, where it is compressed; others are
    mapped.
    """
    with ExitStack() as opened:
        with _named_errors(file, options):
            if file.stat().st_size == 0:
                raise InvalidInputError(f"{file} is empty; put the right file in its place, or take it away.")
            if source_kind([file]) == ".arrow":
                table = _open_arrow(file, opened)
            else:
                table = _open_csv(file, options, block_bytes, opened)
            names = table.schema.names  # decoded only now
        yield Table(table.schema, _checked(file, options, table, names))


def open_decompressed(file: Path, opened: ExitStack) -> tuple[Any, Any]:
    """The bytes of a file, and those of the text in it; the same where it is not compressed."""
    import pyarrow as pa

    raw = opened.enter_context(pa.OSFile(str(file)))
    if not file.name.lower().endswith(".gz"):
        return raw, raw
    return raw, opened.enter_context(pa.CompressedInputStream(raw, "gzip"))


def _open_csv(file: Path, options: CsvOptions, block_bytes: int, opened: ExitStack) -> Table:
    import pyarrow as pa
    from pyarrow import csv as text

    _refuse_utf16(file)
    types = {name: pa.type_for_alias(kind) for name, kind in options.types}
    nulls = options.null_values
    reader = text.open_csv(
        open_decompressed(file, opened)[1],
        # one thread: else an error does not know its row
        text.ReadOptions(
            use_threads=False,
            block_size=block_bytes,
            column_names=list(options.names) or None,
            autogenerate_column_names=not options.header and not options.names,
        ),
        text.ParseOptions(delimiter=options.delimiter_of(file), newlines_in_values=True),
        text.ConvertOptions(
            column_types=types,
            null_values=None if nulls is None else list(nulls),
            strings_can_be_null=nulls is not None,
        ),
    )
    opened.enter_context(reader)
    for field in reader.schema:
        if pa.types.is_binary(field.type):
            raise InvalidInputError(
                f'{file}: column "{field.name}" holds text that is not UTF-8; convert the file (iconv -t UTF-8) and '
                "run again."
            )
    return Table(reader.schema, iter(reader))


def _refuse_utf16(file: Path) -> None:
    """InvalidInputError for a text that begins with the mark of UTF-16, whose rows would look ragged."""
    with ExitStack() as opened:
        mark = open_decompressed(file, opened)[1].read(2)
    if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise InvalidInputError(
            f"{file} is UTF-16, and UTF-8 is needed; convert the file (iconv -f UTF-16 -t UTF-8) and run again."
        )


def _open_arrow(file: Path, opened: ExitStack) -> Table:
    import pyarrow as pa
    from pyarrow import ipc

    with file.open("rb") as stream:
        magic = stream.read(6)
    if magic[:4] == b"FEA1":
        raise InvalidInputError(f"{file} is Feather of version 1; write it in version 2, which is Arrow's own format.")
    mapped = opened.enter_context(pa.memory_map(str(file)))
    if magic != b"ARROW1":
        batches = opened.enter_context(ipc.open_stream(mapped))
        return Table(batches.schema, iter(batches))
    reader = opened.enter_context(ipc.open_file(mapped))
    return Table(reader.schema, (reader.get_batch(index) for index in range(reader.num_record_batches)))


def _checked(file: Path, options: CsvOptions, table: Table, names: list[str]) -> Iterator[Any]:
    """The batches of a table, with errors that name the file; the last one is looked at for an open quote."""
    is_text, last = source_kind([file]) != ".arrow", None
    while True:
        with _named_errors(file, options, names):
            batch = next(table.batches, None)
            if batch is None:
                break
            if not is_text:
                batch.validate(full=True)
        if batch.num_rows:
            last = batch.slice(batch.num_rows - 1)
        yield batch
    if is_text and last is not None:
        value = last.column(last.num_columns - 1)[0].as_py()
        if isinstance(value, str) and value.endswith("\n"):
            raise InvalidInputError(
                f'{file}: a quote in column "{names[-1]}" is never closed, so that what follows it was '
                "read as one text; correct the file and run again."
            )


@contextmanager
def _named_errors(file: Path, options: CsvOptions, names: list[str] | None = None) -> Iterator[None]:
    """Errors of pyarrow, which name no file, as ours; the names of columns are not known before it is open."""
    import pyarrow as pa

    try:
        with storage_errors(f"reading {file}"):
            try:
                yield
            except OSError as error:
                if error.errno is None:  # not the operating system's: bytes that do not decode
                    raise _unreadable(file, options, error, names) from error
                raise
    except MemoryError:  # pyarrow's own is an ArrowException, too
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _unreadable(file, options, error, names) from error


def _unreadable(file: Path, options: CsvOptions, error: Exception, names: list[str] | None) -> InvalidInputError:
    text = str(error)
    if found := _CONVERSION.search(text):
        return _misfit(file, options, found, names)
    if found := _RAGGED.search(text):
        row, wanted, had = found.groups()
        return InvalidInputError(
            f"{file}: row {row or '?'} of the file, from 1, has {had} fields, and {wanted} are needed; correct it, or "
            "source.csv.delimiter or names."
        )
    if "Empty CSV" in text:
        return InvalidInputError(
            f"{file} has no line that ends, neither of names nor of values; put the right file in its place, or take "
            "it away."
        )
    if "straddl" in text:
        return InvalidInputError(
            f"{file} has a row of more than {BLOCK_BYTES} bytes, or a quote that is never closed; correct the file."
        )
    if isinstance(error, UnicodeDecodeError):
        return InvalidInputError(f"{file} has column names that are not UTF-8; convert the file (iconv -t UTF-8).")
    return InvalidInputError(f"{file} cannot be read: {printable(text)[:300]}; put it right and run again.")


def _misfit(file: Path, options: CsvOptions, found: re.Match[str], names: list[str] | None) -> InvalidInputError:
    """A value that is not of the type of its column."""
    column, row, kind, what = found.groups()
    known = dict(enumerate(_header(file, options) if names is None else names))
    name = known.get(int(column), f"number {int(column)}")
    given = dict(options.types).get(name)
    reason = f"the rows before are {kind}" if given is None else f"source.csv.types says that it is {given}"
    return InvalidInputError(
        f'{file}: row {row or "?"} of the file, from 1, column "{name}": {printable(what)[:200]}; {reason}: correct '
        f"it, or say in source.csv.types what the column is, such as {{{name}: {_kind_of(what)}}}, and in "
        "source.csv.null_values what is no value."
    )


def _header(file: Path, options: CsvOptions) -> list[str]:
    """Names of the columns of a CSV file that could not be opened, as far as its first row says how many there are."""
    if options.names:
        return list(options.names)
    with suppress(csv.Error, OSError), ExitStack() as opened:
        text = open_decompressed(file, opened)[1].read(BLOCK_BYTES).decode("utf-8-sig", "replace")
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=options.delimiter_of(file))
        first = next((row for row in rows if row), [])
        return first if options.header else [f"f{number}" for number in range(len(first))]
    return []


def _kind_of(what: str) -> str:
    """A type that takes a value that does not fit."""
    value = what.partition("invalid value '")[2].rstrip("'")
    try:
        float(value)
    except ValueError:
        return "string"
    return "float64"
