"""What `compare_with_pca`, `select_gamma` and the tables are asked, checked before any row is read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.model import AnyModel, Model, NystroemModel
from scalable_kpca.tiling import check_whole, is_number, is_whole

__all__ = ["check_classes", "check_clusters", "check_gammas", "check_labels", "check_seed", "check_share", "model_of"]


def model_of(fitted: Any) -> AnyModel:
    """Model of a fitted estimator, or the model itself; NotFittedError or InvalidInputError for anything else."""
    if isinstance(fitted, BaseEstimator):
        check_is_fitted(fitted)
    model = getattr(fitted, "model_", fitted)
    if not isinstance(model, (Model, NystroemModel)):
        raise InvalidInputError(f"{type(fitted).__name__} is no model; a fitted KernelPCA, or its model_, is needed.")
    return model


def check_seed(seed: Any) -> int:
    """A seed as an int; ConfigError unless it is an integer ≥ 0."""
    if not is_whole(seed):
        raise ConfigError(f"seed={seed!r}; an integer ≥ 0 is needed.")
    return int(seed)


def check_share(held_out: Any) -> float:
    """A share of rows as a float; InvalidInputError unless it is a number between 0 and 1."""
    if not (is_number(held_out) and 0 < held_out < 1):
        raise InvalidInputError(
            f"held_out={held_out!r}; a share of the sample between 0 and 1 is needed, such as 0.25."
        )
    return float(held_out)


def check_gammas(candidates: Any) -> list[float]:
    """Candidates in ascending order, each once; ConfigError for none, InvalidInputError for one that is no gamma."""
    try:
        values = np.asarray(list(candidates))
    except (TypeError, ValueError):
        values = np.asarray(candidates, dtype=object)
    if values.shape == (0,):
        raise ConfigError("there are no candidates; give at least one gamma, or none at all for the default ones.")
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise InvalidInputError(f"candidates={candidates!r}; a sequence of numbers > 0 is needed.")
    gammas = values.astype(np.float64)
    wrong = gammas[~(np.isfinite(gammas) & (gammas > 0))]
    if len(wrong):
        raise InvalidInputError(
            f"gamma={wrong[0]:.6g} is among the candidates ({len(wrong)} of {len(gammas)} such); finite numbers > 0 "
            "are needed: a kernel without width sees no difference between rows."
        )
    return sorted(set(gammas.tolist()))


def check_clusters(n_clusters: Any) -> int | None:
    """A number of clusters that can be apart, or None; ConfigError for anything else."""
    if n_clusters is None:
        return None
    if check_whole("n_clusters", n_clusters) < 2:
        raise ConfigError("n_clusters=1; one cluster is not apart from anything: give 2 or more, or labels.")
    return int(n_clusters)


def check_labels(labels: Any, n_samples: int) -> NDArray[Any] | None:
    """Classes of rows as an array (n_samples,), or None; InvalidInputError for what does not name two or more."""
    if labels is None:
        return None
    try:
        given = np.asarray(labels)
        names = np.unique(given)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"labels are of different kinds ({error}); numbers, or texts, are needed.") from error
    if given.shape != (n_samples,):
        raise InvalidInputError(f"labels have shape {given.shape}; one for each of the {n_samples} rows is needed.")
    if given.dtype.kind in "fc" and not np.isfinite(given).all():
        raise InvalidInputError(
            f"{int((~np.isfinite(given)).sum())} labels are NaN or infinite; give rows without a label a class of "
            "their own, or leave them out."
        )
    if len(names) < 2:
        raise InvalidInputError(
            f"all {n_samples} labels are {names[0]}; two classes at least are needed for one to be apart: give other "
            "labels, or none."
        )
    return given


def check_classes(held_out: NDArray[Any]) -> None:
    """InvalidInputError where the labels of held-out rows have no silhouette."""
    n_classes = len(np.unique(held_out))
    if not 2 <= n_classes < len(held_out):
        raise InvalidInputError(
            f"the {len(held_out)} held-out rows are of {n_classes} classes, and their silhouette needs two at least, "
            "and fewer than rows; give more rows of each class, a larger sample or another seed."
        )
