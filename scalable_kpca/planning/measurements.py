"""How fast this machine does what a fit consists of: the package's own code on small inputs, under the clock.

Every function returns rates by name, for `calibration` to keep. A rate of arithmetic is measured on as many threads as
a fit will use, each with its own arrays, because they share the memory's bandwidth.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.disk import sync_tree
from scalable_kpca.gram import PassResult, TileCounts, create_tiles
from scalable_kpca.gram.products import computed_strips, multiply_tile, tile_strips
from scalable_kpca.kernels import STRIP_ROWS, Kernel, TileStrips, resolve_kernel
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers import solve_block_krylov
from scalable_kpca.tiling import Tiling

__all__ = ["measure_algebra", "measure_disk", "measure_evaluation", "measure_products"]

Rates = dict[str, float]
Work = Callable[[], object]

MOST_THREADS = 16  # beyond, memory of the measurement would show, and bandwidth is shared out already
SHORTEST = 0.2  # seconds of repeating: the shortest time counts, what disturbs and warms up only ever adds

TILE = (512, 4096)  # two strips as wide as those of a large tile
FINISHED_BYTES = 64 * 2**20  # of the tiles that all threads go through: more than a cache holds
FRESH_BYTES, FRESH_THREADS = 40 * 2**20, 4  # beyond what the allocator takes from memory that it has
FEATURES = (32, 256)
COLUMNS = (2, 24)

STORED_TILE, STORED_BLOCKS = 2048, 5  # 15 tiles, 240 MiB of float32
STORED_ROOM = 2**30  # bytes that have to be free for them

KRYLOV = (32_768, 22, 4)  # rows, columns of a block, passes
LANDMARKS = 600


def measure_evaluation(kernel: str, dtype: str, n_threads: int) -> Rates:
    """Seconds of a kernel value: ``entry``, ``feature`` in addition; and ``fold``, to prepare a number of a row.

    Notes
    -----
    Strips are evaluated and multiplied as in a pass, and the products of finished tiles subtracted: what is left is
    what a pass that evaluates takes more than one over tiles in memory.
    """
    product = _finished(dtype, dtype, COLUMNS[-1], n_threads)
    fused, fold = [], []
    for d in FEATURES:
        made = resolve_kernel(kernel, gamma=1 / d, n_features=d)
        entries = [_Evaluated(made, dtype, d) for _ in range(_threads(n_threads))]
        fold.append(_seconds(work.prepare for work in entries) / (sum(TILE) * d))
        fused.append(_seconds(work.multiply for work in entries) / (TILE[0] * TILE[1]))
    feature = max(0.0, (fused[1] - fused[0]) / (FEATURES[1] - FEATURES[0]))
    return {"entry": max(0.0, fused[0] - feature * FEATURES[0] - product), "feature": feature, "fold": min(fold)}


def measure_products(dtype: str, product_dtype: str, n_threads: int) -> Rates:
    """Seconds an entry of a finished tile takes to be multiplied: ``entry``, ``column``, ``measure``; ``keep`` a byte.

    ``keep`` is a byte of a tile on its way into fresh memory.
    """
    narrow, wide = (_finished(dtype, product_dtype, columns, n_threads) for columns in COLUMNS)
    measured = _finished(dtype, product_dtype, COLUMNS[1], n_threads, measure=True)
    column = max(0.0, (wide - narrow) / (COLUMNS[1] - COLUMNS[0]))
    keep = _seconds(partial(np.ones, FRESH_BYTES, np.uint8) for _ in range(min(n_threads, FRESH_THREADS)))
    return {
        "entry": max(0.0, narrow - column * COLUMNS[0]),
        "column": column,
        "measure": max(0.0, measured - wide),
        "keep": keep / FRESH_BYTES,
    }


def measure_algebra(n_threads: int) -> Rates:
    """Seconds of dense algebra: ``gemm`` a flop in float32, ``lapack`` over n³, ``orthogonalise`` a Krylov step."""
    rng = np.random.default_rng(0)
    crosses = [rng.random((2048, LANDMARKS), np.float32) for _ in range(_threads(n_threads))]
    gemm = _seconds(partial(_squared, cross) for cross in crosses) / (2 * 2048 * LANDMARKS**2)
    symmetric = crosses[0].T.astype(np.float64) @ crosses[0]
    lapack = _seconds([lambda: scipy.linalg.eigh(symmetric)]) / LANDMARKS**3
    n, b, n_passes = KRYLOV
    start = rng.standard_normal((n, b))
    steps = _seconds([lambda: _krylov(start, n_passes)])
    return {"gemm": gemm, "lapack": lapack, "orthogonalise": steps / (n * b * b * n_passes * (n_passes + 1) / 2)}


def measure_disk(directory: Path, n_threads: int) -> Rates:
    """Bytes a second of stored tiles in a directory: ``write``, ``flush``, ``read`` from disk, ``reread`` from memory.

    Notes
    -----
    240 MiB are written and removed. Where the directory cannot be written to, or has less than a gigabyte free, there
    is no rate.
    """
    tiling = Tiling(STORED_BLOCKS * STORED_TILE, STORED_TILE)
    at = list(tiling.tiles())
    n_bytes = len(at) * STORED_TILE**2 * 4
    strip = np.random.default_rng(0).random((STRIP_ROWS, STORED_TILE), np.float32)
    sums = np.zeros(STORED_TILE)
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".skpca-speed-", dir=directory) as name,
            ThreadPoolExecutor(min(n_threads, MOST_THREADS // 2)) as pool,
        ):
            if _free(directory) < STORED_ROOM:
                return {}
            tiles = create_tiles(Path(name, "gram.zarr"), tiling, "float32", name, {})

            def write(i: int, j: int) -> None:
                with tiles.writing(i, j) as chunk:
                    for _ in range(STORED_TILE // STRIP_ROWS):
                        chunk.append(strip)
                tiles.commit(i, j, sums, sums)

            def read_all(i: int, j: int) -> None:
                for _ in tiles.strips(i, j):
                    pass

            def timed(visit: Callable[[int, int], None]) -> float:
                started = time.perf_counter()
                list(pool.map(lambda place: visit(*place), at))
                return time.perf_counter() - started

            written = timed(write)
            started = time.perf_counter()
            sync_tree(Path(name))
            flushed = written + time.perf_counter() - started
            _forget(Path(name))
            read, reread = timed(read_all), min(timed(read_all) for _ in range(2))
    except OSError:
        return {}
    seconds = {"write": written, "flush": flushed, "read": read, "reread": reread}
    return {name: n_bytes / value for name, value in seconds.items()}


class _Evaluated:
    """One tile of random rows beside random rows."""

    def __init__(self, kernel: Kernel, dtype: str, d: int) -> None:
        rng = np.random.default_rng(0)
        self._rows, self._columns = (rng.standard_normal((n, d)).astype(dtype) for n in TILE)
        self._w_rows, self._w_columns = (rng.standard_normal((n, COLUMNS[-1])).astype(dtype) for n in TILE)
        self._kernel, self._dtype = kernel, dtype
        self._strips = self.prepare()

    def prepare(self) -> TileStrips:
        rows, columns = self._rows.astype(np.float64), self._columns.astype(np.float64)
        return TileStrips(self._kernel, rows, columns, dtype=self._dtype)

    def multiply(self) -> object:
        strips = computed_strips(self._strips, Tiling(sum(TILE), max(TILE)), 0, 1)
        return multiply_tile(strips, self._w_rows, self._w_columns, diagonal=False, measure=False)


def _finished(dtype: str, product_dtype: str, columns: int, n_threads: int, *, measure: bool = False) -> float:
    """Seconds an entry of tiles in memory takes to be multiplied; each thread begins with another tile."""
    rng = np.random.default_rng(0)
    n_tiles = max(1, FINISHED_BYTES // (TILE[0] * TILE[1] * np.dtype(dtype).itemsize))
    tiles = [rng.random(TILE).astype(dtype) for _ in range(n_tiles)]
    w_rows, w_columns = (rng.standard_normal((n, columns)).astype(product_dtype) for n in TILE)

    def multiply(first: int) -> None:
        for tile in (*tiles[first:], *tiles[:first]):
            multiply_tile(tile_strips(tile, diagonal=False), w_rows, w_columns, diagonal=False, measure=measure)

    threads = _threads(n_threads)
    each = [partial(multiply, i * n_tiles // threads) for i in range(threads)]
    return _seconds(each) / (n_tiles * TILE[0] * TILE[1])


def _squared(cross: NDArray[Any]) -> NDArray[Any]:
    product: NDArray[Any] = cross.T @ cross
    return product


def _krylov(start: NDArray[np.float64], n_passes: int) -> None:
    """Block Krylov steps on a diagonal matrix, whose products cost next to nothing."""
    calls = iter(range(1, n_passes + 1))

    def count(*_: object) -> int | None:
        return 1 if next(calls) == n_passes else None

    solve_block_krylov(CenteredGram(_Diagonal(len(start))), start, count, tol=np.inf, max_basis=8 * start.shape[1])


class _Diagonal:
    """The matrix diag(1, 2, …, n)/n in the place of a Gram matrix."""

    dtype = "float64"

    def __init__(self, n: int) -> None:
        self.tiling, self._values = Tiling(n, n), np.arange(1, n + 1)[:, None] / n

    def build(self, block: NDArray[Any] | None = None) -> PassResult:
        return self.multiply(np.empty((len(self._values), 0)) if block is None else block)

    def multiply(self, block: NDArray[Any]) -> PassResult:
        return PassResult(self._values * block, self._values[:, 0], 1.0, 0.0, TileCounts(), [])

    def to_array(self) -> NDArray[Any]:
        return np.diag(self._values[:, 0])


def _seconds(works: Iterable[Work]) -> float:
    """Shortest time in which all works are done at the same time, a thread each."""
    works = list(works)
    times: list[float] = []
    with ThreadPoolExecutor(len(works)) as pool:
        while not times or sum(times) < SHORTEST:
            started = time.perf_counter()
            for done in [pool.submit(work) for work in works]:
                done.result()
            times.append(time.perf_counter() - started)
    return min(times)


def _threads(n_threads: int) -> int:
    return min(n_threads, MOST_THREADS)


def _free(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def _forget(root: Path) -> None:
    """Ask the system to drop what it holds in memory of the files below."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in root.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
