"""What a Nyström fit knows for certain: K − K̂ is positive semi-definite, and its trace is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NystroemCertificate", "left_out"]

Vector = NDArray[np.float64]


def left_out(residual: float, trace: float) -> float:
    """Share of a trace that a residual is, not below 0; 0 of nothing."""
    return max(residual, 0.0) / trace if trace > 0 else 0.0


@dataclass(frozen=True, eq=False)
class NystroemCertificate:
    """Bounds from the trace residual, for a kernel that is positive semi-definite.

    Attributes
    ----------
    trace_residual : float
        tr(K − K̂) = Σ k(x, x) − Σ‖Pᵀk(L, x)‖², as it was computed.
    rounding : float
        Estimate of its error, and of that of each eigenvalue: of kernel values in the dtype of C, and of the products.
    trace : float
        tr K = Σ k(x, x).
    approximated_variance : float
        tr K̃̂, of the centred approximation.
    total_variance_bound : float
        tr K̃ is at most this: `approximated_variance` + residual + rounding.
    eigenvalue_bounds : ndarray of shape (k,), float64
        Each eigenvalue of K̃ lies between λ − rounding and λ + this, which is residual + rounding: as K̃ − K̃̂ is positive
        semi-definite, no eigenvalue exceeds its approximation by more than the trace.
    explained_variance_ratio : ndarray of shape (k,), float64
        λ / `total_variance_bound`; the sum over leading components is a lower bound on what they explain of K̃.
    explained_variance_bound : float
        Upper bound on the share of the leading components: (Σλ + residual) / (tr K̃̂ + residual).
    missed_bound : float
        Every other eigenvalue of K̃ is at most this.
    rank, n_landmarks : int
        Directions of the landmarks that are kept, and landmarks.
    certified : bool
        False for a kernel whose negative part was dropped: then nothing above is a bound.
    complete : bool
        Whether none of the leading pairs can have been missed: `missed_bound` ≤ smallest λ within rounding.
    completeness : str
        In words.
    """

    trace_residual: float
    rounding: float
    trace: float
    approximated_variance: float
    total_variance_bound: float
    eigenvalue_bounds: Vector
    explained_variance_ratio: Vector
    explained_variance_bound: float
    missed_bound: float
    rank: int
    n_landmarks: int
    certified: bool
    complete: bool
    completeness: str

    @property
    def relative_residual(self) -> float:
        """tr(K − K̂) / tr K, not below 0: the share of K that the landmarks do not reach; 0 for K = 0."""
        return left_out(self.trace_residual, self.trace)

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> NystroemCertificate:
        """Inverse of `to_json`."""
        values: dict[str, Any] = {
            name: np.asarray(value, np.float64) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**values)
