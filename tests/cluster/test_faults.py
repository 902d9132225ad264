"""Workers, schedulers and networks that fail in the middle of a run: it ends with the same bits, or says what did."""

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from distributed import Client

from scalable_kpca.engine import ClusterEngine
from scalable_kpca.errors import ClusterError
from tests.cluster.processes import Cluster, Proxy, begin, is_worker, skpca, wait_until
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, n_tiles, write_job
from tests.support import skip

pytestmark = pytest.mark.slow

FIELDS = {**JOBS["stored tiles, block Krylov"], "tile_rows": 3}  # 14 blocks, 105 tiles
N_TILES = 105


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Results of the same job on threads."""
    folder = tmp_path_factory.mktemp("reference")
    finished = skpca("run", write_job(folder, FIELDS, cluster={"kind": "threads", "n_threads": 2}))
    assert finished.returncode == 0, finished.stderr
    return bits_of(latest_run(folder / "out"))


def on(cluster: Cluster, folder: Path, **more: object) -> Path:
    return write_job(folder, FIELDS, cluster={"kind": "address", "address": cluster.address, **more})


def assert_finished(finished: subprocess.CompletedProcess[str], output: Path, reference: dict[str, str]) -> None:
    assert finished.returncode == 0, finished.stderr
    assert bits_of(latest_run(output)) == reference
    assert leftovers(output) == []


def test_workers_killed_at_random_times_change_nothing(tmp_path, reference):
    out, chance, killed = tmp_path / "out", random.Random(1), 0
    with Cluster(tmp_path) as cluster:
        nannies = [cluster.start_workers(1) for _ in range(2)]
        for _ in range(3):
            job = on(cluster, tmp_path)
            shutil.rmtree(out, ignore_errors=True)
            running = begin("run", job)
            wait_until(lambda: n_tiles(out) > 3)
            for _ in range(3):
                time.sleep(chance.uniform(0, 0.5))
                for worker in cluster.workers(chance.choice(nannies)):
                    worker.kill()
                    killed += 1
            finished = running.finish()
            while finished.returncode == 69:  # the same task died with three workers
                assert "a worker died" in finished.stderr
                finished = skpca("run", job)
            assert_finished(finished, out, reference)
    assert killed >= 5


def test_workers_of_a_cluster_of_its_own_killed_at_random_times_change_nothing(tmp_path, reference):
    out, chance, killed = tmp_path / "out", random.Random(2), 0
    job = write_job(tmp_path, FIELDS, cluster={"kind": "local", "n_workers": 2, "n_threads": 1})
    running = begin("run", job)
    wait_until(lambda: n_tiles(out) > 3)
    for _ in range(4):
        workers = [child for child in psutil.Process(running.pid).children(True) if is_worker(child)]
        if workers:
            chance.choice(workers).kill()
            killed += 1
        time.sleep(chance.uniform(0.2, 1))
    finished = running.finish()
    while finished.returncode == 69:
        finished = skpca("run", job)
    assert_finished(finished, out, reference)
    assert killed >= 2


def test_a_scheduler_that_dies_ends_the_run_with_69_and_another_one_finishes_it(tmp_path, reference):
    out = tmp_path / "out"
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1)
        running = begin("run", on(cluster, tmp_path))
        wait_until(lambda: n_tiles(out) > 10)
        cluster.scheduler.kill()
        finished = running.finish()
        assert finished.returncode == 69, finished.stderr
        assert "lost the connection to the Dask scheduler" in finished.stderr
        done = n_tiles(out)
        assert 10 < done < N_TILES
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1)
        assert_finished(skpca("run", on(cluster, tmp_path)), out, reference)
    assert json.loads((latest_run(out) / "run.json").read_text())["tiles"]["read"] >= done - 2


def test_a_worker_that_hangs_is_given_up_and_may_come_back(tmp_path, reference):
    out = tmp_path / "out"
    with Cluster(tmp_path, {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "6s"}) as cluster:
        nannies = [cluster.start_workers(1) for _ in range(2)]
        running = begin("run", on(cluster, tmp_path))
        wait_until(lambda: n_tiles(out) > 3)
        (hung,) = wait_until(lambda: cluster.workers(nannies[0]))
        hung.send_signal(signal.SIGSTOP)
        finished = running.finish()
        try:
            assert_finished(finished, out, reference)
        finally:
            if hung.is_running():
                hung.send_signal(signal.SIGCONT)
        assert "failed to heartbeat" in cluster.log(cluster.scheduler)


def test_a_cluster_on_which_nothing_finishes_is_given_up_in_words(tmp_path, reference):
    out = tmp_path / "out"
    with Cluster(tmp_path) as cluster:
        nanny = cluster.start_workers(1)
        running = begin("run", on(cluster, tmp_path, stall=4))
        wait_until(lambda: n_tiles(out) > 3)
        (hung,) = cluster.workers(nanny)
        hung.send_signal(signal.SIGSTOP)
        finished = running.finish()
        hung.send_signal(signal.SIGCONT)
        assert finished.returncode == 69, finished.stderr
        assert "nothing has finished for 4 s on the scheduler at tcp://127.0.0.1:" in finished.stderr
        assert "which has 1 workers" in finished.stderr
        assert_finished(skpca("run", on(cluster, tmp_path)), out, reference)


def test_a_worker_that_is_stopped_before_the_run_is_named(tmp_path):
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1)
        nanny = cluster.start_workers(1)
        (hung,) = wait_until(lambda: cluster.workers(nanny))
        job = on(cluster, tmp_path, wait=4)
        wait_until(lambda: n_workers(cluster) == 2)
        hung.send_signal(signal.SIGSTOP)
        finished = skpca("run", job)
        hung.send_signal(signal.SIGCONT)
    assert finished.returncode == 69, finished.stderr
    assert "did not answer within 4 s" in finished.stderr


def n_workers(cluster: Cluster) -> int:
    with Client(cluster.address, set_as_default=False) as client:
        return len(client.nthreads())


def test_values_on_a_worker_that_hangs_are_not_waited_for_without_end(tmp_path, monkeypatch):
    with Cluster(tmp_path) as cluster:
        nanny = cluster.start_workers(1)
        (worker,) = wait_until(lambda: cluster.workers(nanny))
        with Client(cluster.address, set_as_default=False) as client:
            engine = ClusterEngine(client, stall=3)
            wait = engine._wait

            def stop_when_done(*arguments):
                wait(*arguments)
                worker.send_signal(signal.SIGSTOP)

            monkeypatch.setattr(engine, "_wait", stop_when_done)
            with pytest.raises(ClusterError, match="nothing has finished for 3 s"):
                engine.run({"zeros": (np.zeros, 10**6)}, ["zeros"])
            worker.send_signal(signal.SIGCONT)


def test_a_scheduler_that_hangs_is_given_up_in_words(tmp_path):
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1)
        running = begin("run", on(cluster, tmp_path, stall=3))
        wait_until(lambda: n_tiles(tmp_path / "out") > 3)
        cluster.scheduler.send_signal(signal.SIGSTOP)
        finished = running.finish()
        cluster.scheduler.send_signal(signal.SIGCONT)
    assert finished.returncode == 69, finished.stderr
    assert "nothing has finished for 3 s" in finished.stderr
    assert "which does not answer" in finished.stderr


def test_a_scheduler_that_gives_up_waiting_for_workers_is_reported(tmp_path):
    with Cluster(tmp_path, {"DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "2s"}) as cluster:
        nanny = cluster.start_workers(1)
        running = begin("run", on(cluster, tmp_path))
        wait_until(lambda: n_tiles(tmp_path / "out") > 3)
        below = psutil.Process(nanny.pid).children(recursive=True)
        for process in (psutil.Process(nanny.pid), *below):
            process.kill()
        finished = running.finish()
    assert finished.returncode == 69, finished.stderr
    assert "had no worker for 2 s" in finished.stderr


def test_a_second_worker_of_the_same_name_is_turned_away_and_changes_nothing(tmp_path, reference):
    out = tmp_path / "out"
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1, name="twin")
        running = begin("run", on(cluster, tmp_path))
        wait_until(lambda: n_tiles(out) > 3)
        cluster.start_workers(1, name="twin")
        assert_finished(running.finish(), out, reference)


def test_a_slow_network_that_resets_connections_changes_nothing(tmp_path, reference):
    out = tmp_path / "out"
    with Cluster(tmp_path) as cluster, Proxy(cluster.address, delay=0.02) as proxy:
        cluster.start_workers(1)
        cluster.start_workers(1, contact=proxy.address)
        running, resets = begin("run", on(cluster, tmp_path)), 0
        for at in (5, 40, 80):
            wait_until(lambda at=at: n_tiles(out) > at or running.poll() is not None)
            resets += proxy.reset()
        finished = running.finish()
        while finished.returncode == 69:
            finished = skpca("run", on(cluster, tmp_path))
        assert_finished(finished, out, reference)
        assert resets > 0


def test_workers_with_other_libraries_are_refused_by_name(tmp_path, other_libraries):
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1, environment=other_libraries)
        finished = skpca("run", on(cluster, tmp_path))
    assert finished.returncode == 69
    assert "scalable-kpca 0.0.9 instead of " in finished.stderr
    assert not (tmp_path / "out" / "latest.json").exists()


def test_a_worker_with_other_libraries_that_joins_later_ends_the_run(tmp_path, other_libraries):
    with Cluster(tmp_path) as cluster:
        nanny = cluster.start_workers(1)
        running = begin("run", on(cluster, tmp_path))
        wait_until(lambda: n_tiles(tmp_path / "out") > 3)
        (slow,) = cluster.workers(nanny)
        slow.send_signal(signal.SIGSTOP)  # until the other one has had its share
        cluster.start_workers(1, environment=other_libraries)
        wait_until(lambda: n_workers(cluster) == 2)
        slow.send_signal(signal.SIGCONT)
        finished = running.finish()
    assert finished.returncode == 69, finished.stderr
    assert "has joined with other libraries than this run (scalable-kpca 0.0.9, " in finished.stderr


def test_a_worker_without_the_package_is_named(tmp_path):
    broken = tmp_path / "without" / "scalable_kpca"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'scalable_kpca'\")\n")
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1, environment={"PYTHONPATH": str(broken.parent)})
        finished = skpca("run", on(cluster, tmp_path))
    assert finished.returncode == 69, finished.stderr
    assert "cannot take part (" in finished.stderr
    assert "No module named 'scalable_kpca'" in finished.stderr


def test_a_directory_that_workers_do_not_see_is_refused_before_anything_is_computed(tmp_path):
    hidden = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {tmp_path / "out"} && exec "$@"', "sh")
    (tmp_path / "out").mkdir()
    try:
        subprocess.run([*hidden, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        skip("mount namespaces are not allowed here")
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1, prefix=hidden)
        finished = skpca("run", on(cluster, tmp_path))
    assert finished.returncode == 69
    assert "is not shared with worker tcp://127.0.0.1:" in finished.stderr
    assert "(No such file or directory)" in finished.stderr
    assert leftovers(tmp_path / "out") == []


@pytest.mark.parametrize("dashboard", [False, True])
def test_whatever_a_run_opens_listens_on_loopback_only(tmp_path, dashboard):
    out = tmp_path / "out"
    running = begin(
        "run", write_job(tmp_path, FIELDS, cluster={"kind": "local", "n_workers": 2, "dashboard": dashboard})
    )
    wait_until(lambda: n_tiles(out) > 3)
    run = psutil.Process(running.pid)
    ports = [
        connection.laddr
        for process in (run, *run.children(recursive=True))
        for connection in process.net_connections("all")
        if connection.status == psutil.CONN_LISTEN and connection.laddr
    ]
    running.terminate()
    running.finish()
    assert len(ports) >= 4
    assert {address.ip for address in ports} == {"127.0.0.1"}


def test_a_run_on_threads_listens_nowhere(tmp_path):
    running = begin("run", write_job(tmp_path, FIELDS, cluster={"kind": "threads"}))
    wait_until(lambda: n_tiles(tmp_path / "out") > 3)
    found = [c for c in psutil.Process(running.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    running.terminate()
    running.finish()
    assert found == []
