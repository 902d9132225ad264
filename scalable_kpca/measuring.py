"""Sizes of a Gram matrix that bounds are made of, from its diagonal and its first pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import STRIP_ROWS, Kernel
from scalable_kpca.operator import CenteredGram
from scalable_kpca.scale import GramScale
from scalable_kpca.source import Rows
from scalable_kpca.tiling import Plan

__all__ = ["check_range", "diagonal_sizes", "measure_gram"]

EPS = float(np.finfo(np.float64).eps)
# of kernel values: squares of their rounding are numbers, eps²·K² in float64 and eps·K in float32
SMALLEST = {"float64": 1e-130, "float32": 1e-30}


def diagonal_sizes(rows: Rows, kernel: Kernel, plan: Plan) -> tuple[float, float]:
    """Sum and largest size of the diagonal as the tiles hold it: one streaming look at the rows."""
    total, largest = 0.0, 0.0
    for i in range(plan.tiling.n_blocks):
        with np.errstate(all="ignore"):  # what is not finite is refused with its place in a pass
            exact = kernel.diagonal(rows.read(plan.tiling.block(i)).astype(np.float64))
            values = exact.astype(plan.dtype).astype(np.float64)
            total += float(values.sum())
            # of what is too small for the dtype of the tiles the size itself
            largest = max(largest, float(np.abs(values).max()), float(np.abs(exact).max()))
    return total, largest


def check_range(diagonal: tuple[float, float], dtype: str) -> None:
    """Refuse kernel values that are so small that squares of their rounding vanish: eigenvalues would be noise."""
    largest, or_widen = diagonal[1], ", or set dtype='float64'" if dtype == "float32" else ""
    if 0 < largest < SMALLEST[dtype]:
        raise InvalidInputError(
            f"no kernel value is above {largest:.3g}, and tiles of {dtype} need {SMALLEST[dtype]:.0e}: below it "
            f"squares and rounding are lost; scale the features up, for example to unit variance{or_widen}."
        )


def measure_gram(diagonal: tuple[float, float], plan: Plan, operator: CenteredGram) -> GramScale:
    """Sizes of K and K̃ from the first pass and the diagonal."""
    built, centering = operator.built, operator.centering
    if not np.isfinite(built.squared_norm):
        raise InvalidInputError(
            "the Frobenius norm of the kernel matrix is beyond float64; standardize or scale the features, or use a "
            "smaller degree or gamma."
        )
    diagonal_sum, gram_norm = diagonal[0], float(np.sqrt(built.squared_norm))
    # no entry of a positive semi-definite kernel is above its diagonal; of others it may even be zero
    max_diagonal = max(diagonal[1], gram_norm / plan.n_samples)
    scale = GramScale(
        n_samples=plan.n_samples,
        dtype=plan.dtype,
        max_diagonal=max_diagonal,
        gram_norm=gram_norm,
        squared_norm=max(centering.squared_norm(built.squared_norm), 0.0),
        total_variance=centering.total_variance(diagonal_sum),
        entry_error=built.error * max_diagonal,
        # float64 sums: over a strip by BLAS, then over strips and tiles
        norm_error=built.squared_norm * (STRIP_ROWS * plan.tile_rows + 4 * plan.n_samples) * EPS,
    )
    # a trace within rounding of zero is zero, ratios to it would be noise: it sums n entries and n row means
    noise = max(4 * scale.zero_threshold(), 2 * plan.n_samples * scale.entry_error)
    return scale if abs(scale.total_variance) > noise else replace(scale, total_variance=0.0)
