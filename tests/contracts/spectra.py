"""Operators whose spectrum is known by construction, and every eigensolver called in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers import EigenResult, solve_arpack, solve_block_krylov, solve_dense, solve_power
from tests.support import gram_of

__all__ = [
    "HOMES",
    "SOLVERS",
    "SPECTRA",
    "TILE_ROWS",
    "TOL",
    "N",
    "operator_of",
    "rows_with_spectrum",
    "solve_by_power",
    "solve_krylov",
]

Array = NDArray[Any]

HOMES = ["memory", "zarr"]
N, TILE_ROWS = 47, 12
TOL = {"block_krylov": 1e-13, "power": 1e-10}  # relative residual at which they are asked to stop

SPECTRA = {
    "decaying": 0.5 ** np.arange(20),
    "slow": 1 / np.arange(1, 41),
    "gap": np.r_[[100.0, 50, 25], np.full(30, 1e-3)],
    "tight cluster": np.r_[1 - 1e-4 * np.arange(6), np.linspace(0.9, 0.1, 30)],
    "equal pairs": np.repeat([4.0, 3, 2, 1], 2),
    "flat": np.ones(46),
    "rank one": np.array([7.0]),
    "many scales": 10.0 ** -np.arange(14),
}


def rows_with_spectrum(spectrum: Array, seed: int = 0, n_samples: int = N) -> Array:
    """Rows whose centred linear Gram matrix has this spectrum: U√Λ for orthonormal U beside the ones; read-only."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(np.column_stack([np.ones(n_samples), rng.standard_normal((n_samples, len(spectrum)))]))[0]
    X = basis[:, 1:] * np.sqrt(spectrum)
    X.flags.writeable = False
    return X


@contextmanager
def operator_of(X: Array, kernel: str = "linear", **options: Any) -> Iterator[CenteredGram]:
    """The centred Gram matrix of some rows, built, in small tiles."""
    with gram_of(X, kernel, tile_rows=TILE_ROWS, **options) as gram:
        yield CenteredGram(gram, gram.build())


def random_block(n_samples: int, width: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((n_samples, min(width, n_samples)))


def solve_krylov(operator: CenteredGram, k: int, seed: int = 0, extra: int = 6, **options: Any) -> EigenResult:
    """Block Krylov from a random block of k + `extra` columns, to the rounding of the products."""
    n = operator.shape[0]
    options = {"tol": TOL["block_krylov"], "max_basis": 10 * n, "seed": seed, **options}
    return solve_block_krylov(operator, random_block(n, k + extra, seed), lambda *_: k, **options)


def solve_by_power(operator: CenteredGram, k: int, seed: int = 0, extra: int = 6, **options: Any) -> EigenResult:
    """Power from a random block of k + `extra` columns."""
    options = {"tol": TOL["power"], "max_passes": 500, "seed": seed, **options}
    return solve_power(operator, random_block(operator.shape[0], k + extra, seed), k, **options)


SOLVERS = {
    "dense": lambda operator, k, **_: solve_dense(operator, k),  # nothing in it is random
    "arpack": solve_arpack,
    "block_krylov": solve_krylov,
    "wide block_krylov": lambda operator, k, seed=0: solve_krylov(operator, k, seed, extra=16),
    "power": solve_by_power,
    "wide power": lambda operator, k, seed=0: solve_by_power(operator, k, seed, extra=16),
    "power with deflation": lambda operator, k, seed=0: solve_by_power(operator, k, seed, deflation=True),
}
