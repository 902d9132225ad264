"""An update of a Nyström model: new partitions by their sums, withdrawn ones taken away, old data never read."""

from __future__ import annotations

import logging
import math
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from scalable_kpca.approximate import accumulate_spans, solve_model
from scalable_kpca.engine import Engine, Listener, open_engine
from scalable_kpca.errors import ConfigError, InvalidInputError, LockedError, StorageError, storage_errors
from scalable_kpca.landmarks import look
from scalable_kpca.machine import resolve_threads
from scalable_kpca.model import NystroemModel, load_model, save_model
from scalable_kpca.nystroem import Accumulators, SumsCheckpoint, trace_residual
from scalable_kpca.planning import ALGORITHM_VERSION, plan
from scalable_kpca.report import metrics
from scalable_kpca.source import Source
from scalable_kpca.tiling import NystroemPlan
from scalable_kpca.workflow.checks import check_separate
from scalable_kpca.workflow.config import ClusterConfig, Config
from scalable_kpca.workflow.embedding import write_scores
from scalable_kpca.workflow.files import read_json, remove_tree, write_json
from scalable_kpca.workflow.identity import sha256
from scalable_kpca.workflow.layout import RESULTS, WRITES, Output, RunDirectory
from scalable_kpca.workflow.ledger import Ledger, Partition
from scalable_kpca.workflow.lock import output_lock
from scalable_kpca.workflow.results import run_description
from scalable_kpca.workflow.scoring import open_like

__all__ = ["Update", "update_output"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Update:
    """What `update_output` did.

    Attributes
    ----------
    run : RunDirectory
        In force now.
    status : {"done", "restored", "unchanged"}
    added, withdrawn : tuple of Partition
    drift : dict
        Of each added path: its residual over that of the base run's rows.
    seconds : float
    """

    run: RunDirectory
    status: Literal["done", "restored", "unchanged"]
    added: tuple[Partition, ...]
    withdrawn: tuple[Partition, ...]
    drift: dict[str, float]
    seconds: float


def update_output(
    output: Output,
    uri: str | None,
    base: Path,
    *,
    withdraw: Sequence[str] = (),
    scheduler: str | None = None,
    listener: Listener | None = None,
) -> Update:
    """Add the partitions of a source that the model in force has not seen, withdraw others, and publish a new version.

    Parameters
    ----------
    output : Output
        Whose run in force holds a Nyström model.
    uri : str, optional
        New partitions; those that are in the model already, by their contents, are left out.
    base : Path
        What a relative `uri` is relative to.
    withdraw : sequence of str
        Paths or file names of partitions to be taken away.
    scheduler : str, optional
        Address of a Dask scheduler; else the cluster of the run's configuration.
    listener : callable, optional
        Receives progress events.

    Returns
    -------
    Update

    Raises
    ------
    ConfigError
        When the run in force is exact, or a partition to be withdrawn is not there.
    InvalidInputError
        For rows that are not finite, a partition that is there with other contents, or one that drifted too far;
        nothing is published then, and the earlier version stays in force.
    LockedError
        When another process writes to the same output.

    Notes
    -----
    Cost: one pass over the new rows for their sums and one for their scores, some 10·m³ flops. The scores of earlier
    partitions stay where they are, in the runs that made them, by the models of their day.
    """
    started = time.perf_counter()
    before = _Before.read(output)
    source = None if uri is None else open_like(before.run.path, before.model.feature_names, uri, base)
    if source is not None and uri is not None:
        check_separate("--source", output.path.resolve(), WRITES, source, uri, base)
    withdrawn = before.ledger.find(withdraw)
    left = before.ledger.without(withdrawn)
    fresh = _fresh(source, left)
    if not fresh and not withdrawn:
        return Update(before.run, "unchanged", (), (), {}, time.perf_counter() - started)
    after = [*left.partitions, *(part for _, part in fresh)]
    run = output.run(_fingerprint(before, after))
    with storage_errors(f"creating {run.path}"):
        run.path.mkdir(parents=True, exist_ok=True)
    with output_lock(output.lock), storage_errors(f"writing to {run.path}"):
        if output.require_latest().path != before.run.path:
            raise LockedError(f"{output.path} was updated by another process at the same time; run again.")
        if run.is_committed and not run.problems():
            output.point_to(run)
            return Update(run, "restored", (), (), {}, time.perf_counter() - started)
        run.withdraw()
        cluster = before.config.cluster if scheduler is None else ClusterConfig(kind="address", address=scheduler)
        with open_engine(
            cluster.kind,
            n_threads=resolve_threads(_n_threads(before.config)),
            address=cluster.address,
            n_workers=cluster.n_workers,
            wait=cluster.wait,
            listener=listener,
        ) as engine:
            work = _Work(before, run, engine, source)
            sums, added = work.sums(fresh, withdrawn)
            drift = {part.path: _drift(part, before.ledger) for part in added}
            _judge(drift, before.config)
            work.write(left.with_more(added), sums, added, drift, started)
        run.commit()
        output.point_to(run)
        remove_tree(run.path / "journal")
    return Update(run, "done", tuple(added), withdrawn, drift, time.perf_counter() - started)


@dataclass(frozen=True, eq=False)
class _Before:
    """The version that is updated."""

    run: RunDirectory
    model: NystroemModel
    config: Config
    ledger: Ledger

    @classmethod
    def read(cls, output: Output) -> _Before:
        run = output.require_latest()
        model = load_model(run.path / "model")
        if not isinstance(model, NystroemModel):
            raise ConfigError(
                f"the run in force in {output.path} is exact, and rows can be added to a Nyström model only; set "
                "method: nystroem and `skpca run` again."
            )
        try:
            config = Config.model_validate(read_json(run.path / "run.json")["config"])
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"{run.path / 'run.json'} is missing or damaged; `skpca run` with the configuration of this output "
                "repairs it."
            ) from error
        return cls(run, model, config, Ledger.read(run.path))


def _fresh(source: Source | None, ledger: Ledger) -> list[tuple[int, Partition]]:
    """Parts of a source that are not in the ledger, with their index, each content once."""
    fresh: list[tuple[int, Partition]] = []
    if source is None:
        return fresh
    for index, (part, fingerprint) in enumerate(zip(source.parts, source.part_fingerprints(), strict=True)):
        known = any(fingerprint == other.fingerprint for _, other in fresh)
        if part.n_rows and not known and ledger.check_new(part.path, fingerprint):
            fresh.append(
                (index, Partition(part.path, fingerprint, part.n_rows, own=f"contributions/{fingerprint}.npz"))
            )
    return fresh


def _fingerprint(before: _Before, partitions: Sequence[Partition]) -> str:
    config = before.config
    return sha256(
        {
            "update": before.model.basis.digest,
            "base": before.ledger.base,
            "partitions": [partition.fingerprint for partition in partitions],
            "n_components": config.n_components,
            "indefinite": config.indefinite,
            "algorithm": ALGORITHM_VERSION,
        }
    )


def _drift(part: Partition, ledger: Ledger) -> float:
    residual = part.residual or 0.0
    if ledger.residual > 0:
        return residual / ledger.residual
    return 1.0 if residual == 0 else float("inf")


def _judge(drift: dict[str, float], config: Config) -> None:
    for path, ratio in drift.items():
        text = f"{path}: the landmarks leave out {ratio:.3g} times as much of it as of the rows of the base run"
        if config.drift.fail is not None and ratio > config.drift.fail:
            raise InvalidInputError(
                f"{text}, and drift.fail is {config.drift.fail:g}; nothing is published: look at that partition, or "
                "choose landmarks anew with `skpca run`."
            )
        if config.drift.warn is not None and ratio > config.drift.warn:
            logger.warning("%s", f"{text}; drift.warn is {config.drift.warn:g}")


class _Work:
    """Sums and results of one update, in its run directory."""

    def __init__(self, before: _Before, run: RunDirectory, engine: Engine, source: Source | None) -> None:
        self._before, self._run, self._engine, self._source = before, run, engine, source

    def sums(
        self, fresh: Sequence[tuple[int, Partition]], withdrawn: Sequence[Partition]
    ) -> tuple[Accumulators, list[Partition]]:
        """Sums after the update, and the new partitions with their residuals."""
        basis, total = self._before.model.basis, self._before.model.sums
        for part in withdrawn:
            total -= self._withdrawn(part)
        added: list[Partition] = []
        source = self._source
        if source is None:
            return total, added
        for index, part in fresh:
            sums = self._of_part(source, index, part, self._run.path / str(part.own))
            residual = max(trace_residual(basis, sums), 0.0)
            share = residual / sums.diagonal_sum if sums.diagonal_sum > 0 else 0.0
            added.append(replace(part, residual=share))
            total += sums
        return total, added

    def write(
        self, ledger: Ledger, sums: Accumulators, added: Sequence[Partition], drift: dict[str, float], started: float
    ) -> None:
        """Write every result but the sums of single partitions, which are there."""
        before, run, config = self._before, self._run, self._before.config
        if sums.n_samples == 0:
            raise ConfigError("every partition would be withdrawn, and a model needs rows; remove the output instead.")
        model = solve_model(
            before.model.basis,
            sums,
            config.n_components,
            indefinite=config.indefinite,
            feature_names=before.model.feature_names,
        )
        for name in RESULTS:
            if name != "contributions":
                remove_tree(run.path / name)
        save_model(model, run.path / "model")
        self._write_scores(model, added)
        for part in ledger.partitions:
            if part.own is not None:
                _link(before.run.path / part.own, run.path / part.own)
        write_json(run.path / "ledger.json", ledger.to_json())
        finite = {path: ratio if math.isfinite(ratio) else None for path, ratio in drift.items()}
        write_json(run.path / "metrics.json", metrics(model) | {"drift": finite})
        description = run_description(config, run.fingerprint, time.perf_counter() - started)
        description |= {"previous": before.run.fingerprint, "base": ledger.base, "added": [part.path for part in added]}
        write_json(run.path / "run.json", description)

    def _write_scores(self, model: NystroemModel, added: Sequence[Partition]) -> None:
        """Scores of the new partitions, a part each in their order; and whether these are still what was added."""
        directory, source = self._run.path / "embedding", self._source
        if source is None or not added:
            directory.mkdir()
            return
        chosen = self._plan(source)
        fresh = {part.path for part in added}
        spans = [span for span in source.spans(chosen.span_rows) if source.parts[span.part].path in fresh]
        write_scores(
            spans,
            [part.n_rows if part.path in fresh else 1 for part in source.parts],  # only empty parts are made up for
            model,
            self._engine,
            directory,
            batch_rows=chosen.batch_rows,
            wave=chosen.score_wave,
        )
        found = dict(zip((part.path for part in source.parts), source.part_fingerprints(), strict=True))
        changed = [part.path for part in added if found[part.path] != part.fingerprint]
        if changed:
            raise InvalidInputError(f"{changed[0]} changed while it was read; run again when it is at rest.")

    def _withdrawn(self, part: Partition) -> Accumulators:
        """Sums of a partition that is taken away: its own, or from its file where it came with the base run."""
        before = self._before
        logger.warning("%s", f"{part.path} is withdrawn; landmarks that were taken from it stay landmarks")
        if part.own is not None:
            done, sums = SumsCheckpoint(before.run.path / part.own, part.fingerprint).load(before.model.basis)
            if done:
                return sums
        try:
            source = open_like(before.run.path, before.model.feature_names, part.path, Path("/"))
            same = source.part_fingerprints() == (part.fingerprint,)
        except (InvalidInputError, StorageError) as error:
            raise InvalidInputError(
                f"{part.path} came with the base run and has to be read again to be withdrawn, which failed: {error}"
            ) from error
        if not same:
            raise InvalidInputError(
                f"{part.path} came with the base run, and its file has changed since, so that its sums cannot be taken "
                "away; put the old file back, or `skpca run` anew."
            )
        return self._of_part(source, 0, part, self._run.path / "journal" / f"withdrawn-{part.fingerprint}.npz")

    def _of_part(self, source: Source, index: int, part: Partition, place: Path) -> Accumulators:
        """Sums of one file of a source, kept at a place; what an interrupted update has done is not done again."""
        basis, kept = self._before.model.basis, SumsCheckpoint(place, part.fingerprint)
        done, sums = kept.load(basis)
        if done:
            return sums
        chosen = self._plan(source)
        spans = [span for span in source.spans(chosen.span_rows) if span.part == index]
        look(
            self._engine,
            spans,
            n_features=len(source.feature_names),
            sample_size=0,
            seed=0,
            names=source.feature_names,
        )
        journal = self._run.path / "journal" / f"{part.fingerprint}.npz"
        unfinished = SumsCheckpoint(journal, f"{part.fingerprint} {chosen.span_rows} {chosen.batch_rows}")
        sums, _ = accumulate_spans(spans, basis, chosen.batch_rows, self._engine, checkpoint=unfinished)
        kept.save(basis, len(spans), sums)
        return sums

    def _plan(self, source: Source) -> NystroemPlan:
        config, model = self._before.config, self._before.model
        chosen = plan(
            source.n_samples,
            model.n_features,
            n_components=model.n_components,
            method="nystroem",
            n_landmarks=model.basis.n_landmarks,
            landmarks="given",
            dtype=model.dtype,
            memory_limit=config.budget.memory,
            n_jobs=_n_threads(config),
            is_run=True,
        )
        if not isinstance(chosen, NystroemPlan):
            raise ConfigError("an update is planned for landmarks.")
        return chosen


def _n_threads(config: Config) -> int | None:
    return 1 if config.cluster.kind == "synchronous" else config.cluster.n_threads


def _link(source: Path, destination: Path) -> None:
    """The same file in another run; a copy where the file system has no links."""
    if destination.exists():
        return
    destination.parent.mkdir(exist_ok=True)
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)
