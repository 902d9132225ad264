"""A pass in segments: sums on several workers have the bits of one sum, for any run and any segment."""

import weakref

import numpy as np
import pytest

from scalable_kpca.engine import open_engine
from scalable_kpca.gram import RecomputeGram, passes
from scalable_kpca.gram.passes import MOST_WAITING, run_pass
from scalable_kpca.gram.products import TileCounts
from scalable_kpca.gram.reductions import RunProduct
from scalable_kpca.kernels import resolve_kernel
from scalable_kpca.source import ArrayRows
from scalable_kpca.tiling import Tiling, sizes

N_SAMPLES, TILE_ROWS = 101, 8  # thirteen blocks, the last one short
RNG = np.random.default_rng(7)
X, V = RNG.standard_normal((N_SAMPLES, 5)), RNG.standard_normal((N_SAMPLES, 3))
KERNEL = resolve_kernel("rbf", gamma=0.1, n_features=5)


def built(width, segment_blocks, monkeypatch, scheduler="threads"):
    monkeypatch.setattr(sizes, "RUN_ROWS", segment_blocks * TILE_ROWS)
    with open_engine(scheduler, n_threads=2) as engine:
        return RecomputeGram(ArrayRows(X), KERNEL, Tiling(N_SAMPLES, TILE_ROWS), "float64", engine, width).build(V)


@pytest.mark.parametrize("width", [1, 2, 5, 13])
@pytest.mark.parametrize("segment_blocks", [1, 2, 3, 12])
def test_segments_have_the_bits_of_one_sum(width, segment_blocks, monkeypatch):
    one, several = built(width, 13, monkeypatch), built(width, segment_blocks, monkeypatch)
    np.testing.assert_array_equal(several.product, one.product)
    np.testing.assert_array_equal(several.row_sums, one.row_sums)
    assert several.counts == one.counts
    assert several.counts.computed == 13 * 14 // 2
    assert several.error == one.error
    K = np.exp(-0.1 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(several.product, K @ V, rtol=0, atol=1e-12)
    assert several.squared_norm == pytest.approx((K**2).sum(), rel=1e-14)


def test_segments_have_the_same_bits_in_any_order_of_tasks(monkeypatch):
    orders = [built(2, 3, monkeypatch, scheduler) for scheduler in ("synchronous", "threads", "threads")]
    for found in orders[1:]:
        np.testing.assert_array_equal(found.product, orders[0].product)
        assert found.squared_norm == orders[0].squared_norm


def test_each_segment_is_added_by_tasks_of_its_own(monkeypatch):
    graphs = []
    with open_engine("synchronous") as engine:
        run = engine.run
        monkeypatch.setattr(engine, "run", lambda graph, *a, **more: (graphs.append(graph), run(graph, *a, **more))[1])
        monkeypatch.setattr(sizes, "RUN_ROWS", 4 * TILE_ROWS)
        RecomputeGram(ArrayRows(X), KERNEL, Tiling(N_SAMPLES, TILE_ROWS), "float64", engine, 2).multiply(V)
    sums = [key for key in graphs[0] if "-sum" in str(key[0])]
    # segments of 4, 4, 4 and 1 blocks: each has a sum after every block row that gives to it
    assert len(sums) == 4 + 8 + 12 + 13
    given = {key[1:]: list(graphs[0][key][4:]) for key in sums}
    assert [name[1:] for name in given[0, 12]] == [(0, 12)]  # of row 0 the last run alone reaches the last segment
    assert [name[1:] for name in given[5, 4]] == [(5, 5), (5, 7), (5, 9), (5, 11)]  # all runs of a row of its own


class _Counted:
    """How many results of runs are there at a time."""

    def __init__(self):
        self.alive, self.most = 0, 0

    def add(self, change):
        self.alive += change
        self.most = max(self.most, self.alive)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize("segment_blocks", [2, 5])
@pytest.mark.parametrize("most_waiting", [MOST_WAITING, 50])
def test_products_of_few_block_rows_wait_to_be_added(scheduler, segment_blocks, most_waiting, monkeypatch):
    n_blocks, width = 60, 2
    tiling, counted = Tiling(n_blocks * 4, 4), _Counted()
    monkeypatch.setattr(sizes, "RUN_ROWS", segment_blocks * 4)
    monkeypatch.setattr(passes, "MOST_WAITING", most_waiting)

    def run(i, columns, *_vectors):
        made = RunProduct(np.ones((4, 1)), np.ones((4 * (len(columns) - (i in columns)), 1)), 0.0, 0.0, TileCounts())
        counted.add(1)
        weakref.finalize(made, counted.add, -1)
        return made

    with open_engine(scheduler, n_threads=2) as engine:
        found = run_pass(engine, tiling, None, lambda i, columns: (run, i, columns), stage="s", tiles_per_task=width)
    # one from each run of a block row, and one from each block above it
    expected = [len(list(tiling.runs(i, width))) + i for i in range(n_blocks)]
    np.testing.assert_array_equal(found.row_sums, np.repeat(expected, 4))
    assert counted.alive == 0
    # half of the pass where nothing waits: 495 to 534 of 930
    ahead, row = engine.n_parallel * most_waiting, n_blocks // width
    assert counted.most <= 1.5 * ahead + 2 * row, f"{counted.most} of {tiling.n_tasks(width)}"
