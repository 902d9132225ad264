"""Nyström approximation of the leading eigenvectors: the start block of an exact solve, with no pass over K."""

from __future__ import annotations

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
        Approximate eigenvectors, not orthonormal.

    Notes
    -----
    With C = k(X, L), W = k(L, L) = UΩUᵀ and P = UΩ^{-1/2}: eigenvectors of Pᵀ(CᵀC − ssᵀ/n)P, s = Cᵀ1, mapped back by
    CP.
    Cost: two evaluations of n·m kernel values and n·m² multiply-adds in float32; memory: one block of C a task, m².

    References
    ----------
    Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.
    """
    n = tiling.n_samples
    m = min(n_landmarks, n)
    chosen = np.sort(np.random.default_rng(seed).choice(n, m, replace=False))
    landmarks = _read_landmarks(rows, tiling, chosen)
    name = engine.new_name("landmarks")
    graph: dict[Any, Any] = {
        (name, i): (_accumulate, rows, kernel, tiling, i, landmarks) for i in range(tiling.n_blocks)
    }
    for i in range(tiling.n_blocks):
        graph[f"{name}-sum", i] = (_add, (f"{name}-sum", i - 1) if i else None, (name, i))
    ((gram, sums),), _ = engine.run(graph, [(f"{name}-sum", tiling.n_blocks - 1)], stage="start")
    omega, u = scipy.linalg.eigh(kernel_block(kernel, landmarks, landmarks, diagonal=True))
    keep = omega > max(m, 10) * float(np.finfo(np.float32).eps) * omega[-1]
    p = u[:, keep] / np.sqrt(omega[keep])
    inner = p.T @ (gram - np.outer(sums, sums) / n) @ p
    z = p @ scipy.linalg.eigh((inner + inner.T) / 2)[1][:, ::-1][:, :n_columns]
    name = engine.new_name("start")
    graph = {(name, i): (_map_back, rows, kernel, tiling, i, landmarks, z) for i in range(tiling.n_blocks)}
    blocks, _ = engine.run(graph, list(graph), stage="start")
    return np.concatenate(blocks)


def _read_landmarks(rows: Rows, tiling: Tiling, chosen: NDArray[np.intp]) -> Landmarks:
    parts = []
    for i in range(tiling.n_blocks):
        block = tiling.block(i)
        here = chosen[(chosen >= block.start) & (chosen < block.stop)] - block.start
        if len(here):
            parts.append(rows.read(block)[here])
    return np.concatenate(parts)


def _cross(rows: Rows, kernel: Kernel, tiling: Tiling, i: int, landmarks: Landmarks) -> NDArray[np.floating[Any]]:
    return kernel_block(kernel, rows.read(tiling.block(i)), landmarks, dtype="float32")


def _accumulate(rows: Rows, kernel: Kernel, tiling: Tiling, i: int, landmarks: Landmarks) -> tuple[Matrix, Matrix]:
    c = _cross(rows, kernel, tiling, i, landmarks)
    return (c.T @ c).astype(np.float64), c.sum(axis=0, dtype=np.float64)


def _add(before: tuple[Matrix, Matrix] | None, part: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    return part if before is None else (before[0] + part[0], before[1] + part[1])


def _map_back(rows: Rows, kernel: Kernel, tiling: Tiling, i: int, landmarks: Landmarks, z: Matrix) -> Matrix:
    return (_cross(rows, kernel, tiling, i, landmarks) @ z.astype(np.float32)).astype(np.float64)
