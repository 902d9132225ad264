"""How much of an object is asked for at once: whole row groups while they are small, else shares of each column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["fetch_buffer", "fetch_runs", "fetched_whole", "held_of_object"]

FETCH_BYTES = 32 * 2**20  # that are held of what has been fetched: most row groups, also of copies that are made here
SHARE_BYTES = 2**20  # of a column, at most: a request for more takes longer by its bytes alone
SMALLEST_BYTES = 2**16  # and at least


def fetched_whole(fetched: Sequence[int]) -> bool:
    """Whether row groups with so many bytes in use come as a whole, columns beside one another by one request."""
    return 0 < max(fetched, default=0) <= FETCH_BYTES


def fetch_buffer(n_columns: int) -> int:
    """Bytes of each column that are asked for at once, where row groups do not come as a whole."""
    return min(SHARE_BYTES, max(SMALLEST_BYTES, FETCH_BYTES // n_columns))


def fetch_runs(first: int, fetched: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of row groups, from `first` on, that are asked for together."""
    run, held = [], 0  # type: list[int], int
    for group, size in enumerate(fetched, first):
        if run and held + size > FETCH_BYTES:
            yield run
            run, held = [], 0
        run.append(group)
        held += size
    yield run


def held_of_object(fetched: Sequence[int], n_columns: int) -> int:
    """Bytes that are held of row groups as they are stored, at most."""
    return min(sum(fetched), max(FETCH_BYTES, SMALLEST_BYTES * n_columns))
