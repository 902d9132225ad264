"""Plans for this machine, and the identity of the tiles that a plan makes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from scalable_kpca.kernels import Kernel
from scalable_kpca.machine import resolve_memory_limit, resolve_threads
from scalable_kpca.tiling import Plan, plan_exact

__all__ = ["ALGORITHM_VERSION", "gram_fingerprint", "plan"]

ALGORITHM_VERSION = 1  # raised whenever the same plan would give other bits


def plan(
    n_samples: int,
    n_features: int,
    *,
    n_components: int | float | None = 10,
    memory_limit: int | str | None = None,
    n_jobs: int | None = None,
    **choices: Any,
) -> Plan:
    """Plan of an exact fit on this machine: what it will do and how much memory and disk that takes.

    Parameters
    ----------
    n_samples, n_features : int
        Shape of the training rows.
    n_components : int, float or None
        As in `KernelPCA`.
    memory_limit : int or str, optional
        Bytes, or text such as ``"700MiB"``; 60 % of the available memory by default.
    n_jobs : int, optional
        Threads; all processors by default.
    **choices
        ``dtype``, ``solver``, ``gram``, ``tile_rows``, … as in `tiling.plan_exact`.

    Returns
    -------
    Plan

    Raises
    ------
    MemoryLimitError
        Naming the smallest limit that works.

    Examples
    --------
    >>> plan(30_000, 64, memory_limit="700MiB", n_jobs=2).gram
    'zarr'
    """
    return plan_exact(
        n_samples,
        n_features,
        n_components=n_components,
        memory_limit=resolve_memory_limit(memory_limit),
        n_threads=resolve_threads(n_jobs),
        **choices,
    )


def gram_fingerprint(rows: str, kernel: Kernel, plan: Plan) -> str:
    """Identity of the tiles: of the rows, the kernel, their dtype and size, and nothing else.

    Parameters
    ----------
    rows : str
        Digest of the training rows.
    kernel : Kernel
        Resolved kernel.
    plan : Plan
        Gives dtype and tile size.

    Returns
    -------
    str
        SHA-256, hexadecimal. Other components, tolerances or seeds reuse the same tiles.
    """
    identity = {
        "rows": rows,
        "kernel": kernel.to_json(),
        "dtype": plan.dtype,
        "tile_rows": plan.tile_rows,
        "algorithm": ALGORITHM_VERSION,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
