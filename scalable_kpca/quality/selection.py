"""Advice on gamma: candidates tried on a sample, by what its held-out half shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.kernels import MEDIAN_ROWS, median_gamma, resolve_kernel
from scalable_kpca.preimage import check_ridge
from scalable_kpca.quality.checks import check_classes, check_clusters, check_gammas
from scalable_kpca.quality.sample import Halves, draw_halves, fit_small, learn_map, relative_error, separation
from scalable_kpca.quality.table import pandas_frame
from scalable_kpca.tiling import check_choice, check_whole
from scalable_kpca.transform import project

__all__ = ["GammaChoice", "GammaScore", "select_gamma"]

CRITERIA = ("reconstruction", "silhouette")
POWERS = range(-5, 6)  # of two, times the median heuristic


@dataclass(frozen=True)
class GammaScore:
    """A candidate and what the criterion says of it.

    Attributes
    ----------
    gamma : float
    score : float
        Relative reconstruction error (lower is better) or silhouette (higher is better).
    explained_share : float
        Of the feature space of this gamma, by as many components.
    """

    gamma: float
    score: float
    explained_share: float


@dataclass(frozen=True)
class GammaChoice:
    """The best of the candidates.

    Attributes
    ----------
    gamma : float
    criterion : str
    table : tuple of GammaScore
        All candidates, by ascending gamma.
    advice : str
        What the choice rests on, in a sentence.
    """

    gamma: float
    criterion: str
    table: tuple[GammaScore, ...]
    advice: str

    def to_frame(self) -> Any:
        """Pandas DataFrame of the table; ConfigError without pandas."""
        names = ("gamma", "score", "explained_share")
        return pandas_frame({name: [getattr(row, name) for row in self.table] for name in names})


def select_gamma(
    X: Any,
    n_components: int,
    *,
    kernel: str = "rbf",
    degree: float = 3,
    coef0: float = 1,
    criterion: str = "reconstruction",
    candidates: Sequence[float] | None = None,
    sample: int = 1000,
    labels: ArrayLike | None = None,
    n_clusters: int | None = None,
    alpha: float = 1e-2,
    indefinite: str = "error",
    seed: int = 0,
) -> GammaChoice:
    """Gamma that does best on the held-out half of a sample: advice, not a property of the data.

    Parameters
    ----------
    X : ndarray, dask array or zarr array of shape (n_samples, n_features)
        Finite numbers; only rows of the sample are looked at.
    n_components : int
        As many as will be used, at most one for each fitted row: other numbers have other best gammas.
    kernel : str
        Name of a kernel with gamma.
    degree, coef0 : float
        Of the polynomial and (coef0) sigmoid kernels.
    criterion : {"reconstruction", "silhouette"}
        ``"reconstruction"``: error of held-out rows that are made of their scores again by a ridge map, relative to
        that of the mean. ``"silhouette"``: how far apart the classes are among the held-out scores; of `labels`, or of
        k-means clusters found in the fitted scores.
    candidates : sequence of float, optional
        Gammas > 0; by default 2⁻⁵ to 2⁵ times `median_gamma` of the fitted half.
    sample : int
        At most so many rows, half of which are fitted.
    labels : array-like of shape (n_samples,), optional
        For ``"silhouette"``.
    n_clusters : int, optional
        Without labels, ≥ 2; n_components + 1 by default, as many as so many directions can hold apart.
    alpha : float
        Ridge of the map: see `fit_ridge_map`.
    indefinite : {"error", "clip"}
        What to do with a candidate for which the kernel (sigmoid) is not positive semi-definite on the fitted rows:
        refuse, or drop the negative part.
    seed : int
        Of the sample, its halves and k-means.

    Returns
    -------
    GammaChoice
        The best gamma, and what was tried.

    Raises
    ------
    InvalidInputError
        For rows that are no matrix of finite numbers, a candidate that is no gamma, a kernel that is not positive
        semi-definite, or where nothing can be told apart: fitted rows that are all equal, one class.
    ConfigError
        For another criterion, no candidates, a kernel without gamma, one cluster, or numbers outside their range.

    Notes
    -----
    Clusters that k-means finds are judged by themselves: a gamma that makes tight clusters of outliers scores well.
    Labels are safer. Cost: one fit of sample/2 rows for each candidate, some 15·(sample/2)³ flops.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> X, circle = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    >>> select_gamma(X, 2, criterion="silhouette", labels=circle).criterion
    'silhouette'
    """
    check_choice("criterion", criterion, CRITERIA)
    check_choice("indefinite", indefinite, ("error", "clip"))
    n_components, n_clusters = check_whole("n_components", n_components), check_clusters(n_clusters)
    given = None if candidates is None else check_gammas(candidates)
    ridge = check_ridge(alpha)
    if not hasattr(resolve_kernel(kernel, gamma=1.0, degree=degree, coef0=coef0, n_features=1), "gamma"):
        raise ConfigError(f"kernel={kernel!r} has no gamma to select.")
    halves = draw_halves(X, sample, 0.5, labels=labels, seed=seed)
    fitted, held = halves.fitted, halves.held_out
    if criterion == "silhouette":
        _check_apart(halves)
    if n_components > len(fitted):
        raise InvalidInputError(
            f"n_components={n_components}, and {len(fitted)} rows are fitted, half of the sample; choose at most so "
            "many components, or give more rows."
        )
    chosen = given or [median_gamma(fitted[:MEDIAN_ROWS]) * 2.0**power for power in POWERS]
    table = []
    for gamma in chosen:
        found = resolve_kernel(kernel, gamma=gamma, degree=degree, coef0=coef0, n_features=fitted.shape[1])
        model = fit_small(fitted, found, n_components, indefinite)
        scores = model.training_scores, project(model, held)
        if criterion == "silhouette":
            score = separation(*scores, halves.held_out_labels, n_clusters or n_components + 1, seed)
        else:
            score = relative_error(learn_map(scores[0], fitted, ridge)(scores[1]), held, fitted.mean(axis=0))
        table.append(GammaScore(gamma, score, float(model.certificate.explained_variance_ratio.sum())))
    values = np.array([row.score for row in table])
    best = int(values.argmax() if criterion == "silhouette" else values.argmin())
    return GammaChoice(table[best].gamma, criterion, tuple(table), _advice(halves, criterion, best, values))


def _check_apart(halves: Halves) -> None:
    """InvalidInputError where no gamma can hold anything apart."""
    if (halves.fitted == halves.fitted[0]).all():
        raise InvalidInputError(
            f"the {len(halves.fitted)} fitted rows are all equal, and nothing can be apart; give rows that differ, a "
            "larger sample or another seed."
        )
    if halves.held_out_labels is not None:
        check_classes(halves.held_out_labels)


def _advice(halves: Halves, criterion: str, best: int, scores: NDArray[np.float64]) -> str:
    text = (
        f"advice from one criterion ({criterion}) on one sample of {len(halves.fitted)} fitted and "
        f"{len(halves.held_out)} held-out rows; look at the table, where scores near the best are as good"
    )
    if len(scores) > 1 and (scores == scores[0]).all():
        return f"{text}; all candidates score the same, so that nothing speaks for this one"
    if len(scores) > 1 and best in (0, len(scores) - 1):
        return f"{text}; the {'smallest' if best == 0 else 'largest'} candidate is the best one: try others beyond it"
    return text
