"""One job of Slurm as a cluster: `srun` starts the same command many times, and each of them takes a part.

The first task is the scheduler, the second one goes on with the command, all others are workers, each below a nanny
that starts it again when it dies. A task that ends takes the others with it, a minute later: a worker's begins again as
long as there is the file in which the scheduler says where it is. The command takes that file away when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask.config

from scalable_kpca.engine.asking import within
from scalable_kpca.engine.connections import new_client, worker_environment
from scalable_kpca.errors import ClusterError, ConfigError, KernelPCAError

__all__ = ["scheduler_file_of", "taking_part"]

VARIABLES = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID")  # the last one of srun alone
CLIENT = 1  # number of the task that goes on
JOIN_SECONDS = 60.0
LOOK_SECONDS = 0.2  # between two looks for the scheduler's file
AGAIN_SECONDS = 5.0  # before a worker begins again
NO_PAGES = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # which would else be served to everyone
FEWEST = 3  # a scheduler, a client and a worker
FIXED = ("asynchronous", "client", "loop", "scheduler")  # options that would make another thing of the job

logger = logging.getLogger(__name__)


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
    fixed = sorted(set(options) & set(FIXED))
    if fixed:
        raise ConfigError(
            f"cluster.options has {', '.join(fixed)}, which the kind 'slurm-runner' sets itself; leave out."
        )
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        jobqueue: Any = importlib.import_module("dask_jobqueue.slurm")  # which takes SIGINT for itself
    except ImportError as error:
        raise ConfigError(f'dask_jobqueue is missing ({error}): pip install "scalable-kpca[slurm]".') from error
    if int(os.environ["SLURM_PROCID"]) == CLIENT:
        signal.signal(signal.SIGINT, interrupt)
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # is for the client, which ends the others when it has unwound
    file = scheduler_file_of(options)
    try:
        own = {
            "scheduler_file": str(file),
            "scheduler_options": {**NO_PAGES, **options.get("scheduler_options", {})},
            "worker_options": {**NO_PAGES, **_granted(), **options.get("worker_options", {})},
        }
        with dask.config.set({"distributed.nanny.pre-spawn-environ": worker_environment()}):
            runner = _class_of(jobqueue)(**{"worker_class": "distributed.Nanny", **options, **own})
    except KernelPCAError:
        raise
    except Exception as error:
        raise _in_words(error) from error
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
            file.unlink(missing_ok=True)


def scheduler_file_of(options: Mapping[str, Any]) -> Path:
    """Where the scheduler of this job says its address: on a file system that all of its machines see.

    Raises
    ------
    ConfigError
        When nothing can be written there, or its name has braces that mean nothing.
    """
    job, step, attempt = (
        os.environ.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    )
    own = f"scheduler-{job}.{step}-{attempt}.json"  # what an earlier attempt has left says where nobody is
    given = str(options.get("scheduler_file") or own)
    try:
        file = Path(given.format(job_id=job)).absolute()
    except (LookupError, ValueError) as error:
        raise ConfigError(
            f"cluster.options.scheduler_file={given} has braces that mean nothing ({error}); {{job_id}} alone does."
        ) from error
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{file} is where the scheduler would say its address, and nothing can be written there; call sbatch in "
            "another directory, on a file system that all nodes mount, or set cluster.options.scheduler_file."
        )
    return file


def _class_of(jobqueue: Any) -> Any:
    """`SLURMRunner` whose command hears that the scheduler failed, and whose workers outlive what closes them."""

    class Runner(jobqueue.SLURMRunner):  # type: ignore[misc]
        async def start_scheduler(self) -> None:
            try:
                await super().start_scheduler()
            except Exception as error:
                failure = _in_words(error)
                with contextlib.suppress(OSError):
                    said = {"error": str(failure), "exit_code": failure.exit_code}
                    self.scheduler_file.write_text(json.dumps(said), encoding="utf-8")
                raise failure from error

        async def get_scheduler_address(self) -> str:
            while not (said := _read(self.scheduler_file)):
                await asyncio.sleep(LOOK_SECONDS)
            if "error" in said:
                raise (ConfigError if said["exit_code"] == ConfigError.exit_code else ClusterError)(said["error"])
            return str(said["address"])

        async def start_worker(self) -> None:
            del self.worker_options["scheduler_file"]  # a nanny would wait for it when it has gone
            self.worker_options["scheduler_ip"] = await self.get_scheduler_address()
            while _exists(self.scheduler_file):
                reason = "it was closed"
                try:
                    await super().start_worker()
                except Exception as error:
                    reason = str(_in_words(error))
                if _exists(self.scheduler_file):
                    logger.warning("%s", f"the worker of task {self.proc_id} begins again: {reason}")
                    await asyncio.sleep(AGAIN_SECONDS)

        async def _close(self) -> None:
            with contextlib.suppress(OSError):  # the scheduler is gone already
                await super()._close()

    return Runner


def _in_words(error: Exception) -> ClusterError | ConfigError:
    if isinstance(error, (TypeError, ImportError, AttributeError)):
        return ConfigError(f"SLURMRunner does not take these options: {error}; correct cluster.options.")
    reason = error.__cause__ or error  # distributed says that something failed to start, and why beside it
    return ClusterError(f"SLURMRunner could not begin: {reason or type(reason).__name__}.")


def _read(file: Path) -> dict[str, Any]:
    """What is in the scheduler's file; nothing where that is not there, or not whole yet."""
    with contextlib.suppress(OSError, ValueError):
        said = json.loads(file.read_bytes())
        if isinstance(said, dict) and {"address", "error"} & set(said):
            return said
    return {}


def _exists(file: Path) -> bool:
    """Whether a file is there, or its place does not say: by opening it, as NFS answers other questions from memory."""
    try:
        file.open().close()
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
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
