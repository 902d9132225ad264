"""Jobs of a real Slurm: workers that are jobs of their own, a job that is a whole cluster, and what ends them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.processes import begin, skpca, wait_until
from tests.cluster.slurm import Slurm, slurm
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job
from tests.support import skip

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "cluster" / "slurm" / "skpca.sbatch"
FIELDS = {**JOBS["stored tiles, block Krylov"], "tile_rows": 10}
LARGE = {
    "source": {"uri": "rows.parquet"},
    "kernel": {"name": "laplacian", "gamma": 0.005},
    "method": "exact",
    "gram": "zarr",
    "n_components": 5,
}
WORKERS = {
    "queue": "debug",
    "cores": 1,
    "processes": 1,
    "memory": "1GB",
    "walltime": "00:10:00",
    "interface": "lo",
    "job_extra_directives": ["--oversubscribe"],
    "python": sys.executable,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if importlib.util.find_spec("dask_jobqueue") is None:
        skip("dask_jobqueue is not installed")
    with pytest.MonkeyPatch.context() as patch, slurm() as made:
        # dask-jobqueue writes its defaults where dask's configuration is
        patch.setenv("DASK_CONFIG", str(tmp_path_factory.mktemp("dask")))
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("SLURM_CONF", made.environment["SLURM_CONF"])
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{made.environment['PATH']}")
        made.environment.update(os.environ)
        yield made


@pytest.fixture
def reference(tmp_path):
    """Results of the same job on threads."""
    assert skpca("run", write_job(tmp_path, FIELDS, output={"path": "reference"})).returncode == 0
    return bits_of(latest_run(tmp_path / "reference"))


def test_workers_are_jobs(cluster, tmp_path, reference):
    options = {**WORKERS, "log_directory": str(tmp_path / "logs")}
    section = {"kind": "slurm", "options": options, "scale": {"jobs": 2}, "wait_for": 2, "wait": 120}
    done = skpca("run", write_job(tmp_path, FIELDS, cluster=section))
    assert done.returncode == 0, done.stderr + cluster.logs()
    assert bits_of(latest_run(tmp_path / "out")) == reference
    assert leftovers(tmp_path / "out") == []
    wait_until(lambda: cluster("squeue", "-h") == "")  # they have ended with the run


def submit(cluster: Slurm, folder: Path, *options: object, job: Path, more: tuple[str, ...] = ()) -> str:
    """Number of a job by the script that users copy."""
    of_this_machine = ("--ntasks=4", "--mem-per-cpu=1000", f"--chdir={folder}", f"--output={folder}/log")
    return cluster("sbatch", "--parsable", *of_this_machine, *options, SCRIPT, job, *more)


def test_one_job_is_a_whole_cluster(cluster, tmp_path, reference):
    job = write_job(tmp_path, FIELDS)
    number = submit(cluster, tmp_path, job=job)
    assert cluster.exit_code(number) == 0, (tmp_path / "log").read_text() + cluster.logs()
    assert bits_of(latest_run(tmp_path / "out")) == reference
    assert leftovers(tmp_path / "out") == []
    assert list(tmp_path.glob("scheduler-*")) == []


def test_exit_codes_of_a_whole_cluster_are_those_of_the_command(cluster, tmp_path):
    job = write_job(tmp_path, FIELDS)
    assert skpca("run", job).returncode == 0
    codes = {}
    for name, more in {"done": (), "bad data": ("source.uri=job.yaml",), "bad value": ("tile_rows=0",)}.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        changes = tuple(part for change in more for part in ("--set", change))
        codes[name] = cluster.exit_code(submit(cluster, folder, job=job, more=changes))
    assert codes == {"done": 99, "bad data": 65, "bad value": 78}


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Folder with a job of 30 000 rows and, of the same job on threads, the results."""
    folder = tmp_path_factory.mktemp("large")
    rows = np.random.default_rng(0).normal(size=(30_000, 60))
    pq.write_table(pa.table({f"x{column}": rows[:, column] for column in range(60)}), folder / "rows.parquet")
    job = write_job(folder, LARGE, cluster={"kind": "threads"}, output={"path": "reference"})
    done = skpca("run", job)
    assert done.returncode == 0, done.stderr
    return folder, bits_of(latest_run(folder / "reference"))


def test_a_worker_that_is_killed_in_the_middle_of_a_pass_changes_no_bit(cluster, large):
    folder, reference = large
    section = {"kind": "slurm", "options": WORKERS, "scale": {"jobs": 3}, "wait_for": 2, "wait": 120}
    running = begin("run", write_job(folder, LARGE, cluster=section, output={"path": "killed"}))
    wait_until(lambda: list((folder / "killed").glob("runs/*/gram.zarr/tiles/c/*/*")), 120)  # the first pass is at work
    first = cluster("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()[0]
    cluster("scancel", "--full", "--signal=KILL", first)
    done = running.finish(280)
    assert done.returncode == 0, done.stderr + cluster.logs()
    assert bits_of(latest_run(folder / "killed")) == reference


def test_a_job_at_its_time_limit_goes_on_in_its_next_attempt(cluster, large):
    folder, reference = large
    number = submit(
        cluster, folder, "--time=1", "--signal=B:TERM@50", job=write_job(folder, LARGE, output={"path": "requeued"})
    )
    # Slurm may tell it up to a minute early
    wait_until(lambda: "attempt 0 ended with 75" in log_of(folder), 120)
    assert not (folder / "requeued" / "latest.json").exists()
    wait_until(lambda: cluster.state(number) == "PENDING", 60)
    cluster("scontrol", "update", f"JobId={number}", "TimeLimit=10", "StartTime=now")  # else in two minutes
    assert cluster.exit_code(number) == 0, log_of(folder)
    assert "attempt 1 ended with 0" in log_of(folder)
    assert bits_of(latest_run(folder / "requeued")) == reference


@pytest.mark.usefixtures("cluster")
def test_what_slurm_refuses_is_said_at_once(tmp_path):
    section = {"kind": "slurm", "options": {**WORKERS, "queue": "nowhere"}, "scale": 1, "wait": 120}
    refused = skpca("run", write_job(tmp_path, FIELDS, cluster=section))
    assert refused.returncode == 69, refused.stderr
    assert "invalid partition specified: nowhere" in refused.stderr


def log_of(folder: Path) -> str:
    return (folder / "log").read_text() if (folder / "log").exists() else ""
