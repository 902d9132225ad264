"""SIGTERM and SIGINT end a command with exit code 75 in seconds, whatever it is doing, with nothing left running."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, n_tiles, write_job

STORED = {**JOBS["stored tiles, block Krylov"], "tile_rows": 4, "cluster": {"kind": "threads", "n_threads": 2}}
LIMIT = 10  # seconds, of the design; a stop that is not heard takes a minute here


@pytest.fixture
def start():
    """Runs of jobs in processes that do not outlive the test."""
    started = []

    def run(job: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "scalable_kpca.cli", "run", str(job)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def wait_until(condition) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def stop(process: subprocess.Popen[str], *numbers: signal.Signals) -> str:
    for number in numbers:
        process.send_signal(number)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 75, errors
    assert "the same command resumes" in errors
    return errors


@pytest.mark.parametrize(
    "numbers",
    [
        (signal.SIGTERM,),
        pytest.param((signal.SIGINT,), marks=pytest.mark.slow),
        pytest.param((signal.SIGTERM, signal.SIGTERM), marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_gives_its_lock_back_and_the_same_command_finishes_it(start, tmp_path, numbers):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    process = start(job)
    wait_until(lambda: n_tiles(out) > 5)
    stop(process, *numbers)
    assert not (out / "LOCK").exists()
    finish(start(job))
    stopped = bits_of(latest_run(out))
    finish(start(write_job(tmp_path, STORED, output={"path": "reference"})))
    assert bits_of(latest_run(tmp_path / "reference")) == stopped
    assert leftovers(out) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_a_run_that_is_stopped_or_killed(start, tmp_path, number):
    job, out = write_job(tmp_path, {**STORED, "cluster": {"kind": "local", "n_workers": 2}}), tmp_path / "out"
    process = start(job)
    wait_until(lambda: n_tiles(out) > 5)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    if number == signal.SIGKILL:
        process.kill()
        process.communicate()
    else:
        stop(process, number)
    _, alive = psutil.wait_procs(workers, timeout=LIMIT)
    assert [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE] == []


ENDING = """
import subprocess, sys, psutil
from scalable_kpca import stopping

child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
seen = psutil.Process(child.pid)
child.communicate(b"\\n")  # it ends after it was seen
psutil.Process.children = lambda self, recursive: [seen]
stopping._end()
"""


def test_the_end_comes_also_when_a_child_ends_first():
    finished = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 75, finished.stderr
    assert "the same command resumes" in finished.stderr
