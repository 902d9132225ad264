"""What a fitted estimator does: scores, novelty, saving. Wiring only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from scalable_kpca.engine import open_engine
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.estimators.inputs import read_input
from scalable_kpca.estimators.way_back import ReconstructsRows
from scalable_kpca.fitting import scores_of
from scalable_kpca.machine import resolve_threads
from scalable_kpca.model import NystroemModel, save_model
from scalable_kpca.novelty import novelty, novelty_lazily, novelty_threshold, training_novelty
from scalable_kpca.source import ArrayRows, NoRows, SparseRows
from scalable_kpca.staging import is_dask
from scalable_kpca.transform import project, project_lazily

__all__ = ["FittedKernelPCA"]


def _has_rows(estimator: FittedKernelPCA) -> bool:
    """Whether k(x, x) of a new row is known: a precomputed kernel gives its values with the training rows only."""
    return bool(estimator.kernel != "precomputed")


class FittedKernelPCA(ReconstructsRows, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The half of `KernelPCA` that needs a model: see there."""

    n_jobs: int | None
    kernel: Any

    def transform(self, X: Any) -> Any:
        """Scores of rows, shape (n_new, n_components), float64; a dask array gives a lazy dask array.

        Parameters
        ----------
        X : array-like, sparse matrix, table, or dask array of shape (n_new, n_features)
            Finite numbers; of a precomputed kernel, values with the training rows, shape (n_new, n_samples).

        Returns
        -------
        ndarray or dask.array.Array
            Lazy for a dask array.

        Raises
        ------
        InvalidInputError
            For another number of features, or NaN or infinity.
        """
        check_is_fitted(self)
        X = self._read(X)
        if is_dask(X):
            return project_lazily(self.model_, X)
        if isinstance(self.model_, NystroemModel):
            return self._scores(X, self.model_, "threads", checked=False)
        return project(self.model_, X)

    @available_if(_has_rows)  # type: ignore[untyped-decorator]
    def novelty(self, X: Any) -> Any:
        """Squared distance in feature space of rows to the span of the components (Hoffmann 2007), shape (n_new,).

        Parameters
        ----------
        X : as in `transform`
            Rows.

        Returns
        -------
        ndarray or dask.array.Array of float64
            ≥ 0; 0 up to rounding. Lazy for a dask array.

        Notes
        -----
        Not there for a precomputed kernel, which does not say what k(x, x) is.
        """
        check_is_fitted(self)
        X = self._read(X)
        if is_dask(X):
            return novelty_lazily(self.model_, X)
        return novelty(self.model_, X)

    @available_if(_has_rows)  # type: ignore[untyped-decorator]
    def score_samples(self, X: Any) -> Any:
        """−`novelty`: as in scikit-learn's detectors, the lower, the more abnormal.

        Parameters
        ----------
        X : as in `transform`
            Rows.

        Returns
        -------
        ndarray or dask.array.Array of float64
            ≤ 0, shape (n_new,).
        """
        return 0.0 - self.novelty(X)  # −0.0 would be a sign that means nothing

    @available_if(_has_rows)  # type: ignore[untyped-decorator]
    def novelty_threshold(self, quantile: float = 0.99, X: Any = None) -> float:
        """Novelty that a share of the training rows does not exceed, up to rounding: what is above it is novel.

        Rows that were fitted score lower than others like them: with many components in few rows, or where the share of
        false alarms matters, give rows that were held out.

        Parameters
        ----------
        quantile : float, default=0.99
            The share.
        X : as in `transform`, optional
            Rows to take it from; those of an exact fit without. A Nyström fit has forgotten them.

        Returns
        -------
        float
            In the unit of the kernel.
        """
        check_is_fitted(self)
        if X is not None:
            return novelty_threshold(np.asarray(self.novelty(X)), quantile)
        if isinstance(self.model_, NystroemModel):
            raise InvalidInputError("a Nyström fit does not keep its training rows; give them, or rows like them: X=.")
        return novelty_threshold(training_novelty(self.model_), quantile)

    def save(self, path: str | Path) -> None:
        """Write the model, with its ridge map, to a new directory: see `load_model`, `project` and `reconstruct`.

        Parameters
        ----------
        path : str or Path
            Of the directory, which must not be there yet.

        Raises
        ------
        StorageError
            When it is there, or cannot be written.
        """
        check_is_fitted(self)
        save_model(self.model_, path)

    @property
    def X_fit_(self) -> Any:  # noqa: N802 - scikit-learn's name
        """Training rows of an exact fit, shape (n_samples, n_features): an array, or what reads them from disk."""
        check_is_fitted(self)
        if isinstance(self.model_, NystroemModel) or isinstance(self.model_.rows, NoRows):
            raise AttributeError(  # noqa: TRY004 - what is missing is an attribute
                "X_fit_: neither a Nyström fit nor one of a precomputed kernel keeps its rows."
            )
        rows = self.model_.rows
        if isinstance(rows, SparseRows):
            return rows.matrix
        return rows.array if isinstance(rows, ArrayRows) else rows

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_components

    def _read(self, X: Any) -> Any:
        return read_input(self, X, reset=False, accept_sparse=self.kernel != "precomputed")

    def _scores(self, X: Any, model: NystroemModel, kind: str, *, checked: bool = True) -> NDArray[np.float64]:
        with open_engine(kind, n_threads=resolve_threads(self.n_jobs)) as engine:
            return scores_of(X, model, engine, checked=checked)
