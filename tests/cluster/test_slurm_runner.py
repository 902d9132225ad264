"""Tasks of one job of Slurm, as processes here: what each hears of the others, and how each of them ends."""

from __future__ import annotations

import importlib.util
import itertools
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from distributed import Client

from scalable_kpca.engine.slurm_runner import scheduler_file_of, taking_part
from scalable_kpca.errors import ConfigError
from tests.cluster.processes import Command, begin, skpca, wait_until
from tests.recovery.jobs import JOBS, bits_of, latest_run, n_tiles, write_job
from tests.support import skip

pytestmark = pytest.mark.slow

FIELDS = {**JOBS["stored tiles, block Krylov"], "tile_rows": 3}
COMMAND, WORKER = 1, 2
numbers = itertools.count(1)


@contextmanager
def tasks(folder: Path, job: Path, count: int = 3, *changes: str) -> Iterator[list[Command]]:
    """The processes of a job; whoever is left at the end is killed."""
    if importlib.util.find_spec("dask_jobqueue") is None:
        skip("dask_jobqueue is not installed")
    number = next(numbers)
    given = [part for change in ("cluster.kind=slurm-runner", *changes) for part in ("--set", change)]
    with ExitStack() as stack:
        started = []
        for task in range(count):
            environment = {"PROCID": task, "NTASKS": max(count, 3), "JOB_ID": number, "STEP_ID": 0}
            environment = {f"SLURM_{name}": str(value) for name, value in environment.items()}
            started.append(begin("run", job, *given, environment=environment, folder=folder))
            stack.callback(started[-1].end)
        yield started


def options(**given: object) -> str:
    return f"cluster.options={json.dumps(given)}"


@pytest.fixture
def reference(tmp_path):
    """Results of the same job on threads."""
    assert skpca("run", write_job(tmp_path, FIELDS, output={"path": "reference"})).returncode == 0
    return bits_of(latest_run(tmp_path / "reference"))


def test_all_end_with_the_command_and_leave_nothing(tmp_path, reference):
    with tasks(tmp_path, write_job(tmp_path, FIELDS), 4) as started:
        ended = [task.finish() for task in started]
    assert [each.returncode for each in ended] == [0, 0, 0, 0], ended
    assert bits_of(latest_run(tmp_path / "out")) == reference
    assert list(tmp_path.glob("scheduler-*")) == []


PLUGIN = """\
import asyncio, sys
import cloudpickle
from distributed import WorkerPlugin

cloudpickle.register_pickle_by_value(sys.modules[__name__])

class Slow(WorkerPlugin):
    async def setup(self, worker):
        await asyncio.sleep(4)

async def dask_setup(scheduler):
    await scheduler.register_worker_plugin(None, cloudpickle.dumps(Slow()), "slow", idempotent=False)
"""


def test_a_command_that_fails_at_once_waits_for_workers_whose_nannies_still_do(tmp_path):
    (tmp_path / "preload.py").write_text(PLUGIN)
    slow = options(scheduler_options={"preload": [str(tmp_path / "preload.py")]})
    with tasks(tmp_path, write_job(tmp_path, FIELDS), 4, slow, "source.uri=job.yaml") as started:
        ended = [task.finish() for task in started]
    assert [each.returncode for each in ended] == [0, 65, 0, 0], ended
    assert not any("could not begin" in each.stderr for each in ended)


def test_a_worker_that_is_closed_begins_again(tmp_path, reference):
    with tasks(tmp_path, write_job(tmp_path, FIELDS)) as started:
        (file,) = wait_until(lambda: list(tmp_path.glob("scheduler-*")))
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            wait_until(lambda: n_tiles(tmp_path / "out") > 3)
            # as one does that has lost its connection, and its nanny with it
            client.run(lambda dask_worker: dask_worker.loop.add_callback(dask_worker.close))
            assert not (tmp_path / "out" / "latest.json").exists()
        ended = [task.finish() for task in started]
    assert [each.returncode for each in ended] == [0, 0, 0], ended
    assert "the worker of task 2 begins again: it was closed" in ended[WORKER].stderr
    assert bits_of(latest_run(tmp_path / "out")) == reference


def test_a_scheduler_that_is_writing_its_address_is_waited_for(tmp_path):
    file = tmp_path / "of-the-job.json"
    file.write_text('{"address": "tcp://127')
    with tasks(tmp_path, write_job(tmp_path, FIELDS), 2, options(scheduler_file=str(file))) as started:
        started[0].kill()
        with suppress(subprocess.TimeoutExpired):
            started[COMMAND].wait(6)  # it has looked by then
        file.write_text(json.dumps({"error": "it has gone", "exit_code": 69}))
        ended = started[COMMAND].finish()
    assert ended.returncode == 69
    assert ended.stderr.endswith("Error: it has gone\n")


def test_all_end_with_the_reason_why_there_is_no_scheduler(tmp_path):
    job = write_job(tmp_path, FIELDS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        nowhere = {"scheduler_options": {"host": "127.0.0.1", "port": port}}
        for given, code, words in (
            (nowhere, 69, "in use"),
            ({"scheduler_options": {"foo": 1}}, 78, "unexpected keyword argument 'foo'"),
            ({"worker_class": "distributed.Nanni"}, 78, "has no attribute 'Nanni'"),
            ({"client": False}, 78, "cluster.options has client, which"),
            ({"scheduler_file": "{step}.json"}, 78, "has braces that mean nothing ('step')"),
            ({"scheduler_file": "absent/s.json"}, 78, f"{tmp_path}/absent/s.json is where the scheduler would say"),
        ):
            with tasks(tmp_path, job, 3, options(**given)) as started:
                ended = [task.finish(60) for task in started]
            assert [each.returncode for each in ended] == [code] * 3, ended
            for each in ended:
                assert words in each.stderr
                assert "Traceback" not in each.stderr


def test_the_file_of_the_scheduler_has_the_number_of_the_job(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert scheduler_file_of({"scheduler_file": f"{tmp_path}/s-{{job_id}}.json"}) == tmp_path / "s-12.json"


def test_options_that_make_another_thing_of_the_job_are_refused(monkeypatch):
    for name in ("PROCID", "NTASKS", "JOB_ID", "STEP_ID"):
        monkeypatch.setenv(f"SLURM_{name}", "3")
    with (
        pytest.raises(ConfigError, match="asynchronous, loop, which"),
        taking_part({"loop": None, "asynchronous": True}),
    ):
        pytest.fail("it takes part")
