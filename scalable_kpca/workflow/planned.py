"""The plan of a job: its configuration, its rows, and what this machine and its disk can do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from scalable_kpca.machine import disk_room, resolve_memory_limit, resolve_threads
from scalable_kpca.objects import UPLOAD_BYTES
from scalable_kpca.planning import plan
from scalable_kpca.preimage import most_pairs
from scalable_kpca.source import Source
from scalable_kpca.tiling import NystroemPlan, Plan, plan_nystroem
from scalable_kpca.workflow.checks import journal_bytes
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.inverse import held_bytes, plan_with_map
from scalable_kpca.workflow.layout import Output

__all__ = ["is_refined", "plan_job", "plan_start"]


def plan_job(config: Config, source: Source, output: Output, *, calibrate: bool = False) -> Plan | NystroemPlan:
    """Plan of a job; of a Nyström fit that passes refine, that of the passes.

    Parameters
    ----------
    config : Config
    source : Source
        Gives the shape of the rows.
    output : Output
        Where the tiles would be stored.
    calibrate : bool
        Whether the machine is measured in any case; otherwise when the job is large and it has not been measured.

    Returns
    -------
    Plan or NystroemPlan
        Only ``gram="auto"`` asks whether tiles fit on the disk; a store that is asked for is checked when it is
        written, so that a finished run stays finished whatever the disk holds now.
    """
    n_samples, n_features = source.n_samples, len(source.feature_names)
    pairs = min(most_pairs(config.nystroem.n_landmarks), n_samples)
    k = config.n_components if isinstance(config.n_components, int) else pairs
    held = held_bytes(config, pairs, k, n_features)

    def within(limit: int) -> Plan | NystroemPlan:
        budget = config.budget.model_copy(update={"memory": limit})
        within_it = config.model_copy(update={"budget": budget})
        return _plan_fit(within_it, source, output, calibrate=calibrate, resident_bytes=held + _sent_bytes(config))

    chosen = plan_with_map(within, config)
    return chosen if config.output.tiles is None else replace(chosen, reasons=(*chosen.reasons, _on_s3(config, chosen)))


def _plan_fit(
    config: Config, source: Source, output: Output, *, calibrate: bool, resident_bytes: int = 0
) -> Plan | NystroemPlan:
    n_samples, n_features = source.n_samples, len(source.feature_names)
    room = None
    if config.gram == "auto":
        # the rows and their copy in the model take their part
        rows = 2 * n_samples * n_features * (4 if source.dtype == "float32" else 8)
        room = disk_room(output.path, "runs/*/gram.zarr")
        if config.budget.disk is not None:
            room = min(room, resolve_memory_limit(config.budget.disk))
        room = max(0, room - rows)
    planned = partial(
        plan,
        n_samples,
        n_features,
        n_components=config.n_components,
        method=_method(config),
        n_landmarks=config.nystroem.n_landmarks,
        landmarks=config.nystroem.landmarks,
        kernel=config.kernel.name,
        dtype=config.dtype,
        solver="block_krylov" if is_refined(config) else config.solver.name,
        gram=config.gram,
        memory_limit=config.budget.memory,
        n_jobs=config.cluster.n_jobs,
        n_workers=config.cluster.n_processes,
        tile_rows=config.tile_rows,
        directory=output.path,
        is_run=True,
        resident_bytes=resident_bytes,
    )
    chosen = planned(disk_limit=room, calibrate="always" if calibrate else "large")
    if isinstance(chosen, Plan) and is_refined(config):
        plan_start(config, chosen)  # refuses landmarks that memory cannot hold
    if (
        not isinstance(chosen, Plan)
        or room is None
        or chosen.gram != "zarr"
        or chosen.gram_bytes + journal_bytes(chosen) <= room
    ):
        return chosen
    # the journal, whose size follows from the plan, takes its part too
    return planned(disk_limit=max(0, room - journal_bytes(chosen)), calibrate="never")


def _sent_bytes(config: Config) -> int:
    """Of tiles that are on their way to S3: one in each thread; what comes from there takes less."""
    return 0 if config.output.tiles is None else resolve_threads(config.cluster.n_jobs) * UPLOAD_BYTES


def _on_s3(config: Config, chosen: Plan | NystroemPlan) -> str:
    """What `output.tiles` means for a plan."""
    if isinstance(chosen, NystroemPlan):
        return f"output.tiles={config.output.tiles} is not used: a Nyström fit stores no tiles"
    return f"tiles go to {config.output.tiles}; seconds are those of a disk, of S3 no rate is known"


def is_refined(config: Config) -> bool:
    """Whether a Nyström fit is the start of passes over K."""
    return config.method == "nystroem" and bool(config.solver.max_passes)


def plan_start(config: Config, exact: Plan) -> NystroemPlan:
    """How the landmarks' directions are found that passes over K begin with: on the stored rows of an exact plan."""
    wanted = config.nystroem
    m = min(wanted.n_landmarks, exact.n_samples)
    return plan_nystroem(
        exact.n_samples,
        exact.n_features,
        n_components=min(exact.block_columns, m),
        n_landmarks=m,
        landmarks=wanted.landmarks,
        dtype=exact.dtype,
        memory_limit=exact.memory_limit,
        n_threads=exact.n_threads,
        n_workers=exact.n_workers,
        resident_bytes=8 * exact.n_samples * exact.block_columns,
        is_run=True,
    )


def _method(config: Config) -> str:
    if config.solver.max_passes == 0:
        return "nystroem"
    return "exact" if is_refined(config) else config.method
