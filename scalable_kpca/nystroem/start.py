"""Nyström approximation of the leading eigenvectors: the start block of an exact solve, with no pass over K."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Kernel
from scalable_kpca.nystroem.accumulators import Accumulators, accumulate
from scalable_kpca.nystroem.basis import build_basis
from scalable_kpca.nystroem.projection import Projection
from scalable_kpca.nystroem.spectrum import leading_pairs
from scalable_kpca.source import Rows, RowsSpan, row_spans
from scalable_kpca.streaming import map_spans, reduce_spans
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
    Cost: two evaluations of n·m kernel values and n·m² flops in float32; memory: see `accumulate`.

    References
    ----------
    Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.
    """
    n = tiling.n_samples
    spans = row_spans(rows, tiling.tile_rows)
    chosen = np.sort(np.random.default_rng(seed).choice(n, min(n_landmarks, n), replace=False))
    try:
        basis = build_basis(kernel, _read(rows, tiling, chosen), "float32", n_samples=n, indefinite="clip")
        total = Accumulators.zero(basis)
        for _, part in reduce_spans(
            engine, spans, accumulate, basis, tiling.tile_rows, add=Accumulators.__add__, stage="start"
        ):
            total += part
        values, weights, offset = leading_pairs(basis, total, n_columns)
    except InvalidInputError:  # beyond float64: the pass over K says so itself if it matters
        return np.empty((n, 0))
    projection = Projection(basis, weights[:, values > 0], offset[values > 0])
    scores = map_spans(engine, spans, _scores, projection, tiling.tile_rows, stage="start")
    block = np.concatenate(list(scores))
    return block if np.isfinite(np.linalg.norm(block, axis=0)).all() else np.empty((n, 0))


def _read(rows: Rows, tiling: Tiling, chosen: NDArray[np.intp]) -> NDArray[np.floating[Any]]:
    parts = []
    for i in range(tiling.n_blocks):
        block = tiling.block(i)
        here = chosen[(chosen >= block.start) & (chosen < block.stop)] - block.start
        if len(here):
            parts.append(rows.read(block)[here])
    return np.concatenate(parts)


def _scores(span: RowsSpan, projection: Projection, batch_rows: int) -> Matrix:
    return np.concatenate([projection(batch.rows) for batch in span.batches(batch_rows)])
