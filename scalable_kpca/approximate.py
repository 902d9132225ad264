"""A Nyström fit: spans of rows, landmarks and a plan in, a certified model out; and models that grow and merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError
from scalable_kpca.kernels import Kernel
from scalable_kpca.landmarks import Landmarks, look
from scalable_kpca.model import NystroemModel
from scalable_kpca.nystroem import (
    Accumulators,
    Basis,
    Spans,
    SumsCheckpoint,
    accumulate_spans,
    build_basis,
    in_features,
    solve_spectrum,
)
from scalable_kpca.source import is_sparse, row_width
from scalable_kpca.tiling import NystroemPlan, check_choice, plan_nystroem

__all__ = [
    "NystroemFit",
    "fit_nystroem",
    "merge",
    "plan_joining",
    "solve_model",
    "sums_of_joining",
]

Components = int | float | None


@dataclass(frozen=True, eq=False)
class NystroemFit:
    """A model and how it came about.

    Attributes
    ----------
    model : NystroemModel
    landmarks : Landmarks
        Which rows they are and how they were chosen.
    resumed_spans : int
        Spans of an interrupted pass that were not read again.
    selection : str
        How many components there are, and why.
    """

    model: NystroemModel
    landmarks: Landmarks
    resumed_spans: int = 0
    selection: str = ""


def fit_nystroem(
    spans: Spans,
    kernel: Kernel,
    plan: NystroemPlan,
    engine: Engine,
    landmarks: Landmarks,
    *,
    n_components: Components,
    indefinite: str = "error",
    remove_zero_eig: bool = False,
    feature_names: tuple[str, ...] = (),
    checkpoint: SumsCheckpoint | None = None,
) -> NystroemFit:
    """Nyström kernel PCA by the plan: one pass over the rows.

    Parameters
    ----------
    spans : sequence of Span
        Finite training rows.
    kernel : Kernel
        Resolved kernel.
    plan : NystroemPlan
    engine : Engine
        Where tasks run.
    landmarks : Landmarks
        From `choose_landmarks`.
    n_components : int, float or None
        Number of components; share of the variance that is certainly to be reached; None for all that are not zero.
    indefinite : {"error", "clip"}
        What to do with a kernel that is not positive semi-definite: refuse, or drop the negative part. Never features
        of |K|.
    remove_zero_eig : bool
        Whether components with eigenvalue zero are dropped.
    feature_names : tuple of str
        Kept in the model.
    checkpoint : SumsCheckpoint, optional
        Where an interrupted pass goes on.

    Returns
    -------
    NystroemFit

    Raises
    ------
    InvalidInputError
        For an indefinite kernel.

    Notes
    -----
    Cost: n·m kernel values and n·m² flops; memory as the plan says, whatever n.

    References
    ----------
    Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.
    """
    check_choice("indefinite", indefinite, ("error", "clip"))
    basis = build_basis(kernel, landmarks.rows, plan.dtype, n_samples=plan.n_samples, indefinite=indefinite)
    sums, resumed = accumulate_spans(spans, basis, plan.batch_rows, engine, checkpoint=checkpoint, wave=plan.sum_wave)
    model = solve_model(
        basis,
        sums,
        n_components,
        indefinite=indefinite,
        remove_zero_eig=remove_zero_eig,
        feature_names=feature_names,
    )
    return NystroemFit(model, landmarks, resumed, _selection(model, n_components))


def solve_model(
    basis: Basis,
    sums: Accumulators,
    n_components: Components,
    *,
    indefinite: str = "error",
    remove_zero_eig: bool = False,
    feature_names: tuple[str, ...] = (),
) -> NystroemModel:
    """Model of the rows of some sums: see `solve_spectrum`; no row is read."""
    if sums.n_samples == 0:
        raise ConfigError("a model needs at least one row, and the sums are over none.")
    found = solve_spectrum(basis, sums, n_components, indefinite=indefinite, remove_zero_eig=remove_zero_eig)
    return NystroemModel(basis, sums, found.eigenvalues, found.weights, found.offset, found.certificate, feature_names)


def plan_joining(
    model: NystroemModel,
    n_rows: int,
    *,
    memory_limit: int,
    n_threads: int,
    n_workers: int = 1,
    resident_bytes: int = 0,
    is_run: bool = False,
) -> NystroemPlan:
    """How rows that join a model are read, however few they are; the parameters are those of `plan_nystroem`."""
    landmarks = model.basis.landmarks
    return plan_nystroem(
        n_rows,
        row_width(landmarks) if is_sparse(landmarks) else model.n_features,
        n_components=model.n_components,
        # a search may have found fewer landmarks than components, the rest of which are zero
        n_landmarks=max(model.basis.n_landmarks, model.n_components),
        landmarks="given",
        dtype=model.dtype,
        memory_limit=memory_limit,
        n_threads=n_threads,
        n_workers=n_workers,
        resident_bytes=resident_bytes,
        is_run=is_run,
    )


def sums_of_joining(
    spans: Spans,
    model: NystroemModel,
    plan: NystroemPlan,
    engine: Engine,
    *,
    names: Sequence[str] = (),
    checkpoint: SumsCheckpoint | None = None,
) -> tuple[Accumulators, int]:
    """Sums over rows that join a model, which must be finite, and how many spans a checkpoint had done already."""
    look(engine, spans, n_features=model.n_features, names=names, batch_rows=plan.batch_rows)
    return accumulate_spans(spans, model.basis, plan.batch_rows, engine, checkpoint=checkpoint, wave=plan.sum_wave)


def merge(
    a: NystroemModel, b: NystroemModel, *, n_components: Components = 0, indefinite: str = "error"
) -> NystroemModel:
    """Model of the rows of both, as if they had been fitted at once, without a map back to rows; no row is read.

    Parameters
    ----------
    a, b : NystroemModel
        Fitted with the same landmarks, kernel and dtype on different rows.
    n_components : int, float or None, optional
        As in `fit_nystroem`; that of the larger model by default.
    indefinite : {"error", "clip"}
        As in `fit_nystroem`.

    Returns
    -------
    NystroemModel
        With the landmarks of both.

    Raises
    ------
    ConfigError
        When their landmarks, kernels or dtypes differ.

    Notes
    -----
    Any grouping gives the model of fitting at once up to the rounding of sums, n·eps·λ₁ at most, with float64. Cost:
    some 10·m³ flops.

    Examples
    --------
    >>> import numpy as np
    >>> from scalable_kpca import KernelPCA, merge
    >>> X = np.random.default_rng(0).normal(size=(3000, 4))
    >>> one, two = (KernelPCA(2, kernel="rbf", method="nystroem", landmarks=X[:100]).fit(part).model_
    ...             for part in (X[:1000], X[1000:]))
    >>> merge(one, two).n_samples
    3000
    """
    asked = max(a.n_components, b.n_components) if n_components == 0 else n_components
    basis, one, two = a.basis, a.sums, b.sums
    if basis.accumulates_features != b.basis.accumulates_features:
        # of fits of very different size: see build_basis
        (basis, one), (_, two) = in_features(basis, one), in_features(b.basis, two)
    return solve_model(basis, one + two, asked, indefinite=indefinite, feature_names=a.feature_names)


def _selection(model: NystroemModel, n_components: Components) -> str:
    k, certificate = model.n_components, model.certificate
    share = float(certificate.explained_variance_ratio.sum())
    if isinstance(n_components, float):
        return f"{k} components, the fewest certain to reach {n_components:.6g} of the variance: {share:.6f}"
    if n_components is None:
        return f"{k} components, all whose eigenvalue is not zero"
    return f"{k} components, as asked for"
