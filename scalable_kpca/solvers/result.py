"""What every solver returns, and the convention that makes results comparable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["EigenResult", "canonical"]


@dataclass(frozen=True, eq=False)
class EigenResult:
    """Leading eigenpairs of a symmetric operator.

    Attributes
    ----------
    eigenvalues : ndarray of shape (k,), float64
        Descending.
    eigenvectors : ndarray of shape (n_samples, k), float64
        Orthonormal columns; in each the entry of largest magnitude is positive.
    solver : str
        Name of the method.
    n_passes : int
        Products with the whole operator that it took.
    is_whole_spectrum : bool
        Whether the method computed the whole spectrum and chose from it, so that nothing can have been missed.
    residual_norms : ndarray of shape (k,), float64, or None
        ‖Av − λv‖ where the method knows them without another pass.
    rounding : float
        Size of the rounding in the products behind `residual_norms`.
    ritz_values : ndarray of shape (m,), float64, or None
        All m ≥ k approximate eigenvalues that the method has, descending.
    ritz_gram : ndarray of shape (m, m), float64, or None
        Inner products of their residuals, RᵀR.
    ritz_vectors : ndarray of shape (n_samples, p), float64, or None
        The first p ≥ k Ritz vectors, orthonormal: those whose residuals are small together.
    bound_of_others : float or None
        Every other eigenvalue is at most this, where the method has proven it.
    proof : str
        What proves it.
    lowest : float or None
        Lowest eigenvalue of a whole spectrum; else what it is proven not to be below, where the method was asked to.
    """

    eigenvalues: NDArray[np.float64]
    eigenvectors: NDArray[np.float64]
    solver: str
    n_passes: int
    is_whole_spectrum: bool
    residual_norms: NDArray[np.float64] | None = None
    rounding: float = 0.0
    ritz_values: NDArray[np.float64] | None = None
    ritz_gram: NDArray[np.float64] | None = None
    ritz_vectors: NDArray[np.float64] | None = None
    bound_of_others: float | None = None
    proof: str = ""
    lowest: float | None = None


def canonical(
    eigenvalues: NDArray[np.float64], eigenvectors: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pairs in descending order, each vector with its entry of largest magnitude positive (ties: lowest row)."""
    order = np.argsort(-eigenvalues, kind="stable")
    vectors = eigenvectors[:, order]
    if vectors.size:
        largest = np.abs(vectors).argmax(axis=0)
        signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
        vectors *= signs  # the copy made by the reordering
    return eigenvalues[order], vectors
