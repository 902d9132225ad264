"""Looking at outputs and machines without changing them: what `status`, `verify` and `doctor` print."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.errors import BusyError, KernelPCAError, StorageError, UnreadableError
from scalable_kpca.gram import StoredTiles, find_tiles
from scalable_kpca.gram.products import computed_tile
from scalable_kpca.model import AnyModel, Model, load_model
from scalable_kpca.nystroem.checkpoint import FIELDS as SUMS_FIELDS
from scalable_kpca.objects import StoredObject, is_object
from scalable_kpca.records import read_record
from scalable_kpca.workflow.files import read_json
from scalable_kpca.workflow.layout import TILES, Output, RunDirectory
from scalable_kpca.workflow.lease import lease_owner
from scalable_kpca.workflow.ledger import Ledger
from scalable_kpca.workflow.lock import describe_owner
from scalable_kpca.workflow.owner import owner_is_dead
from scalable_kpca.workflow.remote import RemoteOutput
from scalable_kpca.workflow.versions import problems_of

__all__ = ["Report", "inspect_output", "recomputed_tiles", "verify_output"]

N_RECOMPUTED = 8  # tiles of a verification


@dataclass(frozen=True)
class Report:
    """Facts and problems, for people and as JSON.

    Attributes
    ----------
    facts : dict
        Names to JSON values.
    problems : list of str
        One sentence each; empty when all is well.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """One fact or problem a line."""
        return [f"{name}: {value}" for name, value in self.facts.items()] + [
            f"PROBLEM: {text}" for text in self.problems
        ]

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return {**self.facts, "problems": self.problems}


def inspect_output(output: Output) -> Report:
    """What is in an output: the run in force, the others, and who holds the lock; of S3 nothing is brought here."""
    latest, problems = None, []
    published = None if output.remote is None else _inspect_remote(RemoteOutput(output.remote))
    if output.remote is None and not output.path.is_dir():
        problems.append(f"{output.path} is no directory; correct the path, or run a job with this output.")
    try:
        latest = output.latest()
    except StorageError as error:
        problems.append(str(error))
    facts: dict[str, Any] = {"in force": latest.fingerprint if latest else "none"}
    if latest is not None and (latest.path / "ledger.json").exists():
        facts["partitions"] = _partitions_of(latest)
    if latest is not None and (latest.path / TILES).exists():
        facts["tiles"] = _where_tiles_are(latest)
    for run in output.runs():
        facts[f"run {run.fingerprint[:16]}"] = "committed" if run.is_committed else _progress_of(run)
    facts["lock"] = _named_owner(describe_owner(output.lock))
    if published is not None:
        there = {f"there, {name}": value for name, value in facts.items()}
        return Report(
            {**published.facts, "working directory": str(output.path), **there}, published.problems + problems
        )
    return Report(facts, problems)


def _named_owner(owner: dict[str, Any] | None) -> str:
    if owner is None:
        return "free"
    state = "a dead process" if owner_is_dead(owner) else "process"
    return f"held by {state} {owner.get('pid', '?')} on {owner.get('host', '?')}"


def _inspect_remote(remote: RemoteOutput) -> Report:
    """What is published on S3; BusyError when the server does not answer, which is no problem of what it holds."""
    facts: dict[str, Any] = {}
    problems = []
    try:
        pointer, _ = remote.read_pointer()
        facts["in force"] = "none" if pointer is None else pointer["run"]
        for one in remote.publications():
            what = "not whole" if one.commit_list() is None else f"published, {len(one.sizes)} objects"
            facts[f"run {one.fingerprint[:16]}/{one.place.name[:12]}"] = what
        facts["lock"] = _named_owner(lease_owner(remote.lock))
    except BusyError:
        raise
    except StorageError as error:
        problems.append(str(error))
    return Report(facts, problems)


def verify_output(output: Output) -> Report:
    """Read all results and all stored tiles of the run in force and compare them with digests and row sums.

    Results of a run that an update made are also the scores of the runs before it.

    Notes
    -----
    Only the results are promised: tiles are work in progress, which a later run checks and completes when it uses
    them, so that a missing one is a fact and no problem. That one is whole and not of these rows is a problem: the
    results came from it.
    """
    run = output.require_latest()
    try:
        problems = problems_of(output, run)
    except UnreadableError as error:
        problems = [str(error)]
    facts: dict[str, Any] = {"run": run.fingerprint}
    facts["results"] = "as committed" if not problems else f"{len(problems)} files differ"
    try:
        tiles = find_tiles(_place_of_tiles(run))
        if tiles is not None:
            sound, facts["tiles"] = _soundness(tiles)
            if not problems:
                chosen = random.Random().sample(sound, min(N_RECOMPUTED, len(sound)))
                wrong = recomputed_tiles(load_model(run.path / "model"), tiles, chosen)
                facts["recomputed"] = (
                    f"{len(chosen) - len(wrong)} of {len(chosen)} tiles, taken at random, are the same"
                )
                problems += wrong
        if tiles is not None and is_object(tiles.path):
            facts["tiles are in"] = tiles.path
    except BusyError as error:
        facts["tiles"] = f"not looked at: {error}"
    except KernelPCAError as error:
        facts["tiles"] = f"of no use, made again when they are needed: {error}"
    return Report(facts, problems)


def recomputed_tiles(model: AnyModel, tiles: StoredTiles, chosen: Sequence[tuple[int, int]]) -> list[str]:
    """What differs between stored tiles and the kernel of the model's own rows, one sentence each.

    Notes
    -----
    Entries are of the kernel up to the rounding of their evaluation, which the strips know: two evaluations, by other
    libraries or on another machine, differ by twice that. Cost: 2·t²·d flops a tile; memory: two tiles.
    """
    found = []
    for i, j in chosen:
        if not isinstance(model, Model) or model.n_samples != tiles.tiling.n_samples:
            break  # of landmarks no tiles are stored
        made, error = computed_tile(model.kernel, model.rows, tiles.tiling, i, j, tiles.dtype)
        blocks = (model.rows.read(tiles.tiling.block(b)).astype(np.float64) for b in (i, j))
        largest = max(float(np.abs(model.kernel.diagonal(block)).max()) for block in blocks)
        difference = float(np.abs(tiles.read(i, j) - made).max())
        if not difference <= 2 * error * largest:
            found.append(
                f"tile ({i}, {j}) of {tiles.path} is not the kernel of the rows: it is off by {difference:.3g}"
            )
    return found


def _partitions_of(run: RunDirectory) -> str:
    try:
        ledger = Ledger.read(run.path)
    except StorageError as error:
        return str(error)
    later = sum(part.own is not None for part in ledger.partitions)
    n_rows = sum(part.rows for part in ledger.partitions)
    return f"{len(ledger.partitions)} of {n_rows} rows, {later} of them by updates of run {ledger.base[:16]}"


def _progress_of(run: RunDirectory) -> str:
    if (run.path / "journal" / "landmarks.npz").exists():
        sums = read_record(run.path / "journal" / "sums.npz", SUMS_FIELDS)
        return f"in progress, landmarks found, sums over {0 if sums is None else int(sums['counts'][1])} rows"
    n_passes = len(list((run.path / "journal").glob("[0-9]*.npz")))
    found = [f"{n_passes} finished pass" + ("" if n_passes == 1 else "es")] if n_passes else []
    try:
        tiles = find_tiles(_place_of_tiles(run))
        if tiles is not None:
            where = f" in {tiles.path}" if is_object(tiles.path) else ""
            found.insert(0, f"{tiles.tiling.n_tiles - len(tiles.missing())} of {tiles.tiling.n_tiles} tiles{where}")
    except BusyError:
        raise
    except KernelPCAError as error:
        found.insert(0, str(error))
    return f"in progress, {' and '.join(found) or 'nothing to go on from yet'}"


def _place_of_tiles(run: RunDirectory) -> Path | StoredObject:
    """Where the tiles of a run are; StorageError when it says so in a way that no run does."""
    said = read_json(run.path / TILES)
    if said is None:
        return run.path / "gram.zarr"
    place = said.get("place") if isinstance(said, dict) else None
    if not isinstance(place, str) or not is_object(place):
        raise StorageError(f"{run.path / TILES} does not say where tiles are; remove it.")
    return StoredObject.of(place)


def _where_tiles_are(run: RunDirectory) -> str:
    try:
        return str(_place_of_tiles(run))
    except KernelPCAError as error:
        return str(error)


def _soundness(tiles: StoredTiles) -> tuple[list[tuple[int, int]], str]:
    missing = tiles.missing()
    damaged = [at for at in tiles.tiling.tiles() if at not in missing and not _tile_is_sound(tiles, *at)]
    n_tiles = tiles.tiling.n_tiles
    text = f"{n_tiles - len(missing) - len(damaged)} of {n_tiles} sound"
    for kind, found in (("missing", missing), ("damaged", damaged)):
        if found:
            more = ", …" if len(found) > 8 else ""
            text += f"; {kind}, made again when needed: {', '.join(map(str, found[:8]))}{more}"
    return [at for at in tiles.tiling.tiles() if at not in missing and at not in damaged], text


def _tile_is_sound(tiles: StoredTiles, i: int, j: int) -> bool:
    try:
        tiles.read_checked(i, j)
    except BusyError:
        raise
    except KernelPCAError:
        return False
    return True
