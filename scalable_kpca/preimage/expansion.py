"""The projection of a row in feature space as a sum of images of training rows, and how far a point is from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import RBF, TileStrips
from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.preimage.pairs import check_has_rows, dense
from scalable_kpca.source import ArrayRows, Rows
from scalable_kpca.tiling import BLOCK_ROWS, Tiling

__all__ = ["Expansion", "Sums", "expand"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the training rows x_i at some points z, with the weights w_i = γ_i k(z, x_i).

    Attributes
    ----------
    values : ndarray of shape (b,), float64
        f(z) = Σ w_i, the inner product of φ(z) and the projection.
    sizes : ndarray of shape (b,), float64
        Σ |w_i|: rounding of `values` is relative to it.
    products : ndarray of shape (b, n_features), float64
        Σ w_i x_i.
    """

    values: Vector
    sizes: Vector
    products: Matrix


@dataclass(frozen=True, eq=False)
class Expansion:
    """Pφ(x) = Σ γ_i φ(x_i), γ_i = Σ_a s_a A_ia + A_ik, for any scores s of a model with the RBF kernel.

    Attributes
    ----------
    kernel : RBF
    rows : Rows
        x_i: the training rows of an exact model, the landmarks of a Nyström model.
    block_rows : int
        How many of them are read at a time.
    coefficients : ndarray of shape (n, k + 1), float64
        A: of the components, which the scores multiply, and of the mean φ̄ in the last column.
    offsets : ndarray of shape (k,), float64
        ⟨v_a, φ̄⟩ of each component v_a.
    mean_norm : float
        ‖φ̄‖².
    origin : ndarray of shape (n_features,), float64
        What rows and points are shifted by: the kernel does not see it, and sums of far rows round less.

    Notes
    -----
    Exact: v_a = Σ α_ia (φ(x_i) − φ̄) and φ̄ = Σ φ(x_i)/n, so that A_ia = α_ia − ᾱ_a and A_ik = 1/n; ⟨v_a, φ̄⟩ =
    Σ α_ia (κ_i − k̄) and ‖φ̄‖² = k̄.

    Nyström: v_a = Σ Q_ja φ(l_j), and φ̄ in the span of the landmarks is Σ μ_j φ(l_j), μ = Pm, m the mean of the
    features Pᵀk(L, x) over the training rows; A = [Q, μ], ⟨v_a, φ̄⟩ = ō_a, the mean of k(x, L)Q, and ‖φ̄‖² = mᵀm.
    """

    kernel: RBF
    rows: Rows
    block_rows: int
    coefficients: Matrix
    offsets: Vector
    mean_norm: float
    origin: Vector

    def sums(self, points: Matrix, scores: Matrix) -> Sums:
        """Sums at points (b, n_features), one for each row of scores (b, k); both shifted by `origin`.

        Notes
        -----
        One pass over the training rows, block by block. Cost a point and training row: one kernel value and
        2·(n_features + k + 1) flops. Memory beside the arguments: one block of training rows, two strips.
        """
        found = Sums(np.zeros(len(points)), np.zeros(len(points)), np.zeros_like(points))
        weights = np.column_stack([scores, np.ones(len(scores))])
        with np.errstate(over="ignore", invalid="ignore"):  # points may be beyond float64: who asks looks at the sums
            for block, columns in self._blocks():
                for start, strip in TileStrips(self.kernel, points, columns):
                    here = slice(start, start + len(strip))
                    strip *= weights[here] @ self.coefficients[block].T
                    found.values[here] += strip.sum(axis=1)
                    found.products[here] += strip @ columns
                    found.sizes[here] += np.abs(strip, out=strip).sum(axis=1)
        return found

    def distances(self, values: Vector, scores: Matrix) -> Vector:
        """‖φ(z) − Pφ(x)‖² = k(z, z) − 2f(z) + ‖φ̄‖² + 2 Σ s_a⟨v_a, φ̄⟩ + ‖s‖², shape (b,); rounding below 0 is 0."""
        norms = self.mean_norm + 2 * scores @ self.offsets + np.square(scores).sum(axis=1)
        squares: Vector = np.maximum(1 - 2 * values + norms, 0.0)
        return squares

    def _blocks(self) -> Iterator[tuple[slice, Matrix]]:
        tiling = Tiling(self.rows.n_samples, self.block_rows)
        for i in range(tiling.n_blocks):
            block = tiling.block(i)
            yield block, dense(self.rows.read(block)).astype(np.float64) - self.origin


def expand(model: AnyModel) -> Expansion:
    """Expansion of the projections of a model with origin 0; memory n·(k + 1) float64.

    Raises
    ------
    InvalidInputError
        For another kernel than RBF: the ridge map serves all that are not precomputed.
    """
    kernel = model.kernel
    check_has_rows(model)
    if not isinstance(kernel, RBF):
        raise InvalidInputError(
            f"fixed-point pre-images need the rbf kernel, and this model has {kernel.name!r}; use the ridge map "
            "(fit_inverse_transform=True), which serves every kernel."
        )
    parts = _of_nystroem(model) if isinstance(model, NystroemModel) else _of_exact(model)
    return Expansion(kernel, *parts, origin=np.zeros(model.n_features))


def _of_exact(model: Model) -> tuple[Rows, int, Matrix, Vector, float]:
    n, alpha, centering = model.n_samples, model.dual_coefficients, model.centering
    offsets = (centering.row_means - centering.grand_mean) @ alpha
    coefficients = np.column_stack([alpha - alpha.mean(axis=0), np.full(n, 1 / n)])
    return model.rows, model.tile_rows, coefficients, offsets, centering.grand_mean


def _of_nystroem(model: NystroemModel) -> tuple[Rows, int, Matrix, Vector, float]:
    # kernel values of RBF are at most 1: the scale of the basis is 1
    basis, sums = model.basis, model.sums
    mean = sums.sums / sums.n_samples
    features = mean if basis.accumulates_features else basis.projection.T @ mean
    features = features + basis.projection.T @ basis.shift
    coefficients = np.column_stack([model.weights, basis.projection @ features])
    offsets = model.offset + basis.shift @ model.weights
    return ArrayRows(basis.landmarks), BLOCK_ROWS, coefficients, offsets, float(features @ features)
