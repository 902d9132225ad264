"""An update of a Nyström model: new partitions join by their sums, withdrawn ones leave, old ones are not fitted."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from scalable_kpca.approximate import solve_model
from scalable_kpca.disk import remove_tree
from scalable_kpca.engine import Engine, Listener
from scalable_kpca.errors import ConfigError, LockedError, StorageError, storage_errors
from scalable_kpca.health import Profile
from scalable_kpca.machine import resolve_threads
from scalable_kpca.model import NystroemModel, load_model, save_model
from scalable_kpca.nystroem import Accumulators
from scalable_kpca.planning import ALGORITHM_VERSION
from scalable_kpca.records import digest_json
from scalable_kpca.report import metrics
from scalable_kpca.source import PreparedSource, Source
from scalable_kpca.workflow.checks import check_apart
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.contributions import Contributions, check_unchanged, link_contributions
from scalable_kpca.workflow.embedding import write_scores
from scalable_kpca.workflow.engines import open_cluster
from scalable_kpca.workflow.files import make_private, read_json, write_json
from scalable_kpca.workflow.health import PROFILE, Health, check_limits, judge_again, read_profile
from scalable_kpca.workflow.inverse import learn_map
from scalable_kpca.workflow.layout import RESULTS, Output, RunDirectory
from scalable_kpca.workflow.ledger import Ledger, Partition, paths_called
from scalable_kpca.workflow.loading import check_place, override_config
from scalable_kpca.workflow.offered import new_partitions, not_offered, partitions_of, published_labels
from scalable_kpca.workflow.publishing import Writer, sweep, writing
from scalable_kpca.workflow.results import run_description
from scalable_kpca.workflow.retention import retain, retain_copies
from scalable_kpca.workflow.score_files import writing_scores
from scalable_kpca.workflow.scoring import open_like
from scalable_kpca.workflow.versions import REMEDY, earlier_versions, problems_of
from scalable_kpca.workflow.watching import Tally

__all__ = ["Update", "update_output"]

logger = logging.getLogger(__name__)

# sections that an update may override; others need a new base
CHANGEABLE = ("drift", "cluster", "budget", "keep", "monitor")


@dataclass(frozen=True, eq=False)
class Update:
    """What `update_output` did.

    Attributes
    ----------
    run : RunDirectory
        In force now.
    status : {"done", "restored", "unchanged"}
        Whether the version was made, was there and has been put in force again, or there was nothing to do.
    added, withdrawn : tuple of Partition
    drift : dict
        Of each added path: its residual over that of the base run's rows.
    health : dict
        Of each added path: how its rows compare with those of the base run, by measure.
    seconds : float
    """

    run: RunDirectory
    status: Literal["done", "restored", "unchanged"]
    added: tuple[Partition, ...]
    withdrawn: tuple[Partition, ...]
    drift: dict[str, float]
    health: dict[str, dict[str, Any]]
    seconds: float


def update_output(
    output: Output,
    uri: str | None,
    base: Path,
    *,
    withdraw: Sequence[str] = (),
    overrides: Sequence[str] = (),
    listener: Listener | None = None,
) -> Update:
    """Add the partitions of a source that the model in force has not seen, withdraw others, and publish a new version.

    Parameters
    ----------
    output : Output
        Whose run in force holds a Nyström model.
    uri : str, optional
        New partitions; those that are in the model already, by their contents, are left out, and those without rows.
    base : Path
        What a relative `uri` is relative to.
    withdraw : sequence of str
        Paths or file names of partitions to be taken away; those that the last update took away are left out, and
        those stay that `uri` has with the same contents, so that the same command can be given again.
    overrides : sequence of str
        Changes to the configuration of the run in force, such as ``drift.fail=5``: of `CHANGEABLE` sections. The
        section ``cluster`` comes from here alone: its threads are this machine's where nothing else is said.
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
    Cost: the bytes of every file of `uri` once for their digests; two passes over the new rows for their sums and one
    for their scores; some 10·m³ flops. The scores of earlier partitions stay where they are, in the runs that made
    them, by the models of their day. Disk: 8·m² bytes for the sums of each new partition.
    """
    started = time.perf_counter()
    if uri is not None:
        check_place("--source", uri)
    before = _Before.read(output, overrides)
    source = None
    if uri is not None:
        check_apart("OUTPUT", output, uri, base)
        source = open_like(before.run.path, before.model, uri, base, published=published_labels(output, before.run))
    offered = [] if source is None else partitions_of(source)
    named = before.ledger.find([name for name in withdraw if not before.has_withdrawn(name, offered)])
    withdrawn = not_offered(named, offered)
    left = before.ledger.without(withdrawn)
    fresh = new_partitions(offered, left)
    if isinstance(source, PreparedSource):
        source, fresh = _counted(before, source, fresh)
    if not fresh and not withdrawn:
        sweep(output, before.run)
        retain_copies(output, source, before.config.keep)
        return Update(before.run, "unchanged", (), (), {}, {}, time.perf_counter() - started)
    after = left.with_more(list(fresh.values()))
    if not after.partitions:
        raise ConfigError("every partition would be withdrawn, and a model needs rows; make a new base instead.")
    run = output.run(_fingerprint(before, after.partitions))
    with writing(output, run) as writer, storage_errors(f"writing to {run.path}"):
        if output.require_latest().path != before.run.path:
            raise LockedError(f"{output.path} was updated by another process at the same time; run again.")
        make_private(run.path)
        problems = problems_of(output, run) if run.is_committed else ["it is not committed"]
        if problems:
            if run.path in [earlier.path for earlier in earlier_versions(output, before.run)]:
                raise StorageError(
                    f"{problems[0]}, and {before.run.path} goes on with scores of that version; {REMEDY}."
                )
            writer.withdraw(run)
            _make(before, run, writer, source, fresh, withdrawn, listener, started)
            writer.commit(run, before.run.digests("contributions"))
        ledger, new = Ledger.read(run.path), {part.path for part in fresh.values()}
        added = tuple(part for part in ledger.partitions if part.path in new)
        health = read_json(run.path / "metrics.json").get("health", {})
        if not problems:  # perhaps under other thresholds
            _judge(ledger.drift(added), before.config)
            judge_again(health, before.config.drift)
        writer.point_to(run)
        remove_tree(run.path / "journal")
        retain(writer, run, before.config.keep)
    retain_copies(output, source, before.config.keep)
    seconds = time.perf_counter() - started
    return Update(run, "done" if problems else "restored", added, withdrawn, ledger.drift(added), health, seconds)


@dataclass(frozen=True, eq=False)
class _Before:
    """The version that is updated."""

    run: RunDirectory
    model: NystroemModel
    config: Config
    profile: Profile | None
    ledger: Ledger
    gone: tuple[str, ...]
    came: tuple[str, ...]

    def has_withdrawn(self, name: str, offered: Sequence[Partition]) -> bool:
        """Whether the very update that made this version took a partition of this name away: it is asked for again.

        The partition is gone then, or another one of that name came with the same update, and is offered again.
        """
        there = paths_called(name, [part.path for part in self.ledger.partitions])
        if not there:
            return bool(paths_called(name, self.gone))
        known = {(part.path, part.fingerprint) for part in self.ledger.partitions if part.path in there}
        is_offered = known <= {(part.path, part.fingerprint) for part in offered}
        return is_offered and set(there) <= set(self.gone) & set(self.came)

    @classmethod
    def read(cls, output: Output, overrides: Sequence[str]) -> _Before:
        run = output.require_latest()
        problems = run.problems(("model", "run.json", PROFILE, "ledger.json"))
        if problems:
            raise StorageError(
                f"{problems[0]}; `skpca run` with the configuration of this output repairs its base, to which updates "
                "can be added again."
            )
        model = load_model(run.path / "model")
        if not isinstance(model, NystroemModel):
            raise ConfigError(
                f"the run in force in {output.path} is exact, and rows can be added to a Nyström model only; set "
                "method: nystroem and `skpca run` again."
            )
        description = read_json(run.path / "run.json")
        # whoever can write to an output must not choose the scheduler: what one sends is executed here
        fields = {name: value for name, value in description["config"].items() if name != "cluster"}
        config = override_config(fields, overrides, CHANGEABLE)
        gone, came = (tuple(description.get(name, ())) for name in ("withdrawn", "added"))
        return cls(run, model, config, read_profile(run.path, config), Ledger.read(run.path), gone, came)


def _counted(
    before: _Before, source: PreparedSource, fresh: dict[int, Partition]
) -> tuple[PreparedSource, dict[int, Partition]]:
    """The source with the rows of new partitions that are not left out, and those partitions that have some.

    Raises
    ------
    InvalidInputError
        For one that has none, where that is too far from the base run.
    """
    source = source.only(fresh, None if before.profile is None else before.profile.ends)
    counted = {index: replace(part, rows=source.parts[index].n_rows) for index, part in fresh.items()}
    empty = {index: part.path for index, part in counted.items() if not part.rows}
    for path in empty.values():
        logger.warning("%s", f"{path}: every row has a null in one of the features, and is left out")
    if empty:
        Health(before.profile, before.config.drift, source, empty).judge_columns()
    return source, {index: part for index, part in counted.items() if part.rows}


def _fingerprint(before: _Before, partitions: Sequence[Partition]) -> str:
    config = before.config
    return digest_json(
        {
            "update": before.model.basis.digest,
            "base": before.ledger.base,
            "partitions": [partition.fingerprint for partition in partitions],
            "n_components": config.n_components,
            "indefinite": config.indefinite,
            "novelty": config.novelty,
            "format": config.output.format,
            "inverse": None if config.inverse is None else config.inverse.alpha,
            "algorithm": ALGORITHM_VERSION,
        }
    )


def _make(
    before: _Before,
    run: RunDirectory,
    writer: Writer,
    source: Source | None,
    fresh: dict[int, Partition],
    withdrawn: Sequence[Partition],
    listener: Listener | None,
    started: float,
) -> None:
    """Every result of a version that is not committed; what an earlier attempt left is replaced or gone on with."""
    config = before.config
    with open_cluster(config, resolve_threads(config.cluster.n_jobs), listener, run.path) as engine:
        contributions = Contributions(before.run, before.model, config, run, engine)
        contributions.check_plan(fresh)
        health = Health(before.profile, config.drift, source, {index: part.path for index, part in fresh.items()})
        health.judge_columns()
        sums, added = before.model.sums, []
        for part in withdrawn:
            sums -= contributions.of_withdrawn(part)
        for own, measured in contributions.of_new(source, fresh):
            sums += own
            added.append(measured)
        ledger = before.ledger.without(withdrawn).with_more(added)
        _judge(ledger.drift(added), config)
        writer.require()
        model = _solve(before, run, sums)
        health.judge_scores(_write_scores(before, run, source, list(fresh), model, engine, contributions, health))
        check_unchanged(before.run, model, added)
        workers = engine.workers()
    link_contributions(before.run, run, before.ledger.without(withdrawn).partitions)
    write_json(run.path / "ledger.json", ledger.to_json())
    drift = {path: ratio if math.isfinite(ratio) else None for path, ratio in ledger.drift(added).items()}
    write_json(run.path / "metrics.json", metrics(model) | {"drift": drift, "health": health.to_json()})
    health.keep(run.path)
    description = run_description(config, run.fingerprint, time.perf_counter() - started, workers)
    description |= {"previous": before.run.fingerprint, "base": ledger.base, "added": [part.path for part in added]}
    description |= {"withdrawn": [part.path for part in withdrawn], "resumed_spans": contributions.resumed_spans}
    write_json(run.path / "run.json", description)


def _judge(drift: dict[str, float], config: Config) -> None:
    for path, ratio in drift.items():
        check_limits(
            ratio,
            config.drift,
            "drift",
            f"{path}: the landmarks leave out {ratio:.3g} times as much of it as of the rows of the base run",
            "look at that partition, allow more (--set drift.fail=…), or choose landmarks anew by `skpca run` with a "
            "source that has it",
        )


def _solve(before: _Before, run: RunDirectory, sums: Accumulators) -> NystroemModel:
    for name in RESULTS:
        if name != "contributions":
            remove_tree(run.path / name)
    model = solve_model(
        before.model.basis,
        sums,
        before.config.n_components,
        indefinite=before.config.indefinite,
        feature_names=before.model.feature_names,
    )
    model = replace(learn_map(model, before.config), preparation=before.model.preparation)
    save_model(model, run.path / "model")
    return model


def _write_scores(
    before: _Before,
    run: RunDirectory,
    source: Source | None,
    new: Sequence[int],
    model: NystroemModel,
    engine: Engine,
    contributions: Contributions,
    health: Health,
) -> dict[int, Tally]:
    """Scores of the new parts of a source, numbered in their order."""
    rows = [] if source is None else [source.parts[index].n_rows for index in new]
    config = before.config
    if source is None or not rows:
        with writing_scores(
            run.path, [], form=config.output.format, n_components=model.n_components, beside=config.beside
        ):
            return {}
    chosen = contributions.plan(max(rows))
    numbers = {index: number for number, index in enumerate(new)}
    spans = [span for span in source.spans(chosen.span_rows) if span.part in numbers]
    return write_scores(
        spans,
        rows,
        model,
        engine,
        run.path,
        form=before.config.output.format,
        comparison=health.comparison(model),
        beside=before.config.beside,
        batch_rows=chosen.batch_rows,
        wave=chosen.score_wave,
        numbers=numbers,
    )
