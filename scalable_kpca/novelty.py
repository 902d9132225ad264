"""How far rows are from what the components describe: the novelty score of Hoffmann, block by block."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalable_kpca.errors import AccuracyWarning, InvalidInputError
from scalable_kpca.kernels import RBF, Laplacian, Matern12, Matern32, Matern52
from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.nystroem import Projection, find_centre
from scalable_kpca.source import NoRows, check_width
from scalable_kpca.tiling import Tiling
from scalable_kpca.transform import exact_scores, new_rows_check

__all__ = [
    "novelty",
    "novelty_lazily",
    "novelty_scorer",
    "novelty_threshold",
    "training_novelty",
    "warn_of_rounding",
]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
LARGE = 0.1  # rounding of a score over the mean squared distance of the training rows from their mean
SHIFT_INVARIANT = (RBF, Laplacian, Matern12, Matern32, Matern52)


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
    if isinstance(model, NystroemModel):
        if model.columns is not None:
            raise _unknown_diagonal()
        return _nystroem_scorer(model)
    if isinstance(model.rows, NoRows):
        raise _unknown_diagonal()
    check, scores_of, grand_mean = new_rows_check(model), exact_scores(model), model.centering.grand_mean

    def scorer(rows: NDArray[Any]) -> Vector:
        rows = check(rows)
        scores, means = scores_of(rows)
        return _remainder(model, model.kernel.diagonal(rows.astype(np.float64)), means, grand_mean, scores)

    return scorer


def _nystroem_scorer(model: NystroemModel) -> Callable[[NDArray[Any]], Vector]:
    check, basis, centre = new_rows_check(model), model.basis, find_centre(model.basis, model.sums)
    root = basis.scale**0.5
    # one more column beside the weights makes ⟨φ(x), Πφ̄⟩ in the same product
    weights, offset = np.column_stack([model.weights, centre.weights * root]), np.append(model.offset, 0.0)
    projection, rounding_of = Projection(basis, weights, offset), _nystroem_rounding(model, centre.weights)

    def scorer(rows: NDArray[Any]) -> Vector:
        rows = check(rows)
        product = projection(rows)
        scores, means = product[:, :-1], product[:, -1] * root + centre.offset * basis.scale
        diagonal, grand_mean = basis.diagonal(rows) * basis.scale, centre.squared_norm * basis.scale
        return _clipped(diagonal, means, grand_mean, scores, rounding_of(diagonal, means, grand_mean, scores))

    return scorer


def _nystroem_rounding(model: NystroemModel, mean_weights: Vector) -> Callable[..., Vector]:
    scale, sums = model.basis.scale, model.sums
    entry, largest = sums.entry_error * scale, sums.max_diagonal * scale
    norms, of_mean = np.linalg.norm(model.weights, axis=0) / scale, float(np.linalg.norm(mean_weights))
    root = model.basis.n_landmarks**0.5

    def rounding_of(diagonal: Vector, means: Vector, grand_mean: float, scores: Matrix) -> Vector:
        w = np.linalg.norm(scores * norms, axis=1)
        # values of rows that are larger than those of the fit are further off
        of_row = entry * np.sqrt(np.maximum(1.0, np.abs(diagonal) / largest if largest > 0 else 1.0))
        # W itself, of which the components are made, is float64
        rounding = _sums_rounding(root, diagonal, means, grand_mean, w) + 8 * EPS * largest * np.square(w)
        found: Vector = rounding + 2 * of_row * (of_mean + w)
        return found

    return rounding_of


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
    values = np.asarray(scores)
    if values.dtype.kind not in "fiu" or values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise InvalidInputError(
            f"novelty scores have shape {values.shape} and dtype {values.dtype}; a threshold needs at least one, of shape "
            "(n,), all finite numbers."
        )
    is_number = isinstance(quantile, (int, float, np.integer, np.floating)) and not isinstance(quantile, bool)
    if not (is_number and 0 <= quantile <= 1):
        raise InvalidInputError(f"quantile={quantile!r}; a share of the rows between 0 and 1 is needed, such as 0.99.")
    return float(np.quantile(values.astype(np.float64), quantile, method="inverted_cdf"))


def warn_of_rounding(model: AnyModel) -> None:
    """Say when the rounding of a score is not small beside how far training rows are from their mean.

    Warns
    -----
    AccuracyWarning
        When the rounding of the novelty of a typical training row is more than a tenth of tr K̃/n, their mean squared
        distance in feature space from their mean: then outliers can be lost in it. Not for rows that are all equal.

    Notes
    -----
    Nothing better can be made of values of a kernel that sees where the origin is: k(x, x) of rows at distance r from
    it is r², and its last digit eps·r². Kernels of differences shift the rows themselves.
    """
    rounding, variance, means = _typical_of_nystroem(model) if isinstance(model, NystroemModel) else _typical(model)
    is_constant = np.ptp(means) <= 4 * EPS * np.abs(means).max(initial=0.0)
    if rounding <= LARGE * variance or is_constant:
        return
    narrow = (model.basis.dtype if isinstance(model, NystroemModel) else model.dtype) == "float32"
    remedy = "set dtype='float64', or " if narrow else ""
    if isinstance(model.kernel, SHIFT_INVARIANT):
        remedy += "use a larger gamma"
    else:
        remedy += "subtract the mean of the training rows from these and from new rows (X - X.mean(axis=0)) and fit again"
    warnings.warn(
        f"novelty is good to about {rounding:.2g} only, and the training rows are {variance:.2g} from their mean on "
        f"average: kernel values are large beside their differences, and what is lost in their rounding is 0; {remedy}.",
        AccuracyWarning,
        stacklevel=3,
    )


def _typical(model: Model) -> tuple[float, float, Vector]:
    """Rounding of a typical training row, tr K̃/n, and means that are equal where rows are."""
    n, centering = model.n_samples, model.centering
    variance, mean = model.certificate.total_variance / n, np.array([centering.grand_mean])
    # a unit eigenvector has 1/n in the square of an entry
    w = np.array([np.count_nonzero(model.eigenvalues) / n]) ** 0.5
    rounding = _exact_rounding(model, variance + mean, mean, centering.grand_mean, w)
    return float(rounding[0]), variance, centering.row_means


def _typical_of_nystroem(model: NystroemModel) -> tuple[float, float, Vector]:
    basis, sums, centre = model.basis, model.sums, find_centre(model.basis, model.sums)
    mean, n = np.array([centre.squared_norm * basis.scale]), sums.n_samples
    diagonal = np.array([sums.diagonal_sum / n * basis.scale])
    scores = np.sqrt(model.eigenvalues / n)[None, :]
    rounding = _nystroem_rounding(model, centre.weights)(diagonal, mean, float(mean[0]), scores)
    certificate = model.certificate
    return float(rounding[0]), (certificate.approximated_variance + certificate.trace_residual) / n, basis.shift


def _remainder(model: Model, diagonal: Vector, means: Vector, grand_mean: float, scores: Matrix) -> Vector:
    """k̃(x, x) − Σ score², from the parts of k̃(x, x)."""
    roots = np.sqrt(model.eigenvalues)
    w = np.linalg.norm(scores / np.where(roots == 0, np.inf, roots), axis=1)
    return _clipped(diagonal, means, grand_mean, scores, _exact_rounding(model, diagonal, means, grand_mean, w))


def _exact_rounding(model: Model, diagonal: Vector, means: Vector, grand_mean: float, w: Vector) -> Vector:
    root, entry = model.n_samples**0.5, model.certificate.kernel_error
    rounding: Vector = _sums_rounding(root, diagonal, means, grand_mean, w) + 2 * entry * (1 / root + np.square(w))
    return rounding


def _sums_rounding(root: float, diagonal: Vector, means: Vector, grand_mean: float, w: Vector) -> Vector:
    sizes = np.abs(diagonal) + 2 * np.abs(means) + abs(grand_mean)
    rounding: Vector = root * EPS / 2 * sizes * (1 + w)
    return rounding


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
