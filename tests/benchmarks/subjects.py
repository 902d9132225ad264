"""Everything that a child process can be asked to measure: whole fits here, single passes in `passes`.

A subject takes JSON values and returns JSON values, `seconds` among them. Imports and the making of rows are not timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.child import stopwatch
from tests.benchmarks.landmarks import landmark_residuals, landmark_times
from tests.benchmarks.manifold import GAMMA, manifold
from tests.benchmarks.passes import cold_pass, many_tasks, plain_read, recompute_pass, stored_build, strip_rate
from tests.benchmarks.resumed import exact_run
from tests.benchmarks.small import imports, small_fits
from tests.benchmarks.streams import nystroem, run_command, sklearn_nystroem, write_files

__all__ = ["SUBJECTS"]

N_WARM, K_WARM = 2500, 2


def ours(n: int, k: int, scratch: str | None = None, **settings: Any) -> dict[str, Any]:
    """A fit of the package; with `scratch` the tiles may go to a directory there."""
    from scalable_kpca import KernelPCA

    X = manifold(n)
    with tempfile.TemporaryDirectory(dir=scratch) as workdir:
        if scratch is not None:
            settings["workdir"] = str(Path(workdir, "work"))
        with stopwatch() as watch:
            found = KernelPCA(k, kernel="rbf", gamma=GAMMA, **settings).fit(X)
    plan, certificate = found.plan_, found.certificate_
    return {
        "seconds": watch.seconds,
        "eigenvalues": found.eigenvalues_.tolist(),
        "passes": found.n_passes_,
        "residual": float((certificate.residual_norms / found.eigenvalues_[0]).max()),
        "complete": bool(certificate.complete),
        "gram": plan.gram,
        "planned_seconds": getattr(plan, "seconds", None),
        "planned_memory": plan.peak_memory,
        "planned_passes": getattr(plan, "expected_passes", None),
    }


def sklearn(n: int, k: int, eigen_solver: str, dtype: str) -> dict[str, Any]:
    """A fit of scikit-learn's KernelPCA on the same rows."""
    from sklearn.decomposition import KernelPCA

    X = manifold(n).astype(dtype)
    estimator = KernelPCA(k, kernel="rbf", gamma=GAMMA, eigen_solver=eigen_solver, random_state=0)
    with stopwatch() as watch:
        estimator.fit(X)
    return {"seconds": watch.seconds, "eigenvalues": estimator.eigenvalues_.tolist()}


def naive_dask(n: int, k: int, dtype: str, hold: bool) -> dict[str, Any]:
    """What a short Dask program does: kernel blocks, centring, `svd_compressed`; `hold` keeps the matrix in memory.

    Thirty more columns and two power iterations are what brings the eigenvalues within 1e-6 of the largest; two more
    iterations overflow in float32.
    """
    import dask.array as da
    from sklearn.metrics.pairwise import rbf_kernel

    X = manifold(n).astype(dtype)
    with stopwatch() as watch:
        rows = da.from_array(X, chunks=(min(4096, -(-n // 4)), X.shape[1]))
        K = da.blockwise(rbf_kernel, "ij", rows, "ik", rows, "jk", gamma=GAMMA, concatenate=True, dtype=X.dtype)
        centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
        _, singular_values, _ = da.linalg.svd_compressed(
            centred, k, n_power_iter=2, n_oversamples=30, seed=0, compute=not hold
        )
        eigenvalues = singular_values.compute()
    return {"seconds": watch.seconds, "eigenvalues": eigenvalues.tolist()}


def bare(n: int, k: int) -> dict[str, Any]:
    """The bare-thread yardstick."""
    from scalable_kpca.machine import available_processors
    from tests.benchmarks.bare import bare_kernel_pca

    X = manifold(n)
    with stopwatch() as watch:
        eigenvalues, passes, residual = bare_kernel_pca(X, k, GAMMA, available_processors())
    return {"seconds": watch.seconds, "eigenvalues": eigenvalues.tolist(), "passes": passes, "residual": residual}


def surroundings() -> dict[str, Any]:
    """Libraries of the environment that is measured, and whether its package is the checkout's.

    A small fit first: rates of the machine that plans keep for later are then measured before anything is timed.
    """
    import numpy as np
    import scipy
    import sklearn as scikit_learn
    from threadpoolctl import threadpool_info

    import scalable_kpca

    scalable_kpca.KernelPCA(K_WARM, kernel="rbf").fit(manifold(N_WARM))
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    described = {f"{one['internal_api']} {one['version']} on {one['num_threads']} threads" for one in blas}
    return {
        "seconds": 0.0,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit_learn": scikit_learn.__version__,
        "blas": " and ".join(sorted(described)),
        "package": scalable_kpca.__version__,
        "from_checkout": Path(scalable_kpca.__file__).parents[1] == Path(__file__).parents[2],
    }


SUBJECTS: dict[str, Callable[..., dict[str, Any]]] = {
    "ours": ours,
    "sklearn": sklearn,
    "naive_dask": naive_dask,
    "bare": bare,
    "surroundings": surroundings,
    "recompute_pass": recompute_pass,
    "many_tasks": many_tasks,
    "strip_rate": strip_rate,
    "stored_build": stored_build,
    "cold_pass": cold_pass,
    "plain_read": plain_read,
    "nystroem": nystroem,
    "sklearn_nystroem": sklearn_nystroem,
    "landmark_residuals": landmark_residuals,
    "landmark_times": landmark_times,
    "write_files": write_files,
    "run_command": run_command,
    "exact_run": exact_run,
    "small_fits": small_fits,
    "imports": imports,
}
