"""The results of a run: model, scores beside labels, numbers, and how they came about."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.disk import remove_tree
from scalable_kpca.exact import ExactFit
from scalable_kpca.health import score_bins
from scalable_kpca.machine import installed_version, peak_memory
from scalable_kpca.model import Model, save_model
from scalable_kpca.report import metrics
from scalable_kpca.workflow.columns import training_columns
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.files import write_json
from scalable_kpca.workflow.health import write_profile
from scalable_kpca.workflow.identity import Prepared
from scalable_kpca.workflow.inverse import learn_map
from scalable_kpca.workflow.layout import RESULTS, RunDirectory
from scalable_kpca.workflow.parts import NOVELTY, part_name, with_scores
from scalable_kpca.workflow.score_files import writing_scores
from scalable_kpca.workflow.watching import look_at_rows

__all__ = ["run_description", "write_results"]

Vector = NDArray[np.float64]


def write_results(
    prepared: Prepared, run: RunDirectory, fit: ExactFit, seconds: float, workers: list[dict[str, Any]]
) -> None:
    """Write every result of a run that is not committed; what an earlier attempt left is replaced."""
    for name in RESULTS:
        remove_tree(run.path / name)
    model = replace(learn_map(fit.model, prepared.config), preparation=prepared.preparation)
    save_model(model, run.path / "model")
    beside = training_columns(model, prepared.config.beside)
    _write_embedding(prepared, run, model, beside)
    share = None
    if prepared.config.health:
        seen = look_at_rows(model.rows, model.training_scores, model.tile_rows, columns=prepared.survey is None)
        bins = score_bins(model.training_scores, beside.get(NOVELTY))
        write_profile(run.path, prepared.source, prepared.survey or seen.survey(), bins)
        share = seen.linear_share()
    write_json(run.path / "metrics.json", metrics(model, share))
    counts = fit.build_counts
    description = run_description(prepared.config, prepared.fingerprint, seconds, workers)
    description |= {
        "plan": prepared.plan.to_json(),
        "tiles": {"computed": counts.computed, "read": counts.read, "repaired": counts.repaired},
        "n_passes": fit.model.n_passes,
        "resumed_passes": fit.resumed_passes,
        "residuals_by_pass": [norms.tolist() for norms in fit.residuals],
    }
    write_json(run.path / "run.json", description)


def run_description(config: Config, fingerprint: str, seconds: float, workers: list[dict[str, Any]]) -> dict[str, Any]:
    """What every run says of itself: what was asked for, when, where, with which libraries and by which workers.

    The peak of memory is that of this process since it began: of worker processes it knows nothing.
    """
    return {
        "fingerprint": fingerprint,
        # what a library needs to start a cluster is nobody else's business
        "config": config.model_dump(mode="json", by_alias=True, exclude={"cluster": {"options"}}),
        "seconds": round(seconds, 3),
        "peak_memory": peak_memory(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": platform.node(),
        "workers": workers,
        "versions": {
            name: installed_version(name) for name in ("scalable-kpca", "dask", "numpy", "scipy", "zarr", "pyarrow")
        },
    }


def _write_embedding(prepared: Prepared, run: RunDirectory, model: Model, beside: Mapping[str, Vector]) -> None:
    """One part for each input part: its labels and the scores of the same rows."""
    import pyarrow.parquet as pq

    scores, start = model.training_scores, 0
    rows, form = [part.n_rows for part in prepared.source.parts], prepared.config.output.format
    with writing_scores(run.path, rows, form=form, n_components=model.n_components, beside=list(beside)) as parts:
        for index, n_rows in enumerate(rows):
            labels = pq.read_table(run.path / "labels" / part_name(index))
            stop = start + n_rows
            own = {name: values[start:stop] for name, values in beside.items()}
            parts.add(index, with_scores(labels, scores[start:stop], own))
            start = stop
