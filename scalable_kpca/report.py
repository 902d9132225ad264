"""Numbers of a fit as JSON values and as a few lines of text."""

from __future__ import annotations

from typing import Any

from dask.utils import format_bytes

from scalable_kpca.exact import ExactFit
from scalable_kpca.model import Model
from scalable_kpca.tiling import Plan

__all__ = ["metrics", "plan_lines", "summary_lines"]


def metrics(model: Model) -> dict[str, Any]:
    """What a person or a monitor wants to know about a model, as JSON values."""
    return {
        "n_samples": model.rows.n_samples,
        "n_features": model.rows.n_features,
        "n_components": model.n_components,
        "kernel": model.kernel.to_json(),
        "solver": model.solver,
        "n_passes": model.n_passes,
        "tile_dtype": model.dtype,
        "eigenvalues": model.eigenvalues.tolist(),
        "covariance_eigenvalues": (model.eigenvalues / model.rows.n_samples).tolist(),
        "certificate": model.certificate.to_json(),
        "effective_rank": model.certificate.effective_rank,
        "explained_variance": float(model.certificate.explained_variance_ratio.sum()),
    }


def plan_lines(plan: Plan) -> list[str]:
    """A plan for people, one fact a line."""
    wanted = f"{plan.n_components} components" if plan.n_components else "as many components as the spectrum asks for"
    facts = {
        "job": f"exact kernel PCA, {plan.n_samples} rows × {plan.n_features} features, {wanted}",
        "tiles": f"{plan.n_tiles} of {plan.tile_rows} × {plan.tile_rows} {plan.dtype}, {format_bytes(plan.gram_bytes)}",
        "home": plan.gram,
        "solver": plan.solver,
        "passes": f"about {plan.expected_passes}, {plan.n_tasks} tasks of ≤ {plan.tiles_per_task} tiles each",
        "threads": str(plan.n_threads),
        "time": _duration(plan.seconds),
        "memory": f"at most {format_bytes(plan.peak_memory)} of {format_bytes(plan.memory_limit)} allowed",
        "disk": f"{format_bytes(plan.disk_bytes)} of tiles",
    }
    lines = [f"{name:>8}  {text}" for name, text in facts.items()]
    return [*lines, *(f"{'because':>8}  {reason}" for reason in plan.reasons), "", *_comparison(plan)]


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
            _duration(way.seconds),
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


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def summary_lines(fit: ExactFit, seconds: float) -> list[str]:
    """What was found, in four lines; the caller adds where it is."""
    model, counts, certificate = fit.model, fit.build_counts, fit.model.certificate
    values = ", ".join(f"{value:.6g}" for value in model.eigenvalues[:5])
    more = ", …" if model.n_components > 5 else ""
    parameters = ", ".join(f"{name}={value:.6g}" for name, value in model.kernel.to_json().items() if name != "name")
    proven = "complete" if certificate.complete else "completeness"
    return [
        f"exact kernel PCA of {model.rows.n_samples} rows × {model.rows.n_features} features, kernel "
        f"{model.kernel.name}({parameters}): {fit.selection}",
        f"eigenvalues {values}{more}; they explain {certificate.explained_variance_ratio.sum():.2%} of the variance",
        f"residual norms ≤ {certificate.residual_norms.max():.2g}; {proven}: {certificate.completeness}",
        f"{counts.computed} tiles computed ({counts.repaired} repaired), {counts.read} found, {model.n_passes} passes "
        f"with {model.solver}, {seconds:.1f} s",
    ]
