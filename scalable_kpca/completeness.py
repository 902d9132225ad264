"""Whether a larger eigenvalue was missed: proven from norms where they suffice, else probed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.operator import CenteredGram
from scalable_kpca.probe import Probe, probe_remainder
from scalable_kpca.scale import GramScale
from scalable_kpca.solvers import EigenResult

__all__ = ["Found", "Verdict", "examine"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

RESOLUTION = 1e-6  # eigenvalues that differ by less of their size are one to the question what was missed
FAILURE = 1e-6  # chance that a probe's bound may fail


@dataclass(frozen=True, eq=False)
class Found:
    """Ritz pairs that a solver has, and how far they are from invariant: K̃V = VΘ + R.

    Attributes
    ----------
    values : ndarray of shape (m,), float64
        Θ, descending; the first ones are returned.
    residual_gram : ndarray of shape (m, m), float64
        RᵀR, or a matrix above it.
    squared_norm : float
        ‖K̃‖_F², or more.
    rounding : float
        ρ, by which VᵀK̃V may differ from Θ: rounding of the products.
    """

    values: Vector
    residual_gram: Matrix
    squared_norm: float
    rounding: float = 0.0

    @property
    def lower_bounds(self) -> Vector:
        """θ − ρ, and 0 where that is negative: lower bounds on what θ stands for."""
        return np.maximum(self.values - self.rounding, 0)

    def spread(self, p: int) -> float:
        """Bound on the norm of the first p residuals together."""
        return math.sqrt(float(np.trace(self.residual_gram[:p, :p])))

    def room(self, p: int) -> float:
        """Bound on the eigenvalues of B, the part of K̃ beside the first p vectors, from the Frobenius norm.

        ‖B‖_F² ≤ ‖K̃‖_F² − Σ_{j≤p} θ_j² and, by interlacing, B has an eigenvalue above each θ_j, j > p + 1, beside the
        largest: λ₁(B)² ≤ ‖K̃‖_F² − Σ_{j≠p+1} θ_j².
        """
        squares = np.square(self.lower_bounds)
        others = float(squares.sum()) - (float(squares[p]) if p < len(squares) else 0.0)
        return math.sqrt(max(self.squared_norm - others, 0.0))

    def missed_bound(self, n_returned: int, p: int, beyond: float) -> float:
        """Bound on every eigenvalue but the largest `n_returned`, when those of B beside p vectors are ≤ `beyond`.

        Notes
        -----
        K̃ = [[Θ, Rᵀ], [R, B]] in a basis that begins with V. For a level above `beyond` Haynsworth's inertia additivity
        says that K̃ has as many eigenvalues above the level as Θ + Rᵀ(level − B)⁻¹R ≼ Θ + RᵀR/(level − beyond) has:
        a residual counts by its square. The smallest level with no more than `n_returned` is found by bisection; it
        is at most what Weyl's theorem gives. Θ itself is known to ρ only, and so is the bound.

        References
        ----------
        Haynsworth (1968), Determination of the inertia of a partitioned Hermitian matrix; Parlett (1998), The Symmetric
        Eigenvalue Problem, chapter 10.
        """
        theta, gram = np.diag(self.values[:p]), self.residual_gram[:p, :p]
        next_value = float(self.values[n_returned]) if p > n_returned else -math.inf
        low = max(beyond, next_value)
        high = low + self.spread(p)
        for _ in range(40):
            level = (low + high) / 2
            if not beyond < level < high:
                break
            above = scipy.linalg.eigvalsh(theta + gram / (level - beyond)) > level
            low, high = (level, high) if int(above.sum()) > n_returned else (low, level)
        return float(high) + self.rounding

    def proven_bound(self, n_returned: int) -> float:
        """Bound on every eigenvalue but the largest `n_returned` that costs no pass: the best split is taken."""
        candidates = range(n_returned, len(self.values) + 1)
        p = min(candidates, key=lambda p: self.room(p) + self.spread(p))
        return self.missed_bound(n_returned, p, self.room(p))


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether a larger eigenvalue was missed.

    Attributes
    ----------
    complete : bool
        Whether that is excluded.
    missed_bound, failure_probability : float
        As in `Certificate`.
    how : str
        How it was established, or what is missing.
    level : float
        Above which another eigenvalue would be one that was missed: the smallest returned one and its uncertainty.
    alarm : ndarray of shape (n_samples, m), float64, or None
        Directions in which a larger eigenvalue shows.
    """

    complete: bool
    missed_bound: float
    failure_probability: float
    how: str
    level: float
    alarm: Matrix | None = None


def examine(
    operator: CenteredGram,
    eigenvalues: Vector,
    eigenvectors: Matrix,
    bounds: Vector,
    scale: GramScale,
    result: EigenResult,
    *,
    probe_width: int,
    max_probe_passes: int,
    seed: int,
    positive_semidefinite: bool,
) -> Verdict:
    """Whether the returned pairs are the leading ones: proven from norms where they suffice, else probed.

    Parameters
    ----------
    operator, eigenvalues, eigenvectors, scale, result
        As in `residual_bounds`.
    bounds : ndarray of shape (k,), float64
        From `residual_bounds`.
    probe_width, max_probe_passes, seed : int
        Of the random block in what is left; no passes, no probe.
    positive_semidefinite : bool
        Whether the kernel is: then no eigenvalue is below −n·`entry_error`.

    Returns
    -------
    Verdict
    """
    k, rounding = len(eigenvalues), result.rounding + scale.rounding
    # without components the claim is that all eigenvalues are zero
    largest, smallest = (float(eigenvalues[0]), float(eigenvalues[-1])) if k else (0.0, 0.0)
    uncertain = float(np.linalg.norm(bounds)) + 2 * rounding
    level = max(smallest * (1 + RESOLUTION), scale.zero_threshold(largest)) + uncertain
    if result.is_whole_spectrum:
        return Verdict(True, smallest, 0.0, "the whole spectrum was computed", level)
    if result.bound_of_others is not None:
        # pairs that the solver has beside those returned, as when zeros are dropped
        others = max([result.bound_of_others, *result.eigenvalues[k : k + 1].tolist()])
        if others <= level:
            how = f"{result.proof} another eigenvalue above {others:.6g}"
            return Verdict(True, others, 0.0, how, level)
    found = _found(eigenvalues, bounds, scale, result)
    proven = found.proven_bound(k)
    if proven <= level:
        how = f"the Frobenius norm leaves no room for another eigenvalue above {proven:.6g}"
        return Verdict(True, proven, 0.0, how, level)
    if max_probe_passes < 1:
        how = f"not proven: the Frobenius norm leaves room for an eigenvalue up to {proven:.6g} beside these"
        return Verdict(False, proven, 0.0, how, level)
    vectors = eigenvectors if result.ritz_vectors is None else result.ritz_vectors
    p = vectors.shape[1]
    left = max(found.squared_norm - float(np.square(found.lower_bounds[:p]).sum()), 0.0)
    probe = probe_remainder(
        operator,
        vectors,
        alarm=level,
        is_clear=lambda beyond: found.missed_bound(k, p, beyond) <= level,
        below=found.lower_bounds[p:],
        squared_norm=left,
        lowest=scale.n_samples * scale.entry_error + scale.rounding if positive_semidefinite else float(np.sqrt(left)),
        rounding=rounding,
        width=probe_width,
        max_passes=max_probe_passes,
        failure=FAILURE,
        seed=seed,
    )
    return _judge(probe, min(found.missed_bound(k, p, probe.upper_bound), proven), level)


def _found(eigenvalues: Vector, bounds: Vector, scale: GramScale, result: EigenResult) -> Found:
    """What the solver has, with the rounding of its products inside the residuals."""
    squared_norm, rounding = scale.squared_norm + scale.norm_error, result.rounding + scale.rounding
    if result.ritz_values is None or result.ritz_gram is None:
        # residuals are known by their norms only: RᵀR ≼ (Σ‖r‖²) I
        return Found(eigenvalues, np.eye(len(bounds)) * float(np.square(bounds).sum()), squared_norm, rounding)
    # (R + E)ᵀ(R + E) ≼ 2RᵀR + 2EᵀE
    gram = 2 * result.ritz_gram
    gram[np.diag_indices_from(gram)] += 2 * rounding**2
    return Found(result.ritz_values, gram, squared_norm, rounding)


def _judge(probe: Probe, missed: float, level: float) -> Verdict:
    chance = f"a random block of {probe.ritz_vectors.shape[1]} columns in {probe.n_passes} passes"
    if len(probe.ritz_values) and probe.ritz_values[0] > level:
        how = f"an eigenvalue near {probe.ritz_values[0]:.6g} may be missing: {chance} showed it beside these"
        return Verdict(False, missed, probe.failure_probability, how, level, alarm=probe.ritz_vectors)
    if missed <= level:
        how = f"{chance} leaves no room for another eigenvalue above {missed:.6g}, with probability 1 − {FAILURE:g}"
        return Verdict(True, missed, probe.failure_probability, how, level)
    how = (
        f"not proven: {chance} found nothing above {level:.6g}, and excludes with probability 1 − {FAILURE:g} only "
        f"what is above {missed:.6g}"
    )
    return Verdict(False, missed, probe.failure_probability, how, level)
