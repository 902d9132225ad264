"""Jobs of a real Slurm: workers that are jobs of their own, a job that is a whole cluster, and what ends them."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.cluster.processes import begin, is_worker, skpca, wait_until
from tests.cluster.slurm import Slurm, slurm
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, n_tiles, write_job
from tests.support import matching, skip

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "cluster" / "slurm" / "skpca.sbatch"
SECTION = yaml.safe_load((ROOT / "cluster" / "slurm" / "section.yaml").read_text())["cluster"]
DIGITS = ROOT / "pipelines" / "digits.yaml"
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


def test_the_section_with_security_encrypts_and_leaves_no_key(cluster, tmp_path, reference):
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    secured = {"security": True, "shared_temp_directory": str(keys), "log_directory": str(tmp_path / "logs")}
    section = {"kind": "slurm", "options": SECTION["options"] | WORKERS | secured, "wait_for": 2, "wait": 120}
    job = write_job(tmp_path, FIELDS, cluster=section | {"scale": {"jobs": 2}})
    examined = skpca("doctor", "--cluster", job, "--json")
    assert examined.returncode == 0, examined.stdout + cluster.logs()
    found = json.loads(examined.stdout.splitlines()[-1])
    assert (found["scheduler"][:6], found["encrypted"]) == ("tls://", "yes")

    running = begin("run", job)
    modes, hosts = {}, set()
    while running.poll() is None:
        modes |= {file.name: file.stat().st_mode & 0o777 for file in keys.iterdir()}
        hosts |= hosts_listened_on(running.pid, str(keys))
        time.sleep(0.1)
    done = running.finish()
    assert done.returncode == 0, done.stderr + cluster.logs()
    run = latest_run(tmp_path / "out")
    assert bits_of(run) == reference
    workers = json.loads((run / "run.json").read_text())["workers"]
    assert len(workers) == 2
    assert all(worker["address"].startswith("tls://127.0.0.1:") for worker in workers)
    # a key and two certificates of each cluster, for their owner alone and as long as it is there
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}
    assert list(keys.iterdir()) == []
    assert hosts == {"127.0.0.1"}  # and no pages of dask for everybody
    # what is published says nothing of them
    assert not any(name in (run / "run.json").read_text() for name in modes)


def hosts_listened_on(command: int, words: str) -> set[str]:
    """Where a command listens, and the workers with such words in their command line."""
    hosts = set()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            line = process.cmdline()
            if process.pid == command or ("distributed.cli.dask_worker" in line and words in " ".join(line)):
                tree = [process, *process.children(recursive=True)]
                found = [connection for each in tree for connection in each.net_connections("tcp")]
                hosts |= {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}
    return hosts


def by_script(folder: Path, *options: object, job: Path, more: tuple[str, ...] = ()) -> tuple[object, ...]:
    """Arguments of sbatch for a job by the script that users copy."""
    of_this_machine = ("--ntasks=4", "--mem-per-cpu=1000", f"--chdir={folder}", f"--output={folder}/log")
    return (*of_this_machine, *options, SCRIPT, job, *more)


def submit(cluster: Slurm, folder: Path, *options: object, job: Path) -> str:
    """Number of a job that has been handed in."""
    return cluster("sbatch", "--parsable", *by_script(folder, *options, job=job))


def submit_and_wait(cluster: Slurm, folder: Path, job: Path, *changes: str) -> subprocess.Popen[bytes]:
    """`sbatch --wait`, which looks after 2, 6, 14, 30 … seconds whether the job has ended."""
    more = tuple(part for change in changes for part in ("--set", change))
    command = ["sbatch", "--wait", *map(str, by_script(folder, job=job, more=more))]
    return subprocess.Popen(command, env=cluster.environment)


def test_one_job_is_a_whole_cluster(cluster, tmp_path, reference):
    job = write_job(tmp_path, FIELDS)
    number = submit(cluster, tmp_path, job=job)
    assert cluster.exit_code(number) == 0, (tmp_path / "log").read_text() + cluster.logs()
    assert bits_of(latest_run(tmp_path / "out")) == reference
    assert leftovers(tmp_path / "out") == []
    assert list(tmp_path.glob("scheduler-*")) == []


def test_sbatch_that_waits_ends_with_the_exit_code_of_the_command(cluster, tmp_path):
    job, waiting = write_job(tmp_path, FIELDS), {}
    for name, change in {"bad data": "source.uri=job.yaml", "bad value": "tile_rows=0"}.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        waiting[name] = submit_and_wait(cluster, folder, job, change)
    codes = {name: process.wait(200) for name, process in waiting.items()}
    assert codes == {"bad data": 65, "bad value": 78}, [
        log_of(tmp_path / folder) for folder in ("bad-data", "bad-value")
    ]


OTHER_CODE = """\
import atexit, os

if int(os.environ.get("SLURM_PROCID", 0)) > 1:
    atexit.register(os._exit, 7)
"""


def test_the_exit_code_of_a_job_is_that_of_the_command_whatever_workers_end_with(cluster, tmp_path, reference):
    (tmp_path / "sitecustomize.py").write_text(OTHER_CODE)
    exported = f"--export=ALL,PYTHONPATH={tmp_path}:{ROOT}"
    number = submit(cluster, tmp_path, exported, job=write_job(tmp_path, FIELDS))
    assert cluster.exit_code(number) == 0, log_of(tmp_path) + cluster.logs()
    assert "Exited with exit code 7" in log_of(tmp_path)
    assert bits_of(latest_run(tmp_path / "out")) == reference
    assert list(tmp_path.glob(".skpca-*")) == []


def test_the_digits_by_both_ways_have_the_bits_of_threads(cluster, tmp_path):
    waiting = submit_and_wait(cluster, tmp_path, DIGITS, f"output.path={tmp_path}/one-job")
    assert skpca("run", DIGITS, "--set", f"output.path={tmp_path}/threads").returncode == 0
    options = {**WORKERS, "log_directory": str(tmp_path / "logs")}
    section = {"kind": "slurm", "options": options, "scale": {"jobs": 2}, "wait_for": 2, "wait": 120}
    changes = (f"output.path={tmp_path}/workers", f"cluster={json.dumps(section)}")
    done = skpca("run", DIGITS, *(part for change in changes for part in ("--set", change)))
    assert done.returncode == 0, done.stderr + cluster.logs()
    assert waiting.wait(200) == 0, log_of(tmp_path)
    results = [bits_of(latest_run(tmp_path / name)) for name in ("threads", "one-job", "workers")]
    assert results[0] == results[1] == results[2]
    # the plan counts with what the job has: four tasks, less the scheduler and the command
    plan = json.loads((latest_run(tmp_path / "one-job") / "run.json").read_text())["plan"]
    assert (plan["n_workers"], plan["n_threads"]) == (2, 1)


def start_again(cluster: Slurm, number: str, *changes: str) -> None:
    """Let a job that is back in the queue begin now, and not in two minutes."""
    wait_until(lambda: cluster.state(number) == "PENDING", 60)
    revoked = time.time()
    # the node refuses it within the second in which the last attempt has ended
    wait_until(lambda: time.time() > revoked + 2)
    cluster("scontrol", "update", f"JobId={number}", *changes, "StartTime=now")


def test_an_attempt_after_the_results_are_in_force_has_done_its_work(cluster, tmp_path):
    job = write_job(tmp_path, FIELDS)
    assert skpca("run", job).returncode == 0
    number = submit(cluster, tmp_path, job=job)
    assert cluster.exit_code(number) == 99, log_of(tmp_path)
    cluster("scontrol", "requeue", number)
    start_again(cluster, number)
    assert cluster.exit_code(number) == 0, log_of(tmp_path) + cluster.logs()
    assert "attempt 1 ended with 99" in log_of(tmp_path)


def progress(output: Path) -> int:
    """Tiles and passes that are finished."""
    return n_tiles(output) + len(matching(output, "runs/*/journal/*.npz"))


def workers_of(job: str) -> list[psutil.Process]:
    """Worker processes below the tasks of a job."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("SLURM_JOB_ID") == job and is_worker(process):
                found.append(process)
    return found


def slow_down(workers: list[psutil.Process]) -> None:
    """Let processes work a fifth of a second."""
    for change, seconds in (("suspend", 0.8), ("resume", 0.2)):
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                getattr(worker, change)()
        time.sleep(seconds)


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
    options = {**WORKERS, "log_directory": str(folder / "logs")}
    section = {"kind": "slurm", "options": options, "scale": {"jobs": 3}, "wait_for": 2, "wait": 120}
    running = begin("run", write_job(folder, LARGE, cluster=section, output={"path": "killed"}))
    wait_until(lambda: n_tiles(folder / "killed"), 120)  # the first pass is at work
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
    # Slurm tells it when 10 to 60 seconds are over; on a quiet machine the work would be done by then
    deadline = time.monotonic() + 120
    while "attempt 0 ended" not in log_of(folder) and time.monotonic() < deadline:
        slow_down(workers_of(number))
    assert "attempt 0 ended with 75" in log_of(folder), log_of(folder) + cluster.logs()
    assert not (folder / "requeued" / "latest.json").exists()
    start_again(cluster, number, "TimeLimit=10")
    # a worker dies in mid-pass, whichever it is by then: its nanny starts it again, and the job goes on
    before = progress(folder / "requeued")
    worker = wait_until(lambda: progress(folder / "requeued") > before and workers_of(number))[0]
    worker.kill()
    assert cluster.exit_code(number) == 0, log_of(folder)
    assert "Restarting worker" in log_of(folder)
    assert "attempt 1 ended with 0" in log_of(folder)
    assert bits_of(latest_run(folder / "requeued")) == reference


def test_ctrl_c_ends_a_run_with_its_exit_code_and_its_jobs_with_it(cluster, tmp_path):
    options = {**WORKERS, "log_directory": str(tmp_path / "logs")}
    section = {"kind": "slurm", "options": options, "adapt": {"minimum": 1, "maximum": 2}, "wait": 120}
    running = begin("run", write_job(tmp_path, {**FIELDS, "tile_rows": 3}, cluster=section))
    wait_until(lambda: cluster("squeue", "-h") != "" or running.poll() is not None, 60)
    running.send_signal(signal.SIGINT)
    done = running.finish(60)
    assert done.returncode == 75, done.stderr
    assert "resumes" in done.stderr
    wait_until(lambda: cluster("squeue", "-h") == "")


def test_a_batch_script_without_srun_is_told_so(cluster, tmp_path):
    job = write_job(tmp_path, FIELDS, cluster={"kind": "slurm-runner"})
    command = f"skpca run {job}"
    number = cluster("sbatch", "--parsable", "--ntasks=4", f"--output={tmp_path}/log", "--wrap", command)
    assert cluster.exit_code(number) == 78, log_of(tmp_path)
    assert "SLURM_STEP_ID is not set: start this command by `srun`" in log_of(tmp_path)
    number = submit(cluster, tmp_path, "--ntasks=2", job=job)
    assert cluster.exit_code(number) == 78
    assert "2 tasks, at least 3 are needed" in log_of(tmp_path)


@pytest.mark.usefixtures("cluster")
def test_what_slurm_refuses_is_said_at_once(tmp_path):
    section = {"kind": "slurm", "options": {**WORKERS, "queue": "nowhere"}, "scale": 1, "wait": 120}
    refused = skpca("run", write_job(tmp_path, FIELDS, cluster=section))
    assert refused.returncode == 69, refused.stderr
    assert "invalid partition specified: nowhere" in refused.stderr


def log_of(folder: Path) -> str:
    return (folder / "log").read_text() if (folder / "log").exists() else ""
