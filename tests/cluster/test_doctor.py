"""`skpca doctor --cluster` names what would keep a job from running on a cluster, before anything is computed."""

from __future__ import annotations

import json

import pytest

from tests.cluster.processes import Cluster, skpca
from tests.recovery.jobs import JOBS, write_job

pytestmark = pytest.mark.slow

FIELDS = {**JOBS["stored tiles, block Krylov"], "tile_rows": 10}


def doctor(*arguments: object) -> tuple[int, dict[str, object]]:
    done = skpca("doctor", "--cluster", *arguments, "--json")
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_workers_of_a_scheduler_are_described_and_nothing_is_left(tmp_path, monkeypatch):
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(2)
        section = {"kind": "address", "address": cluster.address, "wait_for": 2, "n_threads": 1}
        code, answer = doctor(write_job(tmp_path, FIELDS, cluster=section))
        # also by the file of the scheduler, and by dask's own variable
        by_file = {"kind": "address", "scheduler_file": str(tmp_path / "scheduler.json"), "n_threads": 1}
        assert doctor(write_job(tmp_path, FIELDS, cluster=by_file))[0] == 0
        job = write_job(tmp_path, FIELDS, cluster={"kind": "address", "n_threads": 1})
        nowhere, said = doctor(job)
        assert (nowhere, said["status"]) == (78, "failed")  # as for `skpca run`: later it would be the same
        assert "cluster.kind is 'address' but no address is given; set cluster.address" in said["error"]
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", cluster.address)
        by_variable, said = doctor(job)
        assert (by_variable, said["scheduler"]) == (0, cluster.address)
    assert (code, answer["problems"]) == (0, [])
    assert answer["scheduler"] == cluster.address
    assert answer["encrypted"] == "no, and who reaches it can run code on its workers"
    assert sum(name.startswith("worker tcp://127.0.0.1:") for name in answer) == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == []


def test_workers_with_other_libraries_no_shared_directory_and_too_few_of_them_are_named(tmp_path, other_libraries):
    hidden = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {tmp_path}/out && exec "$@"', "sh")
    (tmp_path / "out").mkdir()
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1, prefix=hidden)
        section = {"kind": "address", "address": cluster.address, "n_threads": 1}
        job = write_job(tmp_path, FIELDS, cluster=section)
        code, answer = doctor(job)
        assert code == 69
        assert len(answer["problems"]) == 1
        assert "is not shared with worker" in answer["problems"][0]
        cluster.start_workers(1, environment=other_libraries)
        code, answer = doctor(job, "--set", "cluster.wait_for=2")
        assert code == 69
        assert any("scalable-kpca 0.0.9 instead of" in problem for problem in answer["problems"])
        code, answer = doctor(job, "--set", "cluster.wait_for=3", "--set", "cluster.wait=1")
        assert code == 69
        assert "has 2 of 3 workers after 1 s" in answer["problems"][0]


def test_what_a_cluster_of_ones_own_class_lacks_is_named(tmp_path):
    small = {"host": "127.0.0.1", "n_workers": 1, "threads_per_worker": 3, "memory_limit": "100MB"}
    section = {"kind": "import", "import": "distributed:LocalCluster", "options": small, "n_threads": 1}
    section["options"] |= {"dashboard_address": "127.0.0.1:0"}
    code, answer = doctor(write_job(tmp_path, FIELDS, cluster=section))
    assert code == 69
    assert "has 3 threads, the plan counts with 1" in answer["problems"][0]
    assert "is paused at 76.29 MiB, the plan takes up to" in answer["problems"][1]


def test_a_scheduler_that_is_away_and_a_job_without_one_are_said(tmp_path):
    away = {"kind": "address", "address": "tcp://127.0.0.1:1"}
    code, answer = doctor(write_job(tmp_path, FIELDS, cluster=away))
    assert code == 69
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in answer["problems"][0]
    code, answer = doctor(write_job(tmp_path, FIELDS))
    assert (code, answer["status"]) == (78, "failed")
    assert "runs in one process, and needs no cluster" in answer["error"]
    nobody = {"kind": "address", "scheduler_file": "absent.json", "wait": 1}
    code, answer = doctor(write_job(tmp_path, FIELDS, cluster=nobody))
    assert code == 69
    assert f"the scheduler file {tmp_path}/absent.json is not there after 1 s" in answer["problems"][0]
