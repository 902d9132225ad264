"""Integers only: rows of a tile, tiles of a task, and the bytes that tasks and solvers hold.

Everything here follows from the shape of the job, its memory limit and its threads; no clock is asked, so that the same
job has the same tiles on the day after a calibration. [docs/decisions/0008]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from scalable_kpca.kernels import STRIP_ROWS
from scalable_kpca.tiling.tiles import Tiling

__all__ = [
    "BASIS_BLOCKS",
    "CERTIFIED_COLUMNS",
    "EXTRA_COLUMNS",
    "FEWEST_BASIS_BLOCKS",
    "LARGEST_TILE",
    "PROBE_BYTES",
    "PROCESS_BYTES",
    "RANDOM_COLUMNS",
    "SMALL_BLOCK",
    "START_LANDMARKS",
    "Job",
    "arpack_vectors",
    "fixed_bytes",
    "kept_bytes",
    "peak_bytes",
    "run_width",
    "segment_width",
    "share_bytes",
    "start_landmarks",
    "stored_bytes",
    "tile_candidates",
]

EXTRA_COLUMNS = 12  # of the Krylov block beside the wanted ones: fewer passes, more work in each
RANDOM_COLUMNS = 4  # of them random, so that no eigenvector is out of reach
BASIS_BLOCKS = 8  # blocks of the Krylov basis before a restart
FEWEST_BASIS_BLOCKS = 4  # where memory holds no more
PROBE_BYTES = 64 * 2**20  # more of the probe's basis: with few rows it may look far
SQUARE_ARRAYS = 8  # of the size of the basis
CERTIFIED_COLUMNS = 64  # of a pass that measures residuals
START_LANDMARKS = 600  # of the Nyström start block, at most
START_BYTES = 16 * 2**20  # that it takes of what is kept for the process itself, which then has not grown yet

LARGEST_TILE = 4096  # 64 MiB of float32: a disk streams it, and two fit beside each other in a small limit
SMALLEST_TILE = 256  # one strip
TILES_A_SIDE = 8  # below this many blocks two or more threads wait for one another
# Operations of a tile, t²·(d + `VALUE_COST`): of a smaller one a task's own millisecond is a good part.
WORTH_A_TASK, VALUE_COST = 1.2e8, 100

RUN_ROWS = 32_768  # tiles of a run, side by side: 2²⁷ entries of the largest tile, 0.5 s at 0.25 G entries/s
TASKS_A_THREAD = 8  # at least, so that no thread waits long for the last one
FEWEST_THREADS = 4  # that are planned for: one to four threads run the same tasks, and add in the same order
MOST_TASKS = 10_000  # a pass: a scheduler keeps them all in memory
SCHEDULED_ENTRIES = 500_000  # that a thread evaluates while a scheduler of processes deals with one task: 2 ms

# Resident size of the interpreter with every import of a run, and what the allocator and the thread stacks keep;
# measured at 180 to 215 MiB.
PROCESS_BYTES = 240 * 2**20
SMALL_BLOCK = 4 * 2**20  # of rows: of such what the allocator keeps is in there too


@dataclass(frozen=True)
class Job:
    """An exact fit as far as its cost goes.

    Attributes
    ----------
    n_samples, n_features, n_components : int
        Shape; `n_components` is 0 where the spectrum decides the number.
    dtype, solver : str
        Of the tiles; resolved name.
    n_threads, n_workers : int
        Concurrent tasks of a process; processes that share tasks and tiles.
    resident_bytes : int
        Of the caller's rows that stay in memory.
    copied_bytes : int
        Of rows that the model copies in the end, when tasks and tiles are gone.
    basis_blocks : int
        Blocks of the Krylov basis before a restart.
    """

    n_samples: int
    n_features: int
    n_components: int
    dtype: str
    solver: str
    n_threads: int
    resident_bytes: int = 0
    copied_bytes: int = 0
    n_workers: int = 1
    basis_blocks: int = BASIS_BLOCKS

    @property
    def n_parallel(self) -> int:
        """Tasks at the same time, in all processes."""
        return self.n_threads * self.n_workers

    @property
    def itemsize(self) -> int:
        """Bytes of a tile's entry."""
        return 8 if self.dtype == "float64" else 4

    @property
    def product_dtype(self) -> str:
        """Of the products with tiles. [docs/decisions/0003]"""
        return "float32" if self.solver == "block_krylov" and self.dtype == "float32" else "float64"

    @property
    def block_columns(self) -> int:
        """Columns of a block solver, and of the block that looks for what another solver missed; 0 for dense.

        An unknown number of components starts with ten.
        """
        if self.solver == "dense":
            return 0
        return min((self.n_components or 10) + EXTRA_COLUMNS, self.n_samples)

    @property
    def max_basis(self) -> int:
        """Columns of the Krylov basis before a restart; 0 for dense."""
        return self.basis_blocks * self.block_columns

    @property
    def pass_columns(self) -> int:
        """Columns of the widest product, with the column of ones."""
        certified = min(self.n_components or self.n_samples, CERTIFIED_COLUMNS)
        return 1 + max(self.block_columns, certified if self.solver in ("dense", "arpack") else 0)


def arpack_vectors(n_samples: int, n_components: int) -> int:
    """Lanczos vectors that ARPACK keeps: scipy's default, named here because memory is planned with it."""
    return min(n_samples, max(2 * n_components + 1, 20))


def tile_candidates(n_samples: int, n_features: int) -> Iterator[int]:
    """Tile sizes from the largest down; all blocks are nearly equal, so that no padded tile wastes the disk."""
    worth_it = max(SMALLEST_TILE, isqrt(int(WORTH_A_TASK / (n_features + VALUE_COST))))
    largest = min(LARGEST_TILE, max(worth_it, -(-n_samples // TILES_A_SIDE)))
    n_blocks = -(-n_samples // largest)
    while True:
        rows = -(-n_samples // n_blocks)
        t = -(-rows // 8) * 8
        yield min(t, n_samples)
        if t <= SMALLEST_TILE:
            return
        n_blocks += max(1, n_blocks // 4)


def run_width(n_samples: int, tile_rows: int, n_threads: int, n_workers: int = 1) -> int:
    """Tiles of a task: as many as make it worth scheduling, as few as keep every thread busy to the end.

    Notes
    -----
    Up to `RUN_ROWS` rows side by side; fewer when that leaves less than `TASKS_A_THREAD` tasks a thread; more when a
    pass would have more than `MOST_TASKS`. Processes get no narrower runs for tasks that their scheduler, which deals
    with one after another, could not give out while they work. At n = 100 000 on two threads: 8 tiles of 4000 rows, 52
    tasks a pass.
    """
    tiling, n_parallel = Tiling(n_samples, tile_rows), max(n_threads * n_workers, FEWEST_THREADS)
    n_enough = TASKS_A_THREAD * n_parallel
    if n_workers > 1:
        dealt = n_samples**2 // 2 // (n_parallel * SCHEDULED_ENTRIES)
        n_enough = min(n_enough, max(TASKS_A_THREAD * FEWEST_THREADS, dealt))
    widest = min(tiling.n_blocks, max(1, RUN_ROWS // tile_rows))
    # the number of tasks falls as runs get wider
    enough, most = -n_enough, -MOST_TASKS
    balanced = bisect_right(range(1, widest + 1), enough, key=lambda width: -tiling.n_tasks(width))
    schedulable = bisect_left(range(1, tiling.n_blocks), most, key=lambda width: -tiling.n_tasks(width)) + 1
    return max(1, balanced, schedulable)


def segment_width(tile_rows: int, tiles_per_task: int) -> int:
    """Blocks of a segment, whose sum is one chain: `RUN_ROWS` rows, or as many as a task's where these are more."""
    return max(tiles_per_task, RUN_ROWS // tile_rows)


def fixed_bytes(job: Job) -> int:
    """Bytes of the process before the first tile: interpreter, rows, vectors of the solver."""
    return PROCESS_BYTES + job.resident_bytes + _solver_bytes(job)


def kept_bytes(job: Job, home: str, tile_rows: int) -> int:
    """Bytes of tiles that stay in memory, in all processes together."""
    return Tiling(job.n_samples, tile_rows).n_entries * job.itemsize if home == "memory" else 0


def share_bytes(job: Job, home: str, tile_rows: int) -> int:
    """Bytes of tiles that stay in the memory of one of several processes, were they shared out evenly."""
    return -(-kept_bytes(job, home, tile_rows) // job.n_workers)


def stored_bytes(job: Job, home: str, tile_rows: int) -> int:
    """Bytes of tiles on disk, each padded to its full size."""
    return Tiling(job.n_samples, tile_rows).n_tiles * tile_rows**2 * job.itemsize if home == "zarr" else 0


def peak_bytes(job: Job, home: str, tile_rows: int) -> int:
    """Planned peak of the process in bytes: what is fixed, kept, and in one task a thread; or the copy after them."""
    tasks = job.n_threads * _task_bytes(job, home, tile_rows)
    peak = fixed_bytes(job) + share_bytes(job, home, tile_rows) + tasks
    if not job.copied_bytes:
        return peak
    eigenpairs = 16 * job.n_samples * (job.n_components or min(job.max_basis or job.n_samples, job.n_samples))
    # the allocator keeps what tasks have given back
    return max(peak, PROCESS_BYTES + job.resident_bytes + job.copied_bytes + eigenpairs + tasks)


def start_landmarks(job: Job, tile_rows: int) -> int:
    """Landmarks of the Nyström start block: `START_LANDMARKS`, or as many as the memory of a pass's tasks can hold.

    Notes
    -----
    Wide rows are what limits them. The landmarks are there as read and in float64, and every task has them folded, the
    folded ones in float32, three forms of its own rows, and its block of C; a basis takes 5·m² before the tasks. The
    same number for one to four threads, as all that decides about bits.
    """
    return min(_start_landmarks(job, tile_rows, n_threads) for n_threads in (1, max(FEWEST_THREADS, job.n_threads)))


def _start_landmarks(job: Job, tile_rows: int, n_threads: int) -> int:
    t, row = min(tile_rows, job.n_samples), 8 * (job.n_features + 2)
    room = START_BYTES + n_threads * (_pass_bytes(job, tile_rows) - 3 * t * row)
    landmark = (2 + 3 * n_threads / 2) * row + 12 * t * n_threads + 40 * START_LANDMARKS
    return max(1, min(START_LANDMARKS, job.n_samples, int(room / landmark)))


def _solver_bytes(job: Job) -> int:
    n, k = job.n_samples, job.n_components
    if job.solver == "dense":
        # K̃ and what it is made from, or eigenvectors with their reordered copy and what goes into the model
        kept = min(k or n, n)
        return (3 * n + 2 * kept) * n * 8 + 5 * n * CERTIFIED_COLUMNS * 8
    # the basis, and beside that of a probe what the solve has found, half as much; image, block, vectors in float32,
    # sums and products that wait for them: of block Krylov itself, and after every other solver of the probe, which may
    # have more columns for few rows
    krylov = n * 8 * (3 * job.max_basis // 2 + 10 * job.block_columns) + min(PROBE_BYTES, 16 * n * n)
    # the projected matrix, its eigenvectors, inner products of residuals, and LAPACK's copies of them
    krylov += 8 * SQUARE_ARRAYS * min(job.max_basis, n) ** 2
    # Lanczos vectors, ARPACK's work arrays, eigenvectors with their image and residual in the certificate
    arpack = n * 8 * (arpack_vectors(n, k) + 6 + 5 * k) if job.solver == "arpack" else 0
    return max(krylov, arpack)


def _task_bytes(job: Job, home: str, tile_rows: int) -> int:
    t = min(tile_rows, job.n_samples)
    tile, strips = t * t * job.itemsize, _strip_bytes(t)
    kept = max(0, t * (job.n_features + 2) * 8 - SMALL_BLOCK)  # by the allocator, of a block that was freed
    # a store is written and read strip by strip, but for tiles on the diagonal, which are written whole
    return _pass_bytes(job, t) + kept + (tile + strips if home == "zarr" else 0)


def _pass_bytes(job: Job, tile_rows: int) -> int:
    t = min(tile_rows, job.n_samples)
    rows = 2 * t * (job.n_features + 2) * 8 * 3  # both sides: as read, in float64, folded
    # of a run: each tile's products with rows and with columns, and the latter once more under one another
    width = run_width(job.n_samples, tile_rows, job.n_threads, job.n_workers)
    products = 3 * min(width * t, job.n_samples) * job.pass_columns * 8 if width > 1 else 0
    return rows + _strip_bytes(t) + products


def _strip_bytes(t: int) -> int:
    """A strip as evaluated, as stored, and as measured, in float64 at most."""
    return 3 * min(STRIP_ROWS, t) * t * 8
