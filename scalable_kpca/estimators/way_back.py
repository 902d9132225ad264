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

from scalable_kpca.errors import AccuracyWarning, ConfigError, MemoryLimitError
from scalable_kpca.estimators.way_back_memory import FitWithRidge
from scalable_kpca.fitting import Options
from scalable_kpca.machine import resolve_memory_limit
from scalable_kpca.model import AnyModel
from scalable_kpca.preimage import (
    Preimages,
    RidgeMap,
    check_ridge,
    check_ridge_kernel,
    dense,
    learn_ridge,
    most_pairs,
    preimage_finder,
    reconstruct_lazily,
)
from scalable_kpca.source import SparseRows, as_csr, is_sparse
from scalable_kpca.staging import is_dask
from scalable_kpca.tiling import check_choice

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
    kernel: Any
    random_state: Any
    copy_X: bool  # noqa: N815 - scikit-learn's name
    _options: Callable[[int], Options]

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
            Lazy for a dask array.

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
        return reconstruct(X)

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
        if not isinstance(asked, (bool, np.bool_)):
            raise ConfigError(f"fit_inverse_transform={asked!r}; True, False, {' or '.join(PREIMAGES)} is needed.")
        return "ridge" if asked else None

    @property
    def _most_pairs(self) -> int:
        """Rows that the ridge map is learned on, at most."""
        return int(most_pairs(self.n_landmarks))

    def _check_way_back_parameters(self) -> None:
        """What can be said of the way back before X is read: ConfigError or InvalidInputError."""
        way = self._preimage
        if way is None:
            return
        if self.kernel == "precomputed":
            raise ConfigError(
                "fit_inverse_transform is not possible with kernel='precomputed': there are no rows to go back to; fit "
                "the rows themselves, with a named kernel or a function."
            )
        if way == "fixed_point":
            if self.kernel != "rbf":
                raise ConfigError(
                    f"fit_inverse_transform='fixed_point' needs kernel='rbf', and it is {self.kernel!r}; use the ridge "
                    "map."
                )
            return
        check_ridge_kernel(self.kernel)
        check_ridge(self.alpha)

    def _check_way_back(self, fit: FitWithRidge) -> None:
        """MemoryLimitError when a fit or the ridge map after it does not fit in memory, before anything is read."""
        rows = fit.rows
        if self._preimage and is_sparse(rows) and not SparseRows(as_csr(rows)).is_held_dense:
            dense(rows)  # refuses them
        if self._preimage != "ridge":
            return
        limit = resolve_memory_limit(self.memory_limit)
        needed = fit.smallest_limit(limit)
        if needed > limit:
            raise MemoryLimitError(
                f"memory_limit={format_bytes(limit)} cannot hold the fit and, after it, the ridge map from scores to "
                f"rows, learned on {self._most_pairs} of them at most; raise memory_limit to {needed} bytes "
                f"({format_bytes(needed)}), or set fit_inverse_transform=False.",
                needed,
            )

    def _with_way_back(self, model: AnyModel, seed: int) -> AnyModel:
        """A model with the ridge map, if it is asked for, from its training rows, or from some of many."""
        if self._preimage != "ridge":
            return model
        return learn_ridge(model, self.alpha, limit=self._most_pairs, seed=seed)

    def _keep_way_back(self) -> None:
        self._fitted_preimage = self._preimage  # a parameter that is set later says nothing of this fit
        ridge = self.model_.way_back
        if ridge is not None:
            self.X_transformed_fit_, self.dual_coef_, self._mean = ridge.centres, ridge.coefficients, ridge.mean

    def _way_back(self) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
        check_is_fitted(self)
        if self._fitted_preimage == "fixed_point":
            return partial(_fixed_points, preimage_finder(self.model_))
        if self._fitted_preimage is None:
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
