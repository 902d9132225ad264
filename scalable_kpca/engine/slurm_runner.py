"""One job of Slurm as a cluster: `srun` starts the same command many times, and each of them takes a part.

The first task is the scheduler, the second one goes on with the command, all others are workers, each below a nanny
that starts it again when it dies: a task that ends would take the others with it. `srun` answers with the largest of
their exit codes, so that one that only follows the command ends with 0, whatever it was busy with.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask.config

from scalable_kpca.engine.asking import within
from scalable_kpca.engine.connections import new_client, worker_environment, written_address
from scalable_kpca.errors import ClusterError, ConfigError

__all__ = ["scheduler_file_of", "taking_part"]

VARIABLES = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID")  # the last one of srun alone
CLIENT = 1  # number of the task that goes on
JOIN_SECONDS = 60.0
LOOK_SECONDS = 0.5  # between two looks for the scheduler's file
LEAVE_SECONDS = 10.0  # for a task to end by itself when the command has; `srun --wait` gives it a minute
NO_PAGES = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # which would else be served to everyone
FEWEST = 3  # a scheduler, a client and a worker


@contextmanager
def taking_part(options: Mapping[str, Any]) -> Iterator[None]:
    """Be the scheduler or a worker of this job until it ends, and then exit; or be the client, and end it.

    Parameters
    ----------
    options : mapping
        Of `dask_jobqueue.slurm.SLURMRunner`.

    Raises
    ------
    ConfigError
        When this process is no task of Slurm, the job has too few of them, or the options mean nothing.
    ClusterError
        When it cannot take its part.
    """
    missing = [name for name in VARIABLES if not os.environ.get(name, "").isdigit()]
    if missing:
        raise ConfigError(
            f"cluster.kind is 'slurm-runner', and {', '.join(missing)} is not set: start this command by `srun` in a "
            "job of Slurm."
        )
    n_tasks = int(os.environ["SLURM_NTASKS"])
    if n_tasks < FEWEST:
        raise ConfigError(
            f"this job has {n_tasks} tasks, at least {FEWEST} are needed: a scheduler, the command and a worker; give "
            "sbatch or srun a larger --ntasks."
        )
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        jobqueue: Any = importlib.import_module("dask_jobqueue.slurm")  # which takes SIGINT for itself
    except ImportError as error:
        raise ConfigError(f'dask_jobqueue is missing ({error}): pip install "scalable-kpca[slurm]".') from error
    is_over = None
    if int(os.environ["SLURM_PROCID"]) == CLIENT:
        signal.signal(signal.SIGINT, interrupt)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # is for the client, which ends the others when it has unwound
        is_over = _follow(scheduler_file_of(options))
    try:
        own = {
            "scheduler_file": str(scheduler_file_of(options)),
            "scheduler_options": {**NO_PAGES, **options.get("scheduler_options", {})},
            "worker_options": {**NO_PAGES, **_granted(), **options.get("worker_options", {})},
        }
        with dask.config.set({"distributed.nanny.pre-spawn-environ": worker_environment()}):
            runner = _class_of(jobqueue)(**{"worker_class": "distributed.Nanny", **options, **own})
    except TypeError as error:
        raise ConfigError(f"SLURMRunner does not take these options: {error}; correct cluster.options.") from error
    except Exception as error:
        if is_over is not None and is_over.wait(2 * LOOK_SECONDS):
            sys.exit()  # nobody is there any more, and that is all that is wrong
        raise ClusterError(f"SLURMRunner could not begin: {error or type(error).__name__}.") from error
    with runner:
        is_told = False
        try:
            yield
        except KeyboardInterrupt:
            is_told = True  # there is no time to wait
            raise
        finally:
            if not is_told:
                _await_workers(runner)
            scheduler_file_of(options).unlink(missing_ok=True)


def scheduler_file_of(options: Mapping[str, Any]) -> Path:
    """Where the scheduler of this job says its address: on a file system that all of its machines see."""
    job, step, attempt = (
        os.environ.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    )
    own = f"scheduler-{job}.{step}-{attempt}.json"  # what an earlier attempt has left says where nobody is
    return Path(str(options.get("scheduler_file") or own).format(job_id=job)).absolute()


def _class_of(jobqueue: Any) -> Any:
    """`SLURMRunner`, which takes what a scheduler has written of its file so far for the whole."""

    class Runner(jobqueue.SLURMRunner):  # type: ignore[misc]
        async def get_scheduler_address(self) -> str:
            while True:
                try:
                    return written_address(self.scheduler_file, 0)
                except ClusterError:
                    await asyncio.sleep(LOOK_SECONDS)

    return Runner


def _follow(file: Path) -> threading.Event:
    """Set when the scheduler's file has been there and is gone: the command has ended, and soon this process does."""
    is_over = threading.Event()

    def look() -> None:
        for is_there in (True, False):
            while _exists(file) != is_there:
                time.sleep(LOOK_SECONDS)
        is_over.set()
        time.sleep(LEAVE_SECONDS)
        os._exit(0)

    threading.Thread(target=look, daemon=True).start()
    return is_over


def _exists(file: Path) -> bool:
    """Whether a file is there, or its place does not say: by opening it, as NFS answers other questions from memory."""
    try:
        file.open().close()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _await_workers(runner: Any) -> None:
    """Let every worker begin before the scheduler is ended, or give up: one that finds nobody would look on and on."""
    with contextlib.suppress(OSError, TimeoutError), new_client(runner) as client:
        client.wait_for_workers(runner.n_workers, timeout=JOIN_SECONDS)
        # a nanny answers when its worker has begun
        within(client, JOIN_SECONDS, partial(client.run, nanny=True, on_error="ignore"), os.getpid)


def _granted() -> dict[str, int]:
    """Threads and memory of a worker, by what Slurm grants a task: dask would look at the whole machine."""
    n_threads = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
    mebibytes = os.environ.get("SLURM_MEM_PER_CPU", "")
    return {"nthreads": n_threads} | ({"memory_limit": int(mebibytes) * n_threads * 2**20} if mebibytes else {})
