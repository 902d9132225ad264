"""Nyström approximation of the leading eigenvectors: the start block of an exact solve, with no pass over K."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Kernel
from scalable_kpca.landmarks import fetch_rows
from scalable_kpca.nystroem.basis import build_basis
from scalable_kpca.nystroem.passes import accumulate_spans, approximate_eigenvectors
from scalable_kpca.source import Rows, row_spans
from scalable_kpca.tiling import Tiling

__all__ = ["nystroem_block"]

Matrix = NDArray[np.float64]


def nystroem_block(
    rows: Rows, kernel: Kernel, tiling: Tiling, engine: Engine, *, n_columns: int, n_landmarks: int, seed: int
) -> Matrix:
    """Leading eigenvectors of the centred Nyström approximation from uniformly drawn landmarks.

    Parameters
    ----------
    rows : Rows of shape (n_samples, n_features)
        Training rows.
    kernel : Kernel
        Resolved kernel; the negative part of an indefinite one is left out.
    tiling : Tiling
        Row blocks.
    engine : Engine
        Where the passes over the rows run.
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
    Cost: two evaluations of n·m kernel values and n·m² flops in float32; memory: see `accumulate`.

    References
    ----------
    Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.
    """
    n, t = tiling.n_samples, tiling.tile_rows
    spans = row_spans(rows, t)
    chosen = np.sort(np.random.default_rng(seed).choice(n, min(n_landmarks, n), replace=False))
    try:
        landmarks = fetch_rows(engine, spans, chosen, batch_rows=t, stage="start")
        basis = build_basis(kernel, landmarks, "float32", n_samples=n, indefinite="clip")
        sums, _ = accumulate_spans(spans, basis, t, engine, stage="start")
        block = approximate_eigenvectors(basis, sums, spans, engine, n_columns=n_columns, batch_rows=t, stage="start")
    except InvalidInputError:  # beyond float64: the pass over K says so itself if it matters
        return np.empty((n, 0))
    return block if np.isfinite(np.linalg.norm(block, axis=0)).all() else np.empty((n, 0))
