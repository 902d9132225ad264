"""Scores beside labels, span by span: tasks read and score, this process writes in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.engine import Engine
from scalable_kpca.model import NystroemModel
from scalable_kpca.novelty import warn_of_rounding
from scalable_kpca.source import Span
from scalable_kpca.streaming import map_spans
from scalable_kpca.workflow.columns import ScoreColumns, score_columns
from scalable_kpca.workflow.parts import NOVELTY, with_scores
from scalable_kpca.workflow.score_files import writing_scores
from scalable_kpca.workflow.watching import Comparison, ProfileRecorder, RowLook, RowsSeen, Tally

__all__ = ["write_scores"]


def write_scores(
    spans: Sequence[Span],
    part_rows: Sequence[int],
    model: NystroemModel,
    engine: Engine,
    place: Path,
    *,
    form: str,
    beside: Sequence[str],
    batch_rows: int,
    wave: int,
    numbers: Mapping[int, int] | None = None,
    recorder: ProfileRecorder | None = None,
    comparison: Comparison | None = None,
) -> dict[int, Tally]:
    """One part for each input part: labels and scores of the same rows, from the same read.

    Parameters
    ----------
    spans : sequence of Span
        All rows to be scored, in order.
    part_rows : sequence of int
        Rows of each part that is written.
    model : NystroemModel
    engine : Engine
    place, form : Path, str
        Where they go, and how: see `writing_scores`.
    beside : sequence of str
        Columns beside the scores: see `score_columns`.
    batch_rows, wave : int
        Rows that a task reads at a time; tasks whose tables are in memory together.
    numbers : mapping, optional
        Number of the part that is written, of the part that is read; the same by default.
    recorder : ProfileRecorder, optional
        Sees every table as it passes.
    comparison : Comparison, optional
        With the profile of a fit.

    Returns
    -------
    dict
        Of each part that is read, how its rows compare; empty without a comparison.
    """
    if NOVELTY in beside:
        warn_of_rounding(model)
    scores_of = score_columns(model, beside)
    look = None if recorder is None else recorder.look
    scored = map_spans(engine, spans, _scored, scores_of, comparison, look, batch_rows, stage="score", wave=wave)
    tallies: dict[int, Tally] = {}
    with writing_scores(place, part_rows, form=form, n_components=model.n_components, beside=beside) as parts:
        for span, (table, counts, seen) in zip(spans, scored, strict=True):
            parts.add(span.part if numbers is None else numbers[span.part], table)
            if recorder is not None:
                recorder.add(span.start, table, seen)
            if comparison is not None:
                tallies.setdefault(span.part, comparison.tally()).add(counts, table)
    return tallies


def _scored(
    span: Span,
    scores_of: Callable[[Any], ScoreColumns],
    comparison: Comparison | None,
    look: RowLook | None,
    batch_rows: int,
) -> tuple[Any, Any, RowsSeen]:
    """Labels and scores of a span's rows, how many are in which bin of a comparison, and what they are like."""
    import pyarrow as pa

    tables, counts, seen = [], 0, RowsSeen()  # type: list[Any], Any, RowsSeen
    for batch in span.batches(batch_rows, "all"):
        scores, more = scores_of(batch.rows)
        tables.append(with_scores(batch.labels, scores, more))
        if comparison is not None:
            counts = counts + comparison.counts(batch.rows, scores)
        if look is not None and len(scores):
            seen.merge(look.at(np.asarray(batch.rows), scores))
    return pa.concat_tables(tables), counts, seen
