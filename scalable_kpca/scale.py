"""How large K and K̃ are: what rounding and ratios are measured against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["GramScale", "zero_threshold"]


@dataclass(frozen=True)
class GramScale:
    """How large K and K̃ are: what rounding and ratios are measured against.

    Attributes
    ----------
    n_samples : int
        Size of the matrix.
    dtype : str
        Of the tiles.
    max_diagonal : float
        Largest k(x, x), or the root mean square of the entries where that is larger.
    gram_norm : float
        ‖K‖_F of the uncentred matrix.
    squared_norm : float
        ‖K̃‖_F².
    total_variance : float
        tr K̃; 0 when it cannot be told from 0.
    entry_error : float
        Largest error of an entry of K, to first order.
    norm_error : float
        Bound on the rounding of `squared_norm`.
    """

    n_samples: int
    dtype: str
    max_diagonal: float
    gram_norm: float
    squared_norm: float
    total_variance: float
    entry_error: float = 0.0
    norm_error: float = 0.0

    @property
    def rounding(self) -> float:
        """Bound on the norm of the rounding in K̃v for a unit v: n·eps·‖K‖_F."""
        return self.n_samples * float(np.finfo(np.float64).eps) * self.gram_norm

    def zero_threshold(self, largest: float = 0.0) -> float:
        """Eigenvalues up to this count as zero, given λ₁: see the function `zero_threshold`."""
        return zero_threshold(self.n_samples, self.dtype, max(largest, self.max_diagonal), self.entry_error)


def zero_threshold(n_samples: int, dtype: str, largest: float, entry_error: float) -> float:
    """Eigenvalues up to ``max(n·eps64, eps(dtype)) · max(λ₁, max k(x, x))`` count as zero.

    Parameters
    ----------
    n_samples : int
    dtype : str
        Of the kernel values.
    largest : float
        The larger of λ₁ and k(x, x): the latter stands for what the rounding of K itself can add to an eigenvalue; it
        decides when K̃ is small beside K, as for constant rows.
    entry_error : float
        Error of a kernel value: evaluation in float32 may be less exact than eps(dtype); then it takes its place.
    """
    relative = max(n_samples * float(np.finfo(np.float64).eps), float(np.finfo(dtype).eps))
    return max(relative * largest, entry_error)
