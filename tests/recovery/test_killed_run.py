"""Real kill −9 of a real run, and the same command again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.recovery.jobs import n_committed

N_ROWS, TILE_ROWS = 600, 30
N_TILES = 20 * 21 // 2


@pytest.fixture
def job(tmp_path) -> Path:
    rows = np.random.default_rng(1).normal(size=(N_ROWS, 8))
    columns = {"id": np.arange(N_ROWS)} | {f"x{column}": rows[:, column] for column in range(8)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    config = {
        "source": {"uri": "rows.parquet", "id": "id"},
        "kernel": {"name": "rbf"},
        "n_components": 4,
        "gram": "zarr",
        "tile_rows": TILE_ROWS,
        "output": {"path": "out"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(config))
    return tmp_path / "job.yaml"


def command(job: Path, *overrides: str) -> list[str]:
    settings = [part for override in overrides for part in ("--set", override)]
    return [sys.executable, "-m", "scalable_kpca.cli", "run", str(job), *settings, "--json"]


def finish(job: Path, *overrides: str) -> Path:
    finished = subprocess.run(command(job, *overrides), capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    return Path(json.loads(finished.stdout.splitlines()[-1])["run"])


def kill_when(job: Path, reached, *overrides: str) -> None:
    process = subprocess.Popen(command(job, *overrides), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not reached() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"


def result_bits(run: Path) -> tuple[str, bytes]:
    metrics = json.loads((run / "metrics.json").read_text())
    return json.dumps(metrics, sort_keys=True), (run / "embedding" / "part-00000.parquet").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.3, 0.7])
def test_run_killed_while_the_gram_is_built_computes_only_what_is_missing(job, share):
    expected = result_bits(finish(job, "output.path=reference"))
    output = job.parent / "out"
    kill_when(job, lambda: n_committed(output) >= share * N_TILES)
    committed = n_committed(output)
    assert 0 < committed < N_TILES
    assert not (output / "latest.json").exists()
    run = finish(job)
    tiles = json.loads((run / "run.json").read_text())["tiles"]
    assert tiles == {"computed": N_TILES - committed, "read": committed, "repaired": 0}
    assert result_bits(run) == expected
    assert list(output.rglob("*.partial")) == []
    assert not (output / "LOCK").exists()


@pytest.mark.slow
def test_missing_and_corrupt_tiles_of_a_killed_run_are_repaired_by_the_same_command(job):
    expected = result_bits(finish(job, "output.path=reference"))
    output = job.parent / "out"
    kill_when(job, lambda: n_committed(output) >= 0.5 * N_TILES)
    committed = n_committed(output)
    (store,) = output.glob("runs/*/gram.zarr")
    tiles = sorted((store / "tiles" / "c").glob("*/*"))
    flipped, removed = tiles[3], tiles[7]
    content = bytearray(flipped.read_bytes())
    content[100] ^= 0x10
    flipped.write_bytes(content)
    removed.unlink()
    run = finish(job)
    counts = json.loads((run / "run.json").read_text())["tiles"]
    assert counts == {"computed": N_TILES - committed + 2, "read": committed - 2, "repaired": 2}
    assert result_bits(run) == expected


@pytest.mark.slow
def test_run_killed_after_the_rows_and_before_the_commit_leaves_nothing_that_looks_whole(job):
    output = job.parent / "out"
    settings = ("solver.name=arpack", "tile_rows=300")
    kill_when(job, lambda: any(output.glob("runs/*/model")), *settings)
    assert not (output / "latest.json").exists()
    assert not list(output.glob("runs/*/COMMIT.json"))
    run = finish(job, *settings)
    assert json.loads((run / "run.json").read_text())["tiles"]["computed"] == 0


@pytest.mark.slow
def test_sigterm_ends_a_run_with_75_and_the_same_command_finishes_it(job):
    output = job.parent / "out"
    process = subprocess.Popen(command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while n_committed(output) < 10 and time.monotonic() < deadline:
        time.sleep(0.002)
    process.terminate()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 75, stderr
    assert "the same command resumes" in stderr
    assert not (output / "LOCK").exists()
    finish(job)


@pytest.mark.slow
def test_second_writer_exits_75_and_names_the_first(job):
    output = job.parent / "out"
    first = subprocess.Popen(command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while n_committed(output) < 5 and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = subprocess.run(command(job), capture_output=True, text=True, timeout=60, check=False)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.returncode == 75
    assert f"process {first.pid} on " in second.stderr
    assert first.wait(timeout=60) == 0
