"""Kernel values between blocks of rows, strip by strip.

A *strip* is a few hundred rows of a tile, small enough for the cache. Everything is evaluated in float64: rounding to
the tile's dtype happens once, when a strip is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.kernels.functions import Kernel

__all__ = ["STRIP_ROWS", "kernel_array", "kernel_block", "kernel_strips"]

Matrix = NDArray[np.float64]

STRIP_ROWS = 256


def kernel_strips(
    kernel: Kernel, rows: Matrix, columns: Matrix, *, diagonal: bool = False, strip_rows: int = STRIP_ROWS
) -> Iterator[tuple[int, Matrix]]:
    """Strips of one tile, from the top down, each written into the same buffer.

    Parameters
    ----------
    kernel : Kernel
        The function.
    rows, columns : ndarray of shape (a, n_features) and (b, n_features), float64
        The two sides of the tile.
    diagonal : bool
        Whether this is a tile on the diagonal, whose diagonal entries are set to k(x, x) exactly.
    strip_rows : int
        Height of a strip.

    Yields
    ------
    start : int
        First row of the strip within the tile.
    strip : ndarray of shape (≤ strip_rows, b), float64
        Valid until the next strip is asked for.

    Notes
    -----
    Cost: 2·a·b·n_features flops and a·b evaluations of the kernel's scalar function. Memory: one strip, and the two
    folded sides.
    """
    if len(rows) == 0:
        return
    left, right = kernel.fold(rows, columns)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = kernel.diagonal(rows) if diagonal else None
    buffer = np.empty((min(strip_rows, len(rows)), len(columns)))
    for start in range(0, len(rows), strip_rows):
        strip = buffer[: len(rows) - start]
        with np.errstate(over="ignore", invalid="ignore"):  # callers check that what they store is finite
            kernel.evaluate(left[start : start + strip_rows], right, strip)
        if exact is not None:
            within = np.arange(len(strip))
            strip[within, start + within] = exact[start : start + len(strip)]
        yield start, strip


def kernel_block(
    kernel: Kernel,
    rows: NDArray[np.floating[Any]],
    columns: NDArray[np.floating[Any]],
    diagonal: bool = False,
    dtype: str = "float64",
) -> NDArray[np.floating[Any]]:
    """Kernel values between `rows` and `columns` as one array of shape (len(rows), len(columns)) and `dtype`."""
    block = np.empty((len(rows), len(columns)), dtype)
    left = rows.astype(np.float64)
    # one buffer for both sides of a diagonal block, as in a tile: BLAS may take another path for two
    right = left if diagonal else columns.astype(np.float64)
    strips = kernel_strips(kernel, left, right, diagonal=diagonal)
    for start, strip in strips:
        block[start : start + len(strip)] = strip
    return block


def kernel_array(rows: Any, kernel: Kernel, dtype: str = "float64") -> Any:
    """Gram matrix of a dask array of row blocks as a lazy dask array of kernel blocks.

    Parameters
    ----------
    rows : dask.array.Array of shape (n_samples, n_features)
        Known row chunks; columns in one chunk.
    kernel : Kernel
        Resolved kernel.
    dtype : str
        Of the blocks.

    Returns
    -------
    dask.array.Array of shape (n_samples, n_samples)
        Block (i, j) holds k between row blocks i and j; nothing is computed yet.

    Notes
    -----
    Blocks (i, j), i ≤ j, are the tiles that an exact fit stores, entry for entry. Mirrored blocks are transposes.
    """
    import dask.array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph

    rows = rows.rechunk({1: -1})
    n_blocks = len(rows.chunks[0])
    name = "kernel-" + tokenize(rows.name, kernel.to_json(), dtype)
    graph: dict[Any, Any] = {}
    for i in range(n_blocks):
        for j in range(i, n_blocks):
            graph[name, i, j] = (kernel_block, kernel, (rows.name, i, 0), (rows.name, j, 0), i == j, dtype)
            if j > i:
                graph[name, j, i] = (np.transpose, (name, i, j))
    layers = HighLevelGraph.from_collections(name, graph, dependencies=[rows])
    return da.Array(layers, name, (rows.chunks[0], rows.chunks[0]), dtype=dtype)
