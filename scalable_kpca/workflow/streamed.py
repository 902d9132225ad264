"""A Nyström run: landmarks, sums and scores from the source's own files, of which nothing is copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.approximate import NystroemFit, accumulate_spans, fit_nystroem, refinement_start
from scalable_kpca.engine import Engine
from scalable_kpca.errors import ConfigError
from scalable_kpca.kernels import Kernel
from scalable_kpca.landmarks import Landmarks, choose_landmarks, look, sample_size
from scalable_kpca.model import save_model
from scalable_kpca.nystroem import SumsCheckpoint, build_basis
from scalable_kpca.records import digest_arrays, read_record, write_record
from scalable_kpca.report import metrics
from scalable_kpca.source import Rows, RowSummary, row_spans
from scalable_kpca.tiling import NystroemPlan
from scalable_kpca.workflow.checks import check_scores_room
from scalable_kpca.workflow.embedding import write_scores
from scalable_kpca.workflow.files import remove_tree, write_json
from scalable_kpca.workflow.identity import Prepared
from scalable_kpca.workflow.layout import RESULTS, RunDirectory
from scalable_kpca.workflow.ledger import Ledger, Partition
from scalable_kpca.workflow.results import run_description
from scalable_kpca.workflow.work import refuse_changed

__all__ = ["make_streamed", "start_for_run", "write_streamed"]

Matrix = NDArray[np.float64]

FOUND = ("key", "rows", "numbers", "facts", "note")


def make_streamed(prepared: Prepared, run: RunDirectory, engine: Engine) -> NystroemFit:
    """Fit of a run; a killed one goes on after its landmarks, and after the last wave of its sums.

    Raises
    ------
    InvalidInputError
        When an entry is not finite, or the source is not what was prepared.
    """
    config, plan = prepared.config, _plan_of(prepared)
    check_scores_room(run.path, plan)
    spans = prepared.source.spans(plan.span_rows)
    landmarks, summary = _choose(prepared, run, engine, plan)
    fit = fit_nystroem(
        spans,
        prepared.kernel(summary),
        plan,
        engine,
        landmarks,
        n_components=config.n_components,
        indefinite=config.indefinite,
        feature_names=prepared.source.feature_names,
        checkpoint=SumsCheckpoint(run.path / "journal" / "sums.npz", prepared.fingerprint),
    )
    refuse_changed(prepared)
    return fit


def write_streamed(prepared: Prepared, run: RunDirectory, fit: NystroemFit, engine: Engine, seconds: float) -> None:
    """Write every result of a run that is not committed; what an earlier attempt left is replaced."""
    plan, source, model = _plan_of(prepared), prepared.source, fit.model
    for name in RESULTS:
        remove_tree(run.path / name)
    save_model(model, run.path / "model")
    write_scores(
        source.spans(plan.span_rows),
        [part.n_rows for part in source.parts],
        model,
        engine,
        run.path / "embedding",
        batch_rows=plan.batch_rows,
        wave=plan.score_wave,
    )
    refuse_changed(prepared)
    fingerprints = source.part_fingerprints()
    partitions = tuple(
        Partition(part.path, fingerprint, part.n_rows)
        for part, fingerprint in zip(source.parts, fingerprints, strict=True)
    )
    residual = model.certificate.relative_residual
    write_json(run.path / "ledger.json", Ledger(prepared.fingerprint, residual, partitions).to_json())
    write_json(run.path / "metrics.json", metrics(model))
    description = run_description(prepared.config, prepared.fingerprint, seconds)
    landmarks = {"method": fit.landmarks.method, "passes": fit.landmarks.n_passes, "note": fit.landmarks.note}
    description |= {"plan": plan.to_json(), "landmarks": landmarks, "resumed_spans": fit.resumed_spans}
    write_json(run.path / "run.json", description)


def _choose(prepared: Prepared, run: RunDirectory, engine: Engine, plan: NystroemPlan) -> tuple[Landmarks, RowSummary]:
    """Landmarks of a run and the summary of its rows, from its journal where an earlier attempt found them."""
    config, source = prepared.config, prepared.source
    place, key = run.path / "journal" / "landmarks.npz", digest_arrays(prepared.fingerprint)
    stored = read_record(place, FOUND)
    if stored is not None and np.array_equal(stored["key"], key):
        n_samples, n_features, variance, n_passes = stored["facts"].tolist()
        note = bytes(stored["note"]).decode()
        method = config.nystroem.landmarks
        landmarks = Landmarks(stored["rows"], stored["numbers"], method, int(n_passes), note)
        return landmarks, RowSummary(int(n_samples), int(n_features), variance)
    wanted, m = config.nystroem, plan.n_landmarks
    spans, n_features = source.spans(plan.span_rows), len(source.feature_names)
    found = look(
        engine,
        spans,
        n_features=n_features,
        sample_size=sample_size(wanted.landmarks, m),
        seed=config.seed,
        names=source.feature_names,
    )
    kernel = prepared.kernel(found.summary)
    landmarks = choose_landmarks(
        wanted.landmarks,
        found,
        engine,
        spans,
        kernel,
        n_landmarks=m,
        seed=config.seed,
        dtype=plan.dtype,
        batch_rows=plan.batch_rows,
    )
    summary = found.summary
    _record(place, key, landmarks, summary)
    return landmarks, summary


def start_for_run(prepared: Prepared, rows: Rows, kernel: Kernel, engine: Engine) -> Matrix:
    """Nyström guesses of the leading eigenvectors from stored rows, for passes that refine them."""
    config, exact = prepared.config, prepared.exact_plan
    wanted, m = config.nystroem, min(config.nystroem.n_landmarks, rows.n_samples)
    spans = row_spans(rows, exact.tile_rows)
    found = look(
        engine,
        spans,
        n_features=rows.n_features,
        sample_size=sample_size(wanted.landmarks, m),
        seed=config.seed,
    )
    landmarks = choose_landmarks(wanted.landmarks, found, engine, spans, kernel, n_landmarks=m, seed=config.seed)
    basis = build_basis(kernel, landmarks.rows, exact.dtype, indefinite=config.indefinite)
    sums, _ = accumulate_spans(spans, basis, exact.tile_rows, engine)
    return refinement_start(basis, sums, spans, engine, n_columns=exact.block_columns, batch_rows=exact.tile_rows)


def _record(place: Path, key: NDArray[np.uint8], landmarks: Landmarks, summary: RowSummary) -> None:
    facts = [summary.n_samples, summary.n_features, summary.variance, landmarks.n_passes]
    write_record(
        place,
        {
            "key": key,
            "rows": landmarks.rows,
            "numbers": landmarks.numbers,
            "facts": np.array(facts, np.float64),
            "note": np.frombuffer(landmarks.note.encode(), np.uint8),
        },
    )


def _plan_of(prepared: Prepared) -> NystroemPlan:
    if not isinstance(prepared.plan, NystroemPlan):
        raise ConfigError("an exact job copies its rows.")
    return prepared.plan
