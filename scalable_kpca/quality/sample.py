"""A sample of the caller's rows, and small exact fits of it."""

from __future__ import annotations

import warnings
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
from scalable_kpca.quality.checks import check_labels, check_seed, check_share
from scalable_kpca.source import ArrayRows
from scalable_kpca.staging import is_dask, is_zarr
from scalable_kpca.streaming import block_spans
from scalable_kpca.tiling import check_whole, plan_exact, rows_of_batch

__all__ = ["Halves", "draw_halves", "fit_small", "learn_map", "relative_error", "separation"]

Matrix = NDArray[np.float64]
Labels = NDArray[Any]

SAME = 1e-9  # of the largest score: what is nearer than that is equal


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
        For rows that are no matrix of finite numbers or whose squares are beyond float64, fewer than four of them,
        another number of labels, or labels of one class.
    """
    size, share, seed = check_whole("sample", size), check_share(share), check_seed(seed)
    X = _matrix(X)
    n_samples = X.shape[0]
    if n_samples < 4 or size < 4:
        raise InvalidInputError(f"a sample of {min(n_samples, size)} rows cannot be divided; at least 4 are needed.")
    given = check_labels(labels, n_samples)
    numbers = draw_numbers(n_samples, size, seed=seed)
    rows = _rows(X, numbers)
    _check_squares(rows)
    order = np.random.default_rng([seed, 1]).permutation(len(rows))
    n_held = min(max(round(share * len(rows)), 2), len(rows) - 2)
    held, kept = order[:n_held], order[n_held:]
    return Halves(rows[kept], rows[held], None if given is None else given[numbers[held]])


def _matrix(X: Any) -> Any:
    if hasattr(X, "tocsr"):
        raise InvalidInputError("reconstruction errors are of dense rows; give X.toarray(), of some of its rows.")
    if not (is_dask(X) or is_zarr(X)):
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise InvalidInputError(f"X is no matrix ({error}); rows of as many numbers each are needed.") from error
    if len(X.shape) != 2 or X.shape[1] == 0 or X.dtype.kind not in "fiub":
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


def _check_squares(rows: Matrix) -> None:
    """InvalidInputError for rows whose variance is no float64, or 0 only because squares vanish."""
    largest = float(np.abs(rows).max())
    limits = np.finfo(np.float64)
    # sums of squares over all entries, and differences of two of them
    if largest > float(limits.max) ** 0.5 / (4 * rows.size):
        raise InvalidInputError(
            f"a feature is as large as {largest:.3g}, and squares of such are beyond float64; standardize or scale the "
            "features."
        )
    spread = float(np.abs(rows - rows.mean(axis=0)).max())
    if 0 < spread < float(limits.tiny) ** 0.5 / float(limits.eps):
        raise InvalidInputError(
            f"rows are within {spread:.3g} of their mean, and squares of such vanish in float64; standardize or scale "
            "the features."
        )


def fit_small(rows: Matrix, kernel: Kernel, n_components: int, indefinite: str = "error") -> Model:
    """Exact model of rows whose Gram matrix is formed in memory: LAPACK, or for few pairs Lanczos with a proof."""
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
        return fit_exact(
            held, kernel, plan, gram, engine, n_components=n_components, seed=0, indefinite=indefinite
        ).model


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
    from sklearn.metrics import silhouette_score

    if labels is None:
        labels = _clusters(fitted, held_out, n_clusters, seed)
    n_classes = len(np.unique(labels))
    return float(silhouette_score(held_out, labels)) if 2 <= n_classes < len(held_out) else -1.0


def _clusters(fitted: Matrix, held_out: Matrix, n_clusters: int, seed: int) -> Labels:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # scores of equal rows differ in their last digits, and are one point all the same
    grid = SAME * np.abs(fitted).max(initial=0.0) or 1.0
    fitted, held_out = (np.round(scores / grid) * grid for scores in (fitted, held_out))
    most = min(n_clusters, len(np.unique(fitted, axis=0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer clusters than were asked for are no fault
        labels: Labels = KMeans(most, n_init=10, random_state=seed).fit(fitted).predict(held_out)
    return labels
