"""Clusters that a run starts by a class of dask's: as many workers as there is work, and nothing left of them."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cluster.processes import begin, is_worker, skpca, wait_until, workers_below
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, n_tiles, write_job

pytestmark = pytest.mark.slow

FIELDS = {**JOBS["stored tiles, block Krylov"], "tile_rows": 3}
LOCAL = {"host": "127.0.0.1", "n_workers": 0, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
SECTION = {
    "kind": "import",
    "import": "distributed:LocalCluster",
    "options": LOCAL,
    "adapt": {"minimum": 1, "maximum": 2, "interval": "50ms", "target_duration": "10ms"},
    "n_workers": 2,
    "n_threads": 1,
}


def test_a_cluster_that_adapts_gets_workers_for_its_tasks_and_the_bits_are_those_of_threads(tmp_path):
    assert skpca("run", write_job(tmp_path, FIELDS, output={"path": "reference"})).returncode == 0
    running = begin("run", write_job(tmp_path, FIELDS, cluster=SECTION))
    most = 0
    while running.poll() is None:
        most = max(most, len(workers_below(running.pid)))
    done = running.finish()
    assert done.returncode == 0, done.stderr
    assert most >= 2  # one that was sent away may still be ending while another begins
    assert bits_of(latest_run(tmp_path / "out")) == bits_of(latest_run(tmp_path / "reference"))
    found = json.loads((latest_run(tmp_path / "out") / "run.json").read_text())
    assert 1 <= len(found["workers"]) <= 2
    assert (found["plan"]["n_workers"], found["plan"]["n_threads"]) == (2, 1)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_stop_ends_its_cluster_with_it(tmp_path, stop):
    running = begin("run", write_job(tmp_path, FIELDS, cluster={**SECTION, "wait_for": 1}))
    workers = wait_until(lambda: n_tiles(tmp_path / "out") and workers_below(running.pid))
    running.send_signal(stop)
    done = running.finish(60)
    assert done.returncode == 75, done.stderr
    wait_until(lambda: not any(worker.is_running() and is_worker(worker) for worker in workers), 30)
    assert leftovers(tmp_path / "out") == []
    assert skpca("run", write_job(tmp_path, FIELDS, cluster={"kind": "threads"})).returncode == 0
