"""The results of a run: model, scores beside labels, numbers, and how they came about."""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.disk import remove_tree
from scalable_kpca.exact import ExactFit
from scalable_kpca.health import score_bins
from scalable_kpca.machine import installed_version, peak_memory
from scalable_kpca.model import Model, save_model
from scalable_kpca.novelty import training_novelty
from scalable_kpca.report import metrics
from scalable_kpca.source import PreparedSource
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.files import write_json
from scalable_kpca.workflow.health import write_profile
from scalable_kpca.workflow.identity import Prepared
from scalable_kpca.workflow.layout import RESULTS, RunDirectory
from scalable_kpca.workflow.parts import part_name, with_scores, write_part
from scalable_kpca.workflow.watching import survey_rows

__all__ = ["run_description", "write_results"]

Vector = NDArray[np.float64]


def write_results(prepared: Prepared, run: RunDirectory, fit: ExactFit, seconds: float) -> None:
    """Write every result of a run that is not committed; what an earlier attempt left is replaced."""
    for name in RESULTS:
        remove_tree(run.path / name)
    save_model(replace(fit.model, preparation=prepared.preparation), run.path / "model")
    novelty = training_novelty(fit.model) if prepared.config.novelty else None
    _write_embedding(prepared, run, fit.model, novelty)
    if prepared.config.health:
        source = prepared.source
        found = source.found if isinstance(source, PreparedSource) else None
        found = survey_rows(fit.model.rows, fit.model.tile_rows) if found is None else found
        write_profile(run.path, source, found, score_bins(fit.model.training_scores, novelty))
    write_json(run.path / "metrics.json", metrics(fit.model))
    counts = fit.build_counts
    description = run_description(prepared.config, prepared.fingerprint, seconds)
    description |= {
        "plan": prepared.plan.to_json(),
        "tiles": {"computed": counts.computed, "read": counts.read, "repaired": counts.repaired},
        "n_passes": fit.model.n_passes,
        "resumed_passes": fit.resumed_passes,
        "residuals_by_pass": [norms.tolist() for norms in fit.residuals],
    }
    write_json(run.path / "run.json", description)


def run_description(config: Config, fingerprint: str, seconds: float) -> dict[str, Any]:
    """What every run says of itself: what was asked for, when, where, with which libraries.

    The peak of memory is that of this process since it began: of worker processes it knows nothing.
    """
    return {
        "fingerprint": fingerprint,
        "config": config.model_dump(mode="json"),
        "seconds": round(seconds, 3),
        "peak_memory": peak_memory(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": platform.node(),
        "versions": {
            name: installed_version(name) for name in ("scalable-kpca", "dask", "numpy", "scipy", "zarr", "pyarrow")
        },
    }


def _write_embedding(prepared: Prepared, run: RunDirectory, model: Model, novelty: Vector | None) -> None:
    """One part for each input part: its labels and the scores of the same rows."""
    import pyarrow.parquet as pq

    directory = run.path / "embedding"
    directory.mkdir()
    scores, start = model.training_scores, 0
    for index, part in enumerate(prepared.source.parts):
        labels = pq.read_table(run.path / "labels" / part_name(index))
        stop = start + part.n_rows
        own = None if novelty is None else novelty[start:stop]
        write_part(with_scores(labels, scores[start:stop], own), directory / part_name(index))
        start = stop
