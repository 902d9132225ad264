"""Where the tiles of a fit may live, how large they are, and what each choice costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dask.utils import format_bytes

from scalable_kpca.errors import ConfigError, MemoryLimitError
from scalable_kpca.tiling.choices import GRAM_HOMES, Components, is_possible
from scalable_kpca.tiling.costs import expected_passes, fit_seconds
from scalable_kpca.tiling.rates import MachineRates
from scalable_kpca.tiling.sizes import (
    Job,
    fixed_bytes,
    kept_bytes,
    peak_bytes,
    share_bytes,
    stored_bytes,
    tile_candidates,
)

__all__ = ["Alternative", "Limits", "choose_home", "choose_tile", "compare"]

SMALLEST_STORED = 1024  # rows: "auto" stores no smaller tiles, a file each is not worth them
WORTH_STORING = 1.15  # times slower without a store, before "auto" fills a disk


@dataclass(frozen=True)
class Alternative:
    """One way to do the job, taken or not.

    Attributes
    ----------
    gram, solver : str
        Home of the tiles, solver.
    tile_rows, n_bytes, passes : int
        Rows of a tile; bytes of all tiles where they are kept; expected passes.
    seconds : float or None
        Expected time; None without rates.
    peak_memory : int
        Planned peak, bytes.
    verdict : str
        ``"chosen"``, or why not.
    """

    gram: str
    solver: str
    tile_rows: int
    n_bytes: int
    passes: int
    seconds: float | None
    peak_memory: int
    verdict: str


@dataclass(frozen=True)
class Limits:
    """What a plan keeps to, and by which rates it compares.

    Attributes
    ----------
    memory : int
        Peak of the process, bytes.
    disk : int or None
        Bytes that tiles may take on disk.
    has_disk : bool
        Whether there is a place for them.
    rates : MachineRates
    is_run : bool
        Whether a process and copies of the rows take time too.
    """

    memory: int
    disk: int | None
    has_disk: bool
    rates: MachineRates
    is_run: bool

    def seconds(self, job: Job, home: str, tile_rows: int) -> float:
        """Expected time of a fit."""
        return fit_seconds(job, home, tile_rows, self.rates, is_run=self.is_run)


def choose_tile(job: Job, gram: str, given: int | None, limits: Limits) -> int:
    """Rows of a tile: the largest candidate whose tasks fit, whatever home is taken in the end.

    Notes
    -----
    With ``gram="auto"`` the tasks of the dearest home decide, which are those of the store: the home may depend on the
    rates of a machine, and what depends on the tile size, such as the identity of a run, must not. Where not even
    stored tiles of `SMALLEST_STORED` rows fit, the tasks that evaluate decide, and nothing is stored.

    Raises
    ------
    MemoryLimitError
        Naming the smallest limit that works.
    """
    candidates = [given] if given is not None else list(tile_candidates(job.n_samples, job.n_features))
    tried = [gram] if gram != "auto" else ["zarr", "recompute"] if limits.has_disk else ["recompute"]
    for home in tried:
        smallest = min(SMALLEST_STORED, candidates[0]) if gram == "auto" and home == "zarr" else 1
        for t in candidates:
            if t >= smallest and peak_bytes(job, home, t) <= limits.memory:
                return t
    home = tried[-1]
    t = min(candidates, key=lambda t: peak_bytes(job, home, t))
    peak = peak_bytes(job, home, t)
    raise MemoryLimitError(
        f"memory_limit={format_bytes(limits.memory)} cannot hold the smallest plan ({home} tiles of {t} rows × "
        f"{job.n_threads} threads, {format_bytes(fixed_bytes(job))} before the first tile); raise memory_limit to "
        f"{peak} bytes ({format_bytes(peak)}).",
        peak,
    )


def choose_home(job: Job, gram: str, tile_rows: int, limits: Limits) -> str:
    """Home of the tiles: the one that is asked for, or the fastest without an obstacle.

    Raises
    ------
    ConfigError
        When the disk cannot hold the tiles that are asked for; names the smallest limit that can.
    """
    if gram == "auto":
        return _fastest(job, tile_rows, limits)
    needed = stored_bytes(job, gram, tile_rows)
    if limits.disk is not None and needed > limits.disk:
        raise ConfigError(
            f"disk_limit={format_bytes(limits.disk)} cannot hold {format_bytes(needed)} of tiles; raise it to {needed} "
            "bytes or set gram to 'recompute'."
        )
    return gram


def compare(
    job: Job,
    home: str,
    tile_rows: int,
    limits: Limits,
    n_components: Components,
    *,
    gram: str,
    solver: str,
    alone: bool = False,
) -> tuple[Alternative, ...]:
    """Every home for the chosen solver and the best home for each other one, the chosen pair first.

    Parameters
    ----------
    job, home, tile_rows, limits
        What was chosen, and within what.
    n_components : int, float or None
        As asked for: not every solver can find a share of the variance.
    gram, solver : str
        As asked for: ``"auto"``, or a name that explains why something faster is not taken.
    alone : bool
        Whether only the chosen pair is wanted.

    Returns
    -------
    tuple of Alternative
    """
    chosen = limits.seconds(job, home, tile_rows)
    found = [_alternative(job, home, tile_rows, limits, "chosen")]
    if alone:
        return tuple(found)
    for other in GRAM_HOMES:
        if other != home:
            unasked = (
                "a matrix that is formed keeps its tiles" if job.solver == "dense" else "not enough to fill a disk"
            )
            reason = f"but {unasked}" if gram == "auto" else f"but gram={home} was asked for"
            found.append(_judged(job, other, tile_rows, limits, chosen, reason))
    reason = f"but solver={job.solver} was asked for" if solver != "auto" else "but solvers are chosen by size alone"
    for name in ("dense", "arpack", "block_krylov"):
        if name != job.solver and is_possible(name, n_components) and job.n_components < job.n_samples:
            rival = replace(job, solver=name)
            found.append(_judged(rival, _fastest(rival, tile_rows, limits), tile_rows, limits, chosen, reason))
    return tuple(found)


def _fastest(job: Job, tile_rows: int, limits: Limits) -> str:
    homes = [home for home in GRAM_HOMES if not _obstacle(job, home, tile_rows, limits)] or ["recompute"]
    if job.solver == "dense" and "memory" in homes:
        # the matrix that is formed from them takes more, and tiles are evaluated once
        return "memory"
    return min(homes, key=lambda home: limits.seconds(job, home, tile_rows) * (WORTH_STORING if home == "zarr" else 1))


def _obstacle(job: Job, home: str, tile_rows: int, limits: Limits) -> str:
    """What keeps "auto" from a home; empty when nothing does."""
    if home == "zarr" and not limits.has_disk:
        return "no directory for tiles"
    if peak_bytes(job, home, tile_rows) > limits.memory:
        return f"needs {format_bytes(peak_bytes(job, home, tile_rows))} of memory"
    if 2 * share_bytes(job, home, tile_rows) > limits.memory - fixed_bytes(job):
        return "tiles take more than half of the memory that is left"
    stored = stored_bytes(job, home, tile_rows)
    if limits.disk is not None and stored > limits.disk:
        return f"needs {format_bytes(stored)} of disk"
    return ""


def _judged(job: Job, home: str, tile_rows: int, limits: Limits, chosen: float, reason: str) -> Alternative:
    obstacle = _obstacle(job, home, tile_rows, limits)
    if obstacle:
        return _alternative(job, home, tile_rows, limits, obstacle)
    ratio = limits.seconds(job, home, tile_rows) / chosen
    verdict = f"×{ratio:.{2 if ratio < 1 else 1 if ratio < 10 else 0}f} the time"
    return _alternative(job, home, tile_rows, limits, verdict if ratio >= 1 else f"{verdict}, {reason}")


def _alternative(job: Job, home: str, tile_rows: int, limits: Limits, verdict: str) -> Alternative:
    return Alternative(
        gram=home,
        solver=job.solver,
        tile_rows=tile_rows,
        n_bytes=stored_bytes(job, home, tile_rows) or kept_bytes(job, home, tile_rows),
        passes=expected_passes(job),
        seconds=limits.seconds(job, home, tile_rows),
        peak_memory=peak_bytes(job, home, tile_rows),
        verdict=verdict,
    )
