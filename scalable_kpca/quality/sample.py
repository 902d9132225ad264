"""A sample of the caller's rows, and small exact fits of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalable_kpca.engine import active_kind, open_engine
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.exact import fit_exact, open_gram
from scalable_kpca.kernels import RBF, Kernel, median_gamma
from scalable_kpca.landmarks import draw_numbers, fetch_rows
from scalable_kpca.machine import resolve_memory_limit
from scalable_kpca.model import Model
from scalable_kpca.preimage import RidgeMap, fit_ridge_map
from scalable_kpca.source import ArrayRows
from scalable_kpca.staging import is_dask, is_zarr
from scalable_kpca.streaming import block_spans
from scalable_kpca.tiling import plan_exact, rows_of_batch

__all__ = ["Halves", "draw_halves", "fit_small", "learn_map", "relative_error", "separation"]

Matrix = NDArray[np.float64]
Labels = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Halves:
    """Rows to fit, and rows of the same sample that are held out.

    Attributes
    ----------
    fitted, held_out : ndarray of shape (a, n_features) and (b, n_features), float64
    held_out_labels : ndarray of shape (b,), or None
    """

    fitted: Matrix
    held_out: Matrix
    held_out_labels: Labels | None


def draw_halves(X: Any, size: int, share: float, *, labels: ArrayLike | None, seed: int) -> Halves:
    """Sample of at most `size` rows of an array, a share of which is held out, at random.

    Raises
    ------
    InvalidInputError
        For rows that are no matrix of finite numbers, fewer than four of them, or another number of labels.
    """
    X = _matrix(X)
    n_samples = X.shape[0]
    if n_samples < 4 or size < 4:
        raise InvalidInputError(f"a sample of {min(n_samples, size)} rows cannot be divided; at least 4 are needed.")
    if not 0 < share < 1:
        raise InvalidInputError(f"held_out={share!r}; a share of the sample between 0 and 1 is needed, such as 0.25.")
    given = None if labels is None else np.asarray(labels)
    if given is not None and given.shape != (n_samples,):
        raise InvalidInputError(f"labels have shape {given.shape}; one for each of the {n_samples} rows is needed.")
    numbers = draw_numbers(n_samples, size, seed=seed)
    rows = _rows(X, numbers)
    order = np.random.default_rng([seed, 1]).permutation(len(rows))
    n_held = min(max(round(share * len(rows)), 2), len(rows) - 2)
    held, kept = order[:n_held], order[n_held:]
    return Halves(rows[kept], rows[held], None if given is None else given[numbers[held]])


def _matrix(X: Any) -> Any:
    if hasattr(X, "tocsr"):
        raise InvalidInputError("reconstruction errors are of dense rows; give X.toarray(), of some of its rows.")
    if not (is_dask(X) or is_zarr(X)):
        X = np.asarray(X)
    if len(X.shape) != 2 or X.dtype.kind not in "fiub":
        raise InvalidInputError(f"X has shape {X.shape} and dtype {X.dtype}; a matrix of numbers is needed.")
    if is_dask(X) and np.isnan(X.shape[0]):
        raise InvalidInputError("X does not know its chunk sizes; call X.compute_chunk_sizes() first.")
    return X


def _rows(X: Any, numbers: NDArray[np.int64]) -> Matrix:
    if is_dask(X):
        with open_engine(active_kind()) as engine:
            batch_rows = rows_of_batch(X.shape[1])
            rows = fetch_rows(engine, block_spans(X), numbers, batch_rows=batch_rows, stage="sample")
    elif is_zarr(X):
        rows = X.get_orthogonal_selection((numbers, slice(None)))  # reads the chunks that they are in, no others
    else:
        rows = X[numbers]
    sample: Matrix = np.asarray(rows, np.float64)
    bad = np.argwhere(~np.isfinite(sample))
    if len(bad):
        row, column = bad[0]
        raise InvalidInputError(
            f"row {numbers[row]}, column {column} is {sample[row, column]}; kernel PCA needs finite numbers: remove or "
            "fill such rows first."
        )
    return sample


def fit_small(rows: Matrix, kernel: Kernel, n_components: int) -> Model:
    """Exact model of rows whose Gram matrix is small: all its eigenpairs are found and the leading ones kept."""
    plan = plan_exact(
        *rows.shape,
        n_components=n_components,
        dtype="float64",
        solver="dense",
        gram="memory",
        memory_limit=resolve_memory_limit(None),
        n_threads=1,
    )
    held = ArrayRows(rows)
    with open_engine("synchronous") as engine:
        gram = open_gram(held, kernel, plan, engine, path=None, fingerprint="")
        return fit_exact(held, kernel, plan, gram, engine, n_components=n_components, seed=0).model


def learn_map(scores: Matrix, rows: Matrix, alpha: float) -> RidgeMap:
    """Ridge map from scores to rows by an RBF kernel whose width is the median distance of the scores.

    The kernel of the fit, which is for distances of rows, would be nearly constant over scores where those are small.
    """
    return fit_ridge_map(scores, rows, RBF(median_gamma(scores)), alpha)


def relative_error(found: Matrix, rows: Matrix, mean: NDArray[np.float64]) -> float:
    """Σ‖x − x̂‖² / Σ‖x − x̄‖²: 0 is perfect, and 1 is what the mean of the fitted rows would do."""
    total = float(np.square(rows - mean).sum())
    error = float(np.square(rows - found).sum())
    return error / total if total > 0 else (0.0 if error == 0 else np.inf)


def separation(fitted: Matrix, held_out: Matrix, labels: Labels | None, n_clusters: int, seed: int) -> float:
    """Silhouette of labels, or of k-means clusters of the fitted scores, among held-out scores; −1 for one class."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    if labels is None:
        clusters = min(n_clusters, len(np.unique(fitted, axis=0)))
        labels = KMeans(clusters, n_init=10, random_state=seed).fit(fitted).predict(held_out)
    n_classes = len(np.unique(labels))
    return float(silhouette_score(held_out, labels)) if 2 <= n_classes < len(held_out) else -1.0
