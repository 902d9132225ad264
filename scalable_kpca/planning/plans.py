"""Plans for this machine, and the identity of the tiles that a plan makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from scalable_kpca.errors import MemoryLimitError
from scalable_kpca.kernels import Kernel
from scalable_kpca.machine import resolve_memory_limit, resolve_threads
from scalable_kpca.planning.calibration import machine_rates
from scalable_kpca.records import digest_json
from scalable_kpca.tiling import NystroemPlan, Plan, check_choice, nominal_rates, plan_exact, plan_nystroem

__all__ = ["ALGORITHM_VERSION", "gram_fingerprint", "plan"]

ALGORITHM_VERSION = 6  # raised whenever the same plan would give other bits

AUTO_SECONDS = 1800  # of an exact fit by nominal rates: beyond, method="auto" is Nyström
LARGE_SECONDS = 60  # by the rates at hand: from there on seconds of measuring are worth it
_STREAMED = ("dtype", "memory_limit", "n_threads", "n_workers", "resident_bytes", "is_run")
GUESS = "seconds are a guess: this machine is not calibrated, `skpca plan CONFIG --calibrate` measures it"


def plan(
    n_samples: int,
    n_features: int,
    *,
    n_components: int | float | None = 10,
    kernel: str = "rbf",
    method: str = "exact",
    n_landmarks: int = 1000,
    landmarks: str = "uniform",
    memory_limit: int | str | None = None,
    n_jobs: int | None = None,
    directory: str | Path | None = None,
    calibrate: Literal["never", "large", "always"] = "never",
    **choices: Any,
) -> Plan | NystroemPlan:
    """Plan of a fit on this machine: what it will do and how much time, memory and disk that takes.

    Parameters
    ----------
    n_samples, n_features : int
        Shape of the training rows.
    n_components : int, float or None
        As in `KernelPCA`.
    kernel : str
        Name: an exponential costs more than a product, and a city-block distance more than both.
    method : {"exact", "nystroem", "auto"}
        ``"auto"`` is exact when that keeps to the limits and takes no more than `AUTO_SECONDS` by nominal rates, so
        that a calibration does not change what is done; else Nyström. [docs/decisions/0012]
    n_landmarks, landmarks : int, str
        Of Nyström.
    memory_limit : int or str, optional
        Bytes, or text such as ``"700MiB"``; 60 % of the available memory by default.
    n_jobs : int, optional
        Threads; all processors by default.
    directory : path, optional
        Where tiles would be stored: its disk has a speed.
    calibrate : {"never", "large", "always"}
        Whether the machine is measured, which takes a few seconds: not at all; when the fit takes more than a minute
        and rates are missing; again in any case. What was measured is kept for later plans: see `calibration`.
    **choices
        ``dtype``, ``solver``, ``gram``, ``tile_rows``, … as in `tiling.plan_exact`.

    Returns
    -------
    Plan or NystroemPlan
        The same method, solver, dtype, tiles and tasks whatever was measured; home and seconds are by the rates.

    Raises
    ------
    MemoryLimitError
        Naming the smallest limit that works.

    Examples
    --------
    >>> chosen = plan(100_000, 64, memory_limit="1GiB", n_jobs=2)
    >>> chosen.solver, chosen.n_tasks <= 10_000, chosen.peak_memory <= 2**30
    ('block_krylov', True, True)
    >>> plan(10_000_000, 64, method="auto", memory_limit="1GiB", n_jobs=2).method
    'nystroem'
    """
    check_choice("method", method, ("auto", "exact", "nystroem"))
    choices |= {"memory_limit": resolve_memory_limit(memory_limit), "n_threads": resolve_threads(n_jobs)}
    exact = partial(plan_exact, n_samples, n_features, n_components=n_components, **choices)
    shared = {name: choices[name] for name in _STREAMED if name in choices}
    by_landmarks = partial(
        plan_nystroem,
        n_samples,
        n_features,
        n_components=n_components,
        n_landmarks=n_landmarks,
        landmarks=landmarks,
        **shared,
    )
    why: tuple[str, ...] = ()
    if method == "auto":
        method, why = _choose_method(exact, by_landmarks, kernel, n_samples)
    planned: Callable[..., Plan | NystroemPlan] = exact if method == "exact" else by_landmarks
    # what only tells whether, and of what dtype, lists no alternatives
    outline = partial(exact, compares=False) if method == "exact" else by_landmarks
    found = _with_rates(planned, outline, kernel, directory, calibrate)
    return replace(found, reasons=(*why, *found.reasons))


def _choose_method(
    exact: Callable[..., Plan], by_landmarks: Callable[..., NystroemPlan], kernel: str, n_samples: int
) -> tuple[str, tuple[str, ...]]:
    """Exact or Nyström, and the reason; where neither fits, what needs less says so."""
    try:
        found = exact(compares=False)
        found = exact(rates=nominal_rates(kernel, found.dtype), compares=False)
    except MemoryLimitError as error:
        try:
            by_landmarks()
        except MemoryLimitError as other:
            raise min(error, other, key=lambda refused: refused.needed) from None
        return "nystroem", (f"method=nystroem: exact does not fit: {error}",)
    seconds = found.seconds or 0.0
    if seconds > AUTO_SECONDS:
        allowed = f"more than the {AUTO_SECONDS / 3600:.1f} h that auto allows"
        return "nystroem", (f"method=nystroem: exact would take {seconds / 3600:.2f} h by nominal rates, {allowed}",)
    return "exact", (f"method=exact: all {n_samples} rows fit, in {seconds:.2g} s by nominal rates",)


def _with_rates(
    planned: Callable[..., Plan | NystroemPlan],
    outline: Callable[..., Plan | NystroemPlan],
    kernel: str,
    directory: str | Path | None,
    calibrate: Literal["never", "large", "always"],
) -> Plan | NystroemPlan:
    found = outline()  # refuses what cannot be
    rates_of = partial(
        machine_rates,
        kernel,
        found.dtype,
        n_threads=found.n_threads,
        directory=None if directory is None else Path(directory),
    )
    rates = rates_of()
    found = planned(rates=rates)
    is_large = found.seconds is not None and found.seconds >= LARGE_SECONDS
    if calibrate == "always" or (calibrate == "large" and is_large and not rates.is_measured):
        rates = rates_of(measure="everything" if calibrate == "always" else "missing")
        found = planned(rates=rates)
    return found if rates.is_measured else replace(found, reasons=(*found.reasons, GUESS))


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
    return digest_json(identity)
