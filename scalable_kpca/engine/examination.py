"""What a cluster is like, and what is wrong with it, before a job is given to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.config
from dask.utils import format_bytes

from scalable_kpca.engine.connections import wait_for_workers
from scalable_kpca.engine.opening import client_of
from scalable_kpca.engine.preflight import sharing_problems, version_problems
from scalable_kpca.engine.settings import ClusterSettings
from scalable_kpca.errors import ClusterError, StorageError

__all__ = ["examine_cluster"]


def examine_cluster(
    settings: ClusterSettings, n_threads: int, shared: Path, needed: int
) -> tuple[dict[str, Any], list[str]]:
    """Facts about a scheduler and each of its workers, and what is wrong with them, one sentence each.

    Parameters
    ----------
    settings : ClusterSettings
        Of a cluster; what it starts is ended again.
    n_threads : int
        Of a worker, by the plan.
    shared : Path
        Directory that workers must be able to read and write.
    needed : int
        Bytes that a worker may take, by the plan.

    Returns
    -------
    facts : dict
    problems : list of str

    Raises
    ------
    ConfigError
        When the settings mean nothing, whatever the cluster is like.
    """
    facts: dict[str, Any] = {}
    problems: list[str] = []
    try:
        with client_of(settings, n_threads) as client:
            wait_for_workers(client, settings.wait_for, settings.seconds)
            address = str(client.scheduler.address)
            facts["scheduler"] = address
            open_to_all = "no, and who reaches it can run code on its workers"
            facts["encrypted"] = "yes" if address.startswith("tls://") else open_to_all
            for worker, found in sorted(client.scheduler_info(n_workers=-1)["workers"].items()):
                threads, memory = int(found["nthreads"]), int(found["memory_limit"] or 0)
                facts[f"worker {worker}"] = (
                    f"threads {threads}, memory {format_bytes(memory) if memory else 'without limit'}"
                )
                problems += _of_worker(worker, threads, memory, n_threads, needed)
            problems += version_problems(client, settings.patience)
            problems += sharing_problems(client, shared, settings.patience)
    except (ClusterError, StorageError) as error:
        problems.append(str(error))
    return facts, problems


def _of_worker(worker: str, threads: int, memory: int, n_threads: int, needed: int) -> list[str]:
    """What is wrong with its size."""
    problems = []
    if threads > n_threads:
        text = f"worker {worker} has {threads} threads, the plan counts with {n_threads}"
        problems.append(f"{text}; set cluster.n_threads={threads}, or start workers with fewer.")
    usable = int(memory * float(dask.config.get("distributed.worker.memory.pause") or 1))
    if 0 < usable < needed:
        text = f"worker {worker} is paused at {format_bytes(usable)}, the plan takes up to {format_bytes(needed)}"
        problems.append(f"{text}; give workers more memory, or set budget.memory lower.")
    return problems
