"""Kernels of inner products (`functions`) and distances (`distances`), by name (`resolve`), in `strips`.

Rows may be arrays of another library than numpy: see `namespace`.
"""

from scalable_kpca.kernels.distances import RBF, Laplacian, Matern12, Matern32, Matern52
from scalable_kpca.kernels.functions import Cosine, Kernel, Linear, Polynomial, Precomputed, Sigmoid
from scalable_kpca.kernels.resolve import KERNELS, kernel_from_json, resolve_kernel
from scalable_kpca.kernels.strips import FLOAT32_GOOD, STRIP_ROWS, TileStrips, kernel_array, kernel_block, place_strip

__all__ = [
    "FLOAT32_GOOD",
    "KERNELS",
    "RBF",
    "STRIP_ROWS",
    "Cosine",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Polynomial",
    "Precomputed",
    "Sigmoid",
    "TileStrips",
    "kernel_array",
    "kernel_block",
    "kernel_from_json",
    "place_strip",
    "resolve_kernel",
]
