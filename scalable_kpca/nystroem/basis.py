"""What landmarks make of rows: kernel values, and the directions that can be told from rounding."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Kernel, Precomputed, TileStrips, kernel_block
from scalable_kpca.source import RowBlock, is_sparse
from scalable_kpca.tiling import BLOCK_ROWS

__all__ = ["Basis", "CrossBlocks", "build_basis"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Block = NDArray[np.floating[Any]]  # of C

# of the largest variance: predicted rounding of CᵀC, beyond which CP is accumulated instead
DIRECT_GOOD = {"float32": 1e-5, "float64": 1e-12}


@dataclass(frozen=True, eq=False)
class CrossBlocks:
    """C/scale − 1·shiftᵀ of some rows: pairs of a first row and a block of `BLOCK_ROWS` rows, each over the one before.

    Attributes
    ----------
    strips : TileStrips
        Of C.
    scale : scalar
    shift : ndarray of shape (m,)
    """

    strips: TileStrips
    scale: Any
    shift: Block

    @property
    def error(self) -> float:
        """First-order error of an entry of C relative to the largest k(x, x), rounding to its dtype included."""
        return self.strips.error

    def __iter__(self) -> Iterator[tuple[int, Block]]:
        for start, strip in self.strips:
            if self.scale != 1:
                strip /= self.scale
            strip -= self.shift
            yield start, strip


@dataclass(frozen=True, eq=False)
class Basis:
    """Landmarks, and what their own matrix W = k(L, L) = UΩUᵀ says about them.

    Attributes
    ----------
    kernel : Kernel
    landmarks : ndarray or scipy CSR array of shape (m, n_features)
    dtype : str
        Of C = k(X, L); W is float64 in any case.
    scale : float
        A power of four that all kernel values are divided by, so that their squares stay in range; 1 for most kernels.
    shift : ndarray of shape (m,), float64
        Mean row of W/scale. C is used as C/scale − 1·shiftᵀ: a covariance does not see it, and products that would
        cancel later are small from the start.
    omega : ndarray of shape (r,), float64
        Kept eigenvalues of W/scale, ascending.
    projection : ndarray of shape (m, r), float64
        P = UΩ^{-1/2}: CP are the features.
    accumulates_features : bool
        Whether CᵀC is accumulated, or (CP)ᵀ(CP): see `build_basis`; the first can become the second.
    negative_share : float
        Σ|ω₋| / Σ|ω| of what was dropped because it is negative: 0 for a positive semi-definite W.
    """

    kernel: Kernel
    landmarks: RowBlock
    dtype: str
    scale: float
    shift: Vector
    omega: Vector
    projection: Matrix
    accumulates_features: bool
    negative_share: float = 0.0

    @property
    def n_landmarks(self) -> int:
        """Number of landmarks."""
        return int(self.landmarks.shape[0])

    @property
    def rank(self) -> int:
        """Directions that are kept."""
        return len(self.omega)

    @property
    def n_columns(self) -> int:
        """Columns of what is accumulated."""
        return self.rank if self.accumulates_features else self.n_landmarks

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that accumulators depend on: sums with equal digests may be added."""
        total = hashlib.sha256(json.dumps([self.kernel.to_json(), self.dtype, self.accumulates_features]).encode())
        rows: tuple[Any, ...] = (self.landmarks,)
        if is_sparse(self.landmarks):
            sparse = self.landmarks
            rows = (sparse.data, sparse.indices.astype(np.int64), sparse.indptr.astype(np.int64))
        for values in (*rows, np.float64(self.scale), self.shift, self.projection):
            total.update(np.ascontiguousarray(values).data)
        return total.hexdigest()

    def cross(self, rows: RowBlock, dtype: str | None = None) -> CrossBlocks:
        """Kernel values between rows (b, n_features) and the landmarks, in the dtype of the basis or another.

        Returns
        -------
        CrossBlocks
            To be iterated over: C/scale − 1·shiftᵀ, block by block.
        """
        dtype = dtype or self.dtype
        with np.errstate(over="ignore", invalid="ignore"):  # who uses them looks whether they are finite
            scale, shift = np.dtype(dtype).type(self.scale), self.shift.astype(dtype)
            strips = TileStrips(self.kernel, rows.astype(np.float64), self._columns, strip_rows=BLOCK_ROWS, dtype=dtype)
        return CrossBlocks(strips, scale, shift)

    def diagonal(self, rows: RowBlock) -> Vector:
        """k(x, x)/scale, shape (b,), float64."""
        values: Vector = self.kernel.diagonal(rows.astype(np.float64)) / self.scale
        return values

    @cached_property
    def _columns(self) -> RowBlock:
        return self.landmarks.astype(np.float64)


def build_basis(
    kernel: Kernel, landmarks: RowBlock, dtype: str, *, n_samples: int = 1, indefinite: str = "error"
) -> Basis:
    """Basis of some landmarks.

    Parameters
    ----------
    kernel : Kernel
        Resolved kernel.
    landmarks : ndarray or scipy CSR array of shape (m, n_features)
        Finite rows, m ≥ 1; repeated ones do no harm.
    dtype : {"float32", "float64"}
        Of C.
    n_samples : int
        Rows that are expected: over many blocks of them rounding errors average out.
    indefinite : {"error", "clip"}
        What to do when W has negative eigenvalues beyond rounding: refuse, or drop them.

    Returns
    -------
    Basis

    Raises
    ------
    InvalidInputError
        When a kernel value is beyond float64, or W is indefinite.

    Notes
    -----
    *The cut.* An entry of C is wrong by u·κ, u = eps(dtype)/2 and κ the largest k(x, x). In a direction with eigenvalue
    ω this adds n·u²κ²/ω to the trace of the features, Σ‖Pᵀc‖²; leaving the direction out takes about nω/m away. The
    two are equal at ω = √m·uκ. As κ ≤ ω₁, directions up to √m·eps(dtype)·ω₁ are cut, where rounding outweighs what they
    carry; repeated landmarks have ω = 0.

    *What is accumulated.* The rounding of G = CᵀC, about eps·√(G_ii G_jj) an entry, becomes eps·‖DW⁺D‖_F in the
    features, D² = diag G, times √(block/n): harmless where W is well conditioned, far too much where it is not. It is
    predicted with the landmarks in the place of all rows; where it is more than `DIRECT_GOOD` of their variance, the
    features CP themselves are accumulated: 2nmr more flops, and their products round relative to their own size.
    Cost: m²·n_features and some 10·m³ flops; memory 5·m² float64.

    References
    ----------
    Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.
    """
    inside = kernel_block(kernel, landmarks, landmarks, diagonal=True)
    scale = _power_of_four(float(np.abs(inside).max()))
    inside /= scale
    omega, u = scipy.linalg.eigh(inside)
    # values that the caller has evaluated are no better than their dtype
    given = landmarks.dtype if isinstance(kernel, Precomputed) else np.dtype(np.float64)
    negative_share = _negative_share(kernel, omega, float(np.finfo(given).eps), indefinite)
    m, largest = len(inside), max(float(omega[-1]), 0.0)
    keep = omega > math.sqrt(m) * float(np.finfo(dtype).eps) * largest
    omega, projection = omega[keep], u[:, keep] / np.sqrt(omega[keep])
    shift = inside.mean(axis=0)
    rounding = _direct_rounding(inside - shift, projection, dtype) * min(1.0, BLOCK_ROWS / n_samples) ** 0.5
    return Basis(
        kernel=kernel,
        landmarks=landmarks,
        dtype=dtype,
        scale=scale,
        shift=shift,
        omega=omega,
        projection=np.ascontiguousarray(projection),
        accumulates_features=rounding > DIRECT_GOOD[dtype],
        negative_share=negative_share,
    )


def _power_of_four(largest: float) -> float:
    """Largest power of four up to `largest`, so that it and its root divide exactly; 1 for 0."""
    if not math.isfinite(largest):
        raise InvalidInputError(
            "kernel values between landmarks are beyond float64; standardize or scale the features, or use a smaller "
            "degree or gamma."
        )
    return 4.0 ** ((math.frexp(largest)[1] - 1) // 2) if largest > 0 else 1.0


def _negative_share(kernel: Kernel, omega: Vector, eps: float, indefinite: str) -> float:
    """Share of the negative eigenvalues of W, 0 when they are rounding; an error when they are to be refused."""
    magnitudes = np.abs(omega)
    rounding = max(len(omega) * eps, kernel.noise) * float(magnitudes.max())
    if kernel.positive_semidefinite or omega[0] >= -rounding:
        return 0.0
    share = float(magnitudes[omega < 0].sum() / magnitudes.sum())
    if indefinite == "error":
        raise InvalidInputError(
            f"kernel {kernel.name!r} is not positive semi-definite on these rows: negative eigenvalues are "
            f"{share:.2%} of the spectrum of the {len(omega)} landmarks (lowest {omega[0]:.6g}, largest "
            f'{omega[-1]:.6g}); set indefinite="clip" to drop the negative part, or choose another kernel or other '
            "parameters."
        )
    return share


def _direct_rounding(centred: Matrix, projection: Matrix, dtype: str) -> float:
    """Rounding of CᵀC in the features, relative to their largest sum of squares, with the landmarks as the rows."""
    squares = np.square(centred @ projection).sum(axis=0)
    if not squares.any():
        return 0.0
    scaled = np.linalg.norm(centred, axis=0)[:, None] * projection
    return float(np.finfo(dtype).eps) * float(np.linalg.norm(scaled.T @ scaled)) / float(squares.max())
