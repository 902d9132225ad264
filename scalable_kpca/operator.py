"""The centred Gram matrix HKH as a linear operator that counts its passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from scalable_kpca.centering import Centering
from scalable_kpca.gram import Gram, PassResult, TileCounts
from scalable_kpca.journal import Journal

__all__ = ["CenteredGram"]

Matrix = NDArray[np.float64]


class CenteredGram(LinearOperator):  # type: ignore[misc]
    """HKH for `scipy.sparse.linalg` and for our own solvers.

    Parameters
    ----------
    gram : Gram
        The tiles.
    built : PassResult, optional
        What building them gave; without it the first product that is not replayed builds.
    product_dtype : str
        Of the arithmetic inside a tile; sums over tiles are float64. float32 makes an exact product of float32 tiles
        inexact at about 1e-7 of the norm, and twice as fast.
    journal : Journal, optional
        Logs every product, and knows those of an interrupted solve.

    Attributes
    ----------
    n_passes : int
        How often all tiles have been visited through this operator, or were by an interrupted solve that it replays.
    replayed_passes : int
        How many of them were taken from the journal.

    Notes
    -----
    A product with b vectors is one pass, whatever b is. Centring costs two means of length n beside it. After a replay
    the first pass over the tiles is a building one: it makes what was lost since, and tiles that went with a process,
    on its way to the product.
    """

    def __init__(
        self,
        gram: Gram,
        built: PassResult | None = None,
        product_dtype: str = "float64",
        journal: Journal | None = None,
    ) -> None:
        n = gram.tiling.n_samples
        super().__init__(dtype=np.dtype(np.float64), shape=(n, n))
        self._gram, self._built, self._product_dtype = gram, built, product_dtype
        self._journal = journal
        self._is_ready = built is not None  # whether the tiles are there for `Gram.multiply`
        self.n_passes = 0

    @property
    def replayed_passes(self) -> int:
        """Passes that were taken from the journal."""
        return 0 if self._journal is None else self._journal.n_replayed

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
        block, replayed = V.astype(self._product_dtype), self.replayed_passes
        result = self._pass(block) if self._journal is None else self._journal.obtain(block, self._pass)
        if self._built is None:
            # the product is the caller's; a replayed pass has touched no tile
            counts = result.counts if self.replayed_passes == replayed else TileCounts()
            self._built = replace(result, product=np.empty((len(V), 0)), counts=counts)
        return result.product

    def _pass(self, block: NDArray[np.floating[Any]]) -> PassResult:
        """One pass over the tiles; the first of a process builds what is missing."""
        if self._is_ready:
            return self._gram.multiply(block)
        result = self._gram.build(block)
        self._is_ready = True
        if self._built is not None:
            # replayed: norm and sums keep the bits they had, but it is this pass that says what became of the tiles
            self._built = replace(self._built, counts=result.counts)
        return result

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
        if not self._is_ready:
            # a replayed pass has left no tiles in this process; it is not counted twice
            self._pass(np.empty((self.shape[0], 0)))
        self.n_passes += 1
        return centering.centre(self._gram.to_array(), overwrites=True)
