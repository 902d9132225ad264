"""Kernels that are not positive semi-definite on the rows: refused where it shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Kernel
from scalable_kpca.scale import GramScale
from scalable_kpca.solvers import EigenResult
from scalable_kpca.tiling import Plan

__all__ = ["refuse_indefinite"]


def refuse_indefinite(
    result: EigenResult,
    kernel: Kernel,
    plan: Plan,
    scale: GramScale,
    threshold: float,
    look_below: Callable[[EigenResult, float], float],
) -> None:
    """Raise when K̃ shows an eigenvalue that is negative beyond rounding.

    Parameters
    ----------
    result : EigenResult
        Of the solver.
    kernel, plan, scale
        Whose matrix, its tiles, its sizes.
    threshold : float
        Size up to which an eigenvalue counts as zero.
    look_below : callable
        ``look_below(result, allowed)`` looks for the lowest eigenvalue with some passes, where the solver has not:
        `Solve.look_below`.

    Raises
    ------
    InvalidInputError
        With the lowest eigenvalue that was seen. A Ritz value is never below the lowest.

    Notes
    -----
    Certain with the dense solver. Others see what their Krylov spaces and those of `look_below` reach. No certificate
    assumes that there is nothing else. [docs/decisions/0017]
    """
    values = result.eigenvalues if result.ritz_values is None else result.ritz_values
    lowest = float(values[-1])
    allowed = max(threshold, kernel.noise * float(result.eigenvalues[0]))
    if not result.is_whole_spectrum:
        # what is found with products is their rounding at the least; that of t terms grows like √t
        narrow = np.sqrt(plan.tile_rows) * float(np.finfo(np.float32).eps) * scale.gram_norm
        allowed = max(allowed, scale.rounding, narrow if plan.product_dtype == "float32" else 0.0)
    if result.lowest is not None:
        lowest = min(lowest, result.lowest)
    # none is below −‖K̃‖_F: where that is zero to rounding there is nothing to look for
    elif not result.is_whole_spectrum and scale.squared_norm**0.5 > allowed:
        lowest = min(lowest, look_below(result, allowed))
    if lowest < -allowed:
        raise InvalidInputError(
            f"kernel {kernel.name!r} is not positive semi-definite on these rows: a centred eigenvalue is "
            f'{lowest:.3g} or lower, the largest found {result.eigenvalues[0]:.3g}; set indefinite="clip" to drop the '
            "negative part, or choose another kernel or other parameters."
        )
