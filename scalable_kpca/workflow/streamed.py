"""A Nyström run: landmarks, sums and scores from the source's own files, of which nothing is copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.approximate import NystroemFit, fit_nystroem
from scalable_kpca.disk import remove_tree
from scalable_kpca.engine import Engine
from scalable_kpca.kernels import Kernel
from scalable_kpca.landmarks import Landmarks, find_landmarks, sampled_gamma
from scalable_kpca.model import save_model
from scalable_kpca.nystroem import SumsCheckpoint, accumulate_spans, approximate_eigenvectors, build_basis
from scalable_kpca.records import digest_arrays, digest_json, read_record, write_record
from scalable_kpca.report import metrics
from scalable_kpca.source import Rows, RowSummary, row_spans
from scalable_kpca.tiling import NystroemPlan
from scalable_kpca.workflow.checks import check_scores_room
from scalable_kpca.workflow.embedding import write_scores
from scalable_kpca.workflow.files import file_states, write_json
from scalable_kpca.workflow.health import write_profile
from scalable_kpca.workflow.identity import Prepared
from scalable_kpca.workflow.inverse import learn_map, stored_bytes
from scalable_kpca.workflow.layout import RESULTS, RunDirectory
from scalable_kpca.workflow.ledger import Ledger, Partition
from scalable_kpca.workflow.planned import plan_start
from scalable_kpca.workflow.results import run_description
from scalable_kpca.workflow.score_files import chunk_files
from scalable_kpca.workflow.watching import ProfileRecorder, RowLook
from scalable_kpca.workflow.work import unchanged_source

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
    config, plan = prepared.config, prepared.nystroem_plan
    kernel_of = _kernel_of(prepared, engine, plan)
    beside = stored_bytes(config, plan)
    n_files = len(prepared.source.parts) + chunk_files(config, plan.n_samples, plan.n_components)
    check_scores_room(run.path, plan, beside=beside, n_parts=n_files)
    spans = prepared.source.spans(plan.span_rows)
    key = digest_json([prepared.fingerprint, file_states(prepared.source.paths)])
    with unchanged_source(prepared):
        landmarks, summary = _choose(prepared, run, engine, plan, key, kernel_of)
        return fit_nystroem(
            spans,
            kernel_of(summary),
            plan,
            engine,
            landmarks,
            n_components=config.n_components,
            indefinite=config.indefinite,
            feature_names=prepared.source.feature_names,
            checkpoint=SumsCheckpoint(run.path / "journal" / "sums.npz", key),
        )


def write_streamed(prepared: Prepared, run: RunDirectory, fit: NystroemFit, engine: Engine, seconds: float) -> None:
    """Write every result of a run that is not committed; what an earlier attempt left is replaced."""
    plan, source = prepared.nystroem_plan, prepared.source
    model = replace(learn_map(fit.model, prepared.config), preparation=prepared.preparation)
    for name in RESULTS:
        remove_tree(run.path / name)
    save_model(model, run.path / "model")
    wanted = prepared.config
    recorder = None
    if wanted.health:
        look = RowLook.of(model.n_features, model.n_components, columns=prepared.survey is None)
        recorder = ProfileRecorder(look, model.n_components, novelty=wanted.novelty)
    with unchanged_source(prepared):
        write_scores(
            source.spans(plan.span_rows),
            [part.n_rows for part in source.parts],
            model,
            engine,
            run.path,
            form=wanted.output.format,
            beside=wanted.beside,
            batch_rows=plan.batch_rows,
            wave=plan.score_wave,
            recorder=recorder,
        )
        if recorder is not None:
            bins = recorder.bins()
            leading = len(bins.edges)
            bins = replace(bins, weights=model.weights[:, :leading], offset=model.offset[:leading])
            write_profile(run.path, source, prepared.survey or recorder.seen.survey(), bins)
        partitions = tuple(
            Partition(part.uri, fingerprint, part.n_rows)
            for part, fingerprint in zip(source.parts, source.part_fingerprints(), strict=True)
            if part.n_rows
        )
    certificate = model.certificate
    # a share that rounding hides is no measure of another one
    hidden = certificate.rounding / certificate.trace if certificate.trace > 0 else 0.0
    residual = max(certificate.relative_residual, hidden)
    write_json(run.path / "ledger.json", Ledger(prepared.fingerprint, residual, partitions).to_json())
    share = None if recorder is None else recorder.seen.linear_share()
    write_json(run.path / "metrics.json", metrics(model, share))
    description = run_description(prepared.config, prepared.fingerprint, seconds, engine.workers())
    landmarks = {"method": fit.landmarks.method, "passes": fit.landmarks.n_passes, "note": fit.landmarks.note}
    description |= {"plan": plan.to_json(), "landmarks": landmarks, "resumed_spans": fit.resumed_spans}
    write_json(run.path / "run.json", description)


def _kernel_of(prepared: Prepared, engine: Engine, plan: NystroemPlan) -> Callable[[RowSummary], Kernel]:
    """Kernel of a summary of the rows; their median distance is looked for once, and only where gamma is that."""
    spans, seed = prepared.source.spans(plan.span_rows), prepared.config.seed

    @cache
    def median() -> float:
        return sampled_gamma(spans, seed=seed, engine=engine, batch_rows=plan.batch_rows)

    return lambda summary: prepared.kernel(summary, median)


def _choose(
    prepared: Prepared,
    run: RunDirectory,
    engine: Engine,
    plan: NystroemPlan,
    journal_key: str,
    kernel_of: Callable[[RowSummary], Kernel],
) -> tuple[Landmarks, RowSummary]:
    """Landmarks of a run and the summary of its rows, from its journal where an earlier attempt found them."""
    config, source = prepared.config, prepared.source
    place, key = run.path / "journal" / "landmarks.npz", digest_arrays(journal_key)
    stored = read_record(place, FOUND)
    if stored is not None and np.array_equal(stored["key"], key):
        n_samples, n_features, variance, n_passes = stored["facts"].tolist()
        note = bytes(stored["note"]).decode()
        method = config.nystroem.landmarks
        landmarks = Landmarks(stored["rows"], stored["numbers"], method, int(n_passes), note)
        return landmarks, RowSummary(int(n_samples), int(n_features), variance)
    spans = source.spans(plan.span_rows)
    landmarks, summary = find_landmarks(engine, spans, plan, kernel_of, seed=config.seed, names=source.feature_names)
    _record(place, key, landmarks, summary)
    return landmarks, summary


def start_for_run(prepared: Prepared, rows: Rows, kernel: Kernel, engine: Engine) -> Matrix:
    """Nyström guesses of the leading eigenvectors from stored rows, for passes that refine them."""
    config, exact = prepared.config, prepared.exact_plan
    chosen = plan_start(config, exact)
    spans = row_spans(rows, chosen.span_rows)
    landmarks, _ = find_landmarks(engine, spans, chosen, lambda _: kernel, seed=config.seed)
    basis = build_basis(kernel, landmarks.rows, chosen.dtype, n_samples=rows.n_samples, indefinite=config.indefinite)
    sums, _ = accumulate_spans(spans, basis, chosen.batch_rows, engine, wave=chosen.sum_wave)
    return approximate_eigenvectors(
        basis, sums, spans, engine, n_columns=exact.block_columns, batch_rows=chosen.batch_rows
    )


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
