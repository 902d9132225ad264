"""What single partitions contribute to a Nyström model: their sums, each kept in a file of its own."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scalable_kpca.approximate import plan_joining, sums_of_joining
from scalable_kpca.disk import remove_tree, sync
from scalable_kpca.engine import Engine
from scalable_kpca.errors import BusyError, InvalidInputError, StorageError
from scalable_kpca.machine import resolve_threads
from scalable_kpca.model import NystroemModel
from scalable_kpca.nystroem import Accumulators, SumsCheckpoint, relative_residual
from scalable_kpca.source import Source
from scalable_kpca.source.parts import naming_files
from scalable_kpca.tiling import NystroemPlan
from scalable_kpca.workflow.checks import check_memory, check_scores_room
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.files import file_states
from scalable_kpca.workflow.inverse import held_bytes, plan_with_map, stored_bytes
from scalable_kpca.workflow.layout import RunDirectory
from scalable_kpca.workflow.ledger import Partition
from scalable_kpca.workflow.score_files import chunk_files
from scalable_kpca.workflow.scoring import open_like

__all__ = ["Contributions", "check_unchanged", "link_contributions"]

logger = logging.getLogger(__name__)


class Contributions:
    """Sums of partitions by the landmarks of a model.

    Parameters
    ----------
    before : RunDirectory
        Run that is updated.
    model : NystroemModel
        Its model.
    config : Config
    run : RunDirectory
        Where sums are kept: those of new partitions as results, the others in the journal.
    engine : Engine

    Attributes
    ----------
    resumed_spans : int
        Spans that an interrupted update had done and that were not read again.

    Notes
    -----
    Sums are kept when the file that they are of is known to be what it was called; a killed update goes on after the
    last wave of spans. Disk: 8·m² bytes for each partition.
    """

    def __init__(
        self, before: RunDirectory, model: NystroemModel, config: Config, run: RunDirectory, engine: Engine
    ) -> None:
        self._before, self._model, self._config, self._run, self._engine = before, model, config, run, engine
        self.resumed_spans = 0

    def of_new(self, source: Source | None, fresh: Mapping[int, Partition]) -> Iterator[tuple[Accumulators, Partition]]:
        """Sums of new parts of a source, and the partitions with the share of their trace that is not reached."""
        if source is None:
            return
        for index, part in fresh.items():
            sums = self._of_part(source, index, part, self._run.path / str(part.own))
            yield sums, replace(part, residual=relative_residual(self._model.basis, sums))

    def of_withdrawn(self, part: Partition) -> Accumulators:
        """Sums of a partition that is taken away: its own, or from its file where it came with the base run.

        Raises
        ------
        InvalidInputError
            When its file is needed, and is gone or has changed.
        """
        sums = self._kept_or_read(part)
        text = f"{part.path} is withdrawn; landmarks that were taken from it stay landmarks"
        logger.warning("%s", f"{text}, and a source that still has the file adds it again with the next update")
        return sums

    def _kept_or_read(self, part: Partition) -> Accumulators:
        if part.own is not None:
            kept = SumsCheckpoint(self._before.path / part.own, part.fingerprint)
            done, sums = kept.load(self._model.basis)
            if done:
                return sums
        why = "came with the base run" if part.own is None else "has sums that are damaged"
        try:
            source = open_like(self._before.path, self._model, part.path, Path("/"))
            is_same = source.part_fingerprints() == (part.fingerprint,)
        except BusyError:
            raise
        except (InvalidInputError, StorageError) as error:
            raise InvalidInputError(
                f"{part.path} {why} and has to be read again to be withdrawn, which failed: {error}"
            ) from error
        if not is_same:
            raise InvalidInputError(
                f"{part.path} {why}, and its file has changed since, so that what it contributed cannot be taken away; "
                "put the old file back, or make a new base with `skpca run`."
            )
        return self._of_part(source, 0, part, self._run.path / "journal" / f"withdrawn-{part.fingerprint}.npz")

    def plan(self, n_rows: int) -> NystroemPlan:
        """How so many rows are read: of a partition always in the same way, whatever came with it."""
        config, model = self._config, self._model

        def within(limit: int) -> NystroemPlan:
            return plan_joining(
                model,
                n_rows,
                memory_limit=limit,
                n_threads=resolve_threads(config.cluster.n_jobs),
                n_workers=config.cluster.n_processes,
                is_run=True,
                resident_bytes=held_bytes(config, model.basis.n_landmarks, model.n_components, model.n_features),
            )

        return plan_with_map(within, config)

    def check_plan(self, fresh: Mapping[int, Partition]) -> None:
        """MemoryLimitError or StorageError when there is no room for what new parts of a source will take."""
        config = self._config
        if fresh:
            chosen = self.plan(sum(part.rows for part in fresh.values()))
            check_memory(chosen)
            # sums of a new partition: while they are made, and as a result
            beside = stored_bytes(config, chosen)
            n_files = len(fresh) + chunk_files(config, chosen.n_samples, chosen.n_components)
            check_scores_room(self._run.path, chosen, beside=beside, n_parts=n_files, n_kept=2 * len(fresh))
        elif config.inverse is not None:
            check_memory(self.plan(1))  # the map is learned again, whatever is read

    def _of_part(self, source: Source, index: int, part: Partition, place: Path) -> Accumulators:
        """Sums of one file of a source, kept at a place."""
        basis, kept = self._model.basis, SumsCheckpoint(place, part.fingerprint)
        done, sums = kept.load(basis)
        if done:
            self.resumed_spans += done
            kept.save(basis, done, sums)  # a result now, to the last byte: what follows an archive is not read
            return sums
        chosen = self.plan(part.rows)
        spans = [span for span in source.spans(chosen.span_rows) if span.part == index]
        key = f"{part.fingerprint} {chosen.span_rows} {chosen.batch_rows} {file_states([source.parts[index].path])}"
        unfinished = SumsCheckpoint(self._run.path / "journal" / f"{part.fingerprint}.npz", key)
        with naming_files([source.parts[index]]):
            sums, resumed = sums_of_joining(
                spans, self._model, chosen, self._engine, names=source.feature_names, checkpoint=unfinished
            )
        check_unchanged(self._before, self._model, [part])
        self.resumed_spans += resumed
        kept.save(basis, len(spans), sums)
        return sums


def check_unchanged(before: RunDirectory, model: NystroemModel, parts: Sequence[Partition]) -> None:
    """InvalidInputError when the file of a partition is no longer what it is called."""
    for part in parts:
        try:
            source = open_like(before.path, model, part.path, Path("/"), make=False)
            found = source.part_fingerprints()
        except BusyError:  # which says nothing of the object
            raise
        except (InvalidInputError, StorageError):  # it is gone, or no longer a table with these columns
            found = ()
        if found != (part.fingerprint,):
            raise InvalidInputError(
                f"{part.path} changed while it was read; nothing is published: run again when it is at rest."
            )


def link_contributions(before: RunDirectory, run: RunDirectory, parts: Sequence[Partition]) -> None:
    """Sums that the earlier run keeps in the new one too: the same files, or copies where there are no links."""
    for part in parts:
        if part.own is None:
            continue
        source, destination = before.path / part.own, run.path / part.own
        destination.parent.mkdir(exist_ok=True)
        remove_tree(destination)  # of an earlier attempt, whatever has become of it
        try:
            os.link(source, destination)
        except FileNotFoundError as error:
            raise StorageError(f"{source} is missing; put it back from a copy, or make a new base.") from error
        except OSError:
            staging = destination.with_suffix(".partial")
            shutil.copyfile(source, staging)
            staging.replace(destination)
            sync(destination.parent)
