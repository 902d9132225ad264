"""How far rows are from what the components describe: the novelty score of Hoffmann, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.novelty.rounding import exact_rounding, nystroem_rounding, warn_of_rounding
from scalable_kpca.nystroem import Projection, find_centre
from scalable_kpca.source import NoRows, check_width
from scalable_kpca.tiling import Tiling, is_number
from scalable_kpca.transform import exact_scores, new_rows_check

__all__ = [
    "novelty",
    "novelty_lazily",
    "novelty_scorer",
    "novelty_threshold",
    "scores_and_novelty",
    "training_novelty",
]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def novelty(model: AnyModel, rows: NDArray[Any]) -> Vector:
    """Squared distance in feature space of rows from the subspace that the components span.

    Parameters
    ----------
    model : Model or NystroemModel
        Fitted model.
    rows : ndarray of shape (b, n_features)
        Finite numbers.

    Returns
    -------
    ndarray of shape (b,), float64
        ‖φ̃(x) − Σ_j v_j⟨v_j, φ̃(x)⟩‖² = k̃(x, x) − Σ score², ≥ 0; in the unit of k. Higher is more abnormal.

    Raises
    ------
    InvalidInputError
        For another number of features, NaN or infinity, or a model of a precomputed kernel: k(x, x) of a new row is not
        among its values with the training rows.

    Warns
    -----
    AccuracyWarning
        When scores are good to few digits: see `warn_of_rounding`.

    Notes
    -----
    φ̃(x) = φ(x) − φ̄, so that k̃(x, x) = k(x, x) − 2κ(x) + k̄ with κ(x) the mean of k(x, ·) over the training rows. A
    Nyström model knows φ̄ in the span of its landmarks only, Πφ̄, and the score is ‖φ(x) − Πφ̄‖² − Σ score², k(x, x)
    being the true one: what the landmarks do not reach counts as novel. It is the exact score when every row is a
    landmark.

    *Rounding.* The difference cancels where a row lies in the subspace, and for rows far from the origin of feature
    space: values up to the rounding of their terms are 0. With w_j = score_j·‖α_j‖, in an exact model score_j/√λ_j, u =
    eps/2 and e the error of an entry of K, that is √n·u·(1 + ‖w‖) of the sizes of k(x, x), 2κ(x) and k̄, and 2e(1/√n +
    ‖w‖²): sums of n terms round by √n·u, errors of entries average out over κ, and the components are as orthonormal as
    the entries that they come from are right. (Nyström: the m landmarks in the place of n, and e for k(x, L) too.) It
    is what errors that are independent add up to, measured at a tenth to a half of it; the worst case, √n times as much
    and more, does not occur, and would hide outliers. Of a kernel that is not positive semi-definite the score is no
    squared distance.

    Cost and memory are those of `project`: κ(x) comes with the same kernel values.

    References
    ----------
    Hoffmann (2007), Kernel PCA for novelty detection, Pattern Recognition 40.
    """
    scorer = novelty_scorer(model)
    warn_of_rounding(model)
    return scorer(rows)


def novelty_scorer(model: AnyModel) -> Callable[[NDArray[Any]], Vector]:
    """Function from rows (b, n_features) to `novelty` (b,); holds what all blocks share, and does not warn."""
    check, both = new_rows_check(model), scores_and_novelty(model)
    return lambda rows: both(check(rows))[1]


def scores_and_novelty(model: AnyModel) -> Callable[[NDArray[Any]], tuple[Matrix, Vector]]:
    """Function from checked rows (b, n_features) to scores (b, k) and `novelty` (b,), from the same kernel values.

    Raises
    ------
    InvalidInputError
        For a model of a precomputed kernel.
    """
    if isinstance(model, NystroemModel):
        if model.columns is not None:
            raise _unknown_diagonal()
        return _nystroem_scores_and_novelty(model)
    if isinstance(model.rows, NoRows):
        raise _unknown_diagonal()
    scores_of, grand_mean = exact_scores(model), model.centering.grand_mean

    def scorer(rows: NDArray[Any]) -> tuple[Matrix, Vector]:
        scores, means = scores_of(rows)
        return scores, _remainder(model, model.kernel.diagonal(rows.astype(np.float64)), means, grand_mean, scores)

    return scorer


def _nystroem_scores_and_novelty(model: NystroemModel) -> Callable[[NDArray[Any]], tuple[Matrix, Vector]]:
    basis, centre = model.basis, find_centre(model.basis, model.sums)
    root = basis.scale**0.5
    # one more column beside the weights makes ⟨φ(x), Πφ̄⟩ in the same product
    weights, offset = np.column_stack([model.weights, centre.weights * root]), np.append(model.offset, 0.0)
    projection, rounding_of = Projection(basis, weights, offset), nystroem_rounding(model, centre.weights)

    def scorer(rows: NDArray[Any]) -> tuple[Matrix, Vector]:
        product = projection(rows)
        scores, means = product[:, :-1], product[:, -1] * root + centre.offset * basis.scale
        diagonal, grand_mean = basis.diagonal(rows) * basis.scale, centre.squared_norm * basis.scale
        rounding = rounding_of(diagonal, means, grand_mean, scores)
        return scores, _clipped(diagonal, means, grand_mean, scores, rounding)

    return scorer


def novelty_lazily(model: AnyModel, rows: Any) -> Any:
    """`novelty` of a dask array of rows as a lazy dask array of shape (n,) with the same row chunks."""
    from dask.delayed import delayed

    check_width(rows.shape[1], model.n_features)
    warn_of_rounding(model)  # here, not where a worker scores its blocks
    shared = delayed(novelty_scorer, pure=False)(delayed(model, pure=False))
    return rows.rechunk({1: -1}).map_blocks(
        _apply, shared, dtype=np.float64, drop_axis=1, chunks=(rows.chunks[0],), meta=np.empty(0)
    )


def training_novelty(model: Model) -> Vector:
    """`novelty` of the training rows of an exact model without kernel values between rows.

    Returns
    -------
    ndarray of shape (n_samples,), float64
        k(x_i, x_i) − 2κ_i + k̄ − Σ_j λ_j v_ij².

    Raises
    ------
    InvalidInputError
        For a precomputed kernel, whose diagonal the model has not kept.

    Notes
    -----
    Equal to `novelty` of the training rows within the residuals of the eigenpairs. Cost: one read of the training rows
    and 2·n·k flops. Memory: one block of rows and one more array like the eigenvectors.
    """
    if isinstance(model.rows, NoRows):
        raise _unknown_diagonal()
    warn_of_rounding(model)
    tiling = Tiling(model.n_samples, model.tile_rows)
    blocks = (model.rows.read(tiling.block(i)) for i in range(tiling.n_blocks))
    diagonal = np.concatenate([model.kernel.diagonal(block.astype(np.float64)) for block in blocks])
    centering = model.centering
    return _remainder(model, diagonal, centering.row_means, centering.grand_mean, model.training_scores)


def novelty_threshold(scores: ArrayLike, quantile: float) -> float:
    """Smallest of some novelty scores that at least a share `quantile` of them does not exceed.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Finite; those of the training rows, or better of rows like them that were not fitted, which score higher.
    quantile : float
        0 ≤ quantile ≤ 1: with 0.99, about one in a hundred rows like these is called novel, by score > threshold.

    Returns
    -------
    float
        One of the scores: `numpy.quantile` with ``method="inverted_cdf"``.

    Raises
    ------
    InvalidInputError
        For no scores, scores that are not finite, or another quantile.

    Examples
    --------
    >>> novelty_threshold([0.1, 0.2, 0.3, 4.0], 0.75)
    0.3
    """
    try:
        values = np.asarray(scores)
    except ValueError as error:
        raise InvalidInputError(
            f"novelty scores are no list of numbers ({error}); all finite numbers are needed."
        ) from error
    if values.dtype.kind not in "fiu" or values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise InvalidInputError(
            f"novelty scores have shape {values.shape} and dtype {values.dtype}; a threshold needs at least one, of "
            "shape (n,), all finite numbers."
        )
    if not (is_number(quantile) and 0 <= quantile <= 1):
        raise InvalidInputError(f"quantile={quantile!r}; a share of the rows between 0 and 1 is needed, such as 0.99.")
    return float(np.quantile(values.astype(np.float64), quantile, method="inverted_cdf"))


def _remainder(model: Model, diagonal: Vector, means: Vector, grand_mean: float, scores: Matrix) -> Vector:
    """k̃(x, x) − Σ score², from the parts of k̃(x, x)."""
    roots = np.sqrt(model.eigenvalues)
    w = np.linalg.norm(scores / np.where(roots == 0, np.inf, roots), axis=1)
    return _clipped(diagonal, means, grand_mean, scores, exact_rounding(model, diagonal, means, grand_mean, w))


def _clipped(diagonal: Vector, means: Vector, grand_mean: float, scores: Matrix, rounding: Vector) -> Vector:
    values = diagonal - 2 * means + grand_mean - np.square(scores).sum(axis=1)
    return np.where(values <= rounding, 0.0, values)


def _unknown_diagonal() -> InvalidInputError:
    return InvalidInputError(
        "the novelty of a row needs k(x, x), and a precomputed kernel gives its values with the training rows only; "
        "fit the rows themselves, with a named kernel or a function."
    )


def _apply(rows: NDArray[Any], scorer: Callable[[NDArray[Any]], Vector]) -> Vector:
    return scorer(rows)
