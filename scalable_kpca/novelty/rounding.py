"""How well novelty is known: what the rounding of its terms adds up to, and a warning where that is much."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import AccuracyWarning
from scalable_kpca.kernels import RBF, Laplacian, Matern12, Matern32, Matern52
from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.nystroem import find_centre

__all__ = ["exact_rounding", "nystroem_rounding", "warn_of_rounding"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
LARGE = 0.1  # rounding of a score over the mean squared distance of the training rows from their mean
SHIFT_INVARIANT = (RBF, Laplacian, Matern12, Matern32, Matern52)


def warn_of_rounding(model: AnyModel) -> None:
    """Say when the rounding of a score is not small beside how far training rows are from their mean.

    Warns
    -----
    AccuracyWarning
        When the rounding of the novelty of a typical training row is more than a tenth of tr K̃/n, their mean squared
        distance in feature space from their mean: then outliers can be lost in it. And when so much of tr K̃/n may lie
        in directions of the landmarks that a Nyström fit left out as rounding: then every row is novel. Not for rows
        that are all equal.

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
        remedy += "subtract the mean of the training rows from these and from new rows and fit X - X.mean(axis=0)"
    warnings.warn(
        f"novelty is good to about {rounding:.2g} only, and that of the training rows to their mean alone, tr K̃/n, is "
        f"{variance:.2g}: kernel values are large beside their differences, and what their rounding hides is 0, or "
        f"novel; {remedy}.",
        AccuracyWarning,
        stacklevel=3,
    )


def _typical(model: Model) -> tuple[float, float, Vector]:
    """Rounding of a typical training row, tr K̃/n, and means that are equal where rows are."""
    n, centering = model.n_samples, model.centering
    variance, mean = model.certificate.total_variance / n, np.array([centering.grand_mean])
    # a unit eigenvector has 1/n in the square of an entry
    w = np.array([np.count_nonzero(model.eigenvalues) / n]) ** 0.5
    rounding = exact_rounding(model, variance + mean, mean, centering.grand_mean, w)
    return float(rounding[0]), variance, centering.row_means


def _typical_of_nystroem(model: NystroemModel) -> tuple[float, float, Vector]:
    basis, sums, centre = model.basis, model.sums, find_centre(model.basis, model.sums)
    mean, n = np.array([centre.squared_norm * basis.scale]), sums.n_samples
    diagonal = np.array([sums.diagonal_sum / n * basis.scale])
    scores = np.sqrt(model.eigenvalues / n)[None, :]
    rounding = nystroem_rounding(model, centre.weights)(diagonal, mean, float(mean[0]), scores)
    certificate = model.certificate
    variance = (certificate.approximated_variance + certificate.trace_residual) / n
    lost = min(_left_out(model), certificate.trace_residual / n)
    return float(rounding[0]) + lost, variance, basis.shift


def _left_out(model: NystroemModel) -> float:
    """Mean squared coordinates of rows in directions of W that were cut, together, at most: see `build_basis`."""
    basis, m = model.basis, model.basis.n_landmarks
    largest = float(basis.omega.max(initial=0.0)) * basis.scale
    cut = math.sqrt(m) * float(np.finfo(basis.dtype).eps) * largest
    return (m - basis.rank) / m * cut


def exact_rounding(model: Model, diagonal: Vector, means: Vector, grand_mean: float, w: Vector) -> Vector:
    """Rounding of k̃(x, x) − Σ score² of rows (b,) whose w (b,) is ‖(score_j/√λ_j)_j‖: see `novelty`."""
    root, entry = model.n_samples**0.5, model.certificate.kernel_error
    rounding: Vector = _sums_rounding(root, diagonal, means, grand_mean, w) + 2 * entry * (1 / root + np.square(w))
    return rounding


def nystroem_rounding(model: NystroemModel, mean_weights: Vector) -> Callable[..., Vector]:
    """Function from the parts of k̃(x, x) and scores to their rounding (b,); `mean_weights` are those of a `Centre`."""
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


def _sums_rounding(root: float, diagonal: Vector, means: Vector, grand_mean: float, w: Vector) -> Vector:
    sizes = np.abs(diagonal) + 2 * np.abs(means) + abs(grand_mean)
    rounding: Vector = root * EPS / 2 * sizes * (1 + w)
    return rounding
