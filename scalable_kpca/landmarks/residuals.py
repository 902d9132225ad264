"""What one pass of randomly pivoted Cholesky does with the rows: residuals shrink, rows are proposed as pivots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Kernel, TileStrips
from scalable_kpca.source import RowBlock, Span, is_sparse, stack

__all__ = ["Proposals", "Round", "Step", "floor_of", "mixed", "update_and_draw"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

# A residual is k(x, x) − aᵀk(S, x) with a = W⁻¹k(S, x): errors of size ε in the entries of k make it wrong by 2ε‖a‖,
# and ‖a‖ is about 1 where the residual is small. Twice that is called zero. In float64 it costs no digit that matters
# to be generous: ‖a‖ is 10 and more for the first few pivots of a kernel of low rank.
FLOOR = 4.0
LEAST_ERROR = 64 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Step:
    """What the tasks of a pass need to know of the pivots.

    Attributes
    ----------
    pivots : ndarray or scipy CSR array of shape (m, n_features), float64
        All so far.
    multiplier : ndarray of shape (m, r), float64
        k(x, pivots) times it is the part F of the factor of row x that belongs to the r pivots that are new.
    numbers : ndarray of shape (r,), int64
        Row numbers of the new ones.
    dtype : str
        Of the kernel values.
    """

    pivots: RowBlock
    multiplier: Matrix
    numbers: NDArray[np.int64]
    dtype: str


@dataclass(frozen=True, eq=False)
class Proposals:
    """Rows drawn independently and with replacement, each with a probability proportional to its residual.

    Attributes
    ----------
    total : float
        Sum of the residuals of all rows that they were drawn from.
    rows : ndarray or scipy CSR array of shape (b, n_features)
        Without meaning when `total` is 0.
    numbers : ndarray of shape (b,), int64
    """

    total: float
    rows: RowBlock
    numbers: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Round:
    """What a pass makes of one span.

    Attributes
    ----------
    residual : ndarray of shape (n_rows,), float64
        k(x, x) less what the pivots explain of it; exactly 0 at pivots and wherever it is no more than rounding.
    proposals : Proposals
    error : float
        Of kernel entries, relative to the largest k(x, x).
    """

    residual: Vector
    proposals: Proposals
    error: float


def update_and_draw(
    span: Span,
    before: Vector | None,
    step: Step | None,
    kernel: Kernel,
    width: int,
    seed: int,
    number: int,
    batch_rows: int,
) -> Round:
    """Residuals of the rows of a span after the last pivots, and proposals for the next ones.

    Parameters
    ----------
    span : Span
    before : ndarray of shape (n_rows,), float64, or None
        Residuals so far; not written to.
    step : Step or None
        The last pivots; both are None in the first pass.
    kernel : Kernel
    width : int
        Number of proposals.
    seed, number : int
        Seed of the draw, and the number of the pass.
    batch_rows : int
        Rows read at a time.

    Returns
    -------
    Round
    """
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, number, span.start)))
    residual = np.empty(span.n_rows)
    proposals, error = None, 0.0
    for batch in span.batches(batch_rows):
        first = batch.start - span.start
        here = slice(first, first + batch.rows.shape[0])
        rows = batch.rows.astype(np.float64)
        if step is None:
            residual[here] = _checked(kernel.diagonal(rows), batch.start)
        elif before is not None:
            residual[here], found = _updated(rows, before[here], step, kernel, batch.start)
            error = max(error, found)
        drawn = _draw(residual[here], batch.rows, batch.start, width, generator)
        proposals = drawn if proposals is None else mixed(proposals, drawn, generator)
    if proposals is None:
        proposals = Proposals(0.0, np.empty((0, 0)), np.empty(0, np.int64))
    return Round(residual, proposals, error)


def floor_of(error: float, diagonal: Vector) -> Vector:
    """Residuals that are no more than rounding, where the entries of the kernel are wrong by `error`·k(x, x)."""
    return FLOOR * max(error, LEAST_ERROR) * diagonal


def mixed(first: Proposals, second: Proposals, generator: np.random.Generator) -> Proposals:
    """Proposals from the rows of both: each is the one of the second with probability total₂/(total₁ + total₂)."""
    total = first.total + second.total
    if second.total == 0:
        return first
    if first.total == 0:
        return second
    takes = generator.random(len(first.numbers)) * total < second.total
    return Proposals(
        total,
        _rows_of_either(takes, second.rows, first.rows),
        np.where(takes, second.numbers, first.numbers),
    )


def _rows_of_either(takes: NDArray[np.bool_], those: RowBlock, others: RowBlock) -> RowBlock:
    """Each row from the first block where it is taken there, else from the second."""
    if not is_sparse(those):
        return np.where(takes[:, None], those, others)
    numbers = np.arange(len(takes))
    return stack([those, others])[np.where(takes, numbers, len(takes) + numbers)]


def _draw(weights: Vector, rows: RowBlock, start: int, width: int, generator: np.random.Generator) -> Proposals:
    sums = np.cumsum(weights)
    total = float(sums[-1]) if len(sums) else 0.0
    if total == 0:
        return Proposals(0.0, rows[:0].copy(), np.empty(0, np.int64))
    picks = np.searchsorted(sums, generator.random(width) * total, side="right")
    # rounding may carry a number past the last row that has any weight
    picks = np.minimum(picks, np.flatnonzero(weights)[-1])
    return Proposals(total, rows[picks], start + picks)


def _updated(rows: RowBlock, before: Vector, step: Step, kernel: Kernel, start: int) -> tuple[Vector, float]:
    """Residuals after the new pivots, and the error of the kernel entries that they were made of."""
    diagonal = kernel.diagonal(rows)
    explained, error = _explained(rows, step, kernel, step.dtype)
    if step.dtype != "float64" and not np.isfinite(explained).all():
        # rows far larger than all pivots: float32 does not hold their kernel values
        explained, error = _explained(rows, step, kernel, "float64")
    residual = _checked(before - explained, start)
    residual[residual <= floor_of(error, diagonal)] = 0.0
    chosen = step.numbers[(step.numbers >= start) & (step.numbers < start + rows.shape[0])] - start
    residual[chosen] = 0.0
    return residual, error


def _explained(rows: RowBlock, step: Step, kernel: Kernel, dtype: str) -> tuple[Vector, float]:
    """‖F‖² of each row, shape (n_rows,), strip by strip."""
    explained = np.empty(rows.shape[0])
    multiplier = step.multiplier.astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks
        strips = TileStrips(kernel, rows, step.pivots, dtype=dtype)
        for first, strip in strips:
            factor = strip @ multiplier
            explained[first : first + len(strip)] = np.einsum("ij,ij->i", factor, factor, dtype=np.float64)
    return explained, max(strips.error, np.sqrt(len(step.multiplier)) * float(np.finfo(dtype).eps))


def _checked(values: Vector, start: int) -> Vector:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise InvalidInputError(
            f"the kernel of row {start + bad[0]} is beyond float64 or not a number (1 of {len(bad)} such rows among "
            f"{len(values)}); scale the features down."
        )
    return values
