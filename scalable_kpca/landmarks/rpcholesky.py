"""Randomly pivoted Cholesky, streaming: each pass over the rows proposes a block of pivots, rejection thins it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError
from scalable_kpca.kernels import Kernel, TileStrips, kernel_block
from scalable_kpca.landmarks.residuals import Proposals, Step, floor_of, mixed, update_and_draw
from scalable_kpca.source import RowBlock, Span, stack
from scalable_kpca.streaming import BlockSpan, map_spans
from scalable_kpca.tiling import PIVOT_BYTES

__all__ = ["MAX_PASSES", "Pivots", "block_of", "choose_pivots"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

MAX_PASSES = 24
SMALLEST_BLOCK = 32
# kernel values outside are squared and inverted in float64 only
FLOAT32_RANGE = (1e-12, 1e12)


@dataclass(frozen=True, eq=False)
class Pivots:
    """Rows chosen so far.

    Attributes
    ----------
    rows : ndarray or scipy CSR array of shape (m, n_features)
        In the order in which they were chosen.
    numbers : ndarray of shape (m,), int64
        Their row numbers.
    n_passes : int
        Passes over the rows that it took.
    is_exact : bool
        Whether no row has a residual above rounding any more.
    n_unthinned : int
        How many were taken from the last proposals without rejection, since the passes had run out.
    """

    rows: RowBlock
    numbers: NDArray[np.int64]
    n_passes: int
    is_exact: bool
    n_unthinned: int


def choose_pivots(
    engine: Engine,
    spans: Sequence[Span | BlockSpan],
    kernel: Kernel,
    *,
    n_pivots: int,
    seed: int,
    dtype: str,
    batch_rows: int,
    block: int,
    max_passes: int = MAX_PASSES,
) -> Pivots:
    """Pivots of a randomly pivoted Cholesky factorisation of the Gram matrix, whose rows are drawn ∝ their residuals.

    Parameters
    ----------
    engine : Engine
        Where the passes run.
    spans : sequence of Span
        All rows, in order.
    kernel : Kernel
        Positive semi-definite.
    n_pivots : int
        At most.
    seed : int
        Of all draws.
    dtype : {"float32", "float64"}
        Of the kernel values between rows and pivots; those between pivots are float64.
    batch_rows : int
        Rows that a task reads at a time.
    block : int
        Proposals of a pass: see `block_of`. It changes how many passes it takes, not the law of the pivots.
    max_passes : int
        The last one fills up what is missing without rejection.

    Returns
    -------
    Pivots

    Raises
    ------
    ConfigError
        For a kernel that is not known to be positive semi-definite.
    InvalidInputError
        Where kernel values are beyond float64.

    Notes
    -----
    With pivots S, W = k(S, S) = LLᵀ and F(x) = k(x, S)L⁻ᵀ, the residual of a row is d(x) = k(x, x) − ‖F(x)‖². A pass
    proposes rows independently ∝ d. Taken one by one, a proposal is accepted with probability d′/d, d′ its residual
    after those accepted before it: what is accepted has the law of pivots that are drawn one after another, each ∝ the
    residuals of its time. F is never stored: its part for r new pivots N is k(x, S ∪ N) times the multiplier
    [−L⁻ᵀL⁻¹k(S, N); I] L_N⁻ᵀ, L_N the Cholesky factor of the residual kernel of N.

    Residuals within a few times the error of the kernel's entries (`floor_of`) are set to 0. No such row becomes a
    pivot: divided by the root of its residual, errors of that size would be larger than the residuals of other rows.

    Cost: with m pivots in p passes some n·m·p/2 kernel values and n·m²·(1 + 1/p) multiply-adds, in `dtype`; m³/3 and
    m²·block·p in the client. Memory: n·8 bytes of residuals in the client, which travel to the workers of a cluster and
    back in every pass; in a task one batch and a strip of 256 × m values; a wave of tasks brings 32·block rows.

    References
    ----------
    Chen, Epperly, Tropp and Webber (2025), Randomly pivoted Cholesky: Practical approximation of a kernel matrix with
    few entry evaluations, Communications on Pure and Applied Mathematics 78(5), 995-1041.
    Epperly, Tropp and Webber (2024), Embrace rejection: Kernel matrix approximation by accelerated randomly pivoted
    Cholesky, arXiv:2410.03969: blocks of proposals and their rejection.
    """
    if not kernel.positive_semidefinite:
        raise ConfigError(
            f'landmarks="rpcholesky" needs a positive semi-definite kernel, and {kernel.name!r} with these parameters '
            'is not known to be one; choose landmarks="uniform" or "kmeans++".'
        )
    search = _Search(engine, spans, kernel, seed, dtype, batch_rows)
    for n_passes in range(1, max_passes + 1):
        missing = n_pivots - len(search.numbers)
        is_last = n_passes == max_passes
        proposals = search.propose(max(block, 2 * missing) if is_last else block)
        n_unthinned = search.accept(proposals, missing, fill=is_last) if proposals.total > 0 else None
        if n_unthinned is None or is_last or len(search.numbers) == n_pivots:
            break
    return Pivots(search.rows, search.numbers, n_passes, n_unthinned is None, n_unthinned or 0)


def block_of(n_pivots: int, row_width: int) -> int:
    """Proposals of a pass: half of the pivots, fewer where rows are long: `row_width` float64 numbers.

    Kernel values for a pass cost far more than its proposals do, and the more proposals there are, the more of them are
    accepted before the residuals have to be made anew: half of the pivots take 3 to 10 passes, an eighth 9 to 16.
    """
    room = PIVOT_BYTES // (8 * max(1, row_width))
    return max(SMALLEST_BLOCK, min(n_pivots // 2, room))


class _Search:
    """The client's side of a factorisation: pivots, their Cholesky factor, and the residuals of all rows by span."""

    def __init__(
        self,
        engine: Engine,
        spans: Sequence[Span | BlockSpan],
        kernel: Kernel,
        seed: int,
        dtype: str,
        batch_rows: int,
    ) -> None:
        self.engine, self.spans, self.kernel = engine, spans, kernel
        self.seed, self.dtype, self.batch_rows = seed, dtype, batch_rows
        self.n_passes, self.error = 0, 0.0
        self.residuals: list[Vector | None] = [None] * len(spans)
        self.rows: RowBlock = np.empty((0, 0))
        self.numbers = np.empty(0, np.int64)
        self.factor: Matrix = np.empty((0, 0))
        self.step: Step | None = None

    def propose(self, width: int) -> Proposals:
        """One pass: residuals after the last step, and proposals from all rows."""
        number, self.n_passes = self.n_passes, self.n_passes + 1
        shared = (self.step, self.kernel, width, self.seed, number, self.batch_rows)
        rounds = map_spans(self.engine, self.spans, update_and_draw, *shared, each=self.residuals, stage="landmarks")
        generator = self._generator(1)
        total: Proposals | None = None
        for index, found in enumerate(rounds):
            self.residuals[index] = found.residual
            self.error = max(self.error, found.error)
            total = found.proposals if total is None else mixed(total, found.proposals, generator)
        return total or Proposals(0.0, self.rows, self.numbers)

    def accept(self, proposals: Proposals, missing: int, *, fill: bool) -> int | None:
        """Extend the pivots; how many of them without rejection, or None when all proposals are within rounding."""
        m, rows = len(self.numbers), proposals.rows.astype(np.float64)
        old = self.rows.astype(np.float64)
        explained = np.empty((m, rows.shape[0]))
        if m:
            cross = kernel_block(self.kernel, old, rows)
            explained = scipy.linalg.solve_triangular(self.factor, cross, lower=True, check_finite=False)
        inside = kernel_block(self.kernel, rows, rows, diagonal=True)
        floor = floor_of(self._error(rows), np.diag(inside))
        left = np.asarray(inside - explained.T @ explained, np.float64)
        taken, corner, n_unthinned = _thin(left, floor, missing, self._generator(2), fill=fill)
        if len(taken) == 0:
            return None
        explained = explained[:, taken]
        self.rows = stack([self.rows, proposals.rows[taken]]) if m else proposals.rows[taken]
        self.numbers = np.concatenate([self.numbers, proposals.numbers[taken]])
        pivots = stack([old, rows[taken]]) if m else rows[taken]
        self.step = self._step(pivots, explained, corner, proposals.numbers[taken])
        self.factor = np.block([[self.factor, np.zeros((m, len(taken)))], [explained.T, corner]]) if m else corner
        return n_unthinned

    def _step(self, pivots: RowBlock, explained: Matrix, corner: Matrix, numbers: NDArray[np.int64]) -> Step:
        combined = np.eye(len(corner))
        if len(explained):
            old = scipy.linalg.solve_triangular(self.factor, explained, trans="T", lower=True, check_finite=False)
            combined = np.concatenate([-old, combined])
        multiplier = scipy.linalg.solve_triangular(corner, combined.T, lower=True, check_finite=False).T
        largest = float(self.kernel.diagonal(pivots).max())
        dtype = self.dtype if FLOAT32_RANGE[0] < largest < FLOAT32_RANGE[1] else "float64"
        return Step(pivots, np.ascontiguousarray(multiplier), numbers, dtype)

    def _error(self, rows: RowBlock) -> float:
        """Error of kernel entries in the tasks: what they said, and what these rows let expect of the next pass."""
        with np.errstate(over="ignore"):  # the tasks find out what float32 does not hold
            return max(self.error, TileStrips(self.kernel, rows, rows, dtype=self.dtype).error)

    def _generator(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose, self.n_passes)))


def _thin(
    kernel: Matrix, floor: Vector, limit: int, generator: np.random.Generator, *, fill: bool
) -> tuple[list[int], Matrix, int]:
    """Accepted proposals in order, the Cholesky factor of their residual kernel, and how many without rejection.

    `kernel` (b, b) is the residual kernel of the proposals. With `fill`, what is missing at the end is made up from
    those rejected, in order, as long as they are above the floor.
    """
    left = np.diag(kernel).copy()
    bars = np.maximum(generator.random(len(left)) * left, floor)
    factor = np.zeros((len(left), min(limit, len(left))))
    taken: list[int] = []
    n_thinned = 0
    for sweep, bar in enumerate((bars, floor) if fill else (bars,)):
        for i in range(len(left)):
            if len(taken) == factor.shape[1]:
                break
            if left[i] > bar[i]:
                done = len(taken)
                column = (kernel[:, i] - factor[:, :done] @ factor[i, :done]) / np.sqrt(left[i])
                factor[:, done] = column
                left -= column * column
                taken.append(i)
                left[taken] = 0.0
        if sweep == 0:
            n_thinned = len(taken)
    return taken, np.tril(factor[taken, : len(taken)]), len(taken) - n_thinned
