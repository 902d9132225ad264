"""Scores of new rows, block by block. [seed 000 eq 10, 17, 18]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import TileStrips
from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.source import FiniteCheck, check_width
from scalable_kpca.tiling import Tiling

__all__ = ["project", "project_lazily", "projector"]

Matrix = NDArray[np.float64]


def projector(model: AnyModel) -> Callable[[NDArray[Any]], Matrix]:
    """Function from rows (b, n_features) to scores (b, k); holds what all blocks share.

    Notes
    -----
    Cost a row: n_samples kernel values for an exact model, n_landmarks for a Nyström one, and 2k flops for each. Memory
    beside the model: one strip of kernel values and, exact, one block of training rows.
    """
    scores = model.scores if isinstance(model, NystroemModel) else _exact_scores(model)

    def checked(rows: NDArray[Any]) -> Matrix:
        rows = np.asarray(rows)
        if rows.ndim != 2:
            raise InvalidInputError(
                f"rows have shape {rows.shape}; a matrix of new rows × {model.n_features} features is needed."
            )
        check_width(rows.shape[1], model.n_features)
        finite = FiniteCheck(model.feature_names)
        finite.add(rows)
        finite.raise_if_any()
        return scores(rows)

    return checked


def _exact_scores(model: Model) -> Callable[[NDArray[Any]], Matrix]:
    coefficients = model.dual_coefficients
    # a column of ones beside the coefficients makes the means κ(t) in the same product
    weights = np.column_stack([coefficients, np.ones(model.n_samples)])
    tiling = Tiling(model.n_samples, model.tile_rows)

    def scores(rows: NDArray[Any]) -> Matrix:
        rows = rows.astype(np.float64)
        product = np.zeros((len(rows), weights.shape[1]))
        for j in range(tiling.n_blocks):
            columns = model.rows.read(tiling.block(j)).astype(np.float64)
            for start, strip in TileStrips(model.kernel, rows, columns):
                product[start : start + len(strip)] += strip @ weights[tiling.block(j)]
        centred = model.centering.project(product[:, :-1], product[:, -1] / tiling.n_samples, coefficients)
        centred[:, model.eigenvalues == 0] = 0.0
        return centred

    return scores


def project(model: AnyModel, rows: NDArray[Any]) -> Matrix:
    """Scores of new rows.

    Parameters
    ----------
    model : Model or NystroemModel
        Fitted model.
    rows : ndarray of shape (n_new, n_features)
        Finite numbers.

    Returns
    -------
    ndarray of shape (n_new, k), float64
        K̃(t, X)α, or its Nyström approximation: for a training row, its training score.

    Raises
    ------
    InvalidInputError
        For another number of features, or NaN or infinity.
    """
    return projector(model)(rows)


def project_lazily(model: AnyModel, rows: Any) -> Any:
    """Scores of a dask array of rows as a lazy dask array with the same row chunks; see `project`."""
    from dask.delayed import delayed

    check_width(rows.shape[1], model.n_features)
    shared = delayed(projector, pure=False)(delayed(model, pure=False))
    return rows.rechunk({1: -1}).map_blocks(
        _apply,
        shared,
        dtype=np.float64,
        chunks=(rows.chunks[0], (model.n_components,)),
        meta=np.empty((0, 0)),
    )


def _apply(rows: NDArray[Any], scores: Callable[[NDArray[Any]], Matrix]) -> Matrix:
    return scores(rows)
