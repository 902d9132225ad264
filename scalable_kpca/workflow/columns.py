"""What is written beside the labels of rows: their scores, and what else a job asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.novelty import scores_and_novelty, training_novelty
from scalable_kpca.preimage import held_map
from scalable_kpca.source.spans import cut
from scalable_kpca.tiling import Tiling, rows_of_batch
from scalable_kpca.transform import exact_scores
from scalable_kpca.workflow.parts import NOVELTY, RECONSTRUCTION

__all__ = ["ScoreColumns", "distances", "score_columns", "training_columns"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
ScoreColumns = tuple[Matrix, dict[str, Vector]]


def score_columns(model: AnyModel, beside: Collection[str]) -> Callable[[NDArray[Any]], ScoreColumns]:
    """Function from finite rows (b, n_features) to scores (b, k) and columns (b,) beside them; tasks can be sent it.

    Parameters
    ----------
    model : Model or NystroemModel
    beside : collection of str
        Any of `NOVELTY` and `RECONSTRUCTION`: ‖x − r(z)‖ of a row x and of what its scores z are mapped back to, in the
        unit of the features; the model holds the map then.

    Notes
    -----
    Cost of a reconstruction: see `RidgeMap`. Memory: one more block of rows in float64.
    """
    scores_of = _scores_and_novelty(model, novelty=NOVELTY in beside)
    if RECONSTRUCTION not in beside:
        return scores_of
    back = held_map(model)

    def with_distances(rows: NDArray[Any]) -> ScoreColumns:
        scores, columns = scores_of(rows)
        return scores, {**columns, RECONSTRUCTION: distances(rows, back(scores))}

    return with_distances


def training_columns(model: Model, beside: Collection[str]) -> dict[str, Vector]:
    """Columns (n_samples,) beside the scores of the training rows of an exact model.

    Notes
    -----
    Cost: one read of the rows for each. Memory: one block of rows, and one batch of them in float64.
    """
    columns = {NOVELTY: training_novelty(model)} if NOVELTY in beside else {}
    if RECONSTRUCTION in beside:
        columns[RECONSTRUCTION] = _training_distances(model)
    return columns


def _training_distances(model: Model) -> Vector:
    back, scores = held_map(model), model.training_scores
    tiling, found = Tiling(model.n_samples, model.tile_rows), np.empty(model.n_samples)
    for i in range(tiling.n_blocks):
        block = tiling.block(i)
        rows = np.asarray(model.rows.read(block))
        for start, stop in cut(len(rows), rows_of_batch(model.n_features)):
            own = slice(block.start + start, block.start + stop)
            found[own] = distances(rows[start:stop], back(scores[own]))
    return found


def distances(rows: NDArray[Any], others: Matrix) -> Vector:
    """Euclidean distances of rows (b, n_features) to others, which are written over; shape (b,)."""
    np.subtract(rows, others, out=others)
    found: Vector = np.linalg.norm(others, axis=1)
    return found


def _scores_and_novelty(model: AnyModel, *, novelty: bool) -> Callable[[NDArray[Any]], ScoreColumns]:
    if novelty:
        both_of = scores_and_novelty(model)

        def both(rows: NDArray[Any]) -> ScoreColumns:
            scores, novel = both_of(rows)
            return scores, {NOVELTY: novel}

        return both
    if isinstance(model, NystroemModel):
        projection = model.projection
        return lambda rows: (projection(rows), {})
    scores_of = exact_scores(model)
    return lambda rows: (scores_of(rows)[0], {})
