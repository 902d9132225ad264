"""A random block in what the found vectors leave: a large eigenvalue shows, or is bounded with a chance of failure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers import begin, expand, random_directions

__all__ = ["Probe", "probe_remainder", "random_start_bound"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Probe:
    """What a random block has seen of B = PK̃P, P the projection onto what the found vectors leave.

    Attributes
    ----------
    ritz_values : ndarray of shape (m,), float64
        Of B, descending: each is a lower bound on the eigenvalue of B of the same rank.
    ritz_vectors : ndarray of shape (n_samples, ≤ width), float64
        Of the leading ones.
    upper_bound : float
        No eigenvalue of B is above it, but for a chance of `failure_probability` in the draw of the block.
    failure_probability : float
        0 when the bound is certain.
    n_passes : int
        Products that were made.
    """

    ritz_values: Vector
    ritz_vectors: Matrix
    upper_bound: float
    failure_probability: float
    n_passes: int


def random_start_bound(
    theta: float, below: Vector, *, width: int, n_passes: int, squared_norm: float, lowest: float, failure: float
) -> float:
    """Bound on the largest eigenvalue of B, from block Krylov iteration that began with a Gaussian block.

    Parameters
    ----------
    theta : float
        θ₁, the largest Ritz value after `n_passes` products without a restart.
    below : ndarray of shape (m,), float64
        θ, descending: a lower bound on the eigenvalue of B of the same rank.
    width : int
        Columns of the Gaussian block.
    n_passes : int
        q ≥ 1.
    squared_norm : float
        ‖B‖_F², or more.
    lowest : float
        ν ≥ 0: no eigenvalue of B is below −ν.
    failure : float
        Chance that the bound may fail, over the draw of the block.

    Returns
    -------
    float
        At most ‖B‖_F, which is certain.

    Notes
    -----
    Let μ₁ ≥ μ₂ ≥ … be the eigenvalues of B and g_i the rows of the Gaussian block in its eigenvectors. Of s columns
    take the combination w that is orthogonal to g₂ … g_s; g₁w and g_iw, i > s, are then independent standard normal.
    The Krylov space holds p(B)Gw for p(μ) = μ·T_{q−2}(x(μ)), x mapping [−ν, τ] to [−1, 1], T a Chebyshev polynomial.
    Its Rayleigh quotient is at most θ₁, so that, for τ ≥ min(μ_{s+1}, θ₁),

        (μ₁ − θ₁) μ₁² T_{q−2}(x(μ₁))² (g₁w)² ≤ (θ₁ + ν) Σ_{i>s} μ_i² (g_iw)².

    The chance of |g₁w| ≤ κ(Σ_{i>s} μ_i²(g_iw)² / Σ_{i>s} μ_i²)^½ is at most (2/π)^½ κ (Jensen), and ⌊width/s⌋ disjoint
    groups of s columns fail independently. By interlacing μ_i ≥ θ_i, which bounds μ_{s+1} and Σ_{i>s} μ_i² by what
    ‖B‖_F² leaves. Every s is tried, each with its share of `failure`. This sharpens, by the norm that is known
    here and by the block, the bound of Kuczyński and Woźniakowski, 1.648 √n exp(−(2q − 1)√ε).

    References
    ----------
    Kuczyński and Woźniakowski (1992), Estimating the largest eigenvalue by the power and Lanczos algorithms with a
    random start, theorem 4.2.
    """
    certain = math.sqrt(max(squared_norm, 0.0))
    theta = max(theta, 0.0)
    if n_passes < 2 or theta >= certain:
        return max(certain, theta)  # θ₁ above the norm is rounding
    squares = np.square(np.maximum(below, 0))
    before = np.concatenate([[0.0], np.cumsum(squares)])  # Σ_{i≤j} θ_i²
    best = certain
    for s in range(1, min(width, len(squares)) + 1):
        kappa = math.sqrt(math.pi / 2) * (failure / width) ** (1 / (width // s))
        beyond = before[-1] - before[min(s + 1, len(squares))]
        counts = np.arange(s + 1, 0, -1)  # of μ_j … μ_{s+1}, which are all ≥ μ_{s+1}
        squared_tau = ((squared_norm - beyond - before[: s + 1]) / counts).min()
        tau = min(theta, math.sqrt(max(squared_tau, 0.0)))
        tail = max(squared_norm - before[s], 0.0)
        best = min(best, _solve_for_mu(theta, tau, lowest, tail, n_passes - 2, kappa, best))
    return best


def _solve_for_mu(
    theta: float, tau: float, lowest: float, tail: float, degree: int, kappa: float, certain: float
) -> float:
    """Smallest μ at which the inequality of `random_start_bound` no longer holds, by bisection up to `certain`."""
    width = max(tau + lowest, np.finfo(np.float64).tiny)

    def excluded(mu: float) -> bool:
        # logarithms, for the polynomial leaves the range of a float
        x = max((2 * mu - tau + lowest) / width, 1.0)
        growth = 2 * _log_cosh(degree * math.acosh(x))
        have = math.log(mu - theta) + 2 * math.log(mu) + growth + 2 * math.log(kappa)
        return tail == 0 or have > math.log((theta + lowest) or np.finfo(np.float64).tiny) + math.log(tail)

    low, high = theta, certain
    if not excluded(high):
        return certain
    for _ in range(60):
        middle = (low + high) / 2
        if middle <= theta:
            break
        low, high = (low, middle) if excluded(middle) else (middle, high)
    return high


def _log_cosh(value: float) -> float:
    return abs(value) + math.log1p(math.exp(-2 * abs(value))) - math.log(2)


def probe_remainder(
    operator: CenteredGram,
    vectors: Matrix,
    *,
    alarm: float,
    is_clear: Callable[[float], bool],
    below: Vector,
    squared_norm: float,
    lowest: float,
    rounding: float = 0.0,
    width: int,
    max_passes: int,
    failure: float,
    seed: int,
) -> Probe:
    """Look for a large eigenvalue in what the found vectors leave, from a fresh random block.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        K̃.
    vectors : ndarray of shape (n_samples, p)
        Orthonormal, centred: what was found.
    alarm : float
        A Ritz value of B above it ends the probe.
    is_clear : callable
        Whether a bound on the eigenvalues of B is small enough; that ends it too.
    below : ndarray of shape (m,), float64
        Lower bounds on the largest eigenvalues of B that are known already, descending.
    squared_norm : float
        ‖B‖_F², or more.
    lowest : float
        No eigenvalue of B is below −lowest.
    rounding : float
        By which a Ritz value may be wrong.
    width, max_passes : int
        Of the block; most products.
    failure : float
        Chance that the bound may fail.
    seed : int
        Of the block.

    Returns
    -------
    Probe

    Notes
    -----
    Passes: at most `max_passes`. Memory: n·(p + width·(passes + 2)) float64. When the Krylov space is invariant before
    that, a Gaussian start has (with probability 1) a part in every eigenspace, and the top Ritz value is the top
    eigenvalue.
    """
    block = random_directions(vectors, width, np.random.default_rng([seed, 2]))
    p, width = vectors.shape[1], block.shape[1]
    if width == 0:
        return Probe(np.zeros(0), block, 0.0, 0.0, 0)
    # the found vectors are only kept orthogonal to: their own images play no part in the Ritz values of B
    state = begin(vectors, block, p + width * max_passes)
    upper = math.sqrt(max(squared_norm, 0.0))
    while True:
        state = expand(operator, state)
        values, coordinates = scipy.linalg.eigh(state.projected[p:, p:])
        values, coordinates = values[::-1], coordinates[:, ::-1]
        theta, exhausted = float(values[0]), state.block.shape[1] == 0
        bound = theta + rounding if exhausted else random_start_bound(
            theta + rounding,
            _elementwise_largest(values - rounding, below),
            width=width,
            n_passes=state.n_passes,
            squared_norm=squared_norm,
            lowest=lowest,
            failure=failure / max_passes,  # there is a look after every pass
        )  # fmt: skip
        upper = min(upper, bound)
        if exhausted or theta > alarm or is_clear(upper) or state.n_passes >= max_passes:
            return Probe(values, state.basis[:, p:] @ coordinates[:, :width], upper, failure, state.n_passes)


def _elementwise_largest(values: Vector, others: Vector) -> Vector:
    longest = np.full(max(len(values), len(others)), -np.inf)
    longest[: len(values)] = values
    longest[: len(others)] = np.maximum(longest[: len(others)], others)
    return longest
