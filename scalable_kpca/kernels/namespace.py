"""Arrays of other libraries than numpy: kernels take their functions from the rows that they are given.

Rows that lie on a device (CuPy, or any library of the array API standard whose arrays can be written to) are evaluated
there, and strips stay there: `Kernel.fold`, `evaluate`, `diagonal` and `rounding`, `TileStrips`, `kernel_block` and
`place_strip`. `gram.products.multiply_tile` takes numpy vectors to the strips and brings the products back. The rest of
a fit is numpy: reading and checking rows, landmarks, the diagonal, reductions, solvers, scores. A whole fit on a device
would need `Rows` that hand out device arrays to the tasks of a pass, which no module does. Arrays that cannot be
written to (JAX) are not supported. No library but numpy is imported here.

Sparse rows are CSR arrays of scipy, and strips of them numpy arrays: see `sparse`.

numpy and CuPy write results where they belong (``out=``); the standard has no such argument, so that the others make a
new array and copy it.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from array_api_compat import is_cupy_array, is_numpy_array

from scalable_kpca.kernels.sparse import DistanceFactor, product_into
from scalable_kpca.source import is_sparse, squared_norms_of

__all__ = [
    "Matrix",
    "Vector",
    "apply",
    "array_namespace",
    "beside",
    "copy_into",
    "device",
    "empty",
    "eye",
    "float64_copy",
    "is_numpy_array",
    "matmul_into",
    "squared_norms",
    "to_numpy",
    "transposed",
    "zeros",
]

# floating-point arrays of any library: the standard has no common type
Array = Any
Matrix = Any
Vector = Any


def array_namespace(values: Array) -> Any:
    """The library that makes arrays beside `values`: numpy where those are sparse rows."""
    return np if is_sparse(values) else array_api_compat.array_namespace(values)


def device(values: Array) -> Any:
    """Where arrays beside `values` are."""
    return None if is_sparse(values) else array_api_compat.device(values)


def empty(shape: int | tuple[int, ...], dtype: Any, like: Array) -> Array:
    """Array of any content, in the library and on the device of `like`."""
    return array_namespace(like).empty(shape, dtype=_dtype(like, dtype), device=device(like))


def zeros(shape: int | tuple[int, ...], dtype: str, like: Array) -> Array:
    """Array of zeros, in the library and on the device of `like`."""
    return array_namespace(like).zeros(shape, dtype=_dtype(like, dtype), device=device(like))


def eye(n: int, like: Array) -> Array:
    """Whether an entry of an n × n matrix is on the diagonal, where `like` is."""
    return array_namespace(like).eye(n, dtype=_dtype(like, "bool"), device=device(like))


def float64_copy(values: Array) -> Array:
    """The same values in float64, where they are; always another buffer."""
    if is_sparse(values):
        return values.astype(np.float64)
    return array_namespace(values).astype(values, _dtype(values, "float64"))


def beside(values: Array, like: Array) -> Array:
    """The same values in the library and on the device of `like`: `values` itself if it is there."""
    if is_numpy_array(like) and is_numpy_array(values):
        return values
    return array_namespace(like).asarray(values, device=device(like))


def to_numpy(values: Array) -> Array:
    """The same values as a numpy array: `values` itself if it is one."""
    if is_numpy_array(values):
        return values
    return values.get() if is_cupy_array(values) else np.from_dlpack(values)


def apply(function: str, values: Array, *operands: Any) -> None:
    """Replace `values` by ``function(values, *operands)``, a function of the standard that works entry by entry."""
    evaluate = getattr(array_namespace(values), function)
    if _writes_out(values):
        evaluate(values, *operands, out=values)
    else:
        values[...] = evaluate(values, *operands)


def matmul_into(left: Matrix, right: Matrix, out: Matrix) -> None:
    """Write the matrix product into `out`."""
    if isinstance(left, DistanceFactor) or is_sparse(left):
        product_into(left, right, out)
        return
    xp = array_namespace(left)
    if _writes_out(out):
        xp.matmul(left, right, out=out)
    else:
        out[...] = xp.matmul(left, right)


def copy_into(values: Array, out: Array) -> None:
    """Write `values` into `out`, rounded to its dtype."""
    if _writes_out(out):
        out[...] = values
    else:
        out[...] = array_namespace(values).astype(values, out.dtype)


def transposed(columns: Matrix) -> Matrix:
    """The columns of a tile as the right factor of a product, (n_features, b)."""
    return columns.T.tocsr() if is_sparse(columns) else columns.T


def squared_norms(rows: Matrix) -> Vector:
    """‖x‖² of each row, shape (n_rows,)."""
    if is_sparse(rows):
        return squared_norms_of(rows)
    if is_numpy_array(rows):
        return np.einsum("ij,ij->i", rows, rows)  # adds in one order, whatever BLAS
    return array_namespace(rows).vecdot(rows, rows)


def _dtype(like: Array, dtype: Any) -> Any:
    return getattr(array_namespace(like), dtype) if isinstance(dtype, str) else dtype


def _writes_out(values: Array) -> bool:
    return bool(is_numpy_array(values) or is_cupy_array(values))
