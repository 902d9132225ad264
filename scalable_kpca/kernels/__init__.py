"""Kernel functions (`functions`) and their values between blocks of rows (`strips`)."""

from scalable_kpca.kernels.functions import (
    KERNELS,
    RBF,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Sigmoid,
    kernel_from_json,
    resolve_kernel,
)
from scalable_kpca.kernels.strips import STRIP_ROWS, kernel_array, kernel_block, kernel_strips

__all__ = [
    "KERNELS",
    "RBF",
    "STRIP_ROWS",
    "Cosine",
    "Kernel",
    "Laplacian",
    "Linear",
    "Polynomial",
    "Sigmoid",
    "kernel_array",
    "kernel_block",
    "kernel_from_json",
    "kernel_strips",
    "resolve_kernel",
]
