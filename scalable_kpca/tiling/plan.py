"""The plan of an exact fit: what it will do, how long that takes, and what else it could have done.

Nothing here touches an array, a clock or a file, so that a plan for 10⁶ rows costs microseconds and can be checked
against what happened. Integers (`sizes`) decide solver, dtype, tiles and tasks; rates (`costs`) decide only where the
tiles live, and say how long it takes. [docs/decisions/0008]
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from dask.utils import format_bytes

from scalable_kpca.errors import MemoryLimitError
from scalable_kpca.tiling.choices import (
    Components,
    check_choices,
    check_components,
    check_whole,
    choose_dtype,
    choose_solver,
)
from scalable_kpca.tiling.costs import expected_passes
from scalable_kpca.tiling.homes import Alternative, Limits, choose_home, choose_tile, compare
from scalable_kpca.tiling.rates import MachineRates, nominal_rates
from scalable_kpca.tiling.sizes import (
    BASIS_BLOCKS,
    FEWEST_BASIS_BLOCKS,
    SMALL_BLOCK,
    Job,
    run_width,
    start_landmarks,
    stored_bytes,
)
from scalable_kpca.tiling.tiles import Tiling

__all__ = ["Plan", "plan_exact"]


@dataclass(frozen=True)
class Plan:
    """What an exact fit will do, decided before anything is computed.

    Attributes
    ----------
    n_samples, n_features, n_components : int
        Shape of the job. `n_components` is 0 where the number is decided by the spectrum.
    dtype : str
        Of a tile: ``"float64"`` or ``"float32"``.
    solver : str
        ``"dense"``, ``"arpack"``, ``"block_krylov"`` or ``"power"``.
    product_dtype : str
        Of the products with tiles; sums over tiles are float64.
    block_columns, max_basis : int
        Columns of a block and of the Krylov basis before a restart; 0 for solvers without.
    start_landmarks : int
        Of the Nyström approximation that block solvers start from.
    gram : str
        Home of the tiles: ``"zarr"``, ``"memory"`` or ``"recompute"``.
    tile_rows, tiles_per_task, n_threads, n_workers : int
        Unit of storage, unit of scheduling, concurrent tasks of a process, processes.
    n_tiles, n_tasks, expected_passes : int
        Tiles, tasks of one pass, passes that the solver is expected to take.
    gram_bytes, disk_bytes, peak_memory, memory_limit : int
        Bytes of all tiles that are kept, and of those on disk; planned and allowed peak of the process.
    seconds : float or None
        Expected time of the fit; None when the plan was made without rates.
    alternatives : tuple of Alternative
        What was compared, the chosen one among them.
    reasons : tuple of str
        Why each choice was made, one sentence each.
    """

    n_samples: int
    n_features: int
    n_components: int
    dtype: str
    solver: str
    product_dtype: str
    block_columns: int
    max_basis: int
    start_landmarks: int
    gram: str
    tile_rows: int
    tiles_per_task: int
    n_threads: int
    n_workers: int
    n_tiles: int
    n_tasks: int
    expected_passes: int
    gram_bytes: int
    disk_bytes: int
    peak_memory: int
    memory_limit: int
    seconds: float | None
    alternatives: tuple[Alternative, ...]
    reasons: tuple[str, ...]

    @property
    def method(self) -> str:
        """``"exact"``."""
        return "exact"

    @property
    def tiling(self) -> Tiling:
        """The tiles."""
        return Tiling(self.n_samples, self.tile_rows)

    @property
    def has_wide_rows(self) -> bool:
        """Whether blocks of rows are so large that the allocator keeps much of what is freed."""
        return 8 * self.tile_rows * self.n_features > SMALL_BLOCK

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        fields = asdict(self)
        return {
            "method": self.method,
            **fields,
            "alternatives": list(fields["alternatives"]),
            "reasons": list(self.reasons),
        }


def plan_exact(
    n_samples: int,
    n_features: int,
    *,
    n_components: int | float | None = None,
    dtype: str = "auto",
    solver: str = "auto",
    gram: str = "auto",
    memory_limit: int,
    n_threads: int,
    n_workers: int = 1,
    tile_rows: int | None = None,
    has_disk: bool = True,
    disk_limit: int | None = None,
    resident_bytes: int = 0,
    copied_bytes: int = 0,
    rates: MachineRates | None = None,
    is_run: bool = False,
    compares: bool = True,
) -> Plan:
    """Plan an exact fit within limits of memory and disk.

    Parameters
    ----------
    n_samples, n_features : int
        Shape of the training rows.
    n_components : int, float or None
        Wanted components; a fraction of variance; or None for all.
    dtype : {"auto", "float64", "float32"}
        Of a tile. ``"auto"`` is float64 up to `DENSE_LIMIT` rows and float32 above.
    solver : {"auto", "dense", "arpack", "block_krylov", "power"}
        ``"auto"`` is dense up to `DENSE_LIMIT` rows or when all or a quarter of the components are wanted, block Krylov
        otherwise.
    gram : {"auto", "zarr", "memory", "recompute"}
        ``"auto"`` is the fastest home by the rates among those that fit: in memory tiles may take half of what the
        limit leaves, on disk what `disk_limit` allows; a store has to save a seventh of the time.
    memory_limit : int
        Peak of the whole process, bytes.
    n_threads : int
        Tasks that run at the same time in a process.
    n_workers : int
        Processes that share tasks and tiles; `memory_limit` is that of each.
    tile_rows : int, optional
        Overrides the choice.
    has_disk : bool
        Whether there is a working directory for the zarr home.
    disk_limit : int, optional
        Bytes that tiles may take there.
    resident_bytes : int
        Bytes of the caller's rows that stay in memory during the fit.
    copied_bytes : int
        Bytes of rows that the model copies in the end.
    rates : MachineRates, optional
        Of this machine; without them homes are compared by nominal ones, and `seconds` is None.
    is_run : bool
        Whether the fit is a job with a process and copies of its rows, which take time too.
    compares : bool
        Whether other homes and solvers are listed beside the chosen one: most of what a plan costs.

    Returns
    -------
    Plan

    Raises
    ------
    MemoryLimitError
        Naming the smallest `memory_limit` that works.
    ConfigError
        When options exclude one another, or the disk cannot hold the tiles that were asked for.
    """
    n_components = check_components(n_components)
    given = None if tile_rows is None else min(check_whole("tile_rows", tile_rows), check_whole("n_samples", n_samples))
    check_choices(dtype, solver, gram, has_disk=has_disk)
    job, reasons = _job(n_samples, n_features, n_components, dtype, solver, n_threads, resident_bytes, copied_bytes)
    job = replace(job, n_workers=check_whole("n_workers", n_workers))
    limits = Limits(memory_limit, disk_limit, has_disk, rates or nominal_rates("rbf", job.dtype), is_run)
    job, t = _fitting(job, gram, given, limits)
    home = choose_home(job, gram, t, limits)
    alternatives = compare(job, home, t, limits, n_components, gram=gram, solver=solver, alone=not compares)
    if rates is None:
        alternatives = tuple(replace(alternative, seconds=None) for alternative in alternatives)
    tiling, width = Tiling(job.n_samples, t), run_width(job.n_samples, t, job.n_threads, job.n_workers)
    return Plan(
        n_samples=job.n_samples,
        n_features=job.n_features,
        n_components=job.n_components,
        dtype=job.dtype,
        solver=job.solver,
        product_dtype=job.product_dtype,
        block_columns=job.block_columns,
        max_basis=job.max_basis,
        start_landmarks=start_landmarks(job, t),
        gram=home,
        tile_rows=t,
        tiles_per_task=width,
        n_threads=n_threads,
        n_workers=n_workers,
        n_tiles=tiling.n_tiles,
        n_tasks=tiling.n_tasks(width),
        expected_passes=expected_passes(job),
        gram_bytes=alternatives[0].n_bytes,
        disk_bytes=stored_bytes(job, home, t),
        peak_memory=alternatives[0].peak_memory,
        memory_limit=memory_limit,
        seconds=alternatives[0].seconds,
        alternatives=alternatives,
        reasons=(*reasons, *_basis_reasons(job), _home_reason(job, home, t, limits)),
    )


def _job(
    n_samples: int,
    n_features: int,
    n_components: Components,
    dtype: str,
    solver: str,
    n_threads: int,
    resident_bytes: int,
    copied_bytes: int,
) -> tuple[Job, list[str]]:
    n_samples, n_features = check_whole("n_samples", n_samples), check_whole("n_features", n_features)
    solver, reasons = choose_solver(solver, n_samples, n_components)
    dtype, more = choose_dtype(dtype, n_samples)
    wanted = n_components if isinstance(n_components, int) else 0
    job = Job(n_samples, n_features, wanted, dtype, solver, n_threads, resident_bytes, copied_bytes)
    return job, [*reasons, *more]


def _fitting(job: Job, gram: str, given: int | None, limits: Limits) -> tuple[Job, int]:
    """The job with as many blocks in its Krylov basis as the limit holds beside the smallest tile, and its tile."""
    if job.block_columns:
        for blocks in range(BASIS_BLOCKS, FEWEST_BASIS_BLOCKS, -1):
            with suppress(MemoryLimitError):
                wide = replace(job, basis_blocks=blocks)
                return wide, choose_tile(wide, gram, given, limits)
        job = replace(job, basis_blocks=FEWEST_BASIS_BLOCKS)
    return job, choose_tile(job, gram, given, limits)


def _basis_reasons(job: Job) -> list[str]:
    if not job.block_columns or job.basis_blocks == BASIS_BLOCKS:
        return []
    return [
        f"basis of {job.basis_blocks} blocks: the limit does not hold {BASIS_BLOCKS}; where more passes are needed it "
        "is compressed in between, which may cost some more"
    ]


def _home_reason(job: Job, home: str, tile_rows: int, limits: Limits) -> str:
    entries = format_bytes(Tiling(job.n_samples, tile_rows).n_entries * job.itemsize)
    rates = "measured" if limits.rates.is_measured else "nominal"
    tiles = {
        "memory": "fit in memory",
        "recompute": f"are evaluated again in every pass, with {job.n_features} features",
        "zarr": "are written once and read in every pass",
    }[home]
    return f"gram={home}: {entries} of {job.dtype} tiles {tiles}; compared by {rates} rates"
