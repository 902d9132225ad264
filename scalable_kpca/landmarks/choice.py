"""Which rows become landmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.kernels import Kernel
from scalable_kpca.landmarks.given import fetch_rows, given_rows
from scalable_kpca.landmarks.rpcholesky import Pivots, block_of, choose_pivots
from scalable_kpca.landmarks.sample import BATCH_ROWS, Look, look
from scalable_kpca.landmarks.spread import spread_out
from scalable_kpca.source import RowBlock, RowSummary, Span
from scalable_kpca.streaming import BlockSpan
from scalable_kpca.tiling import KMEANS_ROWS, LANDMARK_METHODS, NystroemPlan

__all__ = ["Landmarks", "choose_landmarks", "find_landmarks", "sample_size"]

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Rows that the Nyström approximation is built on.

    Attributes
    ----------
    rows : ndarray or scipy CSR array of shape (m, n_features)
        In the dtype of the source.
    numbers : ndarray of shape (m,), int64
        Their row numbers, -1 where they are not known to be rows of the source.
    method : str
        How they were chosen.
    n_passes : int
        Passes over the rows that it took, after the first look.
    note : str
        What a user would not expect, such as fewer landmarks than asked for; else empty.
    """

    rows: RowBlock
    numbers: Numbers
    method: str
    n_passes: int = 0
    note: str = ""


def sample_size(method: str, n_landmarks: int) -> int:
    """Rows that `look` must sample for `choose_landmarks`."""
    return {"uniform": 1, "kmeans++": KMEANS_ROWS}.get(method, 0) * n_landmarks


def find_landmarks(
    engine: Engine,
    spans: Sequence[Span | BlockSpan],
    plan: NystroemPlan,
    kernel_of: Callable[[RowSummary], Kernel],
    *,
    seed: int,
    names: Sequence[str] = (),
    given: Any = None,
    n_features: int | None = None,
) -> tuple[Landmarks, RowSummary]:
    """Landmarks by a plan, and what the first pass learned: `look` and `choose_landmarks`, one after the other.

    Parameters
    ----------
    engine, spans, seed, given
        See `choose_landmarks`.
    plan : NystroemPlan
        Method, number, dtype and batches.
    kernel_of : callable
        Kernel, given a summary of the rows.
    names : sequence of str, optional
        Column names for messages.
    n_features : int, optional
        Of the rows, where the plan counts others: that of sparse rows has `row_width`.
    """
    method, m, batch_rows = plan.landmarks, plan.n_landmarks, plan.batch_rows
    found = look(
        engine,
        spans,
        n_features=n_features or plan.n_features,
        sample_size=sample_size(method, m),
        seed=seed,
        names=names,
        batch_rows=batch_rows,
    )
    kernel, dtype = kernel_of(found.summary), plan.dtype
    options = {"n_landmarks": m, "seed": seed, "batch_rows": batch_rows, "row_width": plan.n_features}
    return choose_landmarks(method, found, engine, spans, kernel, given=given, dtype=dtype, **options), found.summary


def choose_landmarks(
    method: str,
    found: Look,
    engine: Engine,
    spans: Sequence[Span | BlockSpan],
    kernel: Kernel,
    *,
    n_landmarks: int,
    seed: int,
    given: Any = None,
    dtype: str = "float64",
    batch_rows: int = BATCH_ROWS,
    row_width: int | None = None,
) -> Landmarks:
    """Landmarks by one of the methods.

    Parameters
    ----------
    method : {"uniform", "kmeans++", "rpcholesky", "given"}
        ``"uniform"``: the first rows of the sample. ``"kmeans++"``: spread out over the sample by k-means++ seeding, in
        the space of the rows; good for unequal clusters. ``"rpcholesky"``: randomly pivoted Cholesky, in the space of
        the kernel; far better than the others where the spectrum of the kernel decays fast, and no better where it is
        flat. ``"given"``: an array.
    found : Look
        What the first pass learned, its sample as large as `sample_size` says.
    engine, spans
        All rows, in order, and where passes over them run.
    kernel : Kernel
        Resolved kernel; of ``"rpcholesky"`` only.
    n_landmarks : int
        How many; all rows where there are fewer. Of no meaning for ``"given"``.
    seed : int
        Of ``"kmeans++"`` and ``"rpcholesky"``; that of ``"uniform"`` was the look's.
    given : array-like or sparse matrix of shape (m, n_features), or integers of shape (m,), optional
        Rows, or row numbers, for ``"given"``. Repeated ones do no harm.
    dtype : {"float32", "float64"}
        Of the kernel values of ``"rpcholesky"``.
    batch_rows : int
        Rows that a task reads at a time.
    row_width : int, optional
        Float64 numbers that a row takes in memory; n_features of dense rows.

    Returns
    -------
    Landmarks

    Raises
    ------
    InvalidInputError
        For rows or row numbers that cannot be landmarks, or when there are no rows.
    ConfigError
        For an unknown method, or one that this kernel does not allow.

    Notes
    -----
    Passes: none for ``"uniform"``, ``"kmeans++"`` and given rows; one for given row numbers; for ``"rpcholesky"`` see
    `choose_pivots`. k-means++ costs some 20·m²·(2 + ln m) distances in the client: see `spread_out`.
    """
    if (given is not None) != (method == "given"):
        raise ConfigError(
            f"landmarks={method!r} {'with' if given is not None else 'without'} an array of landmarks; an array, and "
            'nothing else, goes with landmarks="given".'
        )
    if given is not None:
        rows, numbers, n_passes = given_rows(given, found.summary, engine, spans, batch_rows)
        return Landmarks(rows, numbers, method, n_passes)
    m = _resolve_count(method, n_landmarks, found)
    few = f"n_landmarks={n_landmarks}, and there are {m} rows: all of them may be landmarks" if m < n_landmarks else ""
    if method == "uniform":
        return Landmarks(found.sample[:m], found.numbers[:m], method, note=few)
    if method == "kmeans++":
        chosen = spread_out(found.sample, m, seed)
        note = few if len(chosen) == m else f"{len(chosen)} landmarks: no more of the rows sampled differ"
        return Landmarks(found.sample[chosen], found.numbers[chosen], method, note=note)
    block = block_of(m, row_width or found.summary.n_features)
    pivots = choose_pivots(
        engine, spans, kernel, n_pivots=m, seed=seed, dtype=dtype, batch_rows=batch_rows, block=block
    )
    if len(pivots.numbers):
        return Landmarks(pivots.rows, pivots.numbers, method, pivots.n_passes, _describe(pivots, m, dtype) or few)
    first = np.zeros(1, np.int64)  # what uses landmarks needs one
    rows = fetch_rows(engine, spans, first, batch_rows=batch_rows)
    return Landmarks(rows, first, method, pivots.n_passes + 1, "every k(x, x) is 0: one landmark stands for all rows")


def _resolve_count(method: str, n_landmarks: int, found: Look) -> int:
    """Number of landmarks to choose, when everything is there to choose from."""
    if method not in LANDMARK_METHODS:
        raise ConfigError(f"landmarks={method!r} is not known; choose one of {', '.join(LANDMARK_METHODS)}.")
    if n_landmarks < 1:
        raise ConfigError(f"n_landmarks={n_landmarks}; at least one landmark is needed.")
    n_samples = found.summary.n_samples
    if n_samples == 0:
        raise InvalidInputError("there are no rows, and at least one is needed for a landmark.")
    m = min(n_landmarks, n_samples)
    if method != "rpcholesky" and len(found.numbers) < m:
        raise ConfigError(
            f"landmarks={method!r}: {m} landmarks cannot be chosen from a sample of {len(found.numbers)} rows; look "
            f"for sample_size={sample_size(method, m)}."
        )
    return m


def _describe(pivots: Pivots, m: int, dtype: str) -> str:
    found = len(pivots.numbers)
    if pivots.is_exact:
        return "" if found == m else f"{found} landmarks of {m} are enough: what they leave is within {dtype} rounding"
    if found < m:
        return f"{found} landmarks of {m}: none of the rows proposed in {pivots.n_passes} passes is left"
    if pivots.n_unthinned:
        return f"the last {pivots.n_unthinned} landmarks were not thinned out: {pivots.n_passes} passes were used up"
    return ""
