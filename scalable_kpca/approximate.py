"""A Nyström fit: spans of rows, landmarks and a plan in, a certified model out; and models that grow and merge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError
from scalable_kpca.kernels import Kernel
from scalable_kpca.landmarks import Landmarks
from scalable_kpca.model import NystroemModel
from scalable_kpca.nystroem import (
    Accumulators,
    Basis,
    Projection,
    SumsCheckpoint,
    accumulate,
    build_basis,
    in_features,
    leading_pairs,
    solve_spectrum,
)
from scalable_kpca.source import Span
from scalable_kpca.streaming import WAVE, BlockSpan, map_spans, reduce_spans
from scalable_kpca.tiling import NystroemPlan, check_choice

__all__ = [
    "NystroemFit",
    "accumulate_spans",
    "fit_nystroem",
    "merge",
    "refinement_start",
    "solve_model",
    "training_scores",
]

Matrix = NDArray[np.float64]
Components = int | float | None
Spans = Sequence[Span | BlockSpan]


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
        For an indefinite kernel, or fewer landmarks than components.

    Notes
    -----
    Cost: n·m kernel values and n·m² flops; memory as the plan says, whatever n.

    References
    ----------
    Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.
    """
    check_choice("indefinite", indefinite, ("error", "clip"))
    basis = build_basis(kernel, landmarks.rows, plan.dtype, n_samples=plan.n_samples, indefinite=indefinite)
    sums, resumed = accumulate_spans(spans, basis, plan.batch_rows, engine, checkpoint=checkpoint)
    model = solve_model(
        basis,
        sums,
        n_components,
        indefinite=indefinite,
        remove_zero_eig=remove_zero_eig,
        feature_names=feature_names,
    )
    return NystroemFit(model, landmarks, resumed, _selection(model, n_components))


def accumulate_spans(
    spans: Spans, basis: Basis, batch_rows: int, engine: Engine, *, checkpoint: SumsCheckpoint | None = None
) -> tuple[Accumulators, int]:
    """Sums over all rows, added in the order of the spans, and how many spans a checkpoint had done already.

    Where there is a checkpoint it is written after every wave.
    """
    first, total = checkpoint.load(basis) if checkpoint else (0, Accumulators.zero(basis))
    waves = reduce_spans(
        engine, spans, accumulate, basis, batch_rows, add=Accumulators.__add__, stage="accumulate", first=first
    )
    for done, part in waves:
        total += part
        if checkpoint is not None:
            checkpoint.save(basis, done, total)
    return total, first


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


def merge(
    a: NystroemModel, b: NystroemModel, *, n_components: Components = 0, indefinite: str = "error"
) -> NystroemModel:
    """Model of the rows of both, as if they had been fitted at once; no row is read.

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


def refinement_start(
    basis: Basis, sums: Accumulators, spans: Spans, engine: Engine, *, n_columns: int, batch_rows: int
) -> Matrix:
    """Approximate eigenvectors of all rows from which passes over K go on, shape (n_samples, ≤ n_columns), float64."""
    values, weights, offset = leading_pairs(basis, sums, min(n_columns, basis.rank))
    projection = Projection(basis, weights[:, values > 0], offset[values > 0])
    return np.concatenate(list(training_scores(spans, projection, engine, batch_rows)))


def training_scores(
    spans: Spans, projection: Projection, engine: Engine, batch_rows: int, *, wave: int = WAVE
) -> Iterator[Matrix]:
    """Scores of each span in order, shape (n_rows, k), float64: a second pass over the rows."""
    return map_spans(engine, spans, _scores, projection, batch_rows, stage="score", wave=wave)


def _scores(span: Span, projection: Projection, batch_rows: int) -> Matrix:
    return np.concatenate([projection(batch.rows) for batch in span.batches(batch_rows)])


def _selection(model: NystroemModel, n_components: Components) -> str:
    k, certificate = model.n_components, model.certificate
    share = float(certificate.explained_variance_ratio.sum())
    if isinstance(n_components, float):
        return f"{k} components, the fewest certain to reach {n_components:.6g} of the variance: {share:.6f}"
    if n_components is None:
        return f"{k} components, all whose eigenvalue is not zero"
    return f"{k} components, as asked for"
