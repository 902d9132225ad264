"""Seconds of an exact fit, from the rates of a machine: arithmetic only, no clock."""

from __future__ import annotations

from functools import lru_cache

from scalable_kpca.tiling.choices import is_few
from scalable_kpca.tiling.rates import MachineRates
from scalable_kpca.tiling.sizes import (
    CERTIFIED_COLUMNS,
    START_LANDMARKS,
    Job,
    run_width,
    segment_width,
    stored_bytes,
)
from scalable_kpca.tiling.tiles import Tiling

__all__ = [
    "expected_passes",
    "fit_seconds",
    "pass_seconds",
    "solver_seconds",
    "staging_seconds",
    "start_seconds",
]

PROCESS_SECONDS = 1.5  # until a new process has imported what `skpca run` needs
ARPACK_PASSES = (30, 2)  # and for each component: 36 for 3 of them, 50 for 10, 94 for 30
PROBE_PASSES = 8  # of a block that looks for what ARPACK missed: 4 to 9
LANCZOS_SHARE = 0.1  # of the time of LAPACK: few pairs of a formed matrix, and the factorisation that proves them
# Of a scheduler's processor, for a key of a graph and for what one needs of another; measured, see docs/scaling.md.
SCHEDULER_KEY, SCHEDULER_EDGE = 0.45e-3, 66e-6
POWER_PASSES = {"float32": 15, "float64": 20}


def expected_passes(job: Job) -> int:
    """Visits of the whole matrix that a fit is expected to take, certificate included.

    Notes
    -----
    Constants, measured on spectra that decay: the plan does not know the spectrum. Block Krylov from a Nyström start
    takes 4 or 5, two more for the tighter tolerance of float64, and more where it is to reach a share of the variance.
    The dense solver takes one for sums and one for the matrix, from which it knows the residuals of a few pairs.
    """
    if job.solver == "block_krylov":
        return 5 if job.dtype == "float32" else 7
    if job.solver == "power":
        return POWER_PASSES[job.dtype]
    if job.solver == "arpack":
        return ARPACK_PASSES[0] + ARPACK_PASSES[1] * job.n_components + PROBE_PASSES + _certifying_passes(job)
    return 2 + _certifying_passes(job)


def pass_seconds(
    job: Job, home: str, tile_rows: int, rates: MachineRates, *, columns: int, first: bool = False
) -> float:
    """Seconds of one pass.

    Parameters
    ----------
    job : Job
    home : str
        Of the tiles.
    tile_rows : int
    rates : MachineRates
    columns : int
        Of the block, with the column of ones.
    first : bool
        Whether this is the pass that builds.

    Returns
    -------
    float

    Notes
    -----
    n²/2 entries are evaluated or fetched, and multiplied in both directions. Threads share them; the last task may
    keep one thread busy while the others are done. Of several processes none is faster than their scheduler.
    """
    n, tiling = job.n_samples, Tiling(job.n_samples, tile_rows)
    entries, product = n * n / 2, rates.product(job.product_dtype)
    busy = entries * (product.entry + product.column * columns)
    if first:
        busy += entries * product.measure
    if first or home == "recompute":
        busy += entries * (rates.entry + rates.feature * job.n_features)
        busy += rates.fold * tiling.n_blocks * (n * job.n_features + tile_rows * job.n_features)
    if first and home == "memory":
        busy += rates.keep * entries * job.itemsize
    width = run_width(n, tile_rows, job.n_threads, job.n_workers)
    n_tasks = tiling.n_tasks(width)
    share = 1 / job.n_parallel
    disk = _disk_seconds(stored_bytes(job, home, tile_rows), rates, writing=first)
    working = busy * (share + (1 - share) / n_tasks)
    if job.n_workers > 1:
        working = max(working, _scheduling_seconds(tiling, width))
    return working + disk + rates.task * n_tasks


def solver_seconds(job: Job, rates: MachineRates) -> float:
    """Seconds of the solver beside its passes, in one thread: orthogonalisation, or LAPACK."""
    n, passes = job.n_samples, expected_passes(job)
    if _is_lanczos(job):
        return LANCZOS_SHARE * rates.lapack * n**3
    if job.solver == "dense":
        wanted = (job.n_components or n) / n
        return rates.lapack * n**3 * (0.4 + 0.6 * wanted)
    if job.solver == "arpack":
        return rates.orthogonalise * n * max(20, 2 * job.n_components) * passes
    b = job.block_columns
    bases = range(1, passes + 1) if job.solver == "block_krylov" else [1] * passes
    widths = [min(blocks * b, job.max_basis) for blocks in bases]
    return rates.orthogonalise * n * b * sum(widths)


def start_seconds(job: Job, rates: MachineRates) -> float:
    """Seconds of the Nyström start block: kernel values with landmarks twice, their Gram matrix, two eigenproblems."""
    if job.solver not in ("block_krylov", "power"):
        return 0.0
    n, m = job.n_samples, min(START_LANDMARKS, job.n_samples)
    evaluated = 2 * n * m * (rates.entry + rates.feature * job.n_features)
    return (evaluated + 2 * n * m * m * rates.gemm) / job.n_parallel + 2 * rates.lapack * m**3


def staging_seconds(job: Job, rates: MachineRates, *, is_run: bool) -> float:
    """Seconds until rows can be read by tasks; `is_run` when a new process copies them from files to its directory."""
    numbers = job.n_samples * job.n_features
    if not is_run:
        return rates.stage * numbers
    # read for the digest, read for the copy, written twice: beside the tiles and into the model
    return PROCESS_SECONDS + rates.stage * numbers + 8 * numbers * (2 / rates.read + 2 / rates.flush)


@lru_cache(maxsize=1024)  # a plan asks for the same ways several times: to choose, to compare, to say why
def fit_seconds(job: Job, home: str, tile_rows: int, rates: MachineRates, *, is_run: bool = False) -> float:
    """Seconds of a whole fit: rows, start block, passes, solver, certificate.

    Parameters
    ----------
    job, home, tile_rows, rates
        What, where, how large, how fast.
    is_run : bool
        Whether this is a job of ``skpca run``, which starts a process and copies the rows.

    Returns
    -------
    float
    """
    certifying, probing = _certifying_passes(job), PROBE_PASSES if job.solver == "arpack" else 0
    n_passes = expected_passes(job) - certifying - probing
    # the column of ones rides along; ARPACK multiplies one vector, and the dense solver asks for sums alone
    columns = 1 + {"arpack": 1, "dense": 0}.get(job.solver, job.block_columns)

    def one(columns: int, *, first: bool = False) -> float:
        return pass_seconds(job, home, tile_rows, rates, columns=columns, first=first)

    passes = one(columns, first=True) + (n_passes - 1) * one(columns)
    passes += certifying * one(job.pass_columns) + probing * one(1 + job.block_columns)
    beside = start_seconds(job, rates) + solver_seconds(job, rates)
    return staging_seconds(job, rates, is_run=is_run) + beside + passes


def _scheduling_seconds(tiling: Tiling, width: int) -> float:
    """Seconds of a scheduler of worker processes with a pass: vectors, runs, sums of segments, finished blocks."""
    segments = tiling.segments(segment_width(tiling.tile_rows, width))
    runs, sums = tiling.n_tasks(width), sum(segment.stop for segment in segments)
    # a run takes the vectors of its tiles and block row, and is taken by two or three sums; a sum by the next one
    edges = tiling.n_tiles + 4 * runs + 2 * sums
    return SCHEDULER_KEY * (2 * tiling.n_blocks + runs + sums) + SCHEDULER_EDGE * edges


def _is_lanczos(job: Job) -> bool:
    return job.solver == "dense" and is_few(job.n_samples, job.n_components)


def _certifying_passes(job: Job) -> int:
    if job.solver not in ("arpack", "dense") or _is_lanczos(job):
        return 0
    return -(-(job.n_components or job.n_samples) // CERTIFIED_COLUMNS)


def _disk_seconds(n_bytes: int, rates: MachineRates, *, writing: bool) -> float:
    if not writing:
        return n_bytes / (rates.reread if n_bytes <= rates.cache_bytes else rates.read)
    # the system takes a share of the cache before a writer has to wait for the disk
    waiting = max(0, n_bytes - rates.cache_bytes // 4)
    return n_bytes / rates.write + max(0.0, waiting / rates.flush - waiting / rates.write)
