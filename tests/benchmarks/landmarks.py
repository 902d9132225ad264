"""Subjects that choose landmarks: what they leave out, and what choosing them takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from tests.benchmarks.child import stopwatch
from tests.benchmarks.datasets import DATASETS
from tests.benchmarks.manifold import GAMMA, manifold

__all__ = ["best_residuals", "landmark_residuals", "landmark_times"]

EXTRA, ITERATIONS = 1.25, 4  # of the subspace iteration: columns for each eigenvalue, products


def landmark_residuals(dataset: str, n: int, sizes: Sequence[int], n_seeds: int) -> dict[str, Any]:
    """Relative trace residual in float64 for every method, number of landmarks and seed, and the smallest possible."""
    from scalable_kpca.kernels import RBF
    from scalable_kpca.landmarks import LANDMARK_METHODS

    chosen = DATASETS[dataset]
    X, kernel = chosen.rows(n), RBF(chosen.gamma)
    residuals: dict[str, list[list[float]]] = {}
    passes: dict[str, list[int]] = {}
    with stopwatch() as watch, _streaming(X, max(sizes), "float64") as stream:
        for method in LANDMARK_METHODS:
            found = [[_tried(stream, kernel, method, m, seed) for seed in range(n_seeds)] for m in sizes]
            residuals[method] = [[residual for residual, _ in trials] for trials in found]
            passes[method] = [max(taken for _, taken in trials) for trials in found]
    return {
        "seconds": watch.seconds,
        "residuals": residuals,
        "passes_of_choice": passes,
        "best": best_residuals(X, chosen.gamma, sizes),
    }


def landmark_times(n: int, m: int, method: str) -> dict[str, Any]:
    """Seconds of choosing landmarks, beside those of the look before and of the pass for the sums after it."""
    import sklearn.cluster  # noqa: F401  not to be timed

    from scalable_kpca.kernels import RBF

    kernel = RBF(GAMMA)
    with _streaming(manifold(n), m, "float32") as stream:
        with stopwatch() as looking:
            found = stream.look(method, m, 0)
        with stopwatch() as choosing:
            landmarks = stream.choose(found, kernel, method, m, 0)
        with stopwatch() as summing:
            stream.residual(landmarks, kernel)
    return {
        "seconds": choosing.seconds,
        "look_seconds": looking.seconds,
        "sums_seconds": summing.seconds,
        "passes": landmarks.n_passes,
        "n_landmarks": len(landmarks.rows),
    }


def best_residuals(X: NDArray[np.float64], gamma: float, sizes: Sequence[int]) -> list[float]:
    """Relative trace residual of the best approximations of rank m there are, by subspace iteration.

    The eigenvalues come from below, so that what is left comes from above: by a hundredth at most where the
    spectrum is flat.
    """
    squares = np.einsum("ij,ij->i", X, X)
    K = -2 * (X @ X.T)
    K += squares
    K += squares[:, None]
    np.exp(np.multiply(np.maximum(K, 0, out=K), -gamma, out=K), out=K)
    n_columns = min(len(K), int(EXTRA * max(sizes)) + 10)
    basis = np.random.default_rng(0).standard_normal((len(K), n_columns))
    for _ in range(ITERATIONS):
        basis = scipy.linalg.qr(K @ basis, mode="economic", overwrite_a=True)[0]
    values = np.maximum(scipy.linalg.eigvalsh(basis.T @ (K @ basis))[::-1], 0)
    trace = np.trace(K)
    return [max(0.0, 1 - float(values[:m].sum() / trace)) for m in sizes]


@dataclass(frozen=True)
class _Stream:
    """Rows in spans and an engine: the steps of a Nyström fit, one by one."""

    engine: Any
    spans: Any
    n_features: int
    batch_rows: int
    dtype: str

    def look(self, method: str, m: int, seed: int) -> Any:
        from scalable_kpca.landmarks import look, sample_size

        size = sample_size(method, m)
        return look(self.engine, self.spans, n_features=self.n_features, sample_size=size, seed=seed)

    def choose(self, found: Any, kernel: Any, method: str, m: int, seed: int) -> Any:
        from scalable_kpca.landmarks import choose_landmarks

        options = {"n_landmarks": m, "seed": seed, "dtype": self.dtype}
        return choose_landmarks(method, found, self.engine, self.spans, kernel, **options)

    def residual(self, landmarks: Any, kernel: Any) -> float:
        """Share of the trace that the landmarks leave out."""
        from scalable_kpca.approximate import accumulate_spans
        from scalable_kpca.nystroem import build_basis, trace_residual

        basis = build_basis(kernel, landmarks.rows, self.dtype)
        sums, _ = accumulate_spans(self.spans, basis, self.batch_rows, self.engine)
        return max(trace_residual(basis, sums), 0.0) / sums.diagonal_sum


@contextmanager
def _streaming(X: NDArray[Any], m: int, dtype: str) -> Iterator[_Stream]:
    """Spans, batches and threads as a fit plans them."""
    from scalable_kpca import plan
    from scalable_kpca.engine import open_engine
    from scalable_kpca.source import ArrayRows, row_spans

    planned = plan(*X.shape, n_components=1, method="nystroem", n_landmarks=m, dtype=dtype)
    spans = row_spans(ArrayRows(X), planned.span_rows)
    with open_engine("threads", n_threads=planned.n_threads) as engine:
        yield _Stream(engine, spans, X.shape[1], planned.batch_rows, dtype)


def _tried(stream: _Stream, kernel: Any, method: str, m: int, seed: int) -> tuple[float, int]:
    landmarks = stream.choose(stream.look(method, m, seed), kernel, method, m, seed)
    return stream.residual(landmarks, kernel), landmarks.n_passes
