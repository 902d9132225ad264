"""Sums over rows from which a Nyström fit is made: they merge across tasks, workers and days."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.nystroem.basis import Basis
from scalable_kpca.source import RowBlock, Span

__all__ = ["Accumulators", "accumulate", "in_features"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Block = NDArray[np.floating[Any]]


def in_features(basis: Basis, sums: Accumulators) -> tuple[Basis, Accumulators]:
    """The same basis and sums with (CP)ᵀ(CP) in the place of CᵀC: with sums that were accumulated so they add up."""
    if basis.accumulates_features:
        return basis, sums
    p, featured = basis.projection, replace(basis, accumulates_features=True)
    return featured, replace(sums, basis=featured.digest, gram=p.T @ sums.gram @ p, sums=p.T @ sums.sums)


@dataclass(frozen=True, eq=False)
class Accumulators:
    """Sums over rows x of a basis, c(x) = k(x, L)/scale − shift, or its features Pᵀc.

    Attributes
    ----------
    basis : str
        Digest of the basis.
    n_samples : int
        Rows.
    gram : ndarray of shape (c, c), float64
        Σ c cᵀ.
    sums : ndarray of shape (c,), float64
        Σ c.
    diagonal_sum : float
        Σ k(x, x)/scale.
    max_diagonal : float
        Largest k(x, x)/scale that was ever added.
    entry_error : float
        Largest error of an entry of C, in the same unit.

    Notes
    -----
    ``+`` and ``-`` make new objects. Sums in another order or grouping differ by rounding, n·eps(float64) relative to
    the sums at most. Taking rows away leaves the rounding of the sums that they were part of.
    """

    basis: str
    n_samples: int
    gram: Matrix
    sums: Vector
    diagonal_sum: float
    max_diagonal: float
    entry_error: float

    @classmethod
    def zero(cls, basis: Basis) -> Accumulators:
        """Sums over no rows."""
        c = basis.n_columns
        return cls(basis.digest, 0, np.zeros((c, c)), np.zeros(c), 0.0, 0.0, 0.0)

    def __add__(self, other: Accumulators) -> Accumulators:
        return self._combined(other, 1)

    def __sub__(self, other: Accumulators) -> Accumulators:
        if other.n_samples > self.n_samples:
            raise InvalidInputError(f"{other.n_samples} rows cannot be taken away from {self.n_samples}.")
        return self._combined(other, -1)

    def _combined(self, other: Accumulators, sign: int) -> Accumulators:
        if other.basis != self.basis:
            raise ConfigError(
                "sums over different landmarks, kernels or dtypes cannot be combined; fit both parts with the same "
                "landmarks."
            )
        with np.errstate(over="ignore", invalid="ignore"):  # who solves looks whether float64 was enough
            return Accumulators(
                self.basis,
                self.n_samples + sign * other.n_samples,
                self.gram + sign * other.gram,
                self.sums + sign * other.sums,
                self.diagonal_sum + sign * other.diagonal_sum,
                max(self.max_diagonal, other.max_diagonal),
                max(self.entry_error, other.entry_error),
            )


def accumulate(span: Span, basis: Basis, batch_rows: int) -> Accumulators:
    """Sums over the rows of a span; what one task does.

    Parameters
    ----------
    span : Span
        Finite rows.
    basis : Basis
    batch_rows : int
        Rows that are read at a time.

    Returns
    -------
    Accumulators

    Raises
    ------
    InvalidInputError
        When a kernel value is not finite in the dtype of the basis.

    Notes
    -----
    Cost a row: m kernel values, m² flops (m²/2 multiply-adds, the symmetric update), 2mr more flops for features.
    Memory: the batch in float64 twice, a block of C, one c × c buffer in the dtype of the basis and one in float64.
    Products are summed in the basis' dtype over `BLOCK_ROWS` rows and in float64 beyond. Rows whose products overflow
    float32 are multiplied in float64.
    """
    total = _Sums(basis)
    for batch in span.batches(batch_rows):
        total.add(batch.rows, batch.start)
    return total.result()


class _Sums:
    """Sums that grow in place, inside one task."""

    def __init__(self, basis: Basis) -> None:
        c = basis.n_columns
        self._basis = basis
        self._projection = basis.projection.astype(basis.dtype)
        self._product = np.empty((c, c), basis.dtype)
        self._gram, self._sums = np.zeros((c, c)), np.zeros(c)
        self._n_samples, self._diagonal_sum, self._max_diagonal, self._error = 0, 0.0, 0.0, 0.0

    def add(self, rows: RowBlock, number: int) -> None:
        """Add rows, the first of which has a number."""
        if rows.shape[0] == 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            self._add_diagonal(self._basis.diagonal(rows))
            cross = self._basis.cross(rows)
            self._error = max(self._error, cross.error * self._max_diagonal)
            for start, block in cross:
                if not self._add_block(block):
                    self._add_wide(rows[start : start + len(block)], number + start)

    def _add_diagonal(self, diagonal: Vector) -> None:
        self._n_samples += len(diagonal)
        self._diagonal_sum += float(diagonal.sum())
        self._max_diagonal = max(self._max_diagonal, float(np.abs(diagonal).max()))

    def _add_block(self, block: Block) -> bool:
        """Add a block of C, unless its products are beyond its dtype."""
        features = block @ self._projection if self._basis.accumulates_features else block
        # one operand, transposed: numpy takes BLAS' symmetric update, half the work
        np.matmul(features.T, features, out=self._product)
        if not np.isfinite(self._product[np.diag_indices_from(self._product)]).all():
            return False
        self._gram += self._product
        self._sums += np.ones(len(features), features.dtype) @ features
        return True

    def _add_wide(self, rows: RowBlock, number: int) -> None:
        for _, block in self._basis.cross(rows, "float64"):
            if not np.isfinite(block).all():
                row = int(np.argwhere(~np.isfinite(block))[0, 0])
                raise InvalidInputError(
                    f"the kernel of row {number + row} with a landmark is not finite; standardize or scale the "
                    "features, or use a smaller degree or gamma."
                )
            features = block @ self._basis.projection if self._basis.accumulates_features else block
            self._gram += features.T @ features
            self._sums += features.sum(axis=0)

    def result(self) -> Accumulators:
        """What has been added."""
        return Accumulators(
            self._basis.digest,
            self._n_samples,
            self._gram,
            self._sums,
            self._diagonal_sum,
            self._max_diagonal,
            self._error,
        )
