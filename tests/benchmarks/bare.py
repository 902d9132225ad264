"""The bare-thread yardstick: exact centred RBF kernel PCA with nothing around the arithmetic.

No Dask, no checks, no plan, no resume, no certificate: what is left is the work that any such program has to do, spread
over a thread pool. Independent of the package, so that its eigenvalues are a second opinion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

__all__ = ["bare_kernel_pca", "folded"]

Array = NDArray[Any]

TILE, STRIP, LANDMARKS, MOST_PASSES = 4096, 256, 600, 30


def bare_kernel_pca(
    X: Array, k: int, gamma: float, n_threads: int, *, n_columns: int = 16, tol: float = 1e-6
) -> tuple[NDArray[np.float64], int, float]:
    """Leading k eigenvalues of the centred RBF Gram matrix, passes taken, and residual relative to the largest."""
    left, right = folded(X, gamma)
    with ThreadPoolExecutor(n_threads) as pool:
        start = _nystroem_start(left, right, n_columns)
        return _block_krylov(lambda V: _centred_product(pool, left, right, V), start, k, tol)


def folded(X: Array, gamma: float) -> tuple[Array, Array]:
    """Two float32 matrices of d + 2 columns: the inner product of their rows is −γ‖x − y‖²."""
    scaled = (X - X.mean(axis=0, dtype=np.float64)) * np.sqrt(2 * gamma)
    half = -0.5 * np.einsum("ij,ij->i", scaled, scaled)
    left = np.empty((len(X), X.shape[1] + 2), np.float32)
    left[:, :-2], left[:, -2], left[:, -1] = scaled, half, 1
    right = left.copy()
    right[:, -2], right[:, -1] = 1, half
    return left, right


def _strips(rows: Array, columns: Array) -> Iterator[tuple[slice[int, int, None], Array]]:
    """The tile between two folded sides, STRIP rows at a time, in one buffer that stays in the cache."""
    columns = np.ascontiguousarray(columns.T)
    buffer = np.empty((STRIP, columns.shape[1]), np.float32)
    for first in range(0, len(rows), STRIP):
        part = slice(first, min(first + STRIP, len(rows)))
        strip = buffer[: part.stop - part.start]
        np.dot(rows[part], columns, out=strip)
        np.exp(np.minimum(strip, 0, out=strip), out=strip)
        yield part, strip


def _tile_product(left: Array, right: Array, V: Array, a: slice, b: slice) -> tuple[slice, Array, slice, Array]:
    """K_ab V_b and K_abᵀ V_a; the second is nothing on the diagonal."""
    down, across = np.empty((len(V[a]), V.shape[1])), np.zeros((len(V[b]), V.shape[1]))
    for part, strip in _strips(left[a], right[b]):
        down[part] = strip @ V[b]
        if a != b:
            across += strip.T @ V[a][part]
    return a, down, b, across


def _centred_product(pool: ThreadPoolExecutor, left: Array, right: Array, V: Array) -> Array:
    """HKH V: one pass over the tiles on and above the diagonal."""
    n = len(left)
    narrow = (V - V.mean(axis=0)).astype(np.float32)
    blocks = [slice(first, min(first + TILE, n)) for first in range(0, n, TILE)]
    pairs = [(a, b) for at, a in enumerate(blocks) for b in blocks[at:]]
    image = np.zeros(V.shape)
    with threadpool_limits(1, user_api="blas"):
        for a, down, b, across in pool.map(lambda pair: _tile_product(left, right, narrow, *pair), pairs):
            image[a] += down
            image[b] += across
    return image - image.mean(axis=0)


def _nystroem_start(left: Array, right: Array, n_columns: int) -> Array:
    """Orthonormal guesses of the leading eigenvectors from a few landmarks."""
    n = len(left)
    chosen = np.random.default_rng(0).permutation(n)[:LANDMARKS]
    C = np.exp(np.minimum(left @ right[chosen].T, 0))
    omega, U = scipy.linalg.eigh(C[chosen].astype(np.float64))
    kept = omega > 1e-6 * omega[-1]
    P = U[:, kept] / np.sqrt(omega[kept])
    sums = C.sum(axis=0, dtype=np.float64)
    inner = P.T @ ((C.T @ C).astype(np.float64) - np.outer(sums, sums) / n) @ P
    leading = P @ scipy.linalg.eigh(inner)[1][:, : -n_columns - 1 : -1]
    guesses = (C @ leading.astype(np.float32)).astype(np.float64)
    return scipy.linalg.qr(guesses - guesses.mean(axis=0), mode="economic")[0]


def _block_krylov(
    product: Callable[[Array], Array], start: Array, k: int, tol: float
) -> tuple[NDArray[np.float64], int, float]:
    """Rayleigh–Ritz in a basis that grows by one block a pass, until every wanted residual is small."""
    basis, images = start, product(start)
    for n_passes in range(1, MOST_PASSES + 1):
        projected = basis.T @ images
        values, vectors = scipy.linalg.eigh((projected + projected.T) / 2)
        values, vectors = values[: -k - 1 : -1], vectors[:, : -k - 1 : -1]
        residual = np.linalg.norm(images @ vectors - basis @ vectors * values, axis=0).max() / values[0]
        if residual <= tol or n_passes == MOST_PASSES:
            break
        fresh = images[:, -start.shape[1] :]
        for _ in range(2):
            fresh = fresh - basis @ (basis.T @ fresh)
        fresh = scipy.linalg.qr(fresh, mode="economic", overwrite_a=True)[0]
        basis, images = np.hstack([basis, fresh]), np.hstack([images, product(fresh)])
    return values, n_passes, float(residual)
