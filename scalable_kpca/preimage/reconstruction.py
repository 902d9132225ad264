"""Rows from scores by the map that a model holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import ConfigError
from scalable_kpca.model import AnyModel, RidgeMap
from scalable_kpca.preimage.pairs import choose_training_pairs
from scalable_kpca.preimage.ridge import fit_ridge_map
from scalable_kpca.tiling import DENSE_LIMIT

__all__ = ["held_map", "learn_ridge", "most_pairs", "reconstruct"]

Fitted = TypeVar("Fitted", bound=AnyModel)


def reconstruct(model: AnyModel, scores: Any) -> NDArray[np.float64]:
    """Rows whose scores are near some scores, by the map that was learned with a model.

    Parameters
    ----------
    model : Model or NystroemModel
        Of a fit with ``fit_inverse_transform=True``, or of a job with ``inverse``; saved and loaded, or not.
    scores : array-like of shape (b, n_components)
        Finite.

    Returns
    -------
    ndarray of shape (b, n_features), float64
        The same bits as `KernelPCA.inverse_transform`. Where columns were prepared, features as they were fitted.

    Raises
    ------
    ConfigError
        For a model without a map.
    InvalidInputError
        For another number of scores, or NaN or infinity.

    Notes
    -----
    Cost a row: m kernel values between scores and 2·m·n_features flops, m rows that the map was learned on.

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_kpca import KernelPCA, project, reconstruct
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> model = KernelPCA(2, kernel="rbf", fit_inverse_transform=True).fit(X).model_
    >>> reconstruct(model, project(model, X[:3])).shape
    (3, 4)
    """
    return held_map(model)(scores)


def held_map(model: AnyModel) -> RidgeMap:
    """The map of a model; ConfigError when it has none."""
    if model.way_back is None:
        raise ConfigError(
            "the model holds no map from scores to rows; fit again with fit_inverse_transform=True, in a job with "
            "inverse: true."
        )
    return model.way_back


def most_pairs(n_landmarks: int) -> int:
    """Rows that a ridge map is learned on, at most, by the landmarks that a fit may have."""
    return max(DENSE_LIMIT, n_landmarks)


def learn_ridge(model: Fitted, alpha: float, *, limit: int, seed: int) -> Fitted:
    """The same model with a map that is learned on its training rows, or its landmarks; `limit` of them at most."""
    scores, rows = choose_training_pairs(model, limit=limit, seed=seed)
    ridge = fit_ridge_map(scores, rows, model.kernel, alpha)
    return replace(model, way_back=ridge)
