"""The centred Gram matrix HKH as a linear operator that counts its passes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from scalable_kpca.centering import Centering
from scalable_kpca.gram import Gram, PassResult

__all__ = ["CenteredGram"]

Matrix = NDArray[np.float64]


class CenteredGram(LinearOperator):  # type: ignore[misc]
    """HKH for `scipy.sparse.linalg` and for our own solvers.

    Parameters
    ----------
    gram : Gram
        The tiles.
    built : PassResult, optional
        What building them gave; without it the first product builds.
    product_dtype : str
        Of the arithmetic inside a tile; sums over tiles are float64. float32 makes an exact product of float32 tiles
        inexact at about 1e-7 of the norm, and twice as fast.

    Attributes
    ----------
    n_passes : int
        How often all tiles have been visited through this operator.

    Notes
    -----
    A product with b vectors is one pass, whatever b is. Centring costs two means of length n beside it.
    """

    def __init__(self, gram: Gram, built: PassResult | None = None, product_dtype: str = "float64") -> None:
        n = gram.tiling.n_samples
        super().__init__(dtype=np.dtype(np.float64), shape=(n, n))
        self._gram, self._built, self._product_dtype = gram, built, product_dtype
        self.n_passes = 0

    @property
    def built(self) -> PassResult:
        """What the first pass learned: row sums, norm, counts; makes that pass when there was none."""
        if self._built is None:
            self._product(np.empty((self.shape[0], 0)))
        assert self._built is not None
        return self._built

    @property
    def centering(self) -> Centering:
        """Means of K."""
        return Centering.from_row_sums(self.built.row_sums)

    def _product(self, V: Matrix) -> Matrix:
        self.n_passes += 1
        block = V.astype(self._product_dtype)
        if self._built is None:
            self._built = self._gram.build(block)
            return self._built.product
        return self._gram.multiply(block).product

    def _matmat(self, V: NDArray[np.floating[Any]]) -> Matrix:
        V = np.asarray(V, np.float64)
        product = self._product(V - V.mean(axis=0))
        product -= product.mean(axis=0)
        return product

    def _matvec(self, v: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        return self._matmat(v.reshape(-1, 1))[:, 0]

    def _adjoint(self) -> CenteredGram:
        return self

    def to_dense(self) -> Matrix:
        """K̃ as an array of shape (n_samples, n_samples), float64; one pass."""
        centering = self.centering
        self.n_passes += 1
        return centering.centre(self._gram.to_array())
