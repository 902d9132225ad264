"""One type for each column that travels to the output, whatever files hold it as: an embedding is one data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.objects import SourceFile
from scalable_kpca.source.location import is_csv

__all__ = ["Published", "as_types", "common_type", "label_types"]

TIMES = ("s", "ms", "us")  # no nanoseconds: they end in the year 2262, and what has others may not
DIGITS = 38  # of a decimal128


class Published(NamedTuple):
    """A part of scores, with which those of later rows will be one data set: its schema, and where it is."""

    schema: Any
    file: Path


def label_types(
    schemas: Sequence[Any],
    files: Sequence[SourceFile],
    labels: Sequence[str],
    categorical: Sequence[str] = (),
    published: Published | None = None,
) -> tuple[tuple[str, Any], ...]:
    """Columns that not all files hold as the same type, and the type that takes the values of all of them as they are.

    Parameters
    ----------
    schemas : sequence of pyarrow.Schema
    files : sequence of Path or StoredObject
        Of which the schemas are; those without rows are left out, where others have some.
    labels, categorical : sequence of str
        Columns that travel, and those whose texts are features, which have to stay what they are.
    published : Published, optional
        What decides on the types of its columns.

    Raises
    ------
    InvalidInputError
        Naming a column whose values no type takes as they are, and two of the files.
    """
    found = []
    for name in labels:
        kinds = [schema.field(name).type for schema in schemas]
        wanted = kinds[0] if kinds else None
        if any(kind != kinds[0] for kind in kinds):
            wanted = _type_of_all(name, kinds, files, is_category=name in categorical)
        if published is not None and name in published.schema.names:
            wanted = _published_type(name, published, kinds, files) or wanted
        if any(kind != wanted for kind in kinds):
            found.append((name, wanted))
    return tuple(found)


def common_type(one: Any, other: Any) -> Any | None:
    """The pyarrow type that takes every value of two types as it is, and is obviously meant; None where none is.

    Nulls are of any type, integers of the longer one of the same sign, floating numbers of the longer one; text is
    plain where it is not a dictionary in both; times are of the finer unit down to microseconds; decimals have the
    digits that both need; lists hold what is found so for their values.
    """
    import pyarrow.types as pt

    if one == other or pt.is_null(other):
        return one
    if pt.is_null(one):
        return other
    if pt.is_dictionary(one) or pt.is_dictionary(other):
        return common_type(*(kind.value_type if pt.is_dictionary(kind) else kind for kind in (one, other)))
    if pt.is_list(one) and pt.is_list(other):
        return _list_of(common_type(one.value_type, other.value_type))
    if pt.is_timestamp(one) and pt.is_timestamp(other):
        return _finer(one, other)
    if pt.is_decimal128(one) and pt.is_decimal128(other):
        return _wider_decimal(one, other)
    for rule, is_larger in _ALIKE:
        if all(any(getattr(pt, name)(kind) for name in rule) for kind in (one, other)):
            return one if is_larger(one, other) else other
    return None


def as_types(table: Any, types: Sequence[tuple[str, Any]]) -> Any:
    """A table whose columns have these types, as far as it has the columns; those of `label_types` lose nothing."""
    import pyarrow as pa
    import pyarrow.types as pt

    for name, kind in types:
        index = table.schema.get_field_index(name)
        if index < 0 or table.schema.field(index).type == kind:
            continue
        column = table.column(index)
        if pt.is_null(column.type):
            column = pa.nulls(len(table), kind)
        elif pt.is_dictionary(column.type):
            column = column.cast(column.type.value_type).cast(kind)
        else:
            column = column.cast(kind)
        table = table.set_column(index, table.schema.field(index).with_type(kind), column)
    return table


def _wider(one: Any, other: Any) -> bool:
    return bool(one.bit_width >= other.bit_width)


def _is_large(one: Any, _: Any) -> bool:
    return str(one).startswith("large_")


_ALIKE: tuple[tuple[tuple[str, ...], Callable[[Any, Any], bool]], ...] = (
    (("is_signed_integer",), _wider),
    (("is_unsigned_integer",), _wider),
    (("is_floating",), _wider),
    (("is_string", "is_large_string"), _is_large),
    (("is_binary", "is_large_binary"), _is_large),
)


def _list_of(kind: Any | None) -> Any | None:
    import pyarrow as pa

    return None if kind is None or pa.types.is_dictionary(kind) else pa.list_(kind)


def _finer(one: Any, other: Any) -> Any | None:
    if one.tz != other.tz or not {one.unit, other.unit} <= {*TIMES}:
        return None
    return max(one, other, key=lambda kind: TIMES.index(kind.unit))


def _wider_decimal(one: Any, other: Any) -> Any | None:
    import pyarrow as pa

    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    return pa.decimal128(digits, scale) if digits <= DIGITS else None


def _type_of_all(name: str, kinds: Sequence[Any], files: Sequence[SourceFile], *, is_category: bool) -> Any:
    import pyarrow.types as pt

    known = kinds[0]
    for index, kind in enumerate(kinds):
        wider = common_type(known, kind)
        # a float32 has another text as a float64
        if wider is None or (is_category and pt.is_floating(kind) and kind != known and not pt.is_null(known)):
            first = next((at for at in range(index) if common_type(kinds[at], kind) is None), 0)
            raise _no_common_type(name, (kinds[first], files[first]), (kind, files[index]))
        known = wider
    return known


def _published_type(name: str, published: Published, kinds: Sequence[Any], files: Sequence[SourceFile]) -> Any | None:
    """The type of a column among earlier scores, None where it had no value."""
    import pyarrow.types as pt

    known = published.schema.field(name).type
    if pt.is_null(known):
        return None
    for kind, file in zip(kinds, files, strict=True):
        if common_type(known, kind) != known:
            raise _no_common_type(name, (known, published.file), (kind, file))
    return known


def _no_common_type(name: str, one: tuple[Any, SourceFile], other: tuple[Any, SourceFile]) -> InvalidInputError:
    remedy = (
        f"say in source.csv.types what it is in all files, such as {{{name}: string}}"
        if is_csv(other[1])
        else "write the files with one type"
    )
    return InvalidInputError(
        f'column "{name}" is {one[0]} in {one[1]} and {other[0]} in {other[1]}, and it travels to the output as one '
        f"column of one type; {remedy}."
    )
