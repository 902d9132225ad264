"""The way back of a fitted estimator, from scores to rows: a ridge map, or fixed points. Wiring only."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from scalable_kpca.errors import AccuracyWarning, MemoryLimitError
from scalable_kpca.fitting import resident_bytes
from scalable_kpca.machine import resolve_memory_limit
from scalable_kpca.model import AnyModel
from scalable_kpca.preimage import (
    Preimages,
    RidgeMap,
    choose_training_pairs,
    fit_ridge_map,
    preimage_finder,
    reconstruct_lazily,
    ridge_bytes,
)
from scalable_kpca.staging import is_dask, is_zarr
from scalable_kpca.tiling import DENSE_LIMIT, PROCESS_BYTES, check_choice

__all__ = ["ReconstructsRows"]

PREIMAGES = ("ridge", "fixed_point")


class ReconstructsRows:
    """`inverse_transform` and what it needs, of an estimator with ``fit_inverse_transform`` and a model."""

    model_: AnyModel
    n_features_in_: int
    fit_inverse_transform: bool | str
    alpha: float
    method: str
    n_landmarks: int
    memory_limit: int | str | None

    def inverse_transform(self, X: Any) -> Any:
        """Rows whose scores are near some scores: pre-images, shape (n_new, n_features), float64.

        Noise lies mostly outside the components: ``inverse_transform(transform(X_noisy))`` takes it away.

        Parameters
        ----------
        X : array-like or dask array of shape (n_new, n_components)
            Finite scores; a dask array gives a lazy dask array.

        Returns
        -------
        ndarray or dask.array.Array

        Raises
        ------
        NotFittedError
            Unless the estimator was fitted with ``fit_inverse_transform``.

        Warns
        -----
        AccuracyWarning
            When fixed points did not converge; `preimages` says which, after how many iterations and restarts.
        """
        reconstruct = self._way_back()
        if is_dask(X):
            return reconstruct_lazily(reconstruct, X, self.n_features_in_)
        return reconstruct(np.asarray(X))

    def preimages(self, X: Any, *, start: Any = None, **options: Any) -> Preimages:
        """Fixed-point pre-images of scores with what is known of each: see `preimage.find_preimages`.

        Parameters
        ----------
        X : array-like of shape (n_new, n_components)
            Finite scores.
        start : array-like of shape (n_new, n_features), optional
            Rows to start from, such as noisy ones.
        **options
            ``max_iterations``, ``tol``, ``n_restarts``, ``seed``.

        Returns
        -------
        Preimages
            Rows, distances in feature space, iterations, restarts, and whether each converged.
        """
        check_is_fitted(self)
        return preimage_finder(self.model_, **options)(X, start)

    @property
    def _preimage(self) -> str | None:
        """Which pre-images are asked for; None for none."""
        asked = self.fit_inverse_transform
        if isinstance(asked, str):
            check_choice("fit_inverse_transform", asked, PREIMAGES)
            return asked
        return "ridge" if asked else None

    @property
    def _most_pairs(self) -> int:
        """Rows that the ridge map is learned on, at most."""
        return int(max(DENSE_LIMIT, self.n_landmarks))

    def _check_way_back(self, rows: Any, n_components: int | float | None) -> None:
        """MemoryLimitError when the ridge map does not fit beside the rows and the model, before anything is fitted."""
        if self._preimage != "ridge":
            return
        n_samples, n_features = rows.shape
        pairs, k = min(self._most_pairs, n_samples), n_components if isinstance(n_components, int) else 0
        stays = self.method != "nystroem" or not (is_dask(rows) or is_zarr(rows))
        model = 16 * n_samples * k if stays else 0
        needed = PROCESS_BYTES + resident_bytes(rows, stays=stays) + model + ridge_bytes(pairs, k, n_features)
        limit = resolve_memory_limit(self.memory_limit)
        if needed > limit:
            raise MemoryLimitError(
                f"memory_limit={format_bytes(limit)} cannot hold the ridge map from scores to rows, learned on {pairs} "
                f"of them; raise memory_limit to {needed} bytes ({format_bytes(needed)}), or set "
                "fit_inverse_transform=False.",
                needed,
            )

    def _fit_way_back(self, seed: int) -> None:
        """Learn the ridge map from the training rows, or from some of many."""
        if self._preimage != "ridge":
            return
        scores, rows = choose_training_pairs(self.model_, limit=self._most_pairs, seed=seed)
        way_back = fit_ridge_map(scores, rows, self.model_.kernel, self.alpha)
        self.X_transformed_fit_, self.dual_coef_ = way_back.centres, way_back.coefficients
        self._mean = way_back.mean

    def _way_back(self) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
        check_is_fitted(self)
        if self._preimage == "fixed_point":
            return partial(_fixed_points, preimage_finder(self.model_))
        if not hasattr(self, "dual_coef_"):
            raise NotFittedError(
                "the way back from scores to rows was not fitted; set fit_inverse_transform=True (or 'fixed_point' for "
                "the rbf kernel) and fit again."
            )
        return RidgeMap(self.model_.kernel, self.X_transformed_fit_, self.dual_coef_, self._mean)


def _fixed_points(find: Callable[..., Preimages], scores: NDArray[Any]) -> NDArray[np.float64]:
    found = find(scores)
    open_ends = int((~found.converged).sum())
    if open_ends:
        warnings.warn(
            f"{open_ends} of {len(found.converged)} pre-images did not converge: the best that was seen is returned; "
            "preimages(scores, max_iterations=…) says which, and goes on longer.",
            AccuracyWarning,
            stacklevel=2,
        )
    return found.rows
