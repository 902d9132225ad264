"""Centring in feature space from the means of K alone. [seed 000 eq 11–18]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Centering"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

CACHED_ROWS = 64  # of a matrix of a few thousand columns


@dataclass(frozen=True, eq=False)
class Centering:
    """Means of the Gram matrix over the training rows.

    Attributes
    ----------
    row_means : ndarray of shape (n_samples,), float64
        κ = K1/n. [seed 000 eq 15]
    grand_mean : float
        k̄ = 1ᵀK1/n². [seed 000 eq 16]
    """

    row_means: Vector
    grand_mean: float

    @classmethod
    def from_row_sums(cls, row_sums: Vector) -> Centering:
        """Means from K1, shape (n_samples,)."""
        row_means = row_sums / len(row_sums)
        return cls(row_means, float(row_means.mean()))

    def centre(self, K: NDArray[np.floating[Any]], *, overwrites: bool = False) -> Matrix:
        """K̃ = K − κ1ᵀ − 1κᵀ + k̄11ᵀ of the whole training matrix, shape (n_samples, n_samples). [seed 000 eq 14]

        Parameters
        ----------
        K : ndarray of shape (n_samples, n_samples), float64 or float32
        overwrites : bool
            Whether the result may take the place of K, as it does in float64: fresh memory takes longer than centring.
        """
        centred: Matrix = np.asarray(K, np.float64) if overwrites else np.empty(K.shape)  # float64 is K itself
        offsets = self.row_means - self.grand_mean
        for start in range(0, len(K), CACHED_ROWS):  # once through memory
            rows = slice(start, start + CACHED_ROWS)
            np.subtract(K[rows], self.row_means[rows, None], out=centred[rows])
            centred[rows] -= offsets
        return centred

    def centre_new(self, K_new: NDArray[np.floating[Any]]) -> Matrix:
        """Centred kernel of new rows against all training rows, shape (n_new, n_samples). [seed 000 eq 18]"""
        new_means = K_new.mean(axis=1, dtype=np.float64)
        centred: Matrix = K_new - new_means[:, None] - self.row_means[None, :] + self.grand_mean
        return centred

    def project(self, product: Matrix, new_means: Vector, dual_coefficients: Matrix) -> Matrix:
        """Scores K̃(t, X)α from K(t, X)α, without forming the centred kernel.

        Parameters
        ----------
        product : ndarray of shape (n_new, k)
            K(t, X) α.
        new_means : ndarray of shape (n_new,)
            κ(t): means of K(t, ·) over the training rows.
        dual_coefficients : ndarray of shape (n_samples, k)
            α.

        Returns
        -------
        ndarray of shape (n_new, k), float64
        """
        column_sums = dual_coefficients.sum(axis=0)
        offset = self.row_means @ dual_coefficients - self.grand_mean * column_sums
        scores: Matrix = product - np.outer(new_means, column_sums) - offset
        return scores

    def total_variance(self, diagonal_sum: float) -> float:
        """Trace of K̃, tr K̃ = Σ k(x_i, x_i) − n k̄: the exact denominator of every explained-variance ratio."""
        return diagonal_sum - len(self.row_means) * self.grand_mean

    def squared_norm(self, squared_norm: float) -> float:
        """‖K̃‖_F² = ‖K‖_F² − 2n‖κ‖² + n²k̄²."""
        n = len(self.row_means)
        return squared_norm - 2 * n * float(self.row_means @ self.row_means) + (n * self.grand_mean) ** 2
