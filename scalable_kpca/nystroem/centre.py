"""The mean of the training rows as landmarks see it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.nystroem.accumulators import Accumulators
from scalable_kpca.nystroem.basis import Basis

__all__ = ["Centre", "find_centre"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Centre:
    """Πφ̄, the mean of the training rows in feature space projected on the span of the landmarks; all over scale.

    Attributes
    ----------
    weights : ndarray of shape (m,), float64
        ⟨φ(x), Πφ̄⟩ is c(x)·weights + offset, c(x) as `Basis.cross` gives it.
    offset : float
    squared_norm : float
        ‖Πφ̄‖².
    """

    weights: Vector
    offset: float
    squared_norm: float


def find_centre(basis: Basis, sums: Accumulators) -> Centre:
    """Centre of the rows of some sums, n_samples ≥ 1; cost 2·m·r flops.

    With features f(x) = Pᵀc(x), Πφ(x) has the coordinates f(x) + a, a = Pᵀshift, and Πφ̄ their mean.
    """
    mean = sums.sums / sums.n_samples
    at_shift = basis.projection.T @ basis.shift
    centre = at_shift + (mean if basis.accumulates_features else basis.projection.T @ mean)
    return Centre(basis.projection @ centre, float(at_shift @ centre), float(centre @ centre))
