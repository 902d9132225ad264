"""Kernels of inner products (`functions`), distances (`distances`) and of others (`callables`), by name (`resolve`).

Rows may be arrays of another library than numpy: see `namespace`.
"""

from scalable_kpca.kernels.callables import CallableKernel, callable_kernel
from scalable_kpca.kernels.distances import RBF, Laplacian, Matern12, Matern32, Matern52
from scalable_kpca.kernels.entries import GramEntries
from scalable_kpca.kernels.functions import Cosine, GivenKernel, Kernel, Linear, Polynomial, Precomputed, Sigmoid
from scalable_kpca.kernels.median import MEDIAN_ROWS, median_gamma
from scalable_kpca.kernels.resolve import KERNELS, kernel_from_json, resolve_kernel
from scalable_kpca.kernels.strips import FLOAT32_GOOD, STRIP_ROWS, TileStrips, kernel_array, kernel_block, place_strip

__all__ = [
    "FLOAT32_GOOD",
    "KERNELS",
    "MEDIAN_ROWS",
    "RBF",
    "STRIP_ROWS",
    "CallableKernel",
    "Cosine",
    "GivenKernel",
    "GramEntries",
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
    "callable_kernel",
    "kernel_array",
    "kernel_block",
    "kernel_from_json",
    "median_gamma",
    "place_strip",
    "resolve_kernel",
]
