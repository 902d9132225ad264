"""Kernel functions (`functions`), by name (`resolve`), and their values between blocks of rows (`strips`)."""

from scalable_kpca.kernels.functions import RBF, Cosine, Kernel, Laplacian, Linear, Polynomial, Sigmoid
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
    "Polynomial",
    "Sigmoid",
    "TileStrips",
    "kernel_array",
    "kernel_block",
    "kernel_from_json",
    "place_strip",
    "resolve_kernel",
]
