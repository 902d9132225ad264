"""Scores of rows from their kernel values with the landmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.nystroem.basis import Basis
from scalable_kpca.source import RowBlock

__all__ = ["Projection"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Projection:
    """Function from rows (b, n_features) to scores (b, k), float64.

    Attributes
    ----------
    basis : Basis
    weights : ndarray of shape (m, k), float64
        Q.
    offset : ndarray of shape (k,), float64
        Of the centring: see `Spectrum`.

    Notes
    -----
    Cost a row: m kernel values and 2·m·k flops. C and its product with Q are in the dtype of the basis; rows whose
    scores overflow it are scored in float64. Memory: the rows in float64 twice, one block of C.
    """

    basis: Basis
    weights: Matrix
    offset: Vector

    def __call__(self, rows: RowBlock) -> Matrix:
        """Scores of rows."""
        scores = np.empty((rows.shape[0], len(self.offset)))
        with np.errstate(over="ignore", invalid="ignore"):
            weights = self.weights.astype(self.basis.dtype)
            for start, block in self.basis.cross(rows):
                here = scores[start : start + len(block)]
                here[...] = block @ weights
                if not np.isfinite(here).all():
                    wide = self.basis.cross(rows[start : start + len(block)], "float64")
                    here[...] = np.concatenate([values @ self.weights for _, values in wide])
        scores -= self.offset
        return scores
