"""A run says which workers have done how much of it."""

from __future__ import annotations

import json
import platform

import pytest

from scalable_kpca.engine import ClusterSettings, open_engine
from scalable_kpca.engine.blas import blas_architecture
from tests.cluster.processes import Cluster, skpca
from tests.recovery.jobs import JOBS, latest_run, write_job

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["tiles in memory, ARPACK", "Nyström"])
def test_each_worker_says_how_many_tasks_it_had(tmp_path, name):
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(2)
        section = {"kind": "address", "address": cluster.address, "wait_for": 2}
        done = skpca("run", write_job(tmp_path, JOBS[name], cluster=section))
    assert done.returncode == 0, done.stderr
    workers = json.loads((latest_run(tmp_path / "out") / "run.json").read_text())["workers"]
    assert [worker["address"].partition("//127.0.0.1:")[0] for worker in workers] == ["tcp:", "tcp:"]
    assert {(worker["host"], worker["threads"]) for worker in workers} == {(platform.node(), 1)}
    assert {worker["blas"] for worker in workers} == {blas_architecture()}
    assert "different processors" not in done.stderr
    assert sum(worker["tasks"] for worker in workers) > 4
    assert all((worker["seconds"] > 0) == (worker["tasks"] > 0) for worker in workers)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are processors of that kind")
def test_workers_whose_blas_rounds_in_other_places_are_said(tmp_path):
    processors = ("Haswell", "Nehalem")
    with Cluster(tmp_path) as cluster:
        for processor in processors:
            cluster.start_workers(1, environment={"OPENBLAS_CORETYPE": processor})
        section = {"kind": "address", "address": cluster.address, "wait_for": 2}
        done = skpca("run", write_job(tmp_path, JOBS["Nyström"], cluster=section))
    assert done.returncode == 0, done.stderr
    assert "1 for Haswell, 1 for Nehalem: results will differ by rounding" in done.stderr
    workers = json.loads((latest_run(tmp_path / "out") / "run.json").read_text())["workers"]
    assert sorted(worker["blas"] for worker in workers) == sorted(processors)


def test_a_scheduler_that_is_gone_costs_the_account_and_nothing_else(tmp_path, caplog):
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1)
        with open_engine(ClusterSettings("address", address=cluster.address)) as engine:
            assert engine.run({"x": (abs, -1)}, ["x"])[0] == [1]
            assert [worker["tasks"] for worker in engine.workers()] == [1]
            cluster.scheduler.kill()
            cluster.scheduler.wait()
            assert engine.workers() == []
    assert "what each worker has done is not known" in caplog.text


def test_a_run_in_one_process_names_no_workers(tmp_path):
    assert skpca("run", write_job(tmp_path, JOBS["stored tiles, LAPACK"])).returncode == 0
    assert json.loads((latest_run(tmp_path / "out") / "run.json").read_text())["workers"] == []
