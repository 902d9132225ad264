"""Passes over all rows by the landmarks: sums, and the scores that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.nystroem.accumulators import Accumulators, accumulate
from scalable_kpca.nystroem.basis import Basis
from scalable_kpca.nystroem.checkpoint import SumsCheckpoint
from scalable_kpca.nystroem.projection import Projection
from scalable_kpca.nystroem.spectrum import leading_pairs
from scalable_kpca.source import Span
from scalable_kpca.streaming import BlockSpan, map_spans, reduce_spans
from scalable_kpca.tiling import WAVE

__all__ = ["Spans", "accumulate_spans", "approximate_eigenvectors", "training_scores"]

Matrix = NDArray[np.float64]
Spans = Sequence[Span | BlockSpan]


def accumulate_spans(
    spans: Spans,
    basis: Basis,
    batch_rows: int,
    engine: Engine,
    *,
    checkpoint: SumsCheckpoint | None = None,
    wave: int = WAVE,
    stage: str = "accumulate",
) -> tuple[Accumulators, int]:
    """Sums over all rows, added in the order of the spans, and how many spans a checkpoint had done already.

    Where there is a checkpoint it is written after every wave, of whole groups of `WAVE` spans: how many tasks are
    given out together decides no bit.
    """
    first, total = checkpoint.load(basis) if checkpoint else (0, Accumulators.zero(basis))
    waves = reduce_spans(
        engine,
        spans,
        accumulate,
        basis,
        batch_rows,
        add=Accumulators.__add__,
        stage=stage,
        start=total,
        wave=wave,
        first=first,
    )
    for done, total in waves:
        if checkpoint is not None:
            checkpoint.save(basis, done, total)
    return total, first


def approximate_eigenvectors(
    basis: Basis,
    sums: Accumulators,
    spans: Spans,
    engine: Engine,
    *,
    n_columns: int,
    batch_rows: int,
    stage: str = "score",
) -> Matrix:
    """Nyström approximations of the leading eigenvectors of K̃, times √λ, from which passes over K go on.

    Returns
    -------
    ndarray of shape (n_samples, ≤ n_columns), float64
    """
    values, weights, offset = leading_pairs(basis, sums, n_columns)
    projection = Projection(basis, weights[:, values > 0], offset[values > 0])
    return np.concatenate(list(training_scores(spans, projection, engine, batch_rows, stage=stage)))


def training_scores(
    spans: Spans, projection: Projection, engine: Engine, batch_rows: int, *, wave: int = WAVE, stage: str = "score"
) -> Iterator[Matrix]:
    """Scores of each span in order, shape (n_rows, k), float64: another pass over the rows."""
    return map_spans(engine, spans, _scores, projection, batch_rows, stage=stage, wave=wave)


def _scores(span: Span, projection: Projection, batch_rows: int) -> Matrix:
    return np.concatenate([projection(batch.rows) for batch in span.batches(batch_rows)])
