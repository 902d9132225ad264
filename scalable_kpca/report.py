"""Numbers of a fit as JSON values and as a few lines of text."""

from __future__ import annotations

from typing import Any

from dask.utils import format_bytes

from scalable_kpca.gram import TileCounts
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
        "threads": str(plan.n_threads),
        "memory": f"at most {format_bytes(plan.peak_memory)} of {format_bytes(plan.memory_limit)} allowed",
    }
    lines = [f"{name:>8}  {text}" for name, text in facts.items()]
    return lines + [f"{'because':>8}  {reason}" for reason in plan.reasons]


def summary_lines(model: Model, counts: TileCounts, seconds: float) -> list[str]:
    """What was found, in four lines; the caller adds where it is."""
    certificate = model.certificate
    values = ", ".join(f"{value:.6g}" for value in model.eigenvalues[:5])
    more = ", …" if model.n_components > 5 else ""
    parameters = ", ".join(f"{name}={value:.6g}" for name, value in model.kernel.to_json().items() if name != "name")
    proven = "complete" if certificate.complete else "completeness"
    return [
        f"exact kernel PCA of {model.rows.n_samples} rows × {model.rows.n_features} features, kernel "
        f"{model.kernel.name}({parameters}): {model.n_components} components",
        f"eigenvalues {values}{more}; they explain {certificate.explained_variance_ratio.sum():.2%} of the variance",
        f"residual norms ≤ {certificate.residual_norms.max():.2g}; {proven}: {certificate.completeness}",
        f"{counts.computed} tiles computed ({counts.repaired} repaired), {counts.read} found, {model.n_passes} passes "
        f"with {model.solver}, {seconds:.1f} s",
    ]
