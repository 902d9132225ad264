"""Subjects that measure single passes over the tiles, and what the machine itself can do at most."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import isqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.child import stopwatch
from tests.benchmarks.manifold import GAMMA, N_FEATURES, manifold

__all__ = ["cold_pass", "many_tasks", "plain_read", "recompute_pass", "stored_build", "strip_rate"]

TIMED_PASSES = 3
SMALL_TILE = 8  # rows: of a task that is nothing but its scheduling
PROCESSES = {"processes": 2, "one process": 1}  # of one thread each
PIECE = 8 * 2**20  # bytes of one plain read or write


def recompute_pass(n: int, k: int, runner: str) -> dict[str, Any]:
    """Median seconds of a recompute pass, by Dask's threads, a bare pool of threads, two worker processes or one.

    The first pass is not timed: it is the building pass, and worker processes import in it.
    """
    with tempfile.TemporaryDirectory() as directory, _pass_by(runner, n, k, Path(directory)) as (one_pass, plan):
        block = _block(n, plan.block_columns)
        product = one_pass(block)
        seconds = []
        for _ in range(TIMED_PASSES):
            with stopwatch() as watch:
                product = one_pass(block)
            seconds.append(watch.seconds)
    entries = _evaluated_entries(plan.tiling)
    return {
        "seconds": median(seconds),
        "entries": entries,
        "rate": entries / median(seconds),
        "tile_rows": plan.tile_rows,
        "columns": plan.block_columns,
        "norms": np.linalg.norm(product, axis=0).tolist(),
    }


def many_tasks(n_tasks: int) -> dict[str, Any]:
    """Median seconds of a pass of so many tasks on two worker processes that have nothing to do in them.

    Runs of one tile, summed in segments of eight: what a pass over millions of rows gives the scheduler.
    """
    from scalable_kpca.engine import ClusterSettings, open_engine
    from scalable_kpca.gram import RecomputeGram
    from scalable_kpca.kernels import resolve_kernel
    from scalable_kpca.source import write_rows
    from scalable_kpca.tiling import Tiling, sizes

    tiling = Tiling(SMALL_TILE * isqrt(2 * n_tasks), SMALL_TILE)
    sizes.RUN_ROWS = 8 * SMALL_TILE  # type: ignore[misc]
    X = np.random.default_rng(3).standard_normal((tiling.n_samples, 2))
    kernel = resolve_kernel("rbf", gamma=GAMMA, n_features=2)
    with tempfile.TemporaryDirectory() as directory:
        shape = {"n_samples": len(X), "n_features": 2, "dtype": X.dtype.name, "tile_rows": SMALL_TILE}
        rows, _ = write_rows(iter([X]), Path(directory) / "rows.zarr", fingerprint="tasks", **shape)
        with open_engine(ClusterSettings("local", n_workers=2), n_threads=1) as engine:
            gram, seconds = RecomputeGram(rows, kernel, tiling, "float64", engine), []
            gram.build()
            for _ in range(TIMED_PASSES):
                with stopwatch() as watch:
                    gram.multiply(np.ones((len(X), 1)))
                seconds.append(watch.seconds)
    return {"seconds": median(seconds), "tasks": tiling.n_tasks(1)}


def strip_rate(n: int, k: int, at_least: float) -> dict[str, Any]:
    """Entries per second of GEMM + exp + both products on one strip in the cache: one thread, then every processor."""
    from threadpoolctl import threadpool_limits

    from scalable_kpca.kernels import STRIP_ROWS
    from tests.benchmarks.bare import folded

    planned = _plan(n, k, "recompute")
    n_threads, tile_rows = planned.n_threads, planned.tile_rows
    left, right = folded(manifold(STRIP_ROWS + tile_rows), GAMMA)
    left, right = left[:STRIP_ROWS], np.ascontiguousarray(right[STRIP_ROWS:].T)
    # a column of ones rides along in every pass
    vectors = _block(STRIP_ROWS + tile_rows, planned.block_columns + 1)
    above, beside = vectors[:STRIP_ROWS], vectors[STRIP_ROWS:]

    def work(_: int) -> float:
        strip = np.empty((STRIP_ROWS, tile_rows), np.float32)
        start, rounds = time.perf_counter(), 0
        while time.perf_counter() - start < at_least:
            np.dot(left, right, out=strip)
            np.exp(np.minimum(strip, 0, out=strip), out=strip)
            strip @ beside
            strip.T @ above
            rounds += 1
        return rounds * strip.size / (time.perf_counter() - start)

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool, stopwatch() as watch:
        alone = work(0)
        together = sum(pool.map(work, range(n_threads)))
    return {"seconds": watch.seconds, "rate": alone * n_threads, "rate_together": together, "processors": n_threads}


def stored_build(n: int, k: int, directory: str) -> dict[str, Any]:
    """Seconds of the building pass of the zarr home: every tile computed, multiplied by a block and written."""
    with _gram(n, k, "zarr", directory=Path(directory)) as (gram, plan):
        block = _block(n, plan.block_columns)
        with stopwatch() as watch:
            gram.build(block)
    with stopwatch() as syncing:
        n_bytes = _forget(Path(directory))
    return {"seconds": watch.seconds, "seconds_to_sync": syncing.seconds, "bytes": n_bytes}


def cold_pass(n: int, k: int, directory: str) -> dict[str, Any]:
    """Seconds of one pass over the stored tiles, none of which is in memory."""
    with _gram(n, k, "zarr", directory=Path(directory)) as (gram, plan):
        block = _block(n, plan.block_columns)
        n_bytes = _forget(Path(directory))
        with stopwatch() as watch:
            gram.multiply(block)
    return {"seconds": watch.seconds, "bytes": n_bytes, "rate": n_bytes / watch.seconds}


def plain_read(directory: str, one_file_of: int = 0) -> dict[str, Any]:
    """Seconds to read what is stored, one file after another, cold; or one new file of so many bytes."""
    buffer, total = bytearray(PIECE), 0
    if one_file_of:
        path = Path(directory, "plain")
        if not path.exists():
            _write_noise(path, one_file_of)
        paths = [path]
    else:
        paths = _files(Path(directory))
    _forget(Path(directory))
    with stopwatch() as watch:
        for path in paths:
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    total += count
    return {"seconds": watch.seconds, "bytes": total, "rate": total / watch.seconds}


@contextmanager
def _gram(
    n: int, k: int, home: str, *, kind: str = "threads", n_workers: int | None = None, directory: Path | None = None
) -> Iterator[tuple[Any, Any]]:
    """The Gram matrix of the benchmark's rows in one home, and its plan, with the package's own defaults."""
    from scalable_kpca.engine import ClusterSettings, open_engine
    from scalable_kpca.exact import open_gram
    from scalable_kpca.kernels import resolve_kernel
    from scalable_kpca.source import ArrayRows, write_rows

    X, name = manifold(n), f"benchmark-{n}"
    planned = _plan(n, k, home)
    rows: Any = ArrayRows(X)
    if n_workers:
        assert directory is not None
        shape = {"n_samples": n, "n_features": N_FEATURES, "dtype": X.dtype.name, "tile_rows": planned.tile_rows}
        rows, _ = write_rows(iter([X]), directory / "rows.zarr", fingerprint=name, **shape)
    kernel = resolve_kernel("rbf", gamma=GAMMA, n_features=N_FEATURES)
    n_threads = 1 if n_workers else planned.n_threads
    with open_engine(ClusterSettings(kind, n_workers=n_workers), n_threads=n_threads) as engine:
        path = directory / "gram.zarr" if home == "zarr" and directory is not None else None
        yield open_gram(rows, kernel, planned, engine, path=path, fingerprint=name), planned


def _plan(n: int, k: int, home: str) -> Any:
    from scalable_kpca import plan

    return plan(n, N_FEATURES, n_components=k, gram=home, solver="block_krylov", dtype="float32")


@contextmanager
def _pass_by(runner: str, n: int, k: int, directory: Path) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """A function that makes one recompute pass, and the plan of its tiles."""
    cluster: dict[str, Any] = {}
    if runner in PROCESSES:
        cluster = {"kind": "local", "n_workers": PROCESSES[runner], "directory": directory}
    with _gram(n, k, "recompute", **cluster) as (gram, plan):
        if runner != "pool":
            gram.build()
            yield lambda block: gram.multiply(block).product, plan
            return
        with ThreadPoolExecutor(plan.n_threads) as pool:
            yield _bare_pass(pool, n, plan), plan


def _bare_pass(pool: ThreadPoolExecutor, n: int, plan: Any) -> Callable[[Any], Any]:
    """The package's own work on each tile, without the package's graphs: a bare pool takes the tiles in order."""
    from scalable_kpca.gram.products import computed_strips, multiply_tile, strips_of_tile
    from scalable_kpca.kernels import resolve_kernel
    from scalable_kpca.source import ArrayRows

    rows, kernel = ArrayRows(manifold(n)), resolve_kernel("rbf", gamma=GAMMA, n_features=N_FEATURES)
    tiling = plan.tiling

    def one_pass(block: Any) -> Any:
        vectors = np.hstack([block, np.ones((n, 1), block.dtype)])
        image = np.zeros(vectors.shape)

        def product(tile: tuple[int, int]) -> Any:
            i, j = tile
            strips = computed_strips(strips_of_tile(kernel, rows, tiling, i, j, plan.dtype), tiling, i, j)
            sides = vectors[tiling.block(i)], vectors[tiling.block(j)]
            return multiply_tile(strips, *sides, diagonal=i == j, measure=False)

        tiles = list(tiling.tiles())
        for (i, j), found in zip(tiles, pool.map(product, tiles), strict=True):
            image[tiling.block(i)] += found.row_part
            if found.column_part is not None:
                image[tiling.block(j)] += found.column_part
        return image[:, :-1]

    return one_pass


def _block(n: int, columns: int) -> Any:
    return np.random.default_rng(1).standard_normal((n, columns), np.float32)


def _evaluated_entries(tiling: Any) -> int:
    """Kernel values that one recompute pass evaluates: strips of a diagonal tile begin at the diagonal."""
    from scalable_kpca.kernels import STRIP_ROWS

    total = 0
    for i, j in tiling.tiles():
        rows, columns = tiling.length(i), tiling.length(j)
        if i != j:
            total += rows * columns
        else:
            total += sum(min(STRIP_ROWS, rows - at) * (rows - at) for at in range(0, rows, STRIP_ROWS))
    return total


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "plain")


def _forget(directory: Path) -> int:
    """Flush every file to the disk and drop it from the page cache; bytes of the tiles."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return sum(path.stat().st_size for path in _files(directory))


def _write_noise(path: Path, n_bytes: int) -> None:
    """A file that no disk can compress, in pieces of `PIECE`."""
    rng = np.random.default_rng(2)
    with path.open("wb") as file:
        for start in range(0, n_bytes, PIECE):
            file.write(rng.bytes(min(PIECE, n_bytes - start)))
