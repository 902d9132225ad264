"""Bytes of a Nyström fit: what its stages hold, and the most that is held at a time."""

from __future__ import annotations

from dataclasses import dataclass

from scalable_kpca.tiling.sizes import PROCESS_BYTES
from scalable_kpca.tiling.stream_plan import NystroemPlan

__all__ = [
    "BLOCK_ROWS",
    "KMEANS_ROWS",
    "MOMENT_BYTES",
    "PIVOT_BYTES",
    "WAVE",
    "Fixed",
    "moment_bytes",
    "score_bytes",
    "stream_bytes",
]

BLOCK_ROWS = 1024  # of C at a time: they stay near the processor, and a sum over them in float32 is short
# tasks that are given out together, of scores as few as two a thread: what is waited for at the end is a thirtieth
WAVE = 32
MOMENT_BYTES = 2**19  # of larger ones none are taken
LABEL_BYTES = 64  # of a row's ids and what travels beside its scores
KMEANS_ROWS = 20  # of the sample, for each landmark of k-means++
PIVOT_BYTES = 2 * 2**20  # of rows that each task of a wave proposes as pivots
SQUARES = 8  # m × m arrays in float64 while an eigenproblem is solved, beside three that stay


@dataclass(frozen=True)
class Fixed:
    """Bytes that no choice of the plan changes: of the caller's rows, and of a task that decodes a file."""

    resident: int = 0
    decoding: int = 0


def stream_bytes(plan: NystroemPlan, fixed: Fixed) -> int:
    """Planned peak of the process in bytes: matrices of the landmarks, one task a thread, what waits for its turn.

    Pivots, sums, eigenproblem and scores come one after another, so that the largest of them counts. What the look took
    counts beside them: its sample stays, and the allocator keeps much of the rest.
    """
    m, d, threads = plan.n_landmarks, plan.n_features, plan.n_threads
    basis = 8 * (3 * m * m + 2 * m * d)
    # rows as read, in float64, folded; landmarks, folded for each batch
    batch = threads * (fixed.decoding + 3 * plan.batch_rows * d * 8 + 2 * m * d * 8)
    largest = max(_pivot_bytes(plan), _summing_bytes(plan), 8 * SQUARES * m * m, _scoring_bytes(plan))
    return PROCESS_BYTES + fixed.resident + basis + batch + _look_bytes(plan) + largest


def _look_bytes(plan: NystroemPlan) -> int:
    """Of rows that may be in the sample, 8 bytes a number: in tasks, waiting to be merged, and in the client."""
    size = {"kmeans++": KMEANS_ROWS, "uniform": 1}.get(plan.landmarks, 0) * plan.n_landmarks
    span = min(plan.span_rows, plan.n_samples)
    found = min(span, size)
    tasks = plan.n_threads * (2 * min(span, 2 * size + plan.batch_rows) + found) if size else 0
    return 8 * plan.n_features * (tasks + (plan.n_threads + 2) * found + 3 * min(size, plan.n_samples))


def _pivot_bytes(plan: NystroemPlan) -> int:
    """Of randomly pivoted Cholesky: strips, factors, residuals of all rows, and what a wave of tasks proposes."""
    if plan.landmarks != "rpcholesky":
        return 0
    m, n = plan.n_landmarks, plan.n_samples
    strips = plan.n_threads * (3 * 256 + m // 2) * m * 8
    proposed = WAVE * min(8 * m * plan.n_features, PIVOT_BYTES)
    return strips + 6 * 8 * m * m + proposed + 8 * (n + min(n, WAVE * plan.span_rows))


def _summing_bytes(plan: NystroemPlan) -> int:
    """Of a task its product, projection and own sum; sums that wait for one another; the client's and a new one."""
    squares = plan.n_threads * (2 * _itemsize(plan) + 8) + (plan.n_threads + 3) * 8
    return _block_bytes(plan) + squares * plan.n_landmarks**2


def _scoring_bytes(plan: NystroemPlan) -> int:
    moments = min(MOMENT_BYTES, moment_bytes(plan.n_features, plan.n_components or plan.n_landmarks))
    return _block_bytes(plan) + (plan.score_wave + plan.n_threads) * (plan.span_rows * score_bytes(plan) + moments)


def _block_bytes(plan: NystroemPlan) -> int:
    """Of C in all tasks: as evaluated, as kept, times the projection."""
    return plan.n_threads * min(BLOCK_ROWS, plan.batch_rows) * plan.n_landmarks * _itemsize(plan) * 3


def _itemsize(plan: NystroemPlan) -> int:
    return 8 if plan.dtype == "float64" else 4


def moment_bytes(n_features: int, n_components: int) -> int:
    """Of products of features with features and scores, which each task sums over its rows beside its scores."""
    return 8 * n_features * (n_features + n_components)


def score_bytes(plan: NystroemPlan) -> int:
    """Of a row: its scores, and what travels beside them."""
    return 8 * (plan.n_components or plan.n_landmarks) + LABEL_BYTES
