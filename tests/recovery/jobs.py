"""Small jobs that touch every kind of file, and what their results are, bit for bit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import matching

__all__ = ["JOBS", "bits_of", "latest_run", "leftovers", "n_committed", "n_tiles", "write_job", "write_rows"]

N_ROWS, N_FEATURES = 40, 3

JOBS: dict[str, dict[str, Any]] = {
    "stored tiles, block Krylov": {"gram": "zarr", "solver": {"name": "block_krylov"}, "tile_rows": 16},
    "tiles in memory, ARPACK": {"gram": "memory", "solver": {"name": "arpack"}, "tile_rows": 20},
    "tiles evaluated again, power": {"gram": "recompute", "solver": {"name": "power"}, "tile_rows": 20},
    "stored tiles, LAPACK": {"gram": "zarr", "solver": {"name": "dense"}, "tile_rows": 20},
    "Nyström": {"method": "nystroem", "nystroem": {"n_landmarks": 12}},
    "Nyström, refined": {
        "method": "nystroem",
        "nystroem": {"n_landmarks": 12},
        "solver": {"max_passes": 2},
        "tile_rows": 20,
        "gram": "zarr",
    },
}


def write_rows(path: Path, seed: int, n: int = N_ROWS) -> None:
    """A Parquet file of n rows with ids."""
    rows = np.random.default_rng(seed).normal(size=(n, N_FEATURES))
    columns = {"id": np.arange(n) + 1000 * seed} | {f"x{column}": rows[:, column] for column in range(N_FEATURES)}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_job(folder: Path, fields: dict[str, Any], **more: Any) -> Path:
    """A job on two Parquet files below a folder."""
    for seed, n in ((0, N_ROWS // 2 + 3), (1, N_ROWS // 2 - 3)):
        if not (folder / "rows" / f"part-{seed}.parquet").exists():
            write_rows(folder / "rows" / f"part-{seed}.parquet", seed, n)
    config = {
        "source": {"uri": "rows/*.parquet", "id": "id"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "n_components": 3,
        "output": {"path": "out"},
        "cluster": {"kind": "synchronous"},
        "budget": {"memory": "1GiB"},
        **fields,
        **more,
    }
    job = folder / "job.yaml"
    job.write_text(json.dumps(config))
    return job


def latest_run(output: Path) -> Path:
    """Directory of the run in force."""
    return output / "runs" / json.loads((output / "latest.json").read_text())["run"]


def bits_of(run: Path) -> dict[str, str]:
    """Digest of every result that must not depend on how the run came about."""
    files = [run / "metrics.json", run / "profile.json", *(run / "embedding").rglob("*"), *(run / "model").rglob("*")]
    files += [*(run / "embedding.zarr").rglob("*"), *(run / "contributions").glob("*")]
    return {
        str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()
    }


def n_tiles(output: Path) -> int:
    """Tiles that are stored, of a run that may be at work."""
    return len(matching(output, "runs/*/gram.zarr/tiles/c/*/*"))


def n_committed(output: Path) -> int:
    """Tiles whose row sums are there: one on the diagonal has its own, any other one two."""
    chunks = matching(output, "runs/*/gram.zarr/row_sums/c/*/*/0")
    return sum(int(chunk.parts[-3]) <= int(chunk.parts[-2]) for chunk in chunks)


def leftovers(output: Path) -> list[str]:
    """What a finished run must not leave: locks, half-written files, journals."""
    names = [str(path.relative_to(output)) for path in output.rglob("*")]
    unwanted = (".partial", ".new", "LOCK", "/journal", ".probe")
    return [name for name in names if any(part in name for part in unwanted)]
