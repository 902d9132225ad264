"""Some rows at random, and the gamma that their distances give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine, open_engine
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import MEDIAN_ROWS, median_gamma
from scalable_kpca.landmarks.given import fetch_rows
from scalable_kpca.landmarks.sample import BATCH_ROWS
from scalable_kpca.source import Span
from scalable_kpca.streaming import BlockSpan

__all__ = ["draw_numbers", "draw_rows", "sampled_gamma"]


def draw_numbers(n_samples: int, size: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Numbers of rows drawn uniformly without replacement, ascending; all where there are no more than `size`."""
    if n_samples == 0:
        raise InvalidInputError("there are no rows to draw from; at least one is needed.")
    if n_samples <= size:
        return np.arange(n_samples, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(n_samples, size, replace=False)).astype(np.int64)


def draw_rows(
    spans: Sequence[Span | BlockSpan],
    size: int,
    *,
    seed: int = 0,
    engine: Engine | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Any:
    """Rows drawn uniformly without replacement by their numbers, in the order of the rows; all where there are no more.

    Parameters
    ----------
    spans : sequence of Span
        All rows, in order; of rows that can be read by position, `row_spans`.
    size : int
        At most so many rows.
    seed : int
        The same rows for the same seed and number of rows, however they are cut into spans.
    engine : Engine, optional
        Where the pass runs; without one, in this process.
    batch_rows : int
        Rows that a task reads at a time.

    Returns
    -------
    ndarray or scipy CSR array of shape (min(size, n_samples), n_features)
        In the dtype of the source.

    Raises
    ------
    InvalidInputError
        When there are no rows.

    Notes
    -----
    One pass over the spans that have any of the rows, which is most of them where spans are fewer than `size`.
    """
    numbers = draw_numbers(sum(span.n_rows for span in spans), size, seed=seed)
    if engine is not None:
        return fetch_rows(engine, spans, numbers, batch_rows=batch_rows, stage="sample")
    with open_engine("synchronous") as own:
        return fetch_rows(own, spans, numbers, batch_rows=batch_rows, stage="sample")


def sampled_gamma(
    spans: Sequence[Span | BlockSpan],
    *,
    seed: int = 0,
    engine: Engine | None = None,
    batch_rows: int = BATCH_ROWS,
) -> float:
    """What ``gamma="median"`` is: `median_gamma` of at most `MEDIAN_ROWS` rows that `draw_rows` draws; see both."""
    return median_gamma(draw_rows(spans, MEDIAN_ROWS, seed=seed, engine=engine, batch_rows=batch_rows))
