"""What can be said for certain about computed eigenpairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.completeness import Found, Probe, probe_remainder
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers import EigenResult
from scalable_kpca.tiling import CERTIFIED_COLUMNS

__all__ = ["Certificate", "GramScale", "Verdict", "certificate_of", "examine", "residual_bounds"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

RESOLUTION = 1e-6  # eigenvalues that differ by less of their size are one to the question what was missed
FAILURE = 1e-6  # chance that a probe's bound may fail


@dataclass(frozen=True, eq=False)
class Certificate:
    """Bounds that hold for the returned pairs, whatever solver found them.

    Attributes
    ----------
    residual_norms : ndarray of shape (k,), float64
        ‖K̃v − λv‖: from the recurrence of a solver that knows them (block Krylov, power), else from one more pass.
    eigenvalue_bounds : ndarray of shape (k,), float64
        An eigenvalue of the evaluated K̃ lies within this distance of each λ: the residual norm plus the rounding
        of the products that measured it. That is n·eps·‖K‖_F with products in float64; with products in float32 it is
        what two ways to compute the same inner products disagree by, an estimate.
    explained_variance_ratio : ndarray of shape (k,), float64
        λ / tr K̃. The denominator is exact: it needs the diagonal and the grand mean, not the spectrum.
    total_variance : float
        tr K̃.
    squared_norm : float
        ‖K̃‖_F².
    kernel_error : float
        Largest error of an entry of K, to first order: rounding to the dtype of the tiles and evaluation in float32,
        for a kernel with |k(x, y)| ≤ max k(x, x).
    complete : bool
        Whether it is established that these are the leading pairs: `missed_bound` does not exceed the smallest returned
        eigenvalue by more than 10⁻⁶ of it and the uncertainty of the returned ones.
    missed_bound : float
        Every other eigenvalue is at most this.
    failure_probability : float
        Chance that `missed_bound` fails: 0 when it is proven, else over the draw of the probe's random block.
    completeness : str
        How that was established, or what is missing.
    """

    residual_norms: Vector
    eigenvalue_bounds: Vector
    explained_variance_ratio: Vector
    total_variance: float
    squared_norm: float
    kernel_error: float
    complete: bool
    missed_bound: float
    failure_probability: float
    completeness: str

    @property
    def effective_rank(self) -> float:
        """(tr K̃)² / ‖K̃‖_F²: how many equal eigenvalues would have the same trace and norm; 0 for K̃ = 0."""
        return self.total_variance**2 / self.squared_norm if self.squared_norm > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Certificate:
        """Inverse of `to_json`."""
        values: dict[str, Any] = {
            name: np.asarray(value, np.float64) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**values)


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
        Largest k(x, x).
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
        """Eigenvalues up to ``max(n·eps64, eps(dtype)) · max(λ₁, max k(x, x))`` count as zero; λ₁ is `largest`.

        Evaluation in float32 may be less exact than eps(dtype); then its error takes the place of eps. The largest
        k(x, x) stands for what the rounding of K itself can add to an eigenvalue; it decides when K̃ is small beside K,
        as for constant rows.
        """
        relative = max(self.n_samples * float(np.finfo(np.float64).eps), float(np.finfo(self.dtype).eps))
        return max(relative * max(largest, self.max_diagonal), self.entry_error)


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


def residual_bounds(
    operator: CenteredGram, eigenvalues: Vector, eigenvectors: Matrix, scale: GramScale, result: EigenResult
) -> tuple[Vector, Vector]:
    """Residual norms ‖K̃v − λv‖ of returned pairs, and bounds on |λ − λ̂|; one more pass when the solver has no norms.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        K̃.
    eigenvalues, eigenvectors : ndarray of shape (k,) and (n_samples, k)
        As they are returned.
    scale : GramScale
        Sizes of K and K̃.
    result : EigenResult
        What the solver knows.

    Returns
    -------
    norms, bounds : ndarray of shape (k,), float64

    References
    ----------
    Parlett (1998), The Symmetric Eigenvalue Problem, theorem 4.5.1.
    """
    if result.residual_norms is None:
        norms, rounding = _residual_norms(operator, eigenvalues, eigenvectors), scale.rounding
    else:
        norms, rounding = result.residual_norms[: len(eigenvalues)], result.rounding + scale.rounding
    return norms, norms + rounding


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
    k, smallest, rounding = len(eigenvalues), float(eigenvalues[-1]), result.rounding + scale.rounding
    uncertain = float(np.linalg.norm(bounds)) + 2 * rounding
    level = max(smallest * (1 + RESOLUTION), scale.zero_threshold(float(eigenvalues[0]))) + uncertain
    if result.is_whole_spectrum:
        return Verdict(True, smallest, 0.0, "the whole spectrum was computed", level)
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


def certificate_of(
    eigenvalues: Vector, norms: Vector, bounds: Vector, scale: GramScale, verdict: Verdict
) -> Certificate:
    """Certificate of pairs that have been measured (`residual_bounds`) and examined (`examine`)."""
    total = scale.total_variance
    return Certificate(
        residual_norms=norms,
        eigenvalue_bounds=bounds,
        explained_variance_ratio=eigenvalues / total if total > 0 else np.zeros_like(eigenvalues),
        total_variance=total,
        squared_norm=scale.squared_norm,
        kernel_error=scale.entry_error,
        complete=verdict.complete,
        missed_bound=verdict.missed_bound,
        failure_probability=verdict.failure_probability,
        completeness=verdict.how,
    )


def _residual_norms(operator: CenteredGram, eigenvalues: Vector, eigenvectors: Matrix) -> Vector:
    """‖K̃v − λv‖ of each column: a pass for each batch of columns, and no second copy of all vectors."""
    norms = []
    for start in range(0, len(eigenvalues), CERTIFIED_COLUMNS):
        columns = slice(start, start + CERTIFIED_COLUMNS)
        residuals = operator.matmat(eigenvectors[:, columns])
        residuals -= eigenvectors[:, columns] * eigenvalues[columns]
        norms.append(np.linalg.norm(residuals, axis=0))
    return np.concatenate(norms)
