"""`KernelPCA`: parameters, and fits. Wiring only."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from scalable_kpca.engine import Engine, active_kind, open_engine
from scalable_kpca.errors import AccuracyWarning, ConfigError
from scalable_kpca.estimators.fitted import FittedKernelPCA
from scalable_kpca.estimators.inputs import copy_is_needed, held_bytes, read_input
from scalable_kpca.estimators.parameters import check_parameters, seed_of
from scalable_kpca.estimators.way_back_memory import FitWithRidge
from scalable_kpca.exact import ExactFit
from scalable_kpca.fitting import Fitted, Fitting, Options
from scalable_kpca.machine import resolve_threads
from scalable_kpca.model import AnyModel, NystroemModel
from scalable_kpca.staging import exclusive_directory, is_dask
from scalable_kpca.tiling import arpack_vectors, check_components

__all__ = ["KernelPCA"]

_OF_COLUMNS = ("n_features_in_", "feature_names_in_")

# attributes that not every fit sets: those of the last one go before the next
_OF_SOME_FITS = (
    "eigenvectors_",
    "landmarks_",
    "residual_history_",
    "landmark_drift_",
    "dual_coef_",
    "X_transformed_fit_",
    "_mean",
)


def _adds_rows(estimator: KernelPCA) -> bool:
    """Whether `partial_fit` is there; an AttributeError that says why not."""
    if estimator.kernel == "precomputed":
        raise AttributeError("rows cannot be added to a precomputed kernel: it has no values with new ones.")
    if estimator.max_passes:
        raise AttributeError("rows cannot be added to a fit that passes refine; set max_passes=None.")
    if estimator.method != "nystroem" and estimator.max_passes != 0:
        raise AttributeError("rows can be added to a Nyström fit only; set method='nystroem' and fit again.")
    return True


class KernelPCA(FittedKernelPCA):
    """Kernel PCA whose Gram matrix may be larger than memory, with a certificate on every result.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of components; 0 < float < 1 takes the smallest number whose explained-variance ratio reaches it; None
        takes every component that is not zero (of constant rows none): exact, O(n²) memory and O(n³) flops; where that
        does not fit, those of `n_landmarks` landmarks. With many rows, set it.
    kernel : str or callable, default="linear"
        Kernel function, with scikit-learn's meaning: linear, poly, rbf, sigmoid, laplacian, cosine, chi2,
        additive_chi2; "precomputed", where X is the Gram matrix; or matern12, matern32, matern52: Matérn with ν = 1/2,
        3/2 and 5/2. A function ``f(X, Y)`` of blocks of rows gives the block of kernel values, (a, d), (b, d) → (a, b);
        one of two rows that gives a number is called n²/2 times, and slow.
    gamma : float, "scale", "median" or None, default=None
        Coefficient of rbf, poly, sigmoid, laplacian, chi2 and Matérn, where it is 1/(2ℓ²) of the length scale ℓ, as for
        rbf. None is 1/n_features, "scale" is 1/(n_features · X.var()), "median" is 1/(2·med²), med the median distance
        between some rows.
    degree : float, default=3
        Of the polynomial kernel.
    coef0 : float, default=1
        Constant term of poly and sigmoid.
    kernel_params : dict or None, default=None
        More arguments of a kernel that is a function.
    alpha : float, default=1.0
        Ridge of the map back from scores to rows; scikit-learn's default, for kernels of order 1. Smaller ones, such as
        0.01, follow the rows more closely.
    fit_inverse_transform : bool, "ridge" or "fixed_point", default=False
        Whether `inverse_transform` is wanted. True is "ridge": a kernel ridge regression from scores to rows, learned
        on all rows up to 2000, on as many of them, or `n_landmarks`, beyond. "fixed_point" needs the rbf kernel: an
        iteration for each row (Mika et al. 1998), dearer, often better at taking noise away.
    method : {"auto", "exact", "nystroem"}, default="auto"
        "exact" finds eigenpairs of the whole Gram matrix. "nystroem" knows it by landmarks only: one pass over the
        rows, memory independent of their number, and a bound on what is left out. "auto" is exact as long as that fits
        in memory and takes less than half an hour by nominal rates; it warns when it is not.
    eigen_solver : {"auto", "dense", "arpack", "block_krylov", "power", "randomized"}, default="auto"
        "auto" is dense up to 2000 rows, block Krylov above; scikit-learn's "randomized" is block Krylov too. "dense"
        forms the matrix: LAPACK, or for few pairs of more than 200 rows Lanczos with a proof. "power" is orthogonal
        iteration, the slow reference: as many passes as the spectrum asks for.
    gram : {"auto", "memory", "zarr", "recompute"}, default="auto"
        Where the tiles of the Gram matrix live: kept, stored, or evaluated in every pass. "auto" is the fastest that
        fits by the rates of this machine, or nominal ones until `skpca plan` or `plan` has measured it.
    n_landmarks : int, default=1000
        Nyström: number of landmarks, at most that of rows; the more, the smaller the certificate's trace residual.
    landmarks : {"uniform", "kmeans++", "rpcholesky"} or array, default="uniform"
        Nyström: rows drawn uniformly; spread out by k-means++ in a sample; by randomly pivoted Cholesky, which reaches
        decaying spectra and small clusters with far fewer landmarks, at some ten passes over the rows. An array of
        shape (m, n_features) are the landmarks themselves, one of integers the numbers of rows.
    tol : float, default=0
        Block Krylov and power: pairs are accepted when ‖K̃v − λv‖ ≤ tol·λ₁; 0, like None, is 1e-6 with float32 tiles,
        1e-9 with float64. ARPACK: 0 is machine precision; a loosened one can miss eigenvalues of a cluster.
    max_iter : int or None, default=None
        ARPACK: limit on its restarts, each of some 20 passes.
    iterated_power : "auto" or int, default="auto"
        Of scikit-learn's randomized solver; not needed here: block Krylov iterates until it has converged.
    max_passes : int or None, default=None
        Limit on visits of the whole matrix by an iterative solver, beside which the certificate may make some of its
        own; None is 100, for ARPACK 1000. 0 is Nyström, whatever `method`; with ``method="nystroem"`` a number ≥ 1
        refines it by so many passes of block Krylov: after one the pairs are those of a Rayleigh–Ritz step, and
        `residual_history_` says how far each pass came.
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
    random_state : int, RandomState, Generator or None, default=None
        Seed of start vectors and landmarks; None is 0, so that the same fit gives the same bits.
    copy_X : bool, default=True
        Whether an exact fit keeps a copy of rows in memory, but for files that are mapped to be read. With False the
        model refers to X: do not write to it. X is never written to, nor is a precomputed kernel.
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
    X_fit_ : ndarray, CSR array or rows on disk, of shape (n_samples, n_features)
        Training rows of an exact fit.
    dual_coef_ : ndarray of shape (m, n_features), float64
        With the ridge map: its coefficients; scikit-learn's where all m = n_samples rows are used and their mean is 0.
    X_transformed_fit_ : ndarray of shape (m, n_components), float64
        With the ridge map: scores of the rows that it was learned on.
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
    Equivalent to `sklearn.decomposition.KernelPCA` with ``eigen_solver="dense"``, up to signs and rounding; what
    differs is in docs/compatibility.md. Nyström is equivalent to `sklearn.kernel_approximation.Nystroem` and PCA with
    the same landmarks. Cost of a pass: n²/2 tile entries evaluated or read; block Krylov takes 4 to 6 passes, ARPACK
    some 50. Memory: the plan's `peak_memory`.

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
        n_components: int | float | None = None,
        *,
        kernel: str | Callable[..., Any] = "linear",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
        alpha: float = 1.0,
        fit_inverse_transform: bool | str = False,
        method: str = "auto",
        eigen_solver: str = "auto",
        gram: str = "auto",
        n_landmarks: int = 1000,
        landmarks: Any = "uniform",
        tol: float | None = 0,
        max_iter: int | None = None,
        iterated_power: int | str = "auto",
        max_passes: int | None = None,
        remove_zero_eig: bool = False,
        indefinite: str = "error",
        on_failure: str = "error",
        dtype: str = "auto",
        memory_limit: int | str | None = None,
        workdir: str | Path | None = None,
        tile_rows: int | None = None,
        random_state: Any = None,
        copy_X: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.method = method
        self.eigen_solver = eigen_solver
        self.gram = gram
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.tol = tol
        self.max_iter = max_iter
        self.iterated_power = iterated_power
        self.max_passes = max_passes
        self.remove_zero_eig = remove_zero_eig
        self.indefinite = indefinite
        self.on_failure = on_failure
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.workdir = workdir
        self.tile_rows = tile_rows
        self.random_state = random_state
        self.copy_X = copy_X
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the components of X.

        Parameters
        ----------
        X : array-like, dask array or dataframe, zarr array, table of pandas or pyarrow, or scipy sparse matrix
            Rows of finite numbers, shape (n_samples, n_features); or a symmetric kernel, (n_samples, n_samples). Never
            modified.
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
            self._keep(fitting.run(), fitting.seed)
        return self

    @available_if(_adds_rows)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows to a Nyström fit without reading the earlier ones again; the first call chooses the landmarks.

        There only with ``method="nystroem"`` (or ``max_passes=0``), without passes that refine, and not for a
        precomputed kernel, which has no values with new rows.

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
            return self.fit(X)
        model = self.model_
        if not isinstance(model, NystroemModel):
            raise ConfigError("rows can be added to a Nyström fit only; set method='nystroem' and fit again.")
        before = model.certificate.relative_residual
        with self._fitting(X, reset=False) as fitting:
            added = fitting.add_to(model)
            grown = self._with_way_back(added.model, fitting.seed)
        self._keep_model(grown)
        self._keep_way_back()
        self.landmark_drift_ = added.residual / before if before > 0 else (1.0 if added.residual == 0 else np.inf)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float64]:
        """Fit and return the scores of the training rows: see `fit`.

        Parameters
        ----------
        X : as in `fit`
            Rows.
        y : ignored
            There for pipelines of scikit-learn.

        Returns
        -------
        ndarray of shape (n_samples, n_components), float64
            In memory, whatever X is.
        """
        del y
        self.fit(X)
        model = self.model_
        if not isinstance(model, NystroemModel):
            return model.training_scores
        X = self._read(X)
        return self._scores(X, model, active_kind() if is_dask(X) else "threads")

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
                stacklevel=5,
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
    def _fitting(self, X: Any, *, reset: bool) -> Iterator[Fitting]:
        """Engine, working directory and rows of one fit."""
        self._check_parameters()
        with (
            _unless_it_fails(self),
            open_engine(active_kind(), n_threads=resolve_threads(self.n_jobs)) as engine,
            self._workdir(engine) as workdir,
        ):
            rows = read_input(self, X, reset=reset, accept_sparse=self.kernel != "precomputed")
            k = self._n_components(rows.shape[0]) if reset else check_components(self.n_components)
            options = self._options(rows.shape[0])
            copies, held = bool(self.copy_X) and copy_is_needed(rows, X), held_bytes(rows, X)
            model = self.model_ if not reset and isinstance(self.model_, NystroemModel) else None
            self._check_way_back(FitWithRidge(rows, k, options, self._most_pairs, model, copies, held))
            yield Fitting(rows, k, options, engine, workdir, self._feature_names(), copies=copies, held_bytes=held)

    def _options(self, n_samples: int) -> Options:
        asked = {field.name: getattr(self, field.name) for field in fields(Options) if hasattr(self, field.name)}
        max_passes = self.max_passes
        if max_passes is None and self.max_iter is not None and self.eigen_solver == "arpack":
            k = self.n_components if isinstance(self.n_components, int) else n_samples
            vectors = arpack_vectors(n_samples, k)
            max_passes = vectors + self.max_iter * max(1, vectors - k)
        return Options(**{**asked, "max_passes": max_passes, "seed": seed_of(self.random_state)})

    def _check_parameters(self) -> None:
        """What can be said before X is read: what cannot be, alone or together, and parameters without effect."""
        check_parameters(self)
        self._check_way_back_parameters()
        if self.iterated_power != "auto":
            warnings.warn(
                f"iterated_power={self.iterated_power!r} has no effect: block Krylov, which stands for the randomized "
                "solver, iterates until it has converged; max_passes limits that.",
                UserWarning,
                stacklevel=5,
            )
        if self.kernel_params and not callable(self.kernel):
            warnings.warn(
                f"kernel_params has no effect with kernel={self.kernel!r}: it is for kernels that are functions; set "
                "gamma, degree and coef0 themselves.",
                UserWarning,
                stacklevel=5,
            )

    def _keep(self, fitted: Fitted, seed: int) -> None:
        model = self._with_way_back(fitted.fit.model, seed)  # what fails leaves the last fit as it was
        for name in _OF_SOME_FITS:
            if hasattr(self, name):
                delattr(self, name)
        self.plan_ = fitted.plan
        if fitted.start is not None and isinstance(fitted.fit, ExactFit):
            self.residual_history_ = list(fitted.fit.residuals)
            self.landmarks_ = fitted.start.model.basis.landmarks
        self._keep_model(model)
        self._keep_way_back()
        if self.method == "auto" and self.max_passes != 0 and isinstance(fitted.fit.model, NystroemModel):
            warnings.warn(
                f"the result is approximate, and certificate_ says how far ({fitted.plan.reasons[0]}); set method to "
                "'nystroem' where that is meant, or to 'exact'.",
                AccuracyWarning,
                stacklevel=3,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

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


@contextlib.contextmanager
def _unless_it_fails(estimator: KernelPCA) -> Iterator[None]:
    """What is kept of the columns of X goes back to what it was when the fit fails, as all else does."""
    known = {name: getattr(estimator, name) for name in _OF_COLUMNS if hasattr(estimator, name)}
    try:
        yield
    except BaseException:
        for name in _OF_COLUMNS:
            if name in known:
                setattr(estimator, name, known[name])
            elif hasattr(estimator, name):
                delattr(estimator, name)
        raise
