"""`KernelPCA`: scikit-learn's shape around an out-of-core fit. Wiring only."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from scalable_kpca.engine import Engine, active_kind, open_engine
from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.exact import ExactFit
from scalable_kpca.fitting import Fitted, Fitting, Options, scores_of
from scalable_kpca.machine import resolve_threads
from scalable_kpca.model import AnyModel, NystroemModel, save_model
from scalable_kpca.source import check_width
from scalable_kpca.staging import exclusive_directory, is_dask, is_zarr
from scalable_kpca.tiling import check_components
from scalable_kpca.transform import project, project_lazily

__all__ = ["KernelPCA"]


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Kernel PCA whose Gram matrix may be larger than memory, with a certificate on every result.

    Parameters
    ----------
    n_components : int, float or None, default=10
        Number of components; 0 < float < 1 takes the smallest number whose explained-variance ratio reaches it; None
        takes every component that is not zero, from the whole spectrum: exact, O(n²) memory, O(n³) flops.
    kernel : str, default="linear"
        Kernel function, with scikit-learn's meaning: linear, poly, rbf, sigmoid, laplacian, cosine; or matern12,
        matern32, matern52: Matérn with ν = 1/2, 3/2 and 5/2.
    gamma : float, "scale" or None, default=None
        Coefficient of rbf, poly, sigmoid, laplacian and Matérn, where it is 1/(2ℓ²) of the length scale ℓ, as for rbf.
        None is 1/n_features, "scale" is 1/(n_features · X.var()).
    degree : float, default=3
        Of the polynomial kernel.
    coef0 : float, default=1
        Constant term of poly and sigmoid.
    method : {"auto", "exact", "nystroem"}, default="auto"
        "exact" finds eigenpairs of the whole Gram matrix. "nystroem" knows it by landmarks only: one pass over the
        rows, memory independent of their number, and a bound on what is left out. "auto" is exact as long as that fits
        in memory and takes less than half an hour by nominal rates, and says so in ``plan_.reasons``.
    eigen_solver : {"auto", "dense", "arpack", "block_krylov", "power", "randomized"}, default="auto"
        "auto" is dense up to 2000 rows, block Krylov above; scikit-learn's "randomized" is block Krylov too. "power" is
        orthogonal iteration, the slow reference: as many passes as the spectrum asks for.
    gram : {"auto", "memory", "zarr", "recompute"}, default="auto"
        Where the tiles of the Gram matrix live: kept, stored, or evaluated in every pass. "auto" is the fastest that
        fits by the rates of this machine, or nominal ones until `skpca plan` or `plan` has measured it.
    n_landmarks : int, default=1000
        Nyström: number of landmarks, at most that of rows; the more, the smaller the certificate's trace residual.
    landmarks : {"uniform", "kmeans++", "rpcholesky"} or array, default="uniform"
        Nyström: rows drawn uniformly; spread out by k-means++ in a sample; by randomly pivoted Cholesky, which reaches
        decaying spectra and small clusters with far fewer landmarks, at some ten passes over the rows. An array of
        shape (m, n_features) are the landmarks themselves, one of integers the numbers of rows.
    tol : float or None, default=None
        Block Krylov and power: pairs are accepted when ‖K̃v − λv‖ ≤ tol·λ₁; None is 1e-6 with float32 tiles, 1e-9 with
        float64. ARPACK: None is 0, machine precision; a loosened one can miss eigenvalues of a cluster.
    max_passes : int or None, default=None
        Limit on visits of the whole matrix by an iterative solver; None is 100, for ARPACK 1000. 0 is Nyström, whatever
        `method`; with ``method="nystroem"`` a number ≥ 1 refines it by so many passes of block Krylov: after one the
        pairs are those of a Rayleigh–Ritz step, and `residual_history_` says how far each pass came.
    remove_zero_eig : bool, default=False
        Whether components whose eigenvalue counts as zero are dropped.
    indefinite : {"error", "clip"}, default="error"
        What to do with a kernel that is not positive semi-definite on the rows.
    on_failure : {"error", "return"}, default="error"
        What to do when a solver gives up, or a larger eigenvalue still shows after further solves: raise
        `NotConvergedError`, or keep what was found with ``certificate_.complete`` False and a warning. ARPACK that
        finds nothing in its passes always raises: it has nothing to keep.
    dtype : {"auto", "float64", "float32"}, default="auto"
        Of the tiles. "auto" is float64 up to 2000 rows and float32 above. Products and sums are float64, but for block
        Krylov on float32 tiles: products in float32, sums over strips and tiles in float64, and the bounds include it.
    memory_limit : int, str or None, default=None
        Peak memory of the process, in bytes or as text such as "700MiB"; None is 60 % of what is available.
    workdir : path or None, default=None
        Directory for stored tiles (gram="zarr") that may be reused: a killed fit, and one with another number of
        components, compute only the tiles that are missing. Passes of a killed solve are made again; only `skpca run`
        resumes those. A second fit at the same time waits. None is a temporary directory, removed after the fit.
    tile_rows : int or None, default=None
        Rows of a tile; planned by default.
    random_state : int or None, default=None
        Seed of start vectors and landmarks; None is 0, so that the same fit gives the same bits.
    n_jobs : int or None, default=None
        Threads; None is all processors. An active `distributed` client is used instead, and so is
        ``dask.config.set(scheduler="synchronous")``.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (n_components,), float64
        Of the centred Gram matrix, descending; those that count as zero are exactly 0.
    eigenvectors_ : ndarray of shape (n_samples, n_components), float64
        Unit columns; in each the entry of largest magnitude is positive. Exact and refined fits only.
    explained_variance_ratio_ : ndarray of shape (n_components,), float64
        Eigenvalues over the trace of the centred Gram matrix, which is exact; with Nyström a lower bound.
    certificate_ : Certificate or NystroemCertificate
        Residual norms, bounds, completeness; with Nyström the trace residual and what follows from it.
    landmarks_ : ndarray of shape (m, n_features)
        Nyström only.
    residual_history_ : list of ndarray
        Refined fits only: residual norms of the components after each pass.
    landmark_drift_ : float
        After `partial_fit` on a fitted estimator: share of the new rows' trace that the landmarks do not reach, over
        that of the rows before; well above 1, choose landmarks anew.
    gamma_ : float or None
        Resolved gamma, None for kernels without one.
    plan_ : Plan or NystroemPlan
        What the fit did, as decided before it began.
    n_passes_ : int
        Visits of the whole Gram matrix.
    model_ : Model or NystroemModel
        The fitted numbers; `save` writes them.
    n_features_in_ : int
        Features seen in `fit`.

    Notes
    -----
    Equivalent to `sklearn.decomposition.KernelPCA` with ``eigen_solver="dense"``, up to signs and rounding. Cost of a
    pass: n²/2 tile entries evaluated or read; block Krylov takes 4 to 6 passes, ARPACK some 50. Memory: the plan's
    `peak_memory`. Nyström is equivalent to `sklearn.kernel_approximation.Nystroem` and PCA with the same landmarks.

    References
    ----------
    Schölkopf, Smola and Müller (1998), Nonlinear component analysis as a kernel eigenvalue problem; equations as in
    Welling, Kernel principal components analysis (seed 000).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data[:300]
    >>> scores = KernelPCA(n_components=4, kernel="rbf", gamma="scale").fit_transform(X)
    >>> scores.shape
    (300, 4)
    """

    def __init__(
        self,
        n_components: int | float | None = 10,
        *,
        kernel: str = "linear",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1,
        method: str = "auto",
        eigen_solver: str = "auto",
        gram: str = "auto",
        n_landmarks: int = 1000,
        landmarks: Any = "uniform",
        tol: float | None = None,
        max_passes: int | None = None,
        remove_zero_eig: bool = False,
        indefinite: str = "error",
        on_failure: str = "error",
        dtype: str = "auto",
        memory_limit: int | str | None = None,
        workdir: str | Path | None = None,
        tile_rows: int | None = None,
        random_state: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.method = method
        self.eigen_solver = eigen_solver
        self.gram = gram
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.tol = tol
        self.max_passes = max_passes
        self.remove_zero_eig = remove_zero_eig
        self.indefinite = indefinite
        self.on_failure = on_failure
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.workdir = workdir
        self.tile_rows = tile_rows
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the components of X.

        Parameters
        ----------
        X : array-like, dask array or zarr array of shape (n_samples, n_features)
            Finite numbers; never modified.
        y : None
            Ignored.

        Returns
        -------
        KernelPCA
            The estimator itself.

        Raises
        ------
        InvalidInputError
            For rows with NaN or infinity (row and column are named), or an indefinite kernel.
        MemoryLimitError
            When the limit cannot hold the smallest plan.
        """
        del y
        with self._fitting(X, reset=True) as fitting:
            self._keep(fitting.run())
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows to a Nyström fit without reading the earlier ones again; the first call chooses the landmarks.

        Parameters
        ----------
        X : array-like, dask array or zarr array of shape (n_new, n_features)
            Finite numbers.
        y : None
            Ignored.

        Returns
        -------
        KernelPCA
            The estimator itself; the same, up to rounding, as one that was fitted on all rows at once with the same
            landmarks.

        Raises
        ------
        ConfigError
            When the estimator holds an exact fit, to which rows cannot be added.
        """
        del y
        if not hasattr(self, "model_"):
            with self._fitting(X, reset=True, method="nystroem") as fitting:
                self._keep(fitting.run())
            return self
        model = self.model_
        if not isinstance(model, NystroemModel):
            raise ConfigError("rows can be added to a Nyström fit only; set method='nystroem' and fit again.")
        before = model.certificate.relative_residual
        with self._fitting(X, reset=False) as fitting:
            added = fitting.add_to(model)
        self._keep_model(added.model)
        self.landmark_drift_ = added.residual / before if before > 0 else (1.0 if added.residual == 0 else np.inf)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float64]:
        """Fit and return the scores of the training rows, shape (n_samples, n_components): see `fit`."""
        del y
        self.fit(X)
        model = self.model_
        if not isinstance(model, NystroemModel):
            return model.training_scores
        X = self._validate(X, reset=False)
        return self._scores(X, model, active_kind() if is_dask(X) else "threads")

    def transform(self, X: Any) -> Any:
        """Scores of rows, shape (n_new, n_components), float64; a dask array gives a lazy dask array.

        Parameters
        ----------
        X : array-like or dask array of shape (n_new, n_features)
            Finite numbers.

        Returns
        -------
        ndarray or dask.array.Array

        Raises
        ------
        InvalidInputError
            For another number of features, or NaN or infinity.
        """
        check_is_fitted(self)
        X = self._validate(X, reset=False)
        if is_dask(X):
            return project_lazily(self.model_, X)
        if isinstance(self.model_, NystroemModel):
            return self._scores(X, self.model_, "threads", checked=False)
        return project(self.model_, X)

    def _scores(self, X: Any, model: NystroemModel, kind: str, *, checked: bool = True) -> NDArray[np.float64]:
        with open_engine(kind, n_threads=resolve_threads(self.n_jobs)) as engine:
            return scores_of(X, model, engine, checked=checked)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a new directory, to be read by `load_model`: see `model.save_model`."""
        check_is_fitted(self)
        save_model(self.model_, path)

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_components

    def _validate(self, X: Any, *, reset: bool = True) -> Any:
        if is_dask(X) or is_zarr(X):
            if len(X.shape) != 2 or 0 in X.shape:
                raise InvalidInputError(f"X has shape {X.shape}; a matrix with at least one row and column is needed.")
            if X.dtype.kind not in "fiub":
                raise InvalidInputError(
                    f"X has dtype {X.dtype}; real numbers are needed: encode or leave out other columns."
                )
            if reset:
                self.n_features_in_ = X.shape[1]
                if hasattr(self, "feature_names_in_"):
                    del self.feature_names_in_
            check_width(X.shape[1], self.n_features_in_)
            if is_dask(X) and np.isnan(X.shape[0]):
                X = X.compute_chunk_sizes()
            return X
        # finiteness is checked by our own streaming check, which names the row and column
        try:
            return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
        except ValueError as error:
            if "could not convert" not in str(error):
                raise
            raise InvalidInputError(
                f"X holds something that is not a number ({error}); encode or leave out columns of text and other "
                "objects."
            ) from error

    def _feature_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in getattr(self, "feature_names_in_", ()))

    def _n_components(self, n_samples: int) -> int | float | None:
        k = check_components(self.n_components)
        if not isinstance(k, int):
            return k
        if k > n_samples:
            warnings.warn(
                f"n_components={k} is more than the {n_samples} rows have; {n_samples} are computed.",
                UserWarning,
                stacklevel=3,
            )
        return min(k, n_samples)

    @contextlib.contextmanager
    def _workdir(self, engine: Engine) -> Iterator[Path]:
        if self.workdir is not None:
            with exclusive_directory(Path(self.workdir)) as workdir:
                yield workdir
        elif not engine.is_local:
            raise ConfigError(
                "the workers of this cluster may be on other machines and read the rows from a directory; set "
                "workdir to one that all of them see."
            )
        else:
            with tempfile.TemporaryDirectory(prefix="skpca-") as name:
                yield Path(name)

    @contextlib.contextmanager
    def _fitting(self, X: Any, *, reset: bool, method: str | None = None) -> Iterator[Fitting]:
        """Engine, working directory and checked rows of one fit."""
        with (
            open_engine(active_kind(), n_threads=resolve_threads(self.n_jobs)) as engine,
            self._workdir(engine) as workdir,
        ):
            X = self._validate(X, reset=reset)
            asked = {field.name: getattr(self, field.name) for field in dataclasses.fields(Options)}
            options = Options(**{**asked, "method": method or self.method})
            n_components = self._n_components(X.shape[0]) if reset else check_components(self.n_components)
            yield Fitting(X, n_components, options, engine, workdir, self._feature_names())

    def _keep(self, fitted: Fitted) -> None:
        for name in ("eigenvectors_", "landmarks_", "residual_history_", "landmark_drift_"):
            if hasattr(self, name):
                delattr(self, name)
        self.plan_ = fitted.plan
        if fitted.start is not None and isinstance(fitted.fit, ExactFit):
            self.residual_history_ = list(fitted.fit.residuals)
            self.landmarks_ = fitted.start.model.basis.landmarks
        self._keep_model(fitted.fit.model)

    def _keep_model(self, model: AnyModel) -> None:
        self.model_ = model
        self.eigenvalues_ = model.eigenvalues
        self.certificate_ = model.certificate
        self.explained_variance_ratio_ = model.certificate.explained_variance_ratio
        self.gamma_ = getattr(model.kernel, "gamma", None)
        self.n_passes_ = model.n_passes
        if isinstance(model, NystroemModel):
            self.landmarks_ = model.basis.landmarks
        else:
            self.eigenvectors_ = model.eigenvectors
