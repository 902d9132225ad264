"""Some rows of the scores of a run, read batch by batch: a fixed seed says which ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.documents import open_plain, refuse_links
from scalable_kpca.errors import ConfigError, StorageError, storage_errors
from scalable_kpca.source import open_stored
from scalable_kpca.workflow.colouring import LARGEST, MOST_GROUPS
from scalable_kpca.workflow.parts import NOVELTY

__all__ = ["ScoreSample", "choose_colour", "read_sample"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

BATCH_ROWS = 2**15
SAMPLE_ROWS = 50_000
LOOK_ROWS = 4096  # of a column, to see whether it can be a colour
MOST_LETTERS = 80  # of a value


@dataclass(frozen=True, eq=False)
class ScoreSample:
    """Rows of the scores.

    Attributes
    ----------
    n_rows : int
        That were there.
    scores : ndarray of shape (m, c), float64
        Of the first c components, c ≤ 2, of the rows that were drawn.
    novelty : ndarray of shape (m,), float64, or None
        Where the column is there.
    most_novel : float or None
        Largest novelty of all rows.
    values : tuple
        Of the column that colours them, m or none.
    """

    n_rows: int
    scores: Matrix
    novelty: Vector | None
    most_novel: float | None
    values: tuple[Any, ...]

    @property
    def drawable(self) -> NDArray[np.bool_]:
        """Rows whose scores fit in a picture."""
        return np.asarray((np.abs(self.scores) < LARGEST).all(axis=1))


def read_sample(
    parts: Sequence[Path],
    columns: Sequence[str],
    *,
    novelty: bool,
    colour: str | None,
    store: Path | None = None,
    size: int = SAMPLE_ROWS,
    seed: int = 0,
) -> ScoreSample:
    """Rows of some parts, all of them or so many drawn without replacement.

    Parameters
    ----------
    parts : sequence of Path
        Files of scores, in order.
    columns : sequence of str
        At most two, of scores.
    novelty : bool
        Whether the column of that name is read too.
    colour : str, optional
        One more column.
    store : Path, optional
        Zarr group of the numbers, where the parts have labels alone.
    size, seed : int

    Raises
    ------
    StorageError
        When a part is not what this package writes.

    Notes
    -----
    Cost: these columns of all rows are decoded once. Memory: a batch of 32 768 rows, or a row group of a part, which
    this package writes with 65 536 rows or 32 MiB of them, and the sample.
    """
    n_rows = sum(_count(path) for path in parts)
    wanted = np.random.default_rng(seed).choice(n_rows, size, replace=False, shuffle=False) if n_rows > size else None
    chosen = np.arange(n_rows) if wanted is None else np.sort(wanted)
    names = [*columns, *([NOVELTY] if novelty else [])]
    found: list[Matrix] = [np.empty((0, len(names)))]
    values: list[Any] = []
    start, most = 0, float("nan")
    stored = None if store is None else _stored(store, n_rows, names)
    in_parts = names if stored is None else []
    read = dict.fromkeys([*in_parts, *([colour] if colour else [])])
    for path in parts:
        for batch in _batches(path, read, len(in_parts)):
            stop = start + batch.num_rows
            own = chosen[slice(*np.searchsorted(chosen, [start, stop]))] - start
            if stored is None:
                numbers = [_numbers(batch, name, path) for name in names]
            else:
                numbers = [column(slice(start, stop)) for column in stored]
            if novelty and batch.num_rows:
                most = float(np.fmax(most, numbers[-1].max()))
            found.append(np.column_stack([column[own] for column in numbers]) if names else np.empty((len(own), 0)))
            if colour:
                values += _values(batch.column(batch.schema.get_field_index(colour)).take(own))
            start = stop
    sampled = np.concatenate(found)
    return ScoreSample(
        n_rows=start,
        scores=sampled[:, : len(columns)],
        novelty=sampled[:, -1] if novelty else None,
        most_novel=most if novelty and start else None,
        values=tuple(values),
    )


def choose_colour(parts: Sequence[Path], asked: str | None, candidates: Sequence[str]) -> str | None:
    """Column that colours the rows: the one that is asked for, or the first candidate that is fit; None for no rows.

    Parameters
    ----------
    parts : sequence of Path
        Files of scores.
    asked : str or None
    candidates : sequence of str
        Fit are those of numbers, and those of texts with at most 20 values in their first 4096 rows.

    Raises
    ------
    ConfigError
        When the column that is asked for is not there, or holds what has no colour.
    """
    filled = next((path for path in parts if _count(path)), None)
    if filled is None:
        return None
    with _opened(filled) as file:
        kinds = {field.name: field.type for field in file.schema_arrow}
    if asked is not None:
        if asked not in kinds or not _has_colour(kinds[asked]):
            fit = ", ".join(repr(name[:MOST_LETTERS]) for name, kind in list(kinds.items())[:20] if _has_colour(kind))
            raise ConfigError(f"--colour={asked[:MOST_LETTERS]!r} is no column of numbers or texts; there are {fit}.")
        return asked
    return next((n for n in candidates if n in kinds and _has_colour(kinds[n]) and _is_fit(filled, n)), None)


def _stored(store: Path, n_rows: int, names: Sequence[str]) -> list[Callable[[slice], Vector]]:
    """What reads rows of each column from a zarr group of scores; StorageError when it is none of ours."""
    try:
        refuse_links(store)
        n_columns = {"scores": 2}
        arrays = {
            name: open_stored(store / name, ("float64",), n_columns.get(name, 1))
            for name in dict.fromkeys(name if name == NOVELTY else "scores" for name in names)
        }
    except (ValueError, OSError) as error:
        raise StorageError(f"{store} is no group of scores that skpca writes: {error}; run the job again.") from error
    for name, array in arrays.items():
        if array.shape[0] != n_rows:
            raise StorageError(f"{store / name} has {array.shape[0]} rows, and the parts {n_rows}; run the job again.")

    def reader(place: int, name: str) -> Callable[[slice], Vector]:
        if name == NOVELTY:
            return lambda rows: np.asarray(arrays[NOVELTY][rows])
        return lambda rows: np.asarray(arrays["scores"][rows, place])

    return [reader(place, name) for place, name in enumerate(names)]


def _count(path: Path) -> int:
    with _opened(path) as file:
        n_rows = int(file.metadata.num_rows)
    if not 0 <= n_rows < 2**62:
        raise StorageError(f"{path} says that it has {n_rows} rows; run the job again.")
    return n_rows


def _is_fit(path: Path, name: str) -> bool:
    import pyarrow.types as kinds

    batch = next(_batches(path, {name: None}, 0, LOOK_ROWS), None)
    if batch is None:
        return False
    column = batch.column(batch.schema.get_field_index(name))
    if kinds.is_integer(column.type) or kinds.is_floating(column.type):
        return True
    return len(set(_values(column))) <= MOST_GROUPS


def _has_colour(kind: Any) -> bool:
    import pyarrow.types as kinds

    kind = kind.value_type if kinds.is_dictionary(kind) else kind
    tests = (
        kinds.is_integer,
        kinds.is_floating,
        kinds.is_boolean,
        kinds.is_string,
        kinds.is_large_string,
        kinds.is_date,
    )
    return any(test(kind) for test in tests)


@contextmanager
def _opened(path: Path, texts: Sequence[str] = ()) -> Iterator[Any]:
    """A part; texts come as a dictionary and numbers of its entries, which takes no more memory than they differ."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with storage_errors(f"reading {path}"), open_plain(path) as stream:
        try:
            yield pq.ParquetFile(stream, read_dictionary=list(texts))
        except (pa.ArrowException, ValueError) as error:
            raise StorageError(
                f"{path} is no part that skpca writes: {str(error)[:200]}; run the job again."
            ) from error


def _batches(path: Path, names: Any, n_numbers: int, rows: int = BATCH_ROWS) -> Iterator[Any]:
    """Columns of a part; StorageError unless each is there once."""
    with _opened(path, list(names)[n_numbers:]) as file:
        schema = file.schema_arrow
        for name in names:
            if schema.get_field_index(name) < 0:
                raise ValueError(f"it has no column {name[:MOST_LETTERS]!r}, or more than one")
        for group in range(file.num_row_groups):  # one after another: all in one go keep what was decoded
            yield from file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False)


def _numbers(batch: Any, name: str, path: Path) -> Vector:
    column = batch.column(batch.schema.get_field_index(name))
    if str(column.type) != "double" or column.null_count:
        raise StorageError(f"{path}: {name} is no column of float64 without nulls; run the job again.")
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


def _values(column: Any) -> list[Any]:
    """Python values, texts cut; None for null and NaN."""
    if hasattr(column, "dictionary"):
        codes = column.indices.to_pylist()
        known = {code: _plain(column.dictionary[code].as_py()) for code in set(codes) - {None}}
        return [known.get(code) for code in codes]
    return [_plain(value.as_py()) for value in column]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    return value[:MOST_LETTERS] if isinstance(value, str) else value
