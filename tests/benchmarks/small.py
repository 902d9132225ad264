"""Subjects of small data: fits and projections beside scikit-learn's in one process, and what imports take."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["imports", "small_fits"]

D = 20
SHORTEST = 1.0  # seconds of a measurement, all rounds together
FEWEST = 25  # rounds: other users of a machine take the cores for seconds

CPU = "\nimport resource\nused = resource.getrusage(resource.RUSAGE_SELF)\nprint(used.ru_utime + used.ru_stime)"
HELP = """
import sys
from scalable_kpca.cli import main
sys.argv = ["skpca", "--help"]
try:
    main()
except SystemExit:
    pass
"""
PROGRAMS = {
    "package": "import scalable_kpca",
    "estimator": "from scalable_kpca import KernelPCA",
    "scikit-learn and dask": "import sklearn.decomposition, dask.array",
    "help": HELP,
}


def small_fits(n: int, k: int, kernel: str) -> dict[str, Any]:
    """Shortest seconds of fits and projections of n rows, both programs in turn."""
    import numpy as np
    from sklearn.decomposition import KernelPCA as Reference

    from scalable_kpca import KernelPCA

    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((n, D)), rng.standard_normal((n, D))
    ours, reference = KernelPCA(k, kernel=kernel), Reference(k, kernel=kernel, random_state=0)
    start = time.perf_counter()
    fits = _shortest([lambda: ours.fit(X), lambda: reference.fit(X)])
    projections = _shortest([lambda: ours.transform(new), lambda: reference.transform(new)])
    return {
        "seconds": time.perf_counter() - start,
        "fit": fits[0],
        "sklearn_fit": fits[1],
        "transform": projections[0],
        "sklearn_transform": projections[1],
        "eigenvalues": ours.eigenvalues_.tolist(),
        "sklearn_eigenvalues": reference.eigenvalues_.tolist(),
        "complete": bool(ours.certificate_.complete),
    }


def imports(rounds: int) -> dict[str, Any]:
    """Least CPU seconds of new processes that do nothing but import, one program after another."""
    start = time.perf_counter()
    found: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds):
        for name, program in PROGRAMS.items():
            command = [sys.executable, "-P", "-c", program + CPU]
            finished = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name].append(float(finished.stdout.split()[-1]))
    return {"seconds": time.perf_counter() - start, "cpu": {name: min(values) for name, values in found.items()}}


def _shortest(works: Sequence[Callable[[], object]]) -> list[float]:
    times: list[list[float]] = [[] for _ in works]
    while len(times[0]) < FEWEST or sum(map(sum, times)) < SHORTEST:
        for work, measured in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            measured.append(time.perf_counter() - start)
    return [min(measured) for measured in times]
