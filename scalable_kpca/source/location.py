"""Which files or objects a URI means, of what kind they are, and which array within one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.objects import MissingObjectError, SourceFile, StoredObject, has_object, is_object, list_objects

__all__ = [
    "ARRAYS",
    "COPIED",
    "find_files",
    "is_csv",
    "local_files",
    "natural_key",
    "source_kind",
    "split_inner",
    "split_uri",
    "would_find",
]

File = TypeVar("File", Path, StoredObject)

COPIED = (".csv", ".tsv", ".arrow")  # tables that are read from Parquet copies
ARRAYS = (".npy", ".zarr", ".h5")

_TABLES = {".parquet": "Parquet", ".csv": "CSV", ".tsv": "TSV", ".arrow": "Arrow"}
_ALIASES = {".csv.gz": ".csv", ".tsv.gz": ".tsv", ".feather": ".arrow", ".ipc": ".arrow", ".hdf5": ".h5"}


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``part-2`` before ``part-10``."""
    return [
        # of numbers without leading zeros the longer one is larger
        (0, len(piece.lstrip("0")), piece.lstrip("0")) if piece.isdecimal() else (1, 0, piece)
        for piece in re.split(r"(\d+)", text)
        if piece
    ]


def split_inner(uri: str, base: Path) -> tuple[str, str]:
    """Files of a source, and the array within one that is named after ``#``; a path may hold ``#`` itself."""
    if is_object(uri):
        return uri, ""  # no array is read there, and ``#`` belongs to a key
    outer, mark, inner = uri.partition("#")
    if not mark or (base / uri).exists() or not (base / outer).exists():
        return uri, ""
    return outer, inner


def split_uri(uri: str, base: Path) -> tuple[Path, tuple[str, ...]]:
    """Where a source begins, and the glob parts that follow: none for a path, which may hold ``[`` itself."""
    uri = split_inner(uri, base)[0]
    parts = Path(uri).parts
    magic = [index for index, part in enumerate(parts) if any(letter in part for letter in "*?[")]
    if not magic or (base / uri).exists():
        return base / uri, ()
    return base.joinpath(*parts[: magic[0]]), parts[magic[0] :]


def find_files(uri: str, base: Path) -> Sequence[SourceFile]:
    """Files, zarr arrays or groups behind a path, directory or glob, in natural order; objects for ``s3://``.

    Raises
    ------
    InvalidInputError
        When nothing is there; for a directory with tables of several kinds, or a link to a table that is not there.

    Notes
    -----
    Of a directory, the Parquet, CSV or Arrow files at any depth are read, by their endings in either case; files that
    are no tables are left out, and links to directories are not followed. What is called ``_…`` or ``.…``, or lies
    below such a directory, is left out, as Spark, Hive and dask do, unless a piece of a glob begins with that letter.
    """
    if is_object(uri):
        return _find_objects(uri)
    root, glob = split_uri(uri, base)
    if glob:
        pattern = "/".join(piece if piece == "**" else re.sub(r"\*+", "*", piece) for piece in glob)
        found = [file for file in root.glob(pattern) if _fits(file.relative_to(root).parts, glob)]
    elif root.is_dir() and not _is_zarr(root):
        found = _tables_of(uri, root, (file for file in root.rglob("*") if _is_visible(file, root)))
        if not found:
            raise InvalidInputError(
                f"source.uri={uri!r}: no Parquet, CSV or Arrow file in or below the directory {root}; correct the "
                "path, or name the files themselves."
            )
    else:
        found = [root] if root.exists() else []
    if not found:
        raise InvalidInputError(
            f"source.uri={uri!r}: no such file ({root.joinpath(*glob)}); correct the path: a relative one starts at "
            f"{base}."
        )
    return sorted(found, key=lambda file: natural_key(str(file)))


def source_kind(files: Sequence[SourceFile]) -> str | None:
    """``".parquet"``, one of `COPIED` or `ARRAYS`; None for a mixture and for what cannot be read."""
    kinds = {_kind(file) for file in files}
    if len(kinds) == 1 and (kinds <= {*_TABLES} or (len(files) == 1 and kinds <= {*ARRAYS})):
        return kinds.pop()
    return None


def is_csv(file: SourceFile) -> bool:
    """Whether it is a table in text, by its ending."""
    return _kind(file) in (".csv", ".tsv")


def local_files(files: Sequence[SourceFile]) -> list[Path]:
    """The same files, which have to be on this machine: InvalidInputError for an object."""
    for file in files:
        if isinstance(file, StoredObject):
            raise InvalidInputError(
                f"{file} is {file.suffix}, and of objects only Parquet is read where it is; copy it to a local disk, "
                "or write it as Parquet."
            )
    return [file for file in files if isinstance(file, Path)]


def _find_objects(uri: str) -> list[StoredObject]:
    place = StoredObject.of(uri)
    if place.suffix == ".zarr":
        return [place]  # its objects are no tables: whoever opens it says so
    magic = _magic_parts(place)
    try:
        if has_object(place):
            return [place]
        if magic:
            root = StoredObject(place.bucket, "/".join(place.parts[: magic[0]]))
            found = [found for found in list_objects(root) if _fits(found.parts, place.parts)]
        else:
            depth = len(place.parts)
            found = _tables_of(uri, place, (file for file in list_objects(place) if not _is_hidden(file.parts[depth:])))
    except MissingObjectError as error:
        raise InvalidInputError(f"source.uri={uri!r}: no such bucket; correct the URI.") from error
    if not found:
        raise InvalidInputError(
            f"source.uri={uri!r}: no such object, and no Parquet object below it; correct the URI: s3://BUCKET/KEY, "
            "with * for any part of a name."
        )
    return sorted(found, key=lambda file: natural_key(str(file)))


def would_find(uri: str, place: StoredObject) -> bool:
    """Whether a source on S3 would find an object of this name, were it there."""
    source = StoredObject.of(uri)
    if source.bucket != place.bucket:
        return False
    if _magic_parts(source):
        return _fits(place.parts, source.parts)
    depth = len(source.parts)
    is_table = _kind(place) in _TABLES and not _is_hidden(place.parts[depth:])
    return place.parts[:depth] == source.parts and is_table


def _magic_parts(place: StoredObject) -> list[int]:
    return [index for index, part in enumerate(place.parts) if any(letter in part for letter in "*?[")]


def _tables_of(uri: str, place: File, files: Iterable[File]) -> list[File]:
    """Those that are tables; InvalidInputError where they are of several kinds, or one is a link to nothing."""
    tables = [file for file in files if _kind(file) in _TABLES]
    numbers = Counter(map(_kind, tables))
    if len(numbers) > 1:
        *others, last = [f"{numbers[kind]} {name}" for kind, name in _TABLES.items() if kind in numbers]
        raise InvalidInputError(
            f"source.uri={uri!r}: {place} holds {', '.join(others)} and {last} files, and files of one kind are "
            f"needed; name them by a glob, such as {uri.rstrip('/')}/{_glob_of(tables, place)}."
        )
    for file in tables:
        if isinstance(file, Path) and not file.exists():
            raise InvalidInputError(
                f"source.uri={uri!r}: {file} is a link to {file.readlink()}, which is not there; put it in its place, "
                "or remove the link."
            )
    return tables


def _glob_of(tables: Sequence[File], place: File) -> str:
    """What names the tables of one of their kinds."""
    kind = next(kind for kind in _TABLES if kind in map(_kind, tables))
    is_deep = any(len(file.parts) > len(place.parts) + 1 for file in tables if _kind(file) == kind)
    return f"{'**/' if is_deep else ''}*{kind}"


def _fits(parts: Sequence[str], glob: Sequence[str]) -> bool:
    """Whether a path or key is one of those that a glob means, where ``**`` is any number of pieces.

    A name that begins with ``.`` or ``_`` is meant by a piece that begins so itself, as by a shell.
    """
    if not glob or not parts:
        return not parts and all(piece == "**" for piece in glob)
    if glob[0] == "**":
        return _fits(parts, glob[1:]) or (not _is_hidden(parts[:1]) and _fits(parts[1:], glob))
    is_meant = not _is_hidden(parts[:1]) or parts[0][0] == glob[0][0]
    return is_meant and fnmatchcase(parts[0], glob[0]) and _fits(parts[1:], glob[1:])


def _kind(file: SourceFile) -> str:
    if isinstance(file, Path) and _is_zarr(file):
        return ".zarr"
    name = file.name.lower()
    known = [kind for ending, kind in _ALIASES.items() if name.endswith(ending)]
    known += [kind for kind in (*_TABLES, *ARRAYS) if name.endswith(kind)]
    return known[0] if known else file.suffix


def _is_visible(file: Path, root: Path) -> bool:
    is_file = file.is_file() or (file.is_symlink() and not file.exists())
    return is_file and not _is_hidden(file.relative_to(root).parts)


def _is_zarr(path: Path) -> bool:
    return path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def _is_hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith((".", "_")) for part in parts)
