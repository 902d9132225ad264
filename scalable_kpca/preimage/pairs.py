"""What every way back from scores begins with: training rows whose scores are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Precomputed
from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Tiling, is_number
from scalable_kpca.transform import project

__all__ = ["check_has_rows", "check_not_negative", "choose_training_pairs", "dense", "reconstruct_lazily"]

Matrix = NDArray[np.float64]
Numbers = NDArray[np.int64]


def check_not_negative(name: str, value: Any) -> float:
    """A number as a float; InvalidInputError with its name unless it is finite and ≥ 0."""
    if not (is_number(value) and math.isfinite(value) and value >= 0):
        raise InvalidInputError(f"{name}={value!r}; a finite number ≥ 0 is needed.")
    return float(value)


def dense(rows: Any) -> NDArray[np.floating[Any]]:
    """Rows as an ndarray; InvalidInputError for sparse ones, whose pre-images would be dense."""
    if hasattr(rows, "tocsr"):
        raise InvalidInputError(
            f"the training rows are sparse, and a pre-image has a number in each of their {rows.shape[1]} columns; "
            "fit on dense rows (X.toarray()) when rows are to be reconstructed, with fewer columns if need be."
        )
    values: NDArray[np.floating[Any]] = np.asarray(rows)
    return values


def check_has_rows(model: AnyModel) -> None:
    """InvalidInputError for a model that was fitted on a precomputed kernel."""
    if isinstance(model.kernel, Precomputed):
        raise InvalidInputError(
            "a precomputed kernel has no rows, so that scores cannot be turned into any; fit on the rows themselves, "
            "with a kernel by name."
        )


def choose_training_pairs(
    model: AnyModel, *, rows: Any = None, limit: int = 1000, seed: int = 0
) -> tuple[Matrix, NDArray[np.floating[Any]]]:
    """Training rows and their scores, to learn from: all rows, or `limit` of them drawn uniformly.

    Parameters
    ----------
    model : Model or NystroemModel
        A Nyström model holds landmarks only: they are the rows that are drawn from.
    rows : ndarray of shape (n, n_features), optional
        Rows to draw from in place of those of the model; they are projected.
    limit : int
        How many at most, ≥ 1.
    seed : int
        Of the draw.

    Returns
    -------
    scores : ndarray of shape (m, k), float64
    rows : ndarray of shape (m, n_features)
        In the order of the training rows.

    Raises
    ------
    InvalidInputError
        For a precomputed kernel, which has no rows; for sparse rows; for a limit below 1.

    Notes
    -----
    Cost: rows in memory are picked; rows on disk are read once, in the blocks that hold one of them. Memory: the pairs,
    and one block.
    """
    if limit < 1:
        raise InvalidInputError(f"limit={limit} training rows; at least one is needed.")
    check_has_rows(model)
    if rows is not None:
        chosen = dense(rows)[_draw(len(rows), limit, seed)]
        return project(model, chosen), chosen
    if isinstance(model, NystroemModel):
        landmarks = dense(model.basis.landmarks)
        numbers = _draw(len(landmarks), limit, seed)
        return model.projection(landmarks[numbers]), landmarks[numbers]
    return _of_exact(model, _draw(model.n_samples, limit, seed))


def _of_exact(model: Model, numbers: Numbers) -> tuple[Matrix, NDArray[np.floating[Any]]]:
    scores = model.eigenvectors[numbers] * np.sqrt(model.eigenvalues)
    return scores, _pick(model.rows, numbers, model.tile_rows)


def _pick(rows: Rows, numbers: Numbers, block_rows: int) -> NDArray[np.floating[Any]]:
    """Rows of some ascending numbers, from the blocks that hold them."""
    tiling, found = Tiling(rows.n_samples, block_rows), []
    for i in np.unique(numbers // block_rows):
        block = tiling.block(int(i))
        inside = numbers[(numbers >= block.start) & (numbers < block.stop)]
        found.append(dense(rows.read(block))[inside - block.start])
    return np.concatenate(found)


def _draw(n: int, limit: int, seed: int) -> Numbers:
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, limit, replace=False))


def reconstruct_lazily(reconstruct: Callable[[NDArray[Any]], Matrix], scores: Any, n_features: int) -> Any:
    """Rows of a dask array of scores as a lazy dask array with the same row chunks.

    Parameters
    ----------
    reconstruct : callable
        From scores (b, k) to rows (b, n_features): a `RidgeMap`, or `find_preimages` with its model.
    scores : dask.array.Array of shape (n, k)
    n_features : int
        Columns of a row.
    """
    from dask.delayed import delayed

    return scores.rechunk({1: -1}).map_blocks(
        _apply,
        delayed(reconstruct, pure=False),
        dtype=np.float64,
        chunks=(scores.chunks[0], (n_features,)),
        meta=np.empty((0, 0)),
    )


def _apply(scores: NDArray[Any], reconstruct: Callable[[NDArray[Any]], Matrix]) -> Matrix:
    return reconstruct(scores)
