"""What a pass sends through the client: vectors there and products back, whatever the tiles take."""

import numpy as np
import pytest

from scalable_kpca.engine import ClusterSettings, open_engine
from scalable_kpca.gram import MemoryGram, RecomputeGram
from scalable_kpca.kernels import resolve_kernel
from scalable_kpca.source import write_rows
from scalable_kpca.tiling import Tiling
from tests.cluster.processes import Cluster, Proxy

pytestmark = pytest.mark.slow

KERNEL = resolve_kernel("rbf", gamma=0.1, n_features=3)
N_BLOCKS = 6


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """Bytes of one pass over so many rows with so many columns, between the client and all others."""
    folder = tmp_path_factory.mktemp("traffic")

    def measured(engine, proxy, home, n, b):
        rows, _ = write_rows(
            iter([np.random.default_rng(0).standard_normal((n, 3))]),
            folder / f"rows-{home.__name__}-{n}-{b}.zarr",
            **{"fingerprint": f"{n}", "n_samples": n, "n_features": 3, "dtype": "float64", "tile_rows": n // N_BLOCKS},
        )
        gram = home(rows, KERNEL, Tiling(n, n // N_BLOCKS), "float64", engine)
        gram.build()
        before = proxy.n_bytes
        gram.multiply(np.ones((n, b)))
        return proxy.n_bytes - before

    with Cluster(folder) as cluster, Proxy(cluster.address) as proxy:
        cluster.start_workers(2)
        settings = ClusterSettings("address", address=proxy.address, wait_for=2)
        with open_engine(settings, n_threads=1) as engine:
            cases = [(home, n, b) for home in (RecomputeGram, MemoryGram) for n in (1200, 4800) for b in (7, 39)]
            yield {case: measured(engine, proxy, *case) for case in cases}


@pytest.mark.parametrize("home", [RecomputeGram, MemoryGram])
def test_a_pass_sends_its_vectors_and_gets_its_products_and_no_tile(sent, home):
    for n in (1200, 4800):
        few, many = sent[home, n, 7], sent[home, n, 39]
        # W goes out and K W comes back, float64 both, of 32 columns more
        assert many - few == pytest.approx(2 * 8 * n * 32, rel=0.05)
    tiles = Tiling(4800, 800).n_entries * 8
    assert sent[home, 4800, 7] < tiles / 50
    # with the number of tasks the same, n decides and not n²: what a task takes besides cancels out
    more_rows = sent[home, 4800, 7] - sent[home, 1200, 7]
    assert more_rows == pytest.approx(2 * 8 * 3600 * 8, rel=0.05)


@pytest.mark.parametrize("home", [RecomputeGram, MemoryGram])
def test_what_a_task_sends_besides_is_small(sent, home):
    n_tasks = N_BLOCKS * (N_BLOCKS + 1) // 2
    beside = sent[home, 1200, 7] - 2 * 8 * 1200 * 8
    assert beside < 3000 * n_tasks
