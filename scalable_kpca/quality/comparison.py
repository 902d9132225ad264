"""PCA and kernel PCA side by side, with the same number of components."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Kernel, median_gamma, resolve_kernel
from scalable_kpca.preimage import check_ridge
from scalable_kpca.quality.checks import check_clusters
from scalable_kpca.quality.sample import draw_halves, fit_small, learn_map, relative_error, separation
from scalable_kpca.quality.table import pandas_frame
from scalable_kpca.tiling import check_choice, check_whole
from scalable_kpca.transform import project

__all__ = ["Comparison", "Side", "compare_with_pca"]

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """One way to k numbers a row, and back.

    Attributes
    ----------
    method : str
        ``"PCA"`` or ``"kernel PCA"``.
    decoder : str
        How rows are made of scores: ``"linear"``, PCA's own, or ``"ridge map"``.
    explained_share : float
        Of the variance that `share_of` names, over the fitted rows.
    share_of : str
        ``"rows"`` or ``"feature space"``. Shares of different spaces do not compare.
    reconstruction_error : float
        Σ‖x − x̂‖² / Σ‖x − x̄‖² over the held-out rows, in the space of the rows: this compares.
    separation : float
        Silhouette of the classes among held-out scores, −1 to 1; NaN when none was asked for.
    """

    method: str
    decoder: str
    explained_share: float
    share_of: str
    reconstruction_error: float
    separation: float


@dataclass(frozen=True)
class Comparison:
    """PCA, PCA through a ridge map and kernel PCA through a ridge map, with equal numbers of components.

    Attributes
    ----------
    sides : tuple of Side
        In that order. The second tells what the map alone does.
    n_components : int
    kernel : Kernel
        With resolved parameters.
    n_fitted, n_held_out : int
        Rows of the sample.
    """

    sides: tuple[Side, Side, Side]
    n_components: int
    kernel: Kernel
    n_fitted: int
    n_held_out: int

    def to_frame(self) -> Any:
        """Pandas DataFrame with a row for each side; ConfigError without pandas."""
        return pandas_frame({name: [asdict(side)[name] for side in self.sides] for name in asdict(self.sides[0])})


def compare_with_pca(
    X: Any,
    n_components: int,
    *,
    kernel: str | Kernel = "rbf",
    gamma: float | str | None = "median",
    degree: float = 3,
    coef0: float = 1,
    labels: ArrayLike | None = None,
    n_clusters: int | None = None,
    held_out: float = 0.25,
    sample: int = 2000,
    alpha: float = 1e-2,
    indefinite: str = "error",
    seed: int = 0,
) -> Comparison:
    """What kernel PCA does for these rows that PCA does not, on a sample.

    Parameters
    ----------
    X : ndarray, dask array or zarr array of shape (n_samples, n_features)
        Finite numbers; only rows of the sample are looked at.
    n_components : int
        Of both; at most as many as PCA has.
    kernel : str or Kernel
        As in `KernelPCA`, or one with its parameters.
    gamma : float, "scale", "median" or None
        As in `KernelPCA`; ``"median"`` and ``"scale"`` are resolved on the fitted rows of the sample.
    degree, coef0 : float
        As in `KernelPCA`.
    labels : array-like of shape (n_samples,), optional
        Classes whose separation is measured.
    n_clusters : int, optional
        Without labels: k-means clusters, ≥ 2, found in the fitted scores, whose separation is measured. With neither,
        none.
    held_out : float
        Share of the sample that is not fitted.
    sample : int
        At most so many rows.
    alpha : float
        Ridge of the map from scores to rows: see `fit_ridge_map`.
    indefinite : {"error", "clip"}
        What to do with a kernel (sigmoid) that is not positive semi-definite on the fitted rows: refuse, or drop the
        negative part.
    seed : int
        Of the sample, its division and k-means.

    Returns
    -------
    Comparison
        A side each for PCA, its scores with the ridge map, and kernel PCA.

    Raises
    ------
    InvalidInputError
        For rows that are no matrix of finite numbers, more components than PCA has, labels of one class, or a kernel
        that is not positive semi-definite.
    ConfigError
        For numbers outside their range.

    Notes
    -----
    The ridge map takes an RBF kernel over scores with the median distance between them for its width; PCA gets the same
    map beside its own linear one, so that what the map does is not taken for what the kernel does. Cost: some 10·m³
    flops for m fitted rows; memory some 6·m² float64.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> X, circle = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    >>> pca, _, kernel_pca = compare_with_pca(X, 2, gamma=2.0, labels=circle).sides
    >>> pca.separation < 0.2 < kernel_pca.separation
    True
    """
    check_choice("indefinite", indefinite, ("error", "clip"))
    n_components, n_clusters = check_whole("n_components", n_components), check_clusters(n_clusters)
    ridge = check_ridge(alpha)
    halves = draw_halves(X, sample, held_out, labels=labels, seed=seed)
    fitted, held, mean = halves.fitted, halves.held_out, halves.fitted.mean(axis=0)
    if n_components > min(fitted.shape):
        raise InvalidInputError(
            f"n_components={n_components}, and PCA of {fitted.shape[0]} fitted rows × {fitted.shape[1]} features has 1 "
            f"to {min(fitted.shape)}; compare that many."
        )
    resolved = kernel if isinstance(kernel, Kernel) else _resolve(fitted, kernel, gamma, degree, coef0)
    model = fit_small(fitted, resolved, n_components, indefinite)
    of_fitted, of_held, own, share = _pca(fitted, held, n_components)

    def side(method: str, decoder: str, share: float, space: str, scores: tuple[Matrix, Matrix], rows: Matrix) -> Side:
        known = labels is not None or n_clusters is not None
        apart = separation(*scores, halves.held_out_labels, n_clusters or 0, seed) if known else np.nan
        return Side(method, decoder, share, space, relative_error(rows, held, mean), apart)

    kernel_scores = model.training_scores, project(model, held)
    through = [learn_map(scores[0], fitted, ridge)(scores[1]) for scores in ((of_fitted, of_held), kernel_scores)]
    explained = float(model.certificate.explained_variance_ratio.sum())
    sides = (
        side("PCA", "linear", share, "rows", (of_fitted, of_held), own),
        side("PCA", "ridge map", share, "rows", (of_fitted, of_held), through[0]),
        side("kernel PCA", "ridge map", explained, "feature space", kernel_scores, through[1]),
    )
    return Comparison(sides, n_components, resolved, len(fitted), len(held))


def _resolve(rows: Matrix, name: str, gamma: float | str | None, degree: float, coef0: float) -> Kernel:
    return resolve_kernel(
        name,
        gamma=gamma,
        degree=degree,
        coef0=coef0,
        n_features=rows.shape[1],
        variance=float(rows.var()),
        median=partial(median_gamma, rows[:1000]),
    )


def _pca(fitted: Matrix, held: Matrix, k: int) -> tuple[Matrix, Matrix, Matrix, float]:
    """Scores of both, the reconstruction of the second, and the explained share."""
    from sklearn.decomposition import PCA

    with np.errstate(invalid="ignore"):  # constant rows have no variance to explain
        pca = PCA(k, svd_solver="full").fit(fitted)
    scores, share = pca.transform(held), float(np.nan_to_num(pca.explained_variance_ratio_).sum())
    return pca.transform(fitted), scores, pca.inverse_transform(scores), share
