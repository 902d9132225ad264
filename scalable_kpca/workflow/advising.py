"""Advice on the number of landmarks of a job, from some of its rows."""

from __future__ import annotations

from functools import partial

import numpy as np

from scalable_kpca.kernels import MEDIAN_ROWS, median_gamma
from scalable_kpca.planning.advice import SAMPLE_ROWS, Advice, advise_landmarks
from scalable_kpca.source import FiniteCheck, RowSummary
from scalable_kpca.workflow.identity import Planned

__all__ = ["advise"]

PLACES = 16  # of the source from which rows are taken, spread over it
SPAN_ROWS = 65_536


def advise(planned: Planned) -> Advice:
    """What landmarks of a job would leave out, tried on at most `SAMPLE_ROWS` rows from the beginnings of some spans.

    Raises
    ------
    InvalidInputError
        For an entry that is not finite.
    """
    source, config = planned.source, planned.config
    spans = source.spans(SPAN_ROWS)
    chosen = [spans[int(at)] for at in np.unique(np.linspace(0, len(spans) - 1, PLACES).astype(int))]
    each = -(-SAMPLE_ROWS // len(chosen))
    rows = np.concatenate([next(iter(span.batches(each))).rows for span in chosen])
    finite = FiniteCheck(source.feature_names)
    finite.add(rows)
    finite.raise_if_any()
    rows = rows[np.random.default_rng(config.seed).permutation(len(rows))]
    summary = RowSummary(len(rows), rows.shape[1], float(rows.var(dtype=np.float64)))
    kernel = planned.kernel(summary, partial(median_gamma, rows[:MEDIAN_ROWS]))
    n_landmarks = min(config.nystroem.n_landmarks, source.n_samples)
    return advise_landmarks(kernel, rows, n_landmarks=n_landmarks, n_samples=source.n_samples)
