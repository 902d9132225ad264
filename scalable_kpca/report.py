"""Numbers of a fit as JSON values and as a few lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dask.utils import format_bytes

from scalable_kpca.approximate import NystroemFit
from scalable_kpca.exact import ExactFit
from scalable_kpca.health import LinearShare
from scalable_kpca.model import AnyModel, NystroemModel
from scalable_kpca.nystroem import NystroemCertificate
from scalable_kpca.tiling import NystroemPlan, Plan

__all__ = ["format_duration", "metrics", "plan_lines", "summary_lines"]


def metrics(model: AnyModel, share: LinearShare | None = None) -> dict[str, Any]:
    """What a person or a monitor wants to know about a model, as JSON values; with what PCA has of its scores."""
    certificate = model.certificate
    if isinstance(certificate, NystroemCertificate):
        of_method = {"method": "nystroem", "relative_residual": certificate.relative_residual}
    else:
        of_method = {"method": "exact", "effective_rank": certificate.effective_rank}
    return of_method | {
        "n_samples": model.n_samples,
        "n_features": model.n_features,
        "n_components": model.n_components,
        "kernel": model.kernel.to_json(),
        "solver": model.solver,
        "n_passes": model.n_passes,
        "tile_dtype": model.dtype,
        "eigenvalues": model.eigenvalues.tolist(),
        "covariance_eigenvalues": (model.eigenvalues / model.n_samples).tolist(),
        "certificate": model.certificate.to_json(),
        "explained_variance": float(model.certificate.explained_variance_ratio.sum()),
        "linear_share": None if share is None else share.to_json(),
    }


def plan_lines(plan: Plan | NystroemPlan) -> list[str]:
    """A plan for people, one fact a line."""
    if isinstance(plan, NystroemPlan):
        return _nystroem_plan(plan)
    facts = {
        "job": f"exact kernel PCA, {plan.n_samples} rows × {plan.n_features} features, {_wanted(plan.n_components)}",
        "tiles": f"{plan.n_tiles} of {plan.tile_rows} × {plan.tile_rows} {plan.dtype}, {format_bytes(plan.gram_bytes)}",
        "home": plan.gram,
        "solver": plan.solver,
        "passes": f"about {plan.expected_passes}, {plan.n_tasks} tasks of ≤ {plan.tiles_per_task} tiles each",
        "threads": _threads(plan),
        "time": format_duration(plan.seconds),
        "memory": f"at most {format_bytes(plan.peak_memory)} of {format_bytes(plan.memory_limit)} allowed",
        "disk": f"{format_bytes(plan.disk_bytes)} of tiles",
    }
    return [*_listed(facts, plan.reasons), "", *_comparison(plan)]


def _nystroem_plan(plan: NystroemPlan) -> list[str]:
    shape = f"{plan.n_samples} rows × {plan.n_features} features"
    facts = {
        "job": f"Nyström kernel PCA, {shape}, {_wanted(plan.n_components)}",
        "landmarks": f"{plan.n_landmarks}, {plan.landmarks}; kernel values in {plan.dtype}",
        "spans": f"{plan.n_spans} of about {plan.span_rows} rows, {plan.batch_rows} at a time",
        "reads": f"about {plan.row_passes} of all rows, {plan.kernel_values:.3g} kernel values",
        "threads": _threads(plan),
        "time": format_duration(plan.seconds),
        "memory": f"at most {format_bytes(plan.peak_memory)} of {format_bytes(plan.memory_limit)} allowed",
    }
    return _listed(facts, plan.reasons)


def _threads(plan: Plan | NystroemPlan) -> str:
    return str(plan.n_threads) + (f" in each of {plan.n_workers} processes" if plan.n_workers > 1 else "")


def _wanted(n_components: int) -> str:
    return f"{n_components} components" if n_components else "as many components as the spectrum asks for"


def _listed(facts: dict[str, str], reasons: Sequence[str]) -> list[str]:
    width = max(map(len, facts))
    lines = [f"{name:>{width}}  {text}" for name, text in facts.items()]
    return [*lines, *(f"{'because':>{width}}  {reason}" for reason in reasons)]


def _comparison(plan: Plan) -> list[str]:
    """The ways that were compared as a table, the chosen one first."""
    header = ("home", "solver", "bytes", "passes", "tasks", "time", "memory", "")
    rows = [
        (
            way.gram,
            way.solver,
            format_bytes(way.n_bytes),
            str(way.passes),
            str(plan.n_tasks),
            format_duration(way.seconds),
            format_bytes(way.peak_memory),
            way.verdict,
        )
        for way in plan.alternatives
    ]
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(row: tuple[str, ...]) -> str:
        names = [row[column].ljust(widths[column]) for column in (0, 1)]
        numbers = [row[column].rjust(widths[column]) for column in range(2, len(row) - 1)]
        return "  ".join([*names, *numbers, row[-1]]).rstrip()

    return [line(header), *map(line, rows)]


def format_duration(seconds: float | None) -> str:
    """Seconds in the unit that people would use; "unknown" for None."""
    if seconds is None:
        return "unknown"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def summary_lines(fit: ExactFit | NystroemFit, seconds: float) -> list[str]:
    """What was found, in four lines; the caller adds where it is."""
    if isinstance(fit, NystroemFit):
        return _nystroem_summary(fit.model, fit.selection, fit.landmarks.method, seconds)
    model, counts, certificate = fit.model, fit.build_counts, fit.model.certificate
    proven = "complete" if certificate.complete else "completeness"
    return [
        f"exact {_what(model)}: {fit.selection}",
        f"{_values(model)}; they explain {certificate.explained_variance_ratio.sum():.2%} of the variance",
        f"residual norms ≤ {certificate.residual_norms.max(initial=0.0):.2g}; {proven}: {certificate.completeness}",
        f"{counts.computed} tiles computed ({counts.repaired} repaired), {counts.read} found, {model.n_passes} passes "
        f"with {model.solver}, {seconds:.1f} s",
    ]


def _nystroem_summary(model: NystroemModel, selection: str, landmarks: str, seconds: float) -> list[str]:
    certificate = model.certificate
    low, high = float(certificate.explained_variance_ratio.sum()), certificate.explained_variance_bound
    share = f"they explain {low:.2%} to {high:.2%} of the variance" if certificate.certified else "not certified"
    residual, rounding = certificate.trace_residual, certificate.rounding
    return [
        f"Nyström {_what(model)}: {selection}",
        f"{_values(model)}; {share}",
        f"trace residual {residual:.6g} (± {rounding:.2g} of rounding): no eigenvalue is larger by more; "
        f"{certificate.completeness}",
        f"{certificate.n_landmarks} landmarks ({landmarks}), {seconds:.1f} s",
    ]


def _what(model: AnyModel) -> str:
    parameters = ", ".join(f"{name}={value:.6g}" for name, value in model.kernel.to_json().items() if name != "name")
    return (
        f"kernel PCA of {model.n_samples} rows × {model.n_features} features, kernel {model.kernel.name}({parameters})"
    )


def _values(model: AnyModel) -> str:
    if model.n_components == 0:
        return "no eigenvalue that is not zero"
    values = ", ".join(f"{value:.6g}" for value in model.eigenvalues[:5])
    return f"eigenvalues {values}" + (", …" if model.n_components > 5 else "")
