"""Rows that measure single passes beside what the machine can do."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.benchmarks.children import Measurement, Subject, measure
from tests.benchmarks.findings import GIGABYTE, Findings, K, Settings
from tests.benchmarks.verdicts import Verdict, agreement, ratio

__all__ = ["many_tasks", "schedulers", "stored_pass", "strip_throughput"]

LARGE = 3_000_000  # rows: their plan has as many tasks as a pass may have
PLAIN_FILE = 4 * 10**9  # bytes of the file that the disk is measured with, at most


def strip_throughput(settings: Settings) -> Findings:
    options = {"n": settings.n, "k": K}
    strip = Subject("strip_rate", {**options, "at_least": 2.0 if settings.n >= 10_000 else 0.2})
    found = measure({"recompute pass": _pass(settings.n, "threads"), "one strip": strip}, settings.repeats)
    ours, limit = found["recompute pass"], found["one strip"]
    together = Measurement("", [{**run, "rate": run["rate_together"]} for run in limit.runs])
    verdicts = [
        ratio("entries/s of a pass / one strip × processors", ours, limit, "≥", 0.8, of="rate"),
        ratio("entries/s of a pass / a strip on every processor at once", ours, together, of="rate"),
        Verdict("a pass", ours["rate"] / 1e9, unit=" G entries/s"),
    ]
    note = (
        "An entry is one kernel value, evaluated once and used in both products. What a strip on every processor at "
        "once falls short of one strip × processors is the machine's: shared caches, memory and clock."
    )
    return Findings(list(found.values()), verdicts, [note])


def schedulers(settings: Settings) -> Findings:
    names = {
        "Dask threads": "threads",
        "bare pool": "pool",
        "two worker processes": "processes",
        "one worker process": "one process",
    }
    found = measure({name: _pass(settings.n, runner) for name, runner in names.items()}, settings.repeats)
    threads, pool, processes, one = found.values()
    note = (
        "The first pass, in which worker processes import, is not timed; their memory is not in the table. The bare "
        "pool does the package's own work on each tile and adds the results without a graph. Worker processes have "
        "one thread each."
    )
    verdicts = [
        ratio("time of a pass by Dask threads / a bare pool of threads", threads, pool, "≤", 1.10),
        ratio("time of a pass by two worker processes / Dask threads", processes, threads, "≤", 1.25),
        ratio("time of a pass by one worker process / two", one, processes, "≥", 1.8),
        agreement("norms of the product beside a bare pool", threads["norms"], pool["norms"], unit=" relative"),
        agreement(
            "norms of the product by processes beside threads", processes["norms"], threads["norms"], unit=" relative"
        ),
    ]
    return Findings(list(found.values()), verdicts, [note])


def many_tasks(settings: Settings) -> Findings:
    from scalable_kpca import plan

    found = measure(
        {
            "tasks with nothing to do": Subject("many_tasks", {"n_tasks": settings.n}),
            "tiles by the same workers": _pass(min(20_000, 20 * settings.n), "processes"),
        },
        settings.repeats,
    )
    empty, tiles = found.values()
    large = plan(LARGE, 64, gram="recompute", memory_limit="16GiB", n_jobs=1, n_workers=2)
    working = empty["tasks"] * large.tiles_per_task * large.tile_rows**2 / tiles["rate"]
    each = empty.seconds / empty["tasks"]
    verdicts = [
        Verdict("scheduling / work of the same tasks at the size of the plan", empty.seconds / working, "≤", 0.10, "×"),
        Verdict("scheduling of a task", 1e3 * each, unit=" ms"),
    ]
    note = (
        f"{empty['tasks']:.0f} tasks of one tile of 8 rows, with the sums that belong to them: client, scheduler and "
        f"two workers share this machine. The plan of {LARGE} rows has {large.n_tasks} tasks of {large.tiles_per_task} "
        f"tiles of {large.tile_rows} rows, {working / empty['tasks']:.2g} s each at the rate of the two workers."
    )
    return Findings(list(found.values()), verdicts, [note])


def stored_pass(settings: Settings) -> Findings:
    gram_bytes, kind = 4 * settings.n**2, _file_system(settings.scratch)
    free, needed = shutil.disk_usage(settings.scratch).free, 0.6 * gram_bytes + PLAIN_FILE
    if free < needed or kind in ("tmpfs", "ramfs"):
        reason = (
            f"Not run: {needed / GIGABYTE:.3g} GB on a disk are needed, {free / GIGABYTE:.3g} GB on {kind} are free; "
            "`--scratch` names another directory."
        )
        return Findings([], [Verdict("cold pass / plain read of one file", None, "≥", 0.7, "×")], [reason])
    with tempfile.TemporaryDirectory(dir=settings.scratch) as directory:
        options = {"n": settings.n, "k": K, "directory": directory}
        built = measure({"build and first product": Subject("stored_build", options)}, 1)
        plain = {"directory": directory, "one_file_of": min(PLAIN_FILE, gram_bytes // 2)}
        found = measure(
            {
                "cold pass": Subject("cold_pass", options),
                "plain read of one file": Subject("plain_read", plain),
                "plain read of the tiles": Subject("plain_read", {"directory": directory}),
            },
            settings.repeats,
        )
    cold, one, tiles = found.values()
    first = built["build and first product"]
    verdicts = [
        ratio("bytes/s of a cold pass / plain read of one file", cold, one, "≥", 0.7, of="rate"),
        ratio("bytes/s of a cold pass / plain read of the tiles", cold, tiles, of="rate"),
        Verdict("a cold pass", cold["rate"] / GIGABYTE, unit=" GB/s"),
        Verdict("build and first product", first.seconds, unit=" s"),
    ]
    note = (
        f"Stored: {first['bytes'] / GIGABYTE:.3g} GB on {kind}; flushing it after the build "
        f"took {first['seconds_to_sync']:.3g} s more. Files are dropped from the page cache before each timed read; a "
        "host's own cache beneath a virtual disk is out of reach."
    )
    return Findings([*built.values(), *found.values()], verdicts, [note])


def _pass(n: int, runner: str) -> Subject:
    return Subject("recompute_pass", {"n": n, "k": K, "runner": runner})


def _file_system(directory: Path) -> str:
    """Kind of the file system, not its place."""
    import psutil

    mounts = {Path(found.mountpoint): found.fstype for found in psutil.disk_partitions(all=True)}
    holders = [mount for mount in mounts if directory.resolve().is_relative_to(mount)]
    return mounts[max(holders, key=lambda mount: len(mount.parts))] if holders else "an unknown file system"
