"""Nyström approximation of the leading eigenvectors: the start block of an exact solve, with no pass over K."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.kernels import Kernel, kernel_block
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Tiling

__all__ = ["nystroem_block"]

Matrix = NDArray[np.float64]
Landmarks = NDArray[np.floating[Any]]
Block = NDArray[np.floating[Any]]


def nystroem_block(
    rows: Rows, kernel: Kernel, tiling: Tiling, engine: Engine, *, n_columns: int, n_landmarks: int, seed: int
) -> Matrix:
    """Leading eigenvectors of the centred Nyström approximation from uniformly drawn landmarks.

    Parameters
    ----------
    rows : Rows of shape (n_samples, n_features)
        Training rows.
    kernel : Kernel
        Resolved kernel.
    tiling : Tiling
        Row blocks.
    engine : Engine
        Where the two passes over the rows run.
    n_columns, n_landmarks : int
        Width of the block, at most; number of landmarks, at most n_samples.
    seed : int
        Of the draw.

    Returns
    -------
    ndarray of shape (n_samples, ≤ n_columns), float64
        Approximate eigenvectors, not orthonormal; no columns where the numbers are beyond float64, so that there is
        nothing to start from.

    Notes
    -----
    With C = k(X, L), W = k(L, L) = UΩUᵀ and P = UΩ^{-1/2}: eigenvectors of Pᵀ(CᵀC − ssᵀ/n)P, s = Cᵀ1, mapped back by
    CP. C and W are divided by one number, the largest entry of W to a power of four, which changes no bit of what comes
    out where nothing overflows: CᵀC squares what may be 1e36. Rows that are far larger than all landmarks can still
    overflow float32; their blocks are made in float64.
    Cost: two evaluations of n·m kernel values and n·m² multiply-adds in float32; memory: one block of C a task, m².

    References
    ----------
    Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.
    """
    n = tiling.n_samples
    m = min(n_landmarks, n)
    chosen = np.sort(np.random.default_rng(seed).choice(n, m, replace=False))
    landmarks = _read_landmarks(rows, tiling, chosen)
    inside = kernel_block(kernel, landmarks, landmarks, diagonal=True)
    scale = _power_of_four(float(np.abs(inside).max()))
    if scale is None:
        return np.empty((n, 0))
    name = engine.new_name("landmarks")
    graph: dict[Any, Any] = {
        (name, i): (_accumulate, rows, kernel, tiling, i, landmarks, scale) for i in range(tiling.n_blocks)
    }
    for i in range(tiling.n_blocks):
        graph[f"{name}-sum", i] = (_add, (f"{name}-sum", i - 1) if i else None, (name, i))
    ((gram, sums),), _ = engine.run(graph, [(f"{name}-sum", tiling.n_blocks - 1)], stage="start")
    z = _leading(np.asarray(inside / scale, np.float64), gram, sums, n)
    if z is None:
        return np.empty((n, 0))
    z = z[:, :n_columns]
    name = engine.new_name("start")
    graph = {(name, i): (_map_back, rows, kernel, tiling, i, landmarks, scale, z) for i in range(tiling.n_blocks)}
    blocks, _ = engine.run(graph, list(graph), stage="start")
    block = np.concatenate(blocks)
    return block if _is_finite(np.linalg.norm(block, axis=0)) else np.empty((n, 0))


def _read_landmarks(rows: Rows, tiling: Tiling, chosen: NDArray[np.intp]) -> Landmarks:
    parts = []
    for i in range(tiling.n_blocks):
        block = tiling.block(i)
        here = chosen[(chosen >= block.start) & (chosen < block.stop)] - block.start
        if len(here):
            parts.append(rows.read(block)[here])
    return np.concatenate(parts)


def _power_of_four(largest: float) -> float | None:
    """Largest power of four up to `largest`, so that it and its root divide exactly; 1 for 0, None beyond float64."""
    if not math.isfinite(largest):
        return None
    return 4.0 ** ((math.frexp(largest)[1] - 1) // 2) if largest > 0 else 1.0


def _leading(w: Matrix, gram: Matrix, sums: Matrix, n_samples: int) -> Matrix | None:
    """Combinations of the columns of C that approximate eigenvectors, best first; None when a number overflows."""
    omega, u = scipy.linalg.eigh(w)
    keep = omega > max(len(w), 10) * float(np.finfo(np.float32).eps) * max(omega[-1], 0.0)
    p = u[:, keep] / np.sqrt(omega[keep])
    with np.errstate(over="ignore", invalid="ignore"):
        inner = p.T @ (gram - np.outer(sums, sums) / n_samples) @ p
    if not _is_finite(inner):
        return None
    z: Matrix = p @ scipy.linalg.eigh((inner + inner.T) / 2)[1][:, ::-1]
    return z


def _cross(
    rows: Rows, kernel: Kernel, tiling: Tiling, i: int, landmarks: Landmarks, scale: float, dtype: str = "float32"
) -> Block:
    c = kernel_block(kernel, rows.read(tiling.block(i)), landmarks, dtype=dtype)
    c /= c.dtype.type(scale)
    return c


def _accumulate(
    rows: Rows, kernel: Kernel, tiling: Tiling, i: int, landmarks: Landmarks, scale: float
) -> tuple[Matrix, Matrix]:
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks whether float64 was enough
        for dtype in ("float32", "float64"):
            c = _cross(rows, kernel, tiling, i, landmarks, scale, dtype)
            gram = (c.T @ c).astype(np.float64)
            if _is_finite(gram):
                break
        return gram, c.sum(axis=0, dtype=np.float64)


def _add(before: tuple[Matrix, Matrix] | None, part: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    if before is None:
        return part
    with np.errstate(over="ignore", invalid="ignore"):
        return before[0] + part[0], before[1] + part[1]


def _map_back(
    rows: Rows, kernel: Kernel, tiling: Tiling, i: int, landmarks: Landmarks, scale: float, z: Matrix
) -> Matrix:
    with np.errstate(over="ignore", invalid="ignore"):
        for dtype in ("float32", "float64"):
            c = _cross(rows, kernel, tiling, i, landmarks, scale, dtype)
            block: Matrix = (c @ z.astype(dtype)).astype(np.float64)
            if _is_finite(block):
                break
        return block


def _is_finite(values: Matrix) -> bool:
    return bool(np.isfinite(values).all())
