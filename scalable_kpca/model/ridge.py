"""A map from scores back to rows that a model may hold, and its arrays in a saved model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Kernel, Precomputed, TileStrips
from scalable_kpca.kernels.callables import PAIRWISE
from scalable_kpca.model.files import check_finite, read_array
from scalable_kpca.source import FiniteCheck

__all__ = ["RidgeMap", "as_array", "check_ridge_kernel", "check_scores", "read_ridge", "ridge_arrays", "ridge_pairs"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

LARGEST = float(np.finfo(np.float64).max) ** 0.5 / 16  # number whose square, and some times that, is a float64


@dataclass(frozen=True, eq=False)
class RidgeMap:
    """Function from scores (b, k) to rows (b, n_features), float64: z ↦ k(z, Z)B + x̄.

    Attributes
    ----------
    kernel : Kernel
        That of the fit with its resolved parameters, between scores here: rows of k numbers of either sign.
    centres : ndarray of shape (m, k), float64
        Z: scores of training rows. scikit-learn's ``X_transformed_fit_``.
    coefficients : ndarray of shape (m, n_features), float64
        B = (k(Z, Z) + αI)⁻¹(X − 1x̄ᵀ). scikit-learn's ``dual_coef_`` where the rows have mean zero.
    mean : ndarray of shape (n_features,), float64
        x̄ of the training rows that the map was learned on.

    Notes
    -----
    Cost a row: m kernel values of k numbers, and 2·m·n_features flops. Memory: the rows, and one strip of kernel
    values.
    """

    kernel: Kernel
    centres: Matrix
    coefficients: Matrix
    mean: Vector

    def __call__(self, scores: Any) -> Matrix:
        """Rows of some scores; InvalidInputError unless they are finite and k a row."""
        values = check_scores(scores, self.centres.shape[1])
        rows = np.empty((len(values), len(self.mean)))
        for start, strip in TileStrips(self.kernel, values, self.centres):
            rows[start : start + len(strip)] = strip @ self.coefficients
        rows += self.mean
        return rows


def check_ridge_kernel(kernel: Any) -> None:
    """InvalidInputError for the name of a kernel that is not defined between scores."""
    if isinstance(kernel, str) and kernel in PAIRWISE:
        raise InvalidInputError(
            f"kernel={kernel!r} compares amounts ≥ 0, and the ridge map evaluates it between scores, which have either "
            "sign; choose another kernel, such as rbf or laplacian, where rows are to be reconstructed."
        )


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Array of what may be a list; InvalidInputError where its rows are of different lengths."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidInputError(f"{name} are no matrix ({error}); rows of as many numbers each are needed.") from error


def check_scores(scores: Any, n_components: int) -> Matrix:
    """Scores (b, n_components) as float64; InvalidInputError for another shape, NaN or infinity."""
    values = as_array("scores", scores)
    if values.ndim != 2 or values.shape[1] != n_components:
        raise InvalidInputError(
            f"scores have shape {values.shape}; a matrix of rows × {n_components} components is needed, as transform "
            "gives it."
        )
    if values.dtype.kind not in "fiub":
        raise InvalidInputError(f"scores have dtype {values.dtype}; real numbers are needed.")
    finite = FiniteCheck([f"score {component}" for component in range(n_components)])
    finite.add(values)
    finite.raise_if_any()
    found = values.astype(np.float64, copy=False)
    largest = float(np.abs(found).max(initial=0.0))
    # a sum of squares, and differences of two of them
    if largest > LARGEST / max(1, n_components):
        raise InvalidInputError(
            f"a score is as large as {largest:.3g}, and squares of such are beyond float64; give scores as transform "
            "gives them, or scale the features and fit again."
        )
    return found


def ridge_pairs(ridge: RidgeMap | None) -> int:
    """Rows that a map was learned on, 0 where there is none: what a description says of it."""
    return 0 if ridge is None else len(ridge.centres)


def ridge_arrays(ridge: RidgeMap | None) -> dict[str, NDArray[np.float64]]:
    """Arrays of a map as a saved model holds them; its kernel is that of the model."""
    if ridge is None:
        return {}
    return {"ridge_centres": ridge.centres, "ridge_coefficients": ridge.coefficients, "ridge_mean": ridge.mean}


def read_ridge(directory: Path, fields: Mapping[str, Any], n_components: int) -> RidgeMap | None:
    """Map of a saved model, None where it holds none; any exception when it does not belong to the model."""
    pairs, d, kernel = fields["ridge_pairs"], fields["n_features"], fields["kernel"]
    if pairs == 0:
        return None
    if isinstance(kernel, Precomputed):
        raise ValueError("a precomputed kernel has no rows to go back to")  # noqa: TRY004 - of a file
    check_ridge_kernel(kernel.name)
    found = RidgeMap(
        kernel,
        read_array(directory, "ridge_centres", 2),
        read_array(directory, "ridge_coefficients", 2),
        read_array(directory, "ridge_mean", 1),
    )
    shapes = (found.centres.shape, found.coefficients.shape, found.mean.shape)
    if shapes != ((pairs, n_components), (pairs, d), (d,)):
        raise ValueError(f"the map from scores to rows is not of {pairs} pairs, {n_components} scores and {d} features")
    check_finite(ridge_arrays(found))
    check_scores(found.centres, n_components)
    return found
