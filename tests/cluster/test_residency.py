"""Tiles in memory: on all workers, and evaluated again where a worker is gone."""

import numpy as np
import pytest
from distributed import Client

from scalable_kpca.engine import ClusterEngine
from scalable_kpca.gram import MemoryGram
from scalable_kpca.kernels import resolve_kernel
from scalable_kpca.source import write_rows
from scalable_kpca.tiling import Tiling
from tests.cluster.processes import Cluster, begin, skpca, wait_until
from tests.recovery.jobs import JOBS, bits_of, latest_run, write_job

pytestmark = pytest.mark.slow

N, TILE_ROWS = 9600, 600
N_FEATURES = 60  # a tile takes some 25 ms: a worker that is late by a moment has its share all the same
N_TILES = 16 * 17 // 2


@pytest.fixture
def gram(tmp_path):
    """A Gram matrix in the memory of three workers, each of one process, with its client and the processes."""
    rows, _ = write_rows(
        iter([np.random.default_rng(0).standard_normal((N, N_FEATURES))]),
        tmp_path / "rows.zarr",
        **{"fingerprint": "x", "n_samples": N, "n_features": N_FEATURES, "dtype": "float64", "tile_rows": TILE_ROWS},
    )
    with Cluster(tmp_path) as cluster:
        nannies = [cluster.start_workers(1) for _ in range(3)]
        with Client(cluster.address, set_as_default=False) as client:
            client.wait_for_workers(3)
            engine = ClusterEngine(client)
            kernel = resolve_kernel("laplacian", gamma=0.1, n_features=N_FEATURES)
            gram = MemoryGram(rows, kernel, Tiling(N, TILE_ROWS), "float64", engine)
            for _ in range(2):  # in the first one workers import, one faster than another
                assert gram.build().counts.computed == N_TILES
            yield gram, client, [cluster.workers(nanny)[0] for nanny in nannies]


def held(client: Client) -> list[int]:
    """Runs of tiles that each worker has."""
    return sorted(sum("run" in str(key) or "tile" in str(key) for key in keys) for keys in client.has_what().values())


def test_tiles_are_spread_over_the_workers_and_those_of_a_lost_one_are_evaluated_again(gram):
    gram, client, workers = gram
    V = np.random.default_rng(1).standard_normal((N, 4))
    before = gram.multiply(V)
    spread = wait_until(lambda: held(client))
    assert sum(spread) >= N_TILES
    assert spread[0] >= N_TILES / 9  # a third would be even
    workers[0].kill()
    after = gram.multiply(V)
    np.testing.assert_array_equal(after.product, before.product)
    wait_until(lambda: sum(held(client)) >= N_TILES)  # they stay again, on whoever evaluated them


def test_a_run_with_tiles_in_memory_outlives_a_worker(tmp_path):
    fields = {**JOBS["stored tiles, block Krylov"], "gram": "memory", "tile_rows": 3}
    assert skpca("run", write_job(tmp_path, fields, output={"path": "reference"})).returncode == 0
    with Cluster(tmp_path) as cluster:
        nannies = [cluster.start_workers(1) for _ in range(2)]
        running = begin("run", write_job(tmp_path, fields, cluster={"kind": "address", "address": cluster.address}))
        with Client(cluster.address, set_as_default=False) as client:
            wait_until(lambda: sum(held(client)) > 20)
            for worker in cluster.workers(nannies[0]):
                worker.kill()
        done = running.finish()
    assert done.returncode == 0, done.stderr
    assert bits_of(latest_run(tmp_path / "out")) == bits_of(latest_run(tmp_path / "reference"))
