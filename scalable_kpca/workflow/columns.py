"""What is written beside the labels of rows: their scores, and their novelty where a job asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.model import AnyModel, NystroemModel
from scalable_kpca.novelty import scores_and_novelty
from scalable_kpca.transform import exact_scores

__all__ = ["ScoreColumns", "score_columns"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
ScoreColumns = tuple[Matrix, Vector | None]


def score_columns(model: AnyModel, *, novelty: bool) -> Callable[[NDArray[Any]], ScoreColumns]:
    """Function from finite rows (b, n_features) to scores (b, k) and novelty (b,), or None; tasks can be sent it."""
    if novelty:
        return scores_and_novelty(model)
    if isinstance(model, NystroemModel):
        projection = model.projection
        return lambda rows: (projection(rows), None)
    scores_of = exact_scores(model)
    return lambda rows: (scores_of(rows)[0], None)
