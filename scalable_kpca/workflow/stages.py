"""The stages of a run: prepare, copy rows, build and solve, write results, publish; a killed one is run again."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Literal

from scalable_kpca.approximate import NystroemFit
from scalable_kpca.disk import remove_tree
from scalable_kpca.engine import Engine, Listener
from scalable_kpca.errors import StorageError, UnreadableError, storage_errors
from scalable_kpca.exact import ExactFit, fit_exact
from scalable_kpca.tiling import NystroemPlan, Plan
from scalable_kpca.workflow.checks import check_budget, check_room, check_tiles
from scalable_kpca.workflow.engines import open_cluster
from scalable_kpca.workflow.files import make_private, write_json
from scalable_kpca.workflow.identity import Prepared
from scalable_kpca.workflow.inverse import stored_bytes
from scalable_kpca.workflow.layout import Output, RunDirectory
from scalable_kpca.workflow.ledger import Ledger
from scalable_kpca.workflow.mirror import is_published
from scalable_kpca.workflow.planned import is_refined
from scalable_kpca.workflow.preparing import outline, prepare
from scalable_kpca.workflow.publishing import Writer, sweep, writing
from scalable_kpca.workflow.results import write_results
from scalable_kpca.workflow.retention import retain, retain_copies, retain_tiles
from scalable_kpca.workflow.score_files import chunk_files
from scalable_kpca.workflow.streamed import make_streamed, start_for_run, write_streamed
from scalable_kpca.workflow.versions import problems_of
from scalable_kpca.workflow.work import StoredWork, copy_rows, obtain_gram, take_over

__all__ = ["Outcome", "Prepared", "execute", "outline", "prepare"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What `execute` did.

    Attributes
    ----------
    run : RunDirectory
        In force now.
    status : {"done", "restored", "unchanged"}
        Whether the run was made, was there and has been put in force again, or was in force already.
    fit : ExactFit, NystroemFit or None
        Of a run that was made.
    seconds : float
        Wall time.
    added, withdrawn : int
        Partitions that updates have brought to the run in force since, and that they have taken away.
    """

    run: RunDirectory
    status: Literal["done", "restored", "unchanged"]
    fit: ExactFit | NystroemFit | None
    seconds: float
    added: int = 0
    withdrawn: int = 0


def execute(prepared: Prepared, listener: Listener | None = None) -> Outcome:
    """Do what is not done yet, and publish it.

    Parameters
    ----------
    prepared : Prepared
        From `prepare`.
    listener : callable, optional
        Receives progress events.

    Returns
    -------
    Outcome

    Raises
    ------
    LockedError
        When another process writes to the same output.
    KernelPCAError
        Whatever goes wrong; what is finished stays, and the same call goes on from there.

    Notes
    -----
    Order of writes: rows, tiles, results, a flush to the disk, the commit list, the pointer. A reader that follows the
    pointer sees a whole run at every moment. A committed run is read and compared with its commit list before it is
    called done; one that differs is taken back and made again.
    """
    outcome = _executed(prepared, listener)
    retain_copies(prepared.output, prepared.source, prepared.config.keep)
    return outcome


def _executed(prepared: Prepared, listener: Listener | None) -> Outcome:
    started = time.perf_counter()
    output, run = prepared.output, prepared.output.run(prepared.fingerprint)
    if _is_in_force(output, run) and _is_whole(output, run) and is_published(output, run):
        sweep(output, run)
        return Outcome(run, "unchanged", None, time.perf_counter() - started)
    updated = _updated(output, run)
    if updated is not None:
        if not is_published(output, updated):
            with writing(output, updated) as writer:
                writer.point_to(updated)
        partitions = Ledger.read(updated.path).partitions
        left = {part.path for part in partitions if part.own is None}
        withdrawn = sum(part.n_rows > 0 and part.uri not in left for part in prepared.source.parts)
        seconds = time.perf_counter() - started
        return Outcome(updated, "unchanged", None, seconds, len(partitions) - len(left), withdrawn)
    if not run.is_committed:
        check_budget(prepared.config, prepared.plan, prepared.source)
        if prepared.config.output.tiles is not None:
            check_tiles(prepared.config.output.tiles, prepared.plan)
    with writing(output, run) as writer, storage_errors(f"writing to {run.path}"):
        make_private(run.path)
        if run.is_committed and _is_whole(output, run):
            is_done = _is_in_force(output, run) and is_published(output, run)
            status: Literal["restored", "unchanged"] = "unchanged" if is_done else "restored"
            if status == "restored":
                writer.point_to(run)
            remove_tree(run.path / "journal")
            return Outcome(run, status, None, time.perf_counter() - started)
        writer.withdraw(run)
        fit = _make(prepared, run, writer, listener, started)
        seconds = time.perf_counter() - started
        writer.commit(run)
        writer.point_to(run)
        remove_tree(run.path / "journal")
        retain(writer, run, prepared.config.keep)
        if isinstance(fit, ExactFit):
            retain_tiles(prepared.tiles_at(fit.model.kernel), run, prepared.config.keep)
    return Outcome(run, "done", fit, seconds)


def _make(
    prepared: Prepared, run: RunDirectory, writer: Writer, listener: Listener | None, started: float
) -> ExactFit | NystroemFit:
    """Fit, and every result of the run."""
    found = None
    if isinstance(prepared.plan, Plan):
        found = take_over(prepared, run)
        beside = stored_bytes(prepared.config, prepared.plan)
        n_chunks = chunk_files(prepared.config, prepared.plan.n_samples, prepared.plan.n_components)
        tiles = prepared.config.output.tiles
        check_room(run, prepared.plan, prepared.source, beside=beside, n_chunks=n_chunks, tiles=tiles)
    write_json(run.path / "plan.json", prepared.plan.to_json())
    with open_cluster(prepared.config, prepared.plan.n_threads, listener, run.path) as engine:
        if isinstance(prepared.plan, NystroemPlan):
            streamed = make_streamed(prepared, run, engine)
            writer.require()
            write_streamed(prepared, run, streamed, engine, time.perf_counter() - started)
            return streamed
        fit = _fit(prepared, run, found or copy_rows(prepared, run, engine), engine)
        workers = engine.workers()
    writer.require()
    write_results(prepared, run, fit, time.perf_counter() - started, workers)
    return fit


def _fit(prepared: Prepared, run: RunDirectory, work: StoredWork, engine: Engine) -> ExactFit:
    config, (rows, summary) = prepared.config, work
    kernel = prepared.kernel_on(rows, summary, engine)
    start = start_for_run(prepared, rows, kernel, engine) if is_refined(config) else None
    return fit_exact(
        rows,
        kernel,
        prepared.exact_plan,
        obtain_gram(prepared, run, rows, kernel, engine),
        engine,
        n_components=config.n_components,
        tol=config.solver.tol,
        seed=config.seed,
        max_passes=config.solver.max_passes,
        indefinite=config.indefinite,
        feature_names=prepared.source.feature_names,
        on_failure=config.on_failure,
        journal=(run.path / "journal", prepared.gram_key(kernel)),
        start=start,
    )


def _is_in_force(output: Output, run: RunDirectory) -> bool:
    latest = output.sound_latest()
    return latest is not None and latest.path == run.path


def _updated(output: Output, run: RunDirectory) -> RunDirectory | None:
    """The run in force when updates have made it from this one, and it is whole."""
    latest = output.sound_latest()
    if latest is None or latest.path == run.path:
        return None
    try:
        made_of = Ledger.read(latest.path).base
    except UnreadableError:
        raise
    except StorageError:  # it keeps no ledger
        return None
    if made_of != run.fingerprint:
        return None
    remedy = "its base is put in force again, and `skpca update` can add what came later"
    return latest if _is_whole(output, latest, remedy) else None


def _is_whole(output: Output, run: RunDirectory, remedy: str = "this run is made again") -> bool:
    problems = problems_of(output, run)
    for problem in problems:
        logger.warning("%s", f"{problem}: {remedy}")
    return not problems
