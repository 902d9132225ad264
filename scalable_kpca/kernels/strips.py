"""Kernel values between blocks of rows, strip by strip.

A *strip* is a few hundred rows of a tile, small enough for the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels.functions import Kernel
from scalable_kpca.kernels.namespace import array_namespace, copy_into, empty, eye, float64_copy
from scalable_kpca.source import RowBlock, alike, is_sparse

__all__ = ["FLOAT32_GOOD", "STRIP_ROWS", "TileStrips", "kernel_array", "kernel_block", "place_strip"]

Matrix = NDArray[np.float64]
Strip = NDArray[np.floating[Any]]

STRIP_ROWS = 256
FLOAT32_GOOD = 1e-5  # largest relative error that evaluation in float32 may have

EPS32, EPS64 = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
# and that folding may have in float64, beyond which the kernel is evaluated without: tiles of float32 keep no more
FOLDING_GOOD = {"float64": 1e-12, "float32": EPS32}


class TileStrips:
    """Strips of one tile, from the top down, each written into the same buffer.

    Parameters
    ----------
    kernel : Kernel
        The function.
    rows, columns : ndarray of shape (a, n_features) and (b, n_features), float64
        The two sides of the tile; arrays of another library give strips of that library, on the same device, and
        sparse ones (see `source.sparse`) numpy strips. Where one side is sparse, it is made dense if it is small, and
        the other one sparse if not.
    diagonal : bool
        Whether this is a tile on the diagonal. Then a strip begins at the diagonal: its columns are those from its
        first row on, the square where it meets the diagonal is exactly symmetric, and diagonal entries are k(x, x)
        exactly.
    strip_rows : int
        Height of a strip.
    dtype : str
        Of the strips.

    Attributes
    ----------
    error : float
        First-order error of an entry relative to the largest k(x, x): the rounding to `dtype`, and the evaluation in
        float32 where that is used.

    Notes
    -----
    Iterating gives pairs of the first row of a strip within the tile and the strip, an ndarray of shape
    (≤ strip_rows, b), or (≤ strip_rows, b − first row) on the diagonal, valid until the next one is asked for. float32
    strips of dense rows are evaluated in float32 when `Kernel.rounding` makes that good for `FLOAT32_GOOD`; others in
    float64, and rounded.
    Cost: 2·a·b·n_features flops and a·b values of the kernel's scalar function, half of that on the diagonal. Memory:
    one strip, or two, and the two folded sides. Sparse rows cost 2·a·b flops for every feature that both rows have.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: RowBlock,
        columns: RowBlock,
        *,
        diagonal: bool = False,
        strip_rows: int = STRIP_ROWS,
        dtype: str = "float64",
    ) -> None:
        self._kernel, self._diagonal, self._strip_rows, self._dtype = kernel, diagonal, strip_rows, dtype
        rows, columns = alike(rows, columns)
        self._rows, self._n_rows, self._n_columns = rows, rows.shape[0], columns.shape[0]
        self._left: RowBlock = rows
        self._right: RowBlock = columns.T
        self._arithmetic = "float64"
        self.error = float(np.finfo(dtype).eps) / 2
        if self._n_rows == 0 or self._n_columns == 0:
            return
        sparse = is_sparse(rows)
        if sparse and not kernel.takes_sparse:
            raise InvalidInputError(
                f"kernel {kernel.name!r} takes no sparse rows; pass dense ones (X.toarray()), or choose another kernel."
            )
        self._left, self._right = kernel.fold(rows, columns)
        error = kernel.rounding(self._left, self._right, EPS64)
        if error > FOLDING_GOOD[dtype]:
            self._kernel = kernel = kernel.direct()
            self._left, self._right = kernel.fold(rows, columns)
            error = kernel.rounding(self._left, self._right, EPS64)
        in_float32 = kernel.rounding(self._left, self._right, EPS32) if kernel.has_float32 and not sparse else np.inf
        if dtype == "float32" and in_float32 <= FLOAT32_GOOD:
            xp, self._arithmetic, error = array_namespace(rows), dtype, in_float32
            self._left, self._right = xp.astype(self._left, xp.float32), xp.astype(self._right, xp.float32)
        self.error = max(self.error, error)

    def __iter__(self) -> Iterator[tuple[int, Strip]]:
        xp = array_namespace(self._rows)
        size = min(self._strip_rows, self._n_rows) * self._n_columns
        buffer = empty(size, self._arithmetic, self._rows)
        stored = buffer if self._arithmetic == self._dtype else empty(size, self._dtype, self._rows)
        for start in range(0, self._n_rows, self._strip_rows):
            length = min(self._strip_rows, self._n_rows - start)
            first = start if self._diagonal else 0
            shape = (length, self._n_columns - first)
            strip = xp.reshape(buffer[: shape[0] * shape[1]], shape)
            with np.errstate(over="ignore", invalid="ignore"):  # callers check that what they store is finite
                self._kernel.evaluate(self._left[start : start + length, :], self._right[:, first:], strip)
                if self._diagonal:
                    self._settle_square(strip, start)
                if stored is not buffer:
                    rounded = xp.reshape(stored[: shape[0] * shape[1]], shape)
                    copy_into(strip, rounded)
                    strip = rounded
            yield start, strip

    def _settle_square(self, strip: Strip, start: int) -> None:
        xp, length = array_namespace(strip), strip.shape[0]
        half = strip[:, :length] / 2  # before adding, so that large entries do not overflow
        exact = xp.astype(self._kernel.diagonal(self._rows[start : start + length, :]), strip.dtype)
        strip[:, :length] = xp.where(eye(length, strip), exact[:, None], half + half.T)


def kernel_block(
    kernel: Kernel,
    rows: RowBlock,
    columns: RowBlock,
    diagonal: bool = False,
    dtype: str = "float64",
) -> NDArray[np.floating[Any]]:
    """Kernel values between `rows` and `columns` as one array of shape (len(rows), len(columns)) and `dtype`.

    Where the rows are: an array of their library, on their device; numpy of sparse rows.
    """
    block: Strip = empty((rows.shape[0], columns.shape[0]), dtype, rows)
    left = float64_copy(rows)
    # one buffer for both sides of a diagonal block, as in a tile: BLAS may take another path for two
    right = left if diagonal else float64_copy(columns)
    for start, strip in TileStrips(kernel, left, right, diagonal=diagonal, dtype=dtype):
        place_strip(block, start, strip, diagonal=diagonal)
    return block


def place_strip(tile: Strip, start: int, strip: Strip, *, diagonal: bool) -> None:
    """Write a strip of a tile where it belongs; on the diagonal also its mirror image."""
    stop = start + strip.shape[0]
    if diagonal:
        tile[start:stop, start:] = strip
        tile[stop:, start:stop] = strip[:, stop - start :].T
    else:
        tile[start:stop, :] = strip


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
