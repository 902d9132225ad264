"""The centred Gram matrix HKH as a linear operator that counts its passes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from scalable_kpca.centering import Centering
from scalable_kpca.gram import Gram

__all__ = ["CenteredGram"]

Matrix = NDArray[np.float64]


class CenteredGram(LinearOperator):  # type: ignore[misc]
    """HKH for `scipy.sparse.linalg` and for our own solvers.

    Parameters
    ----------
    gram : Gram
        A built Gram matrix.
    centering : Centering
        Its means; needed by `to_dense` only, products are centred by subtracting means of vectors.

    Attributes
    ----------
    n_passes : int
        How often all tiles have been visited through this operator.

    Notes
    -----
    A product with b vectors is one pass, whatever b is. Centring costs two means of length n beside it.
    """

    def __init__(self, gram: Gram, centering: Centering) -> None:
        n = gram.tiling.n_samples
        super().__init__(dtype=np.dtype(np.float64), shape=(n, n))
        self._gram, self._centering = gram, centering
        self.n_passes = 0

    def _matmat(self, V: NDArray[np.floating[Any]]) -> Matrix:
        self.n_passes += 1
        V = np.asarray(V, np.float64)
        product = self._gram.multiply(V - V.mean(axis=0)).product
        product -= product.mean(axis=0)
        return product

    def _matvec(self, v: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        return self._matmat(v.reshape(-1, 1))[:, 0]

    def _adjoint(self) -> CenteredGram:
        return self

    def to_dense(self) -> Matrix:
        """K̃ as an array of shape (n_samples, n_samples), float64; one pass."""
        self.n_passes += 1
        return self._centering.centre(self._gram.to_array())
