"""What the tests share: exact fits of small arrays, and the scale of rounding that tolerances are derived from."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scalable_kpca.engine import ClusterSettings, Engine, open_engine
from scalable_kpca.exact import ExactFit, fit_exact, open_gram
from scalable_kpca.gram import Gram
from scalable_kpca.kernels import Kernel, resolve_kernel
from scalable_kpca.model.files import arrays_digest, sealed
from scalable_kpca.source import ArrayRows, Rows, write_rows
from scalable_kpca.tiling import Plan, plan_exact

__all__ = [
    "EPS",
    "centred",
    "describe_model",
    "fit",
    "fit_on",
    "gram_of",
    "matching",
    "rounding",
    "score_tolerance",
    "skip",
    "store_rows",
    "tmpfs",
]

EPS = float(np.finfo(np.float64).eps)
MEMORY_LIMIT = 2**31

Array = NDArray[Any]


def skip(reason: str) -> None:
    """Skip a test, or a module, for want of what a machine lacks; where everything is required that is a failure."""
    if os.environ.get("SKPCA_TEST_REQUIRE_ALL") == "1":
        pytest.fail(f"SKPCA_TEST_REQUIRE_ALL=1 and {reason}")
    pytest.skip(reason, allow_module_level=True)


def matching(folder: Path, pattern: str) -> list[Path]:
    """Paths below a directory that a process is at work in."""
    found = glob.glob(pattern, root_dir=folder, include_hidden=True)  # noqa: PTH207 - it fails where one goes meanwhile
    return [folder / name for name in found]


@contextmanager
def tmpfs(place: Path, options: str) -> Iterator[None]:
    """A file system of its own in memory, mounted on a directory for a time; skips where that is not allowed."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        skip("a file system of its own needs root and mount")
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        skip(f"tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fit(
    X: Array | Rows,
    kernel: str | Kernel = "rbf",
    *,
    n_components: int | float | None,
    gram: str = "memory",
    solver: str = "dense",
    scheduler: str = "synchronous",
    tile_rows: int | None = None,
    dtype: str = "float64",
    workdir: Path | None = None,
    n_threads: int = 2,
    n_workers: int | None = None,
    seed: int = 0,
    max_passes: int | None = None,
    tol: float | None = None,
    on_failure: str = "error",
    indefinite: str = "error",
    remove_zero_eig: bool = False,
    **kernel_parameters: Any,
) -> ExactFit:
    """Exact fit on an engine of its own; tiles of the zarr home go to ``workdir/gram.zarr``."""
    with open_engine(ClusterSettings(scheduler, n_workers=n_workers), n_threads=n_threads) as engine:
        return fit_on(
            engine,
            X,
            kernel,
            n_components=n_components,
            gram=gram,
            solver=solver,
            tile_rows=tile_rows,
            dtype=dtype,
            workdir=workdir,
            seed=seed,
            max_passes=max_passes,
            tol=tol,
            on_failure=on_failure,
            indefinite=indefinite,
            remove_zero_eig=remove_zero_eig,
            **kernel_parameters,
        )


def fit_on(
    engine: Engine,
    X: Array | Rows,
    kernel: str | Kernel = "rbf",
    *,
    n_components: int | float | None,
    gram: str = "memory",
    solver: str = "dense",
    tile_rows: int | None = None,
    dtype: str = "float64",
    workdir: Path | None = None,
    seed: int = 0,
    max_passes: int | None = None,
    tol: float | None = None,
    on_failure: str = "error",
    indefinite: str = "error",
    remove_zero_eig: bool = False,
    **kernel_parameters: Any,
) -> ExactFit:
    """Exact fit on an engine that is already open. Worker processes need `X` as StoredRows: see `store_rows`."""
    rows, resolved, plan = _prepare(X, kernel, n_components, gram, solver, tile_rows, dtype, kernel_parameters)
    return fit_exact(
        rows,
        resolved,
        plan,
        _open(rows, resolved, plan, engine, workdir),
        engine,
        n_components=n_components,
        seed=seed,
        max_passes=max_passes,
        tol=tol,
        on_failure=on_failure,
        indefinite=indefinite,
        remove_zero_eig=remove_zero_eig,
    )


@contextmanager
def gram_of(
    X: Array | Rows,
    kernel: str | Kernel = "rbf",
    *,
    gram: str = "memory",
    scheduler: str = "synchronous",
    tile_rows: int | None = None,
    dtype: str = "float64",
    workdir: Path | None = None,
    **kernel_parameters: Any,
) -> Iterator[Gram]:
    """Gram matrix that is opened but not yet built, on an engine of its own."""
    rows, resolved, plan = _prepare(X, kernel, None, gram, "dense", tile_rows, dtype, kernel_parameters)
    with open_engine(scheduler, n_threads=2) as engine:
        yield _open(rows, resolved, plan, engine, workdir)


def store_rows(X: Array, path: Path, tile_rows: int) -> Rows:
    """Rows that any process can read."""
    rows, _ = write_rows(
        iter([X]),
        path,
        n_samples=len(X),
        n_features=X.shape[1],
        dtype=X.dtype.name,
        tile_rows=tile_rows,
        fingerprint=_digest(X),
    )
    return rows


def describe_model(path: Path, *without: str, **changes: Any) -> None:
    """Change the description of a saved model, and make its digests fit that and whatever the arrays have become."""
    fields = json.loads((path / "model.json").read_text())
    fields = {name: value for name, value in fields.items() if name not in without}
    (path / "model.json").write_text(json.dumps(sealed(fields | {"arrays": arrays_digest(path)} | changes)))


def centred(K: Array) -> NDArray[np.float64]:
    """HKH by two products with H itself: the definition, in float64."""
    H = np.eye(len(K)) - 1 / len(K)
    return H @ np.asarray(K, np.float64) @ H


def rounding(K: Array) -> float:
    """n·eps·‖K‖_F: what a product with K, or a backward stable eigensolver, may differ by."""
    return len(K) * EPS * float(np.linalg.norm(K))


def score_tolerance(spectrum: Array, k: int, error: float) -> NDArray[np.float64]:
    """How far each of the first k unit eigenvectors may turn when the matrix moves by `error` in the 2-norm.

    Davis and Kahan: sin θ ≤ error / gap, and vectors at angle θ differ by at most √2 sin θ. `spectrum` is the whole
    spectrum in descending order.
    """
    gaps = np.abs(spectrum[:k, None] - spectrum[None, :])
    gaps[np.arange(k), np.arange(k)] = np.inf
    return np.sqrt(2) * error / np.maximum(gaps.min(axis=1, initial=np.inf), np.finfo(np.float64).tiny)


def _prepare(
    X: Array | Rows,
    kernel: str | Kernel,
    n_components: int | float | None,
    gram: str,
    solver: str,
    tile_rows: int | None,
    dtype: str,
    kernel_parameters: dict[str, Any],
) -> tuple[Rows, Kernel, Plan]:
    rows = ArrayRows(X) if isinstance(X, np.ndarray) else X
    if isinstance(kernel, str):
        scaled = isinstance(X, np.ndarray) and kernel_parameters.get("gamma") == "scale"
        variance = float(np.var(X)) if scaled else None
        kernel = resolve_kernel(kernel, n_features=rows.n_features, variance=variance, **kernel_parameters)
    plan = plan_exact(
        rows.n_samples,
        rows.n_features,
        n_components=n_components,
        dtype=dtype,
        solver=solver,
        gram=gram,
        memory_limit=MEMORY_LIMIT,
        n_threads=2,
        tile_rows=tile_rows,
    )
    return rows, kernel, plan


def _open(rows: Rows, kernel: Kernel, plan: Plan, engine: Engine, workdir: Path | None) -> Gram:
    path, fingerprint = None, ""
    if plan.gram == "zarr":
        if workdir is None:
            raise ValueError("the zarr home needs a workdir of its own, such as tmp_path")
        workdir.mkdir(parents=True, exist_ok=True)
        path = workdir / "gram.zarr"
        # of the contents, so that two tests cannot read each other's tiles
        described = json.dumps([kernel.to_json(), plan.tile_rows, plan.dtype])
        fingerprint = _digest(rows.read(slice(0, rows.n_samples)), described)
    return open_gram(rows, kernel, plan, engine, path=path, fingerprint=fingerprint)


def _digest(X: Array, description: str = "") -> str:
    return hashlib.sha256(np.ascontiguousarray(X).tobytes() + description.encode()).hexdigest()
