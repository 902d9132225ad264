"""What a machine or a cluster offers, and what is wrong with it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import format_bytes
from threadpoolctl import threadpool_info

from scalable_kpca.engine import examine_cluster
from scalable_kpca.errors import ConfigError
from scalable_kpca.machine import available_memory, available_processors, installed_version
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.engines import settings_of
from scalable_kpca.workflow.inspect import Report
from scalable_kpca.workflow.mirror import claim
from scalable_kpca.workflow.preparing import outline

__all__ = ["examine_job_cluster", "examine_machine"]


def examine_machine() -> Report:
    """Processors, memory, libraries; and a fit of six points whose spectrum is known."""
    blas = sorted(
        {
            f"{entry['internal_api']} {entry.get('version')}"
            for entry in threadpool_info()
            if entry["user_api"] == "blas"
        }
    )
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "processors": available_processors(),
        "memory": format_bytes(available_memory()),
        "blas": ", ".join(blas),
        **{
            name: installed_version(name)
            for name in ("scalable-kpca", "dask", "distributed", "numpy", "scipy", "zarr", "pyarrow")
        },
    }
    problems = []
    error = _self_test()
    facts["self-test"] = f"eigenvalues of six known points within {error:.1e}"
    if not error < 1e-7:
        problems.append("a fit of six points does not give their known spectrum: reinstall numpy and scipy")
    return Report(facts, problems)


def examine_job_cluster(config: Config, base: Path) -> Report:
    """Scheduler and workers of a job, and what would keep the job from running on them: see `examine_cluster`.

    Raises
    ------
    ConfigError
        For a job that runs in one process.
    """
    if config.cluster.kind in ("threads", "synchronous"):
        raise ConfigError(f"cluster.kind is {config.cluster.kind}: this job runs in one process, and needs no cluster.")
    job = outline(config, base)
    claim(job.output)
    settings = settings_of(config.cluster)
    return Report(*examine_cluster(settings, job.plan.n_threads, job.output.path, job.plan.peak_memory))


def _self_test() -> float:
    """Largest error of the centred RBF spectrum of six points, γ = 0.5, known to eight decimals."""
    from scalable_kpca.estimators import KernelPCA

    points = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [3, 3], [4, 3]], float)
    known = np.array([1.92370031, 0.63236390, 0.63212055, 0.39327020, 0.15470034])
    found = KernelPCA(5, kernel="rbf", gamma=0.5, n_jobs=1).fit(points).eigenvalues_
    return float(np.abs(found - known).max())
