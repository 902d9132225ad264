"""Integers only: tiles, tasks, bytes and passes of an exact fit, and the plan that chooses them.

Nothing here touches an array, a clock or a file, so that a plan for 10⁶ rows costs microseconds and can be checked
against what happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from dask.utils import format_bytes

from scalable_kpca.errors import ConfigError, InvalidInputError, MemoryLimitError
from scalable_kpca.kernels import STRIP_ROWS
from scalable_kpca.tiles import Tiling

__all__ = ["DENSE_LIMIT", "GRAM_HOMES", "SOLVERS", "Plan", "Tiling", "arpack_vectors", "check_components", "plan_exact"]

GRAM_HOMES = ("zarr", "memory", "recompute")
SOLVERS = ("dense", "arpack", "block_krylov")

EXTRA_COLUMNS = 12  # of the Krylov block beside the wanted ones: fewer passes, more work in each
RANDOM_COLUMNS = 4  # of them random, so that no eigenvector is out of reach
BASIS_BLOCKS = 8  # blocks of the Krylov basis before a restart

DENSE_LIMIT = 2000  # rows up to which LAPACK on the whole matrix beats passes
LARGEST_TILE = 4096  # 64 MiB of float32: a disk streams it, and two fit beside each other in a small limit
SMALLEST_TILE = 256  # one strip
RECOMPUTE_FEATURES = 256  # up to which an entry is evaluated faster than it is read
TILES_A_SIDE = 8  # below this many blocks two or more threads wait for one another

# Resident size of the interpreter with every import of a run, and what the allocator and the thread stacks keep;
# measured at 180 to 215 MiB.
PROCESS_BYTES = 240 * 2**20


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
        ``"dense"``, ``"arpack"`` or ``"block_krylov"``.
    product_dtype : str
        Of the products with tiles; sums over tiles are float64.
    block_columns, max_basis : int
        Columns of a Krylov block and of the basis before a restart; 0 for other solvers.
    gram : str
        Home of the tiles: ``"zarr"``, ``"memory"`` or ``"recompute"``.
    tile_rows, tiles_per_task, n_threads : int
        Unit of storage, unit of scheduling, concurrent tasks.
    n_tiles, gram_bytes, peak_memory, memory_limit : int
        Tiles, bytes of all tiles, planned and allowed peak of the process in bytes.
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
    gram: str
    tile_rows: int
    tiles_per_task: int
    n_threads: int
    n_tiles: int
    gram_bytes: int
    peak_memory: int
    memory_limit: int
    reasons: tuple[str, ...]

    @property
    def tiling(self) -> Tiling:
        """The tiles."""
        return Tiling(self.n_samples, self.tile_rows)

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return {**asdict(self), "reasons": list(self.reasons)}


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
    tile_rows: int | None = None,
    has_disk: bool = True,
    resident_bytes: int = 0,
) -> Plan:
    """Plan an exact fit within a memory limit.

    Parameters
    ----------
    n_samples, n_features : int
        Shape of the training rows.
    n_components : int, float or None
        Wanted components; a fraction of variance; or None for all.
    dtype : {"auto", "float64", "float32"}
        Of a tile. ``"auto"`` is float64 up to `DENSE_LIMIT` rows and float32 above.
    solver : {"auto", "dense", "arpack", "block_krylov"}
        ``"auto"`` is dense up to `DENSE_LIMIT` rows or when all or a quarter of the components are wanted, block Krylov
        otherwise.
    gram : {"auto", "zarr", "memory", "recompute"}
        ``"auto"`` keeps tiles in memory when they take at most half of what the limit leaves; beyond, rows with few
        features are cheaper to evaluate again than to read, and wide ones go to zarr.
    memory_limit : int
        Peak of the whole process, bytes.
    n_threads : int
        Tasks that run at the same time in the process.
    tile_rows : int, optional
        Overrides the choice.
    has_disk : bool
        Whether there is a working directory for the zarr home.
    resident_bytes : int
        Bytes of the caller's rows that stay in memory during the fit.

    Returns
    -------
    Plan

    Raises
    ------
    MemoryLimitError
        Naming the smallest `memory_limit` that works.
    ConfigError
        When options exclude one another.
    """
    n_samples, n_features = _whole("n_samples", n_samples), _whole("n_features", n_features)
    n_components = check_components(n_components)
    tile_rows = None if tile_rows is None else _whole("tile_rows", tile_rows)
    _check_choices(dtype, solver, gram, has_disk)
    reasons: list[str] = []
    solver = _choose_solver(solver, n_samples, n_components, reasons)
    dtype = _choose_dtype(dtype, n_samples, reasons)
    n_wanted = n_components if isinstance(n_components, int) else 0
    b, max_basis = _krylov_shape(n_samples, n_wanted) if solver == "block_krylov" else (0, 0)
    fixed = PROCESS_BYTES + resident_bytes + _solver_bytes(solver, n_samples, n_wanted, max_basis)
    candidates = [min(tile_rows, n_samples)] if tile_rows is not None else list(_tile_candidates(n_samples))
    itemsize = 8 if dtype == "float64" else 4

    def peak(home: str, t: int) -> int:
        tiling = Tiling(n_samples, t)
        kept = tiling.n_entries * itemsize if home == "memory" else 0
        return fixed + kept + n_threads * _task_bytes(home, min(t, n_samples), n_features, itemsize)

    homes = (
        [gram]
        if gram != "auto"
        else _homes_in_order(n_samples, n_features, itemsize, memory_limit - fixed, has_disk, solver)
    )
    choices = [(home, t) for home in homes for t in candidates]
    home, t = next((choice for choice in choices if peak(*choice) <= memory_limit), (None, 0))
    if home is None:
        home, t = min(choices, key=lambda choice: peak(*choice))
        raise MemoryLimitError(
            f"memory_limit={format_bytes(memory_limit)} cannot hold the smallest plan ({home} tiles of {t} rows × "
            f"{n_threads} threads, {format_bytes(fixed)} before the first tile); raise memory_limit to "
            f"{peak(home, t)} bytes ({format_bytes(peak(home, t))})."
        )
    tiling = Tiling(n_samples, t)
    gram_bytes = {"memory": tiling.n_entries, "recompute": 0, "zarr": tiling.n_tiles * t * t}[home] * itemsize
    entries = format_bytes(tiling.n_entries * itemsize)
    reasons.append(
        f"gram={home}: {entries} of {dtype} tiles "
        + {
            "memory": "fit in memory",
            "recompute": f"are evaluated again in every pass: {n_features} features make that cheaper than reading",
            "zarr": "are written once and read in every pass",
        }[home]
    )
    return Plan(
        n_samples=n_samples,
        n_features=n_features,
        n_components=n_wanted,
        dtype=dtype,
        solver=solver,
        product_dtype="float32" if solver == "block_krylov" and dtype == "float32" else "float64",
        block_columns=b,
        max_basis=max_basis,
        gram=home,
        tile_rows=t,
        tiles_per_task=1,
        n_threads=n_threads,
        n_tiles=tiling.n_tiles,
        gram_bytes=gram_bytes,
        peak_memory=peak(home, t),
        memory_limit=memory_limit,
        reasons=tuple(reasons),
    )


def arpack_vectors(n_samples: int, n_components: int) -> int:
    """Lanczos vectors that ARPACK keeps: scipy's default, named here because memory is planned with it."""
    return min(n_samples, max(2 * n_components + 1, 20))


def check_components(n_components: Any) -> int | float | None:
    """A number of components ≥ 1, a fraction between 0 and 1, or None; InvalidInputError for anything else."""
    if n_components is None:
        return None
    if not isinstance(n_components, bool):
        if isinstance(n_components, (int, np.integer)) and n_components >= 1:
            return int(n_components)
        if isinstance(n_components, (float, np.floating)) and 0 < n_components < 1:
            return float(n_components)
    raise InvalidInputError(
        f"n_components={n_components!r}; an integer ≥ 1, a fraction between 0 and 1, or None is needed."
    )


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(f"{name}={value!r}; an integer ≥ 1 is needed.")
    return int(value)


def _check_choices(dtype: str, solver: str, gram: str, has_disk: bool) -> None:
    for name, value, allowed in (
        ("dtype", dtype, ("auto", "float64", "float32")),
        ("eigen_solver", solver, ("auto", *SOLVERS)),
        ("gram", gram, ("auto", *GRAM_HOMES)),
    ):
        if value not in allowed:
            raise ConfigError(f"{name}={value!r} is not known; choose one of {', '.join(allowed)}.")
    if gram == "zarr" and not has_disk:
        raise ConfigError('gram="zarr" needs a place for the tiles; set workdir to a directory with room.')


def _choose_solver(solver: str, n_samples: int, n_components: int | float | None, reasons: list[str]) -> str:
    counted = isinstance(n_components, int)
    if solver == "auto":
        many = isinstance(n_components, int) and 4 * n_components > n_samples
        solver = "dense" if n_samples <= DENSE_LIMIT or n_components is None or many else "block_krylov"
        reasons.append(
            f"solver={solver}: "
            + (f"up to {DENSE_LIMIT} rows the whole spectrum is cheap" if n_samples <= DENSE_LIMIT
               else "all components are wanted" if n_components is None
               else "a large part of the spectrum is wanted" if many
               else "a few components of a large matrix, in few passes")
        )  # fmt: skip
    elif solver == "arpack" and not counted:
        raise ConfigError(
            f"eigen_solver='arpack' finds a given number of components, n_components={n_components!r} is not one; set "
            "n_components to an integer or eigen_solver to 'dense'."
        )
    elif solver == "block_krylov" and n_components is None:
        raise ConfigError("eigen_solver='block_krylov' needs n_components: an integer or a fraction of the variance.")
    if solver != "dense" and isinstance(n_components, int) and n_components >= n_samples:
        reasons.append(f"solver=dense: iterative solvers find at most n_samples − 1 = {n_samples - 1} components")
        solver = "dense"
    return solver


def _choose_dtype(dtype: str, n_samples: int, reasons: list[str]) -> str:
    if dtype == "auto":
        if n_samples > DENSE_LIMIT:
            dtype = "float32"
            reasons.append("dtype=float32: half the bytes; the certificate names the rounding")
        else:
            dtype = "float64"
            reasons.append(f"dtype=float64: up to {DENSE_LIMIT} rows precision costs little")
    return dtype


def _homes_in_order(
    n_samples: int, n_features: int, itemsize: int, free: int, has_disk: bool, solver: str
) -> list[str]:
    fits = n_samples * (n_samples + LARGEST_TILE) // 2 * itemsize <= free // 2
    # ARPACK's fifty passes are worth a store; block Krylov's five only when an entry is dear to evaluate
    recompute = solver == "block_krylov" and n_features <= RECOMPUTE_FEATURES
    beyond = ["recompute", "zarr"] if recompute or not has_disk else ["zarr", "recompute"]
    homes = ["memory", *beyond] if fits else [*beyond, "memory"]
    return homes if has_disk else [home for home in homes if home != "zarr"]


def _krylov_shape(n_samples: int, n_components: int) -> tuple[int, int]:
    """Columns of the block and of the basis; an unknown number of components starts with ten."""
    b = min((n_components or 10) + EXTRA_COLUMNS, n_samples)
    return b, max(BASIS_BLOCKS * b, 3 * b)


def _solver_bytes(solver: str, n_samples: int, n_components: int, max_basis: int) -> int:
    if solver == "dense":
        # K̃ and what it is made from, or eigenvectors with their reordered copy and what goes into the model
        kept = min(n_components or n_samples, n_samples)
        return (3 * n_samples + 2 * kept) * n_samples * 8 + 5 * n_samples * 64 * 8
    if solver == "block_krylov":
        # the basis, once more while it grows; image, block, vectors in float32, products of the running tasks
        b = max_basis // BASIS_BLOCKS
        return n_samples * 8 * (2 * max_basis + 10 * b)
    # Lanczos vectors, ARPACK's work arrays, eigenvectors with their image and residual in the certificate
    return n_samples * 8 * (arpack_vectors(n_samples, n_components) + 6 + 5 * n_components)


def _task_bytes(home: str, tile_rows: int, n_features: int, itemsize: int) -> int:
    rows = 2 * tile_rows * (n_features + 2) * 8 * 3  # both sides: as read, in float64, folded
    strips = 2 * min(STRIP_ROWS, tile_rows) * tile_rows * 8
    tile = tile_rows * tile_rows * itemsize
    # zarr holds the bytes of the file and the decoded tile at once, and on writing the tile and two encodings
    landmarks = 3 * tile_rows * 600 * 4
    return max(rows + strips, landmarks) + (3 * tile if home == "zarr" else 0)


def _tile_candidates(n_samples: int) -> Iterator[int]:
    """Tile sizes from the largest down; all blocks are nearly equal, so that no padded tile wastes the disk."""
    largest = min(LARGEST_TILE, max(SMALLEST_TILE, -(-n_samples // TILES_A_SIDE)))
    n_blocks = -(-n_samples // largest)
    while True:
        rows = -(-n_samples // n_blocks)
        t = -(-rows // 8) * 8
        yield min(t, n_samples)
        if t <= SMALLEST_TILE:
            return
        n_blocks += max(1, n_blocks // 4)
