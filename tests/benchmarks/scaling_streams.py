"""What a simulated cluster has to do in the passes of a Nyström fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from scalable_kpca.tiling import WAVE, NystroemPlan
from scalable_kpca.tiling.rates import MachineRates
from tests.benchmarks.scaling_cluster import Costs, SimulatedCluster, SimulatedTask
from tests.benchmarks.scaling_passes import VECTOR_BYTES, Outcome, outcome_of

__all__ = ["simulate_nystroem"]


def simulate_nystroem(
    plan: NystroemPlan, rates: MachineRates, costs: Costs, *, write_bytes: float
) -> dict[str, Outcome]:
    """The look, the sums and the scores of a Nyström fit, each in waves as `map_spans` and `reduce_spans` make them.

    Parameters
    ----------
    plan : NystroemPlan
    rates : MachineRates
        Of a thread.
    costs : Costs
    write_bytes : float
        Bytes a second that the client writes, of scores and of checkpoints.

    Returns
    -------
    dict of str to Outcome
    """
    m, d, rows, k = plan.n_landmarks, plan.n_features, plan.span_rows, plan.n_components
    entry, read = rates.entry + rates.feature * d, rates.stage * d
    gemm = rates.gemm * (2 if plan.dtype == "float64" else 1)
    basis, own = 8 * m * (m + d), rows * d * VECTOR_BYTES
    look = _Stage(rows * read, own, 0, 8 * m * d, True)  # what is added are samples of as many rows as landmarks
    sums = _Stage(rows * (read + m * entry + 2 * m * m * gemm), own, basis, 8 * m * m, True, 8 * m * m / write_bytes)
    scored = rows * 8 * (k + 1)  # and an id
    scores = _Stage(rows * (read + m * entry + 2 * m * k * gemm), own, basis, scored, False, scored / write_bytes)
    return {
        "look": _simulate_stage(look, plan, min(WAVE, plan.n_spans), costs),
        "sums": _simulate_stage(sums, plan, plan.sum_wave, costs),
        "scores": _simulate_stage(scores, plan, plan.score_wave, costs),
    }


@dataclass(frozen=True)
class _Stage:
    """Of each span: seconds, bytes that are read; what all tasks share; what each gives back, added up or not.

    `client` are the client's seconds for one value that comes back.
    """

    seconds: float
    read_bytes: int
    shared_bytes: int
    value_bytes: int
    is_sum: bool
    client: float = 0.0


def _simulate_stage(stage: _Stage, plan: NystroemPlan, wave: int, costs: Costs) -> Outcome:
    cluster, chain, tasks, edges = SimulatedCluster(plan.n_workers, plan.n_threads, costs), 0.0, 0, 0
    done = 0
    while done < plan.n_spans:
        length = min(wave, plan.n_spans - done)
        done += length
        chain += _simulate_wave(cluster, stage, length)
        own = 2 * length if stage.is_sum else length + 1
        tasks, edges = tasks + own, edges + (3 * length if stage.is_sum else length)
    return outcome_of(cluster, chain, tasks, edges)


def _simulate_wave(cluster: SimulatedCluster, stage: _Stage, length: int) -> float:
    """One wave to its end, with what the client does then; seconds of its chain."""
    costs, chain = cluster.costs, 0.0
    tasks = length * (2 if stage.is_sum else 1) + 1
    cluster.use_client(costs.building(tasks, length * (3 if stage.is_sum else 1)), stage.shared_bytes)
    holders = {0}
    values: dict[int, int] = {}
    added = [-1, -1]  # last span in the sum so far, and the worker that has it

    def missing(worker: int) -> float:
        shared = 0 if worker in holders else stage.shared_bytes
        holders.add(worker)
        return stage.read_bytes + shared

    def finished(position: int, worker: int) -> None:
        values[position] = worker
        if stage.is_sum and position == added[0] + 1:
            add(position)

    def add(position: int) -> None:
        nonlocal chain
        home, before = values[position], added[1]
        n_bytes = stage.value_bytes if position and before != home else 0
        seconds = costs.added_byte * stage.value_bytes if position else 0.0
        chain += seconds + costs.fetching(n_bytes) + 2 * costs.latency + costs.scheduling(2)
        cluster.give(
            SimulatedTask(seconds, 2, lambda _: n_bytes, partial(was_added, position), worker=home, urgent=True)
        )

    def was_added(position: int, worker: int) -> None:
        added[:] = [position, worker]
        if position + 1 in values:
            add(position + 1)

    for position in range(length):
        edges = 1 if stage.shared_bytes else 0
        cluster.give(SimulatedTask(stage.seconds, edges, missing, partial(finished, position)))
    cluster.run()
    cluster.now = max(cluster.now, cluster.scheduler.free)
    returned = 1 if stage.is_sum else length
    cluster.use_client(0.0, returned * stage.value_bytes)
    cluster.use_client(returned * stage.client)
    return chain
