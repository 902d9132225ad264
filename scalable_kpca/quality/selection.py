"""Advice on gamma: candidates tried on a sample, by what its held-out half shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scalable_kpca.errors import ConfigError
from scalable_kpca.kernels import MEDIAN_ROWS, median_gamma, resolve_kernel
from scalable_kpca.quality.sample import Halves, draw_halves, fit_small, learn_map, relative_error, separation
from scalable_kpca.quality.table import pandas_frame
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
    seed: int = 0,
) -> GammaChoice:
    """Gamma that does best on the held-out half of a sample: advice, not a property of the data.

    Parameters
    ----------
    X : ndarray, dask array or zarr array of shape (n_samples, n_features)
        Finite numbers; only rows of the sample are looked at.
    n_components : int
        As many as will be used: other numbers have other best gammas.
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
        Without labels; n_components + 1 by default, as many as so many directions can hold apart.
    alpha : float
        Ridge of the map: see `fit_ridge_map`.
    seed : int
        Of the sample, its halves and k-means.

    Returns
    -------
    GammaChoice

    Raises
    ------
    InvalidInputError
        For rows that are no matrix of finite numbers, or a candidate that is no gamma.
    ConfigError
        For another criterion, no candidates, or a kernel without gamma.

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
    if criterion not in CRITERIA:
        raise ConfigError(f"criterion={criterion!r} is not known; choose one of {', '.join(CRITERIA)}.")
    halves = draw_halves(X, sample, 0.5, labels=labels, seed=seed)
    chosen = _candidates(halves, candidates)
    table = []
    for gamma in chosen:
        found = resolve_kernel(kernel, gamma=gamma, degree=degree, coef0=coef0, n_features=halves.fitted.shape[1])
        if not hasattr(found, "gamma"):
            raise ConfigError(f"kernel={kernel!r} has no gamma to select.")
        model = fit_small(halves.fitted, found, min(n_components, len(halves.fitted)))
        fitted, held = model.training_scores, project(model, halves.held_out)
        if criterion == "silhouette":
            score = separation(fitted, held, halves.held_out_labels, n_clusters or n_components + 1, seed)
        else:
            rows = learn_map(fitted, halves.fitted, alpha)(held)
            score = relative_error(rows, halves.held_out, halves.fitted.mean(axis=0))
        table.append(GammaScore(gamma, score, float(model.certificate.explained_variance_ratio.sum())))
    scores = np.array([row.score for row in table])
    best = int(scores.argmax() if criterion == "silhouette" else scores.argmin())
    return GammaChoice(table[best].gamma, criterion, tuple(table), _advice(halves, criterion, best, chosen))


def _candidates(halves: Halves, given: Sequence[float] | None) -> list[float]:
    if given is None:
        middle = median_gamma(halves.fitted[:MEDIAN_ROWS])
        return [middle * 2.0**power for power in POWERS]
    chosen = sorted({float(gamma) for gamma in given})
    if not chosen:
        raise ConfigError("there are no candidates; give at least one gamma, or none at all for the default ones.")
    return chosen


def _advice(halves: Halves, criterion: str, best: int, chosen: Sequence[float]) -> str:
    text = (
        f"advice from one criterion ({criterion}) on one sample of {len(halves.fitted)} fitted and "
        f"{len(halves.held_out)} held-out rows; look at the table, where scores near the best are as good"
    )
    if len(chosen) > 1 and best in (0, len(chosen) - 1):
        return f"{text}; the {'smallest' if best == 0 else 'largest'} candidate is the best one: try others beyond it"
    return text
