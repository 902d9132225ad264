"""Scores of new rows, block by block. [seed 000 eq 10, 17, 18]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import TileStrips
from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.source import FiniteCheck, NoRows, as_csr, check_width, is_sparse
from scalable_kpca.tiling import Tiling

__all__ = ["exact_scores", "new_rows_check", "project", "project_lazily", "projector"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def projector(model: AnyModel) -> Callable[[NDArray[Any]], Matrix]:
    """Function from rows (b, n_features) to scores (b, k); holds what all blocks share.

    Notes
    -----
    Cost a row: n_samples kernel values for an exact model, n_landmarks for a Nyström one, and 2k flops for each. Memory
    beside the model: one strip of kernel values and, exact, one block of training rows.
    """
    check = new_rows_check(model)
    if isinstance(model, NystroemModel):
        of_landmarks = model.scores
        return lambda rows: of_landmarks(check(rows))
    of_rows = exact_scores(model)
    return lambda rows: of_rows(check(rows))[0]


def new_rows_check(model: AnyModel) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Function that gives rows back, or refuses rows that a model cannot take with an InvalidInputError."""

    def checked(rows: NDArray[Any]) -> NDArray[Any]:
        rows = as_csr(rows) if is_sparse(rows) else np.asarray(rows)
        if rows.ndim != 2:
            raise InvalidInputError(
                f"rows have shape {rows.shape}; a matrix of new rows × {model.n_features} features is needed."
            )
        check_width(rows.shape[1], model.n_features)
        finite = FiniteCheck(model.feature_names)
        finite.add(rows)
        finite.raise_if_any()
        return rows

    return checked


def exact_scores(model: Model) -> Callable[[NDArray[Any]], tuple[Matrix, Vector]]:
    """Function from checked rows (b, n_features) to scores (b, k) and means κ(t) (b,), from the same kernel values."""
    coefficients = model.dual_coefficients
    # a column of ones beside the coefficients makes the means κ(t) in the same product
    weights = np.column_stack([coefficients, np.ones(model.n_samples)])
    tiling = Tiling(model.n_samples, model.tile_rows)

    def products(rows: NDArray[Any]) -> Matrix:
        if isinstance(model.rows, NoRows):  # what is given are kernel values
            return np.asarray(rows.astype(np.float64) @ weights)
        rows = rows.astype(np.float64)
        product = np.zeros((rows.shape[0], weights.shape[1]))
        for j in range(tiling.n_blocks):
            columns = model.rows.read(tiling.block(j)).astype(np.float64)
            for start, strip in TileStrips(model.kernel, rows, columns):
                product[start : start + len(strip)] += strip @ weights[tiling.block(j)]
        return product

    def scores(rows: NDArray[Any]) -> tuple[Matrix, Vector]:
        product = products(rows)
        means = product[:, -1] / tiling.n_samples
        centred = model.centering.project(product[:, :-1], means, coefficients)
        centred[:, model.eigenvalues == 0] = 0.0
        return centred, means

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
