"""How many landmarks: what they would leave out, tried on a sample of rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.kernels import Kernel, kernel_block

__all__ = ["SAMPLE_ROWS", "Advice", "advise_landmarks", "residual_curve"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Block = NDArray[np.floating[Any]]

SAMPLE_ROWS = 4000  # half of them landmarks, half of them held out
LADDER = (125, 250, 500, 1000, 2000)


@dataclass(frozen=True)
class Advice:
    """Share of the trace that landmarks leave out, by their number.

    Attributes
    ----------
    n_landmarks : tuple of int
        Ascending.
    residuals : tuple of float
        Of rows that are no landmarks: Σ(k(x, x) − ‖Pᵀk(L, x)‖²) / Σk(x, x).
    asked : int
        Landmarks that the job asks for.
    predicted : float
        Of so many, by the slope of the last two where the sample does not reach as far.
    is_extrapolated : bool
    """

    n_landmarks: tuple[int, ...]
    residuals: tuple[float, ...]
    asked: int
    predicted: float
    is_extrapolated: bool

    def lines(self) -> list[str]:
        """A table for people."""
        rows = [f"{m:>9}  {residual:.2%}" for m, residual in zip(self.n_landmarks, self.residuals, strict=True)]
        how = "extrapolated" if self.is_extrapolated else "as asked for"
        return [
            "landmarks  left out of the trace by uniform ones, tried on a sample",
            *rows,
            f"{self.asked:>9}  {self.predicted:.2%}  {how}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def residual_curve(kernel: Kernel, landmarks: Block, rows: Block) -> Vector:
    """Relative trace residual of rows after each of the landmarks, in their order.

    Parameters
    ----------
    kernel : Kernel
        Positive semi-definite.
    landmarks : ndarray of shape (m, n_features)
    rows : ndarray of shape (s, n_features)

    Returns
    -------
    ndarray of shape (m,), float64
        Of the Nyström approximation with the first 1, 2, …, m landmarks.

    Notes
    -----
    One Cholesky factorisation gives them all: its column j is what landmark j explains beyond those before it. A
    landmark whose own residual is rounding explains nothing. Cost: (m + s)·m² flops; memory (m + s)·m float64.
    """
    m = len(landmarks)
    both = kernel_block(kernel, np.concatenate([landmarks, rows]), landmarks)
    both[:m] = kernel_block(kernel, landmarks, landmarks, diagonal=True)
    diagonal = kernel.diagonal(rows.astype(np.float64))
    factor, left = np.zeros_like(both), np.empty(m)
    explained = np.zeros(len(rows))
    floor = m * float(np.finfo(np.float64).eps) * float(np.abs(both[:m].diagonal()).max())
    for j in range(m):
        column = both[:, j] - factor[:, :j] @ factor[j, :j]
        if column[j] > floor:
            factor[:, j] = column / np.sqrt(column[j])
            explained += factor[m:, j] ** 2
        left[j] = float((diagonal - explained).sum())
    total = float(diagonal.sum())
    return np.maximum(left, 0.0) / total if total > 0 else np.zeros(m)


def advise_landmarks(kernel: Kernel, sample: Block, *, n_landmarks: int, n_samples: int | None = None) -> Advice:
    """Advice from a sample of rows: one half in the place of landmarks, the other held out.

    Parameters
    ----------
    kernel : Kernel
        Resolved.
    sample : ndarray of shape (s, n_features)
        Rows in no order; the first `SAMPLE_ROWS` are used.
    n_landmarks : int
        What the job asks for.
    n_samples : int, optional
        Rows of the job, where that many landmarks leave nothing out.

    Returns
    -------
    Advice
        Of uniform landmarks; others reach decaying spectra with fewer.
    """
    sample = sample[:SAMPLE_ROWS]
    half = max(1, len(sample) // 2)
    # one row stands for both
    curve = residual_curve(kernel, sample[:half], sample[half:] if len(sample) > 1 else sample)
    ladder = tuple(m for m in LADDER if m <= half) or (half,)
    residuals = tuple(float(curve[m - 1]) for m in ladder)
    if n_samples is not None and n_landmarks >= n_samples:
        return Advice(ladder, residuals, n_landmarks, 0.0, is_extrapolated=False)
    if n_landmarks <= half:
        return Advice(ladder, residuals, n_landmarks, float(curve[n_landmarks - 1]), is_extrapolated=False)
    return Advice(ladder, residuals, n_landmarks, _extrapolated(curve, n_landmarks), is_extrapolated=True)


def _extrapolated(curve: Vector, m: int) -> float:
    """Value at m by the slope of the last octave, both axes logarithmic."""
    last, before = float(curve[-1]), float(curve[max(0, len(curve) // 2 - 1)])
    if last <= 0 or before <= last:
        return last
    slope = np.log(last / before) / np.log(len(curve) / max(1, len(curve) // 2))
    return float(last * (m / len(curve)) ** slope)
