"""The job of pipelines/daily.yaml on a few rows, for what starts it, and those files as modules."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import skip

__all__ = ["FAR", "N_ROWS", "PIPELINES", "daily_job", "exits_with", "load", "require", "write_rows"]

PIPELINES = Path(__file__).parents[2] / "pipelines"
N_ROWS = 60  # of a day
FAR = "2026-01-09"  # a day that no landmark reaches: drift is 18, and drift.fail of daily.yaml is 10
ENVIRONMENT = {
    "SKPCA_NYSTROEM__N_LANDMARKS": "20",
    "SKPCA_KERNEL__GAMMA": "0.3",
    "SKPCA_CLUSTER__KIND": "synchronous",
    "SKPCA_BUDGET__MEMORY": "1GiB",
    "SKPCA_DRIFT__WARN": "5",
    "KPCA_RETRY_SECONDS": "0.1",
}


def require(library: str) -> None:
    """Skip a module for want of an orchestrator."""
    if importlib.util.find_spec(library) is None:
        skip(f"{library} is not installed")


@contextmanager
def daily_job(folder: Path) -> Iterator[Path]:
    """A folder with daily.yaml, history/ and days/, which the environment names to what is imported meanwhile."""
    shutil.copy(PIPELINES / "daily.yaml", folder)
    write_rows(folder / "history" / "base.parquet", 0)
    for day in range(1, 7):
        write_rows(folder / "days" / f"2026-01-0{day}.parquet", day)
    write_rows(folder / "days" / f"{FAR}-part-0.parquet", 9, shift=50.0)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("KPCA_CONFIG", str(folder / "daily.yaml"))
        yield folder


def load(name: str) -> ModuleType:
    """A file of pipelines/ as a module."""
    spec = importlib.util.spec_from_file_location(name, PIPELINES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def exits_with(codes: list[int], folder: Path) -> list[str]:
    """A command that exits with one code after another, and counts in ``tries`` how often it was started."""
    source = f"""
import pathlib, sys
tries = pathlib.Path({str(folder / "tries")!r})
n = int(tries.read_text()) if tries.exists() else 0
tries.write_text(str(n + 1))
print('{{"status": "done"}}')
sys.exit({codes}[n])
"""
    return [sys.executable, "-c", source]


def write_rows(path: Path, seed: int, shift: float | tuple[float, ...] = 0.0) -> None:
    """Rows of a day in a file of Parquet, all of their columns or each of the three shifted."""
    rows = np.random.default_rng(seed).normal(size=(N_ROWS, 3)) + shift
    path.parent.mkdir(exist_ok=True)
    columns = {f"x{column}": rows[:, column] for column in range(3)}
    pq.write_table(pa.table({"id": np.arange(N_ROWS) + 1000 * seed} | columns), path)
