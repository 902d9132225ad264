"""The simulated cluster keeps to what holds for every cluster, and the page is what it finds."""

from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from scalable_kpca.engine import ClusterSettings, open_engine
from scalable_kpca.gram import RecomputeGram
from scalable_kpca.kernels import resolve_kernel
from scalable_kpca.source import ArrayRows
from scalable_kpca.tiling import Tiling, nominal_rates, plan_nystroem
from scalable_kpca.tiling.sizes import RUN_ROWS
from tests.benchmarks import scaling, scaling_cases
from tests.benchmarks.scaling_cluster import Costs, SimulatedCluster, SimulatedTask
from tests.benchmarks.scaling_costs import graph_size, recorded_costs
from tests.benchmarks.scaling_passes import PassShape, pass_graph, simulate_pass
from tests.benchmarks.scaling_streams import simulate_nystroem

FREE = Costs(0, 0, 0, 0, 0, 0, 0, float("inf"))
ENTRY = 5e-9


def shape(n=60_000, tile_rows=1000, width=4, segment=8, columns=23):
    return PassShape(Tiling(n, tile_rows), width, segment, columns)


def costs(**changed):
    return Costs(**{**vars(FREE), **changed})


def run(cluster, tasks):
    done = []
    for position, (seconds, n_bytes) in enumerate(tasks):
        cluster.give(SimulatedTask(seconds, 0, lambda _, n=n_bytes: n, lambda _, p=position: done.append(p)))
    return cluster.run(), done


@pytest.mark.slow
def test_page_is_what_the_program_writes():
    written = Path(__file__).parents[2].joinpath("docs", "scaling.md").read_text(encoding="utf-8")
    assert written == scaling.page(), "python -m tests.benchmarks.scaling > docs/scaling.md"


def test_one_thread_without_costs_takes_the_work():
    graph = pass_graph(shape(), 1)
    found = simulate_pass(shape(), 1, 1, ENTRY, FREE)
    assert found.seconds == pytest.approx(ENTRY * sum(graph.entries))
    # each pair of rows once, and half of what lies in a tile on the diagonal
    assert sum(graph.entries) == pytest.approx(60_000**2 / 2)


@pytest.mark.parametrize("n_workers", [1, 2, 7, 40])
@pytest.mark.parametrize("width", [1, 4, 60])
def test_no_resource_is_busy_for_longer_than_the_pass_takes(n_workers, width):
    found = simulate_pass(shape(width=width), n_workers, 2, ENTRY, recorded_costs(1e9))
    assert found.seconds >= max(found.busy.values())
    assert found.seconds >= ENTRY * 60_000**2 / 2 / (2 * n_workers)
    assert min(found.busy.values()) > 0 or n_workers == 1  # one worker has everything and fetches nothing


@pytest.mark.parametrize("name", [name for name in vars(FREE) if name != "bandwidth"])
def test_nothing_that_costs_more_makes_a_pass_faster(name):
    cheap, dear = vars(recorded_costs(1e9)), 3 * getattr(recorded_costs(1e9), name)
    before = simulate_pass(shape(), 5, 2, ENTRY, Costs(**cheap)).seconds
    assert simulate_pass(shape(), 5, 2, ENTRY, Costs(**{**cheap, name: dear})).seconds > before


def test_more_workers_are_faster_until_the_scheduler_is_the_limit():
    dear = costs(scheduler_task=1e-3)
    found = [simulate_pass(shape(), n_workers, 1, ENTRY, dear) for n_workers in (1, 2, 4, 100, 1000)]
    seconds = [each.seconds for each in found]
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(seconds))
    assert seconds[0] / seconds[1] == pytest.approx(2, rel=0.2)
    # totals and finished rows are dealt with in the end
    assert found[-1].busy["scheduler"] == pytest.approx(found[-1].seconds, rel=0.1)


def test_sums_of_a_segment_wait_for_one_another():
    """Without work a pass takes as long as its longest chain, whatever the number of workers."""
    dear = costs(added_byte=1e-6)
    graph = pass_graph(shape(), 1)
    chains = [sum(found.added_bytes for (s, _), found in graph.sums.items() if s == segment) for segment in range(8)]
    for n_workers in (8, 100):
        found = simulate_pass(shape(), n_workers, 1, 0.0, dear)
        assert found.seconds == pytest.approx(1e-6 * max(chains), rel=1e-6)
    # one worker has all chains, and one thread for them
    assert simulate_pass(shape(), 1, 1, 0.0, dear).seconds == pytest.approx(1e-6 * sum(chains), rel=1e-6)


class RecordedError(Exception):
    """A graph, in place of its values."""


@pytest.mark.parametrize(("n", "tile_rows", "width"), [(1000, 100, 3), (1050, 100, 1), (950, 100, 20), (90, 100, 1)])
def test_tasks_and_edges_are_those_of_a_real_pass(n, tile_rows, width, monkeypatch):
    monkeypatch.setattr("scalable_kpca.tiling.sizes.RUN_ROWS", 400)
    tiling, graphs = Tiling(n, tile_rows), []

    def record(graph, *_, **__):
        graphs.append(graph)
        raise RecordedError

    with open_engine(ClusterSettings("threads"), n_threads=1) as engine:
        monkeypatch.setattr(engine, "run", record)
        kernel = resolve_kernel("rbf", gamma=1.0, n_features=2)
        gram = RecomputeGram(ArrayRows(np.zeros((n, 2))), kernel, tiling, "float64", engine, width)
        with pytest.raises(RecordedError):
            gram.multiply(np.ones((n, 3)))
    found = pass_graph(PassShape(tiling, width, max(width, 400 // tile_rows), 4), 1)
    assert (found.tasks, found.edges) == graph_size(graphs[0])
    assert len(found.runs) == tiling.n_tasks(width)


def test_products_of_all_runs_have_each_row_and_each_column_once():
    """Of an n × n matrix: every run's rows, and the rows of its columns below the diagonal."""
    one = shape(n=3000, tile_rows=1000, width=2, columns=1)
    # runs of block row 0: columns 0–1 and 2; of 1: 1–2; of 2: 2
    assert pass_graph(one, 1).product_bytes == [2000 * 8, 2000 * 8, 2000 * 8, 1000 * 8]


def test_tasks_run_side_by_side_as_many_as_there_are_threads():
    assert run(SimulatedCluster(2, 2, FREE), [(1.0, 0)] * 9) == (3.0, [*range(9)])


def test_scheduler_deals_with_one_task_after_another():
    # given out in 0.5 s each, done after 4, and seen to be done in 0.5 s each
    seconds, _ = run(SimulatedCluster(10, 1, costs(scheduler_task=1.0)), [(4.0, 0)] * 3)
    assert seconds == pytest.approx(0.5 + 4 + 3 * 0.5)


def test_bytes_for_one_worker_queue_and_for_two_do_not():
    narrow = costs(bandwidth=10.0)
    assert run(SimulatedCluster(1, 4, narrow), [(1.0, 20)] * 2)[0] == pytest.approx(5)
    assert run(SimulatedCluster(2, 4, narrow), [(1.0, 20)] * 2)[0] == pytest.approx(3)


def test_message_takes_its_time_both_ways():
    assert run(SimulatedCluster(1, 1, costs(latency=0.25)), [(1.0, 0)])[0] == pytest.approx(1.5)
    assert run(SimulatedCluster(1, 1, costs(latency=0.25, bandwidth=1.0)), [(1.0, 1)])[0] == pytest.approx(3)


def test_task_that_waits_for_a_busy_worker_goes_to_an_idle_one():
    """Four long tasks and a short one on two workers: the fifth was given to the first worker, which is busy."""
    cluster, places = SimulatedCluster(2, 1, FREE), []
    for seconds in (10.0, 1.0, 10.0):
        cluster.give(SimulatedTask(seconds, 0, lambda _: 0, partial(places.append)))
    assert cluster.run() == pytest.approx(11)
    assert sorted(places) == [0, 1, 1]


@pytest.mark.parametrize("landmarks", [100, 1000])
def test_nystroem_takes_its_work_and_its_chain(landmarks):
    rates = nominal_rates("rbf", "float32")
    found = {}
    for n_workers in (2, 20):
        plan = plan_nystroem(
            10**7, 64, n_landmarks=landmarks, memory_limit=2**34, n_threads=2, n_workers=n_workers, rates=rates
        )
        found[n_workers] = simulate_nystroem(plan, rates, recorded_costs(1e9), write_bytes=4e8)
        for stage in found[n_workers].values():
            assert stage.seconds >= max(stage.busy.values())
    assert found[20]["sums"].seconds < found[2]["sums"].seconds
    # the client writes 11 numbers of every row, one wave after another
    assert found[20]["scores"].busy["client"] >= 10**7 * 88 / 4e8


def test_plan_of_a_case_is_the_plan_that_is_simulated():
    found = scaling_cases.exact(1_000_000, 10, scaling_cases.SLOW)
    assert found.seconds >= 5 * found.parts[0]
    assert found.parts[0] >= scaling_cases.entry_seconds(scaling_cases.RATES, 23) * 1e12 / 2 / 40
    assert RUN_ROWS == 32_768  # the page says what it means at the largest tile


@pytest.mark.parametrize(
    ("times", "workers"),
    [([(10, 100.0), (100, 10.0)], 100), ([(10, 100.0), (100, 32.0)], 10), ([(10, 9.0), (20, 9.0), (40, 2.0)], 10)],
)
def test_cluster_pays_while_a_step_brings_enough(times, workers):
    assert scaling_cases.pays_until(times) == workers
