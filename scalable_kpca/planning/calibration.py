"""Rates of this machine, measured once and kept in the user's cache directory.

A cache that cannot be read or written costs a measurement, never an error.
"""

from __future__ import annotations

import contextlib
import json
import math
import platform
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from threadpoolctl import threadpool_info

from scalable_kpca.documents import read_json
from scalable_kpca.engine import single_threaded_blas
from scalable_kpca.machine import available_memory, cache_directory, installed_version
from scalable_kpca.planning.measurements import measure_algebra, measure_disk, measure_evaluation, measure_products
from scalable_kpca.tiling.rates import MachineRates, ProductRate, nominal_rates

__all__ = ["cache_file", "machine_rates"]

FORMAT_VERSION = 1

Rates = dict[str, float]

# what each part of a calibration has to yield
NAMES = {
    "evaluation": {"entry", "feature", "fold"},
    "single": {"entry", "column", "measure", "keep"},
    "double": {"entry", "column", "measure", "keep"},
    "algebra": {"gemm", "lapack", "orthogonalise"},
    "disk": {"write", "flush", "read", "reread"},
}


@dataclass(frozen=True)
class _Part:
    """Rates that are measured together: which of `NAMES`, their name in the cache, and how to get them."""

    role: str
    key: str
    measure: Callable[[], Rates]


def machine_rates(
    kernel: str,
    dtype: str,
    *,
    n_threads: int,
    directory: Path | None = None,
    measure: Literal["nothing", "missing", "everything"] = "nothing",
) -> MachineRates:
    """Rates of this machine for a kernel and a dtype: from the cache, measured now, or nominal.

    Parameters
    ----------
    kernel : str
        Name.
    dtype : {"float32", "float64"}
        Of the tiles.
    n_threads : int
        That work at the same time.
    directory : Path, optional
        Where tiles would be stored; rates of disks are kept by device.
    measure : {"nothing", "missing", "everything"}
        What is measured: nothing, what the cache lacks, or all again.

    Returns
    -------
    MachineRates
        `is_measured` when no rate of arithmetic, nor of the disk where there is a directory, is nominal.

    Notes
    -----
    A few seconds and up to 40 MB a thread; for the disk 240 MiB are written, read and removed. A cache is of one host
    and one set of libraries, and forgotten when they change.
    """
    path = cache_file()
    known = _load(path)
    parts = _parts(kernel, dtype, n_threads, directory)
    found = {part.key: known.get(part.key, {}) for part in parts}
    found = {part.key: found[part.key] if _is_whole(found[part.key], part.role) else {} for part in parts}
    wanted = [part for part in parts if measure == "everything" or (measure == "missing" and not found[part.key])]
    fresh = _measured(wanted) if wanted else {}
    if fresh:
        # another process may have added to it meanwhile
        _save(path, {**_load(path), **fresh})
    found |= fresh
    return _composed(nominal_rates(kernel, dtype), {part.role: found[part.key] for part in parts})


def _measured(parts: list[_Part]) -> dict[str, Rates]:
    with single_threaded_blas():
        return {part.key: rates for part in parts if (rates := part.measure())}


def cache_file() -> Path | None:
    """Where rates are kept; None for a user without a home."""
    root = cache_directory()
    host = re.sub(r"[^\w.-]", "_", platform.node()) or "unnamed"
    return None if root is None else root / f"machine-{host}.json"


def _parts(kernel: str, dtype: str, n_threads: int, directory: Path | None) -> list[_Part]:
    """What has to be known for this kernel, dtype, number of threads and place."""
    on = f"{n_threads} threads"
    parts = [
        _Part("evaluation", f"{kernel} in {dtype}, {on}", lambda: measure_evaluation(kernel, dtype, n_threads)),
        _Part("double", f"{dtype} by float64, {on}", lambda: measure_products(dtype, "float64", n_threads)),
        _Part("algebra", f"algebra, {on}", lambda: measure_algebra(n_threads)),
    ]
    if dtype == "float32":
        parts.append(_Part("single", f"{dtype} by float32, {on}", lambda: measure_products(dtype, dtype, n_threads)))
    place = _existing(directory)
    if place is not None:
        key = f"tiles on device {place.stat().st_dev}, {on}"
        parts.append(_Part("disk", key, lambda: measure_disk(place, n_threads)))
    return parts


def _is_whole(rates: Rates, role: str) -> bool:
    positive = role == "disk"  # bytes a second are divided by
    return rates.keys() == NAMES[role] and all(
        math.isfinite(value) and (value > 0 if positive else value >= 0) for value in rates.values()
    )


def _composed(rates: MachineRates, found: dict[str, Rates]) -> MachineRates:
    """Nominal rates with what was found in their place."""
    for role, values in found.items():
        if not values:
            continue
        if role in ("single", "double"):
            product = ProductRate(values["entry"], values["column"], values["measure"])
            changes: dict[str, Any] = {role: product, "keep": values["keep"]}
        else:
            changes = dict(values)
        rates = replace(rates, **changes)
    return replace(rates, cache_bytes=available_memory() // 2, is_measured=all(found.values()))


@cache  # a plan asks for it; what is installed and loaded for arithmetic stays the same in a process
def _identity() -> dict[str, Any]:
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    blas = sorted(f"{pool['internal_api']} {pool.get('version')}" for pool in pools)
    libraries = {name: installed_version(name) for name in ("scalable-kpca", "numpy", "scipy", "zarr")}
    return {"format": FORMAT_VERSION, "libraries": libraries, "blas": blas}


def _load(path: Path | None) -> dict[str, Rates]:
    try:
        found = read_json(path) if path is not None else {}
        if found["identity"] != _identity():
            return {}
        return {
            str(key): {str(name): float(value) for name, value in rates.items()}
            for key, rates in found["rates"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _save(path: Path | None, rates: dict[str, Rates]) -> None:
    if path is None:
        return
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps({"identity": _identity(), "rates": rates}, indent=1, sort_keys=True))
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()


def _existing(directory: Path | None) -> Path | None:
    """The directory, or the nearest one above it that exists."""
    if directory is None:
        return None
    return next((place for place in (directory, *directory.resolve().parents) if place.is_dir()), None)
