"""Which columns of a table are what: features by name, glob or type, categories, labels, and what a path says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.objects import SourceFile
from scalable_kpca.source.decoding import is_numeric, is_numeric_or_null
from scalable_kpca.source.location import is_csv

__all__ = [
    "TYPE_RULES",
    "check_labels",
    "delimiter_hint",
    "described_columns",
    "merged_schema",
    "partition_values",
    "select_categorical",
    "select_features",
]

DESCRIBED = 8  # columns that a message names
OF_TYPE = "dtype:"
TYPE_RULES = ("numeric", "integer", "floating", "boolean", "decimal")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # what Hive, Spark and pyarrow call a null in a path


def select_features(
    schema: Any, patterns: Sequence[str] | None, taken: Sequence[str], file: SourceFile
) -> tuple[str, ...]:
    """Numeric columns of an arrow schema that are features, in the order in which they are asked for.

    Parameters
    ----------
    schema : pyarrow.Schema
    patterns : sequence of str, optional
        Names, globs, or types: ``dtype:numeric``, ``dtype:integer``, …, or arrow's own name such as ``dtype:double``.
        By default every numeric column.
    taken : sequence of str
        Columns that are something else.
    file : Path or StoredObject
        For messages.

    Raises
    ------
    InvalidInputError
        When a pattern matches nothing.
    """
    free = [field for field in schema if field.name not in taken]
    if patterns is None:
        chosen = [field.name for field in free if is_numeric(field.type)]
        chosen = chosen or [field.name for field in free if is_numeric_or_null(field.type)]
    else:
        chosen = []
        for pattern in patterns:
            fits = _rule(pattern)
            found = [field.name for field in free if fits(field) and field.name not in chosen]
            if not found:
                raise _no_match("source.features", pattern, schema, file, (*taken, *chosen))
            chosen += found
    return tuple(chosen)


def select_categorical(schema: Any, patterns: Sequence[str], file: SourceFile) -> tuple[str, ...]:
    """Columns whose values are categories, by name or glob, in the order of the patterns; they may be labels too.

    Raises
    ------
    InvalidInputError
        When a pattern matches nothing.
    """
    chosen: list[str] = []
    for pattern in patterns:
        found = [name for name in schema.names if fnmatchcase(name, pattern) and name not in chosen]
        if not found:
            raise _no_match("source.categorical", pattern, schema, file, chosen)
        chosen += found
    return tuple(chosen)


def check_labels(
    ids: Sequence[str], passthrough: Sequence[str], partition: Sequence[str], categorical: Sequence[str] = ()
) -> None:
    """Refuse columns that would have the same name in the output, or beside it while rows are read."""
    names = [*ids, *passthrough, *partition]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f'column "{twice}" is named twice in source.id, source.passthrough and source.partition; all of them '
            "travel to the output: name it once."
        )
    if not ids and "row" in (*names, *categorical):
        key = "passthrough" if "row" in names else "categorical"
        raise InvalidInputError(
            f'source.{key} names a column "row", and rows without an id are numbered in a column of that name; '
            'move it to source.id ("id: [row]"), or name another id.'
        )
    both = next((name for name in partition if name in categorical), None)
    if both is not None:
        raise InvalidInputError(
            f'"{both}" is in source.partition, which is what directories say, and a column in source.categorical; '
            "leave it out of one of them."
        )


def merged_schema(schemas: Sequence[Any]) -> Any:
    """The first schema; a column that has no type there, as all of it is null, has that of the first file with one."""
    import pyarrow as pa
    import pyarrow.types as pt

    fields = []
    for field in schemas[0]:
        others = (schema.field(field.name) for schema in schemas[1:] if schema.names.count(field.name) == 1)
        known = (other for other in others if not pt.is_null(other.type))
        fields.append(next(known, field) if pt.is_null(field.type) else field)
    return pa.schema(fields)


def partition_values(file: SourceFile, partition: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """What the directories above a file, called ``key=value``, say of its rows; the nearest of a key counts.

    Raises
    ------
    InvalidInputError
        When no directory above the file has one of the keys.
    """
    found = dict(part.split("=", 1) for part in file.parts[:-1] if "=" in part)
    for key in partition:
        if key not in found:
            raise InvalidInputError(
                f'source.partition: no directory above {file} is called "{key}=…"; correct the key or leave it out.'
            )
    return tuple((key, None if found[key] == NO_VALUE else unquote(found[key])) for key in partition)


def described_columns(schema: Any, file: SourceFile) -> str:
    """The first columns of a file with their types, and what may be wrong where there is only one."""
    some = ", ".join(f"{field.name} ({field.type})" for field in list(schema)[:DESCRIBED])
    more = f" and {len(schema) - DESCRIBED} more" if len(schema) > DESCRIBED else ""
    return (some or "none") + more + delimiter_hint(schema, file)


def delimiter_hint(schema: Any, file: SourceFile) -> str:
    """What to say of a text that was read as a single column."""
    return " alone (source.csv.delimiter says what is between fields)" if is_csv(file) and len(schema) == 1 else ""


def _rule(pattern: str) -> Callable[[Any], bool]:
    """Whether a field of a schema is meant by a pattern."""
    import pyarrow.types as pt

    if not pattern.startswith(OF_TYPE):
        return lambda field: fnmatchcase(field.name, pattern)
    wanted = pattern.removeprefix(OF_TYPE)
    kinds: dict[str, Callable[[Any], bool]] = {
        "numeric": is_numeric,
        "integer": pt.is_integer,
        "floating": pt.is_floating,
        "boolean": pt.is_boolean,
        "decimal": pt.is_decimal,
    }
    fits = kinds.get(wanted, lambda kind: str(kind) == wanted)
    return lambda field: bool(fits(field.type))


def _no_match(key: str, pattern: str, schema: Any, file: SourceFile, taken: Sequence[str]) -> InvalidInputError:
    hint = "; it is named elsewhere already: name it once" if pattern in taken else ""
    if pattern.startswith(OF_TYPE):
        rules = ", ".join(OF_TYPE + rule for rule in TYPE_RULES)
        hint = f"; types are {rules} or one of arrow's, such as {OF_TYPE}double"
    return InvalidInputError(
        f'{key}: "{pattern}" matches no free column of {file}, which has {", ".join(schema.names[:20])}'
        f"{delimiter_hint(schema, file)}{hint}."
    )
