"""An interrupted block Krylov solve goes on where it stood: by the state on disk, and by a real kill −9."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca.checkpoint import load_state, save_state
from scalable_kpca.gram import PassResult, TileCounts
from scalable_kpca.solvers import KrylovState

N = 40


@pytest.fixture
def states():
    rng = np.random.default_rng(0)
    built = PassResult(np.empty((N, 0)), rng.standard_normal(N), 12.5, 1e-7, TileCounts(3, 2, 1), [])
    return [
        KrylovState(
            basis=np.asfortranarray(rng.standard_normal((N, 5 * passes))),
            projected=rng.standard_normal((5 * passes, 5 * passes)),
            block=rng.standard_normal((N, 5)),
            coupling=rng.standard_normal((5, 5 * passes)),
            rounding=1e-9,
            n_passes=passes,
        )
        for passes in (1, 2, 3)
    ], built


def test_state_comes_back_bit_for_bit(states, tmp_path):
    (first, second, _), built = states
    for state in (first, second):
        save_state(tmp_path / "basis.zarr", "solve", state, built)
    found, facts = load_state(tmp_path / "basis.zarr", "solve")
    for name in ("basis", "projected", "block", "coupling"):
        left, right = getattr(found, name), getattr(second, name)
        np.testing.assert_array_equal(left, right)
        assert left.flags.c_contiguous
        assert right.flags.c_contiguous
    assert (found.rounding, found.n_passes) == (second.rounding, second.n_passes)
    np.testing.assert_array_equal(facts.row_sums, built.row_sums)
    assert (facts.squared_norm, facts.error, facts.counts) == (built.squared_norm, built.error, built.counts)
    assert [path.name for path in (tmp_path / "basis.zarr").iterdir()] == ["000002"]


def test_state_of_another_solve_is_not_taken(states, tmp_path):
    (first, _, _), built = states
    save_state(tmp_path / "basis.zarr", "solve", first, built)
    assert load_state(tmp_path / "basis.zarr", "another") is None
    assert load_state(tmp_path / "absent", "solve") is None


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "half written"])
def test_damaged_state_is_passed_over_for_the_one_before(states, tmp_path, damage):
    (first, second, _), built = states
    save_state(tmp_path / "basis.zarr", "solve", first, built)
    (tmp_path / "basis.zarr" / "000001").rename(tmp_path / "kept")
    save_state(tmp_path / "basis.zarr", "solve", second, built)
    (tmp_path / "kept").rename(tmp_path / "basis.zarr" / "000001")
    chunk = tmp_path / "basis.zarr" / "000002" / "basis" / "c" / "0" / "0"
    if damage == "flip":
        content = bytearray(chunk.read_bytes())
        content[10] ^= 4
        chunk.write_bytes(content)
    elif damage == "truncate":
        chunk.write_bytes(chunk.read_bytes()[:100])
    elif damage == "remove":
        chunk.unlink()
    else:
        (tmp_path / "basis.zarr" / "000002").rename(tmp_path / "basis.zarr" / ".new")
    found, _ = load_state(tmp_path / "basis.zarr", "solve")
    assert found.n_passes == 1
    np.testing.assert_array_equal(found.basis, first.basis)


def write_job(folder: Path, **settings) -> Path:
    rows = np.random.default_rng(2).normal(size=(2100, 12))
    columns = {f"x{column}": rows[:, column] for column in range(12)}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    config = {
        "source": {"uri": "rows.parquet"},
        "kernel": {"name": "rbf"},
        "n_components": 6,
        "tile_rows": 70,
        "solver": {"name": "block_krylov", "tol": 1e-10},
        "dtype": "float64",
        "output": {"path": "out"},
        **settings,
    }
    (folder / "job.yaml").write_text(json.dumps(config))
    return folder / "job.yaml"


def command(job: Path, *overrides: str) -> list[str]:
    return [sys.executable, "-m", "scalable_kpca.cli", "run", str(job), *overrides, "--json"]


def result(job: Path, *overrides: str) -> tuple[dict, tuple[str, bytes]]:
    finished = subprocess.run(command(job, *overrides), capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    run = Path(json.loads(finished.stdout.splitlines()[-1])["run"])
    bits = (run / "metrics.json").read_text(), (run / "embedding" / "part-00000.parquet").read_bytes()
    assert not (run / "basis.zarr").exists()
    return json.loads((run / "run.json").read_text()), bits


@pytest.mark.parametrize(
    "gram", ["recompute", *(pytest.param(home, marks=pytest.mark.slow) for home in ("zarr", "memory"))]
)
def test_killed_solve_repeats_no_finished_pass_and_gives_the_same_bits(gram, tmp_path):
    job = write_job(tmp_path, gram=gram)
    reference, expected = result(job, "--set", "output.path=reference")
    assert reference["resumed_passes"] == 0
    states = f"out/runs/*/basis.zarr/{3:06d}"
    process = subprocess.Popen(command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not any(tmp_path.glob(states)) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the solve ended before it could be killed"
    resumed, bits = result(job)
    assert resumed["resumed_passes"] >= 3
    assert resumed["n_passes"] == reference["n_passes"] > resumed["resumed_passes"]
    assert bits == expected


@pytest.mark.slow
def test_state_whose_tiles_were_lost_is_given_up_and_the_solve_begins_again(tmp_path):
    job = write_job(tmp_path, gram="zarr")
    _, expected = result(job, "--set", "output.path=reference")
    process = subprocess.Popen(command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not any(tmp_path.glob("out/runs/*/basis.zarr/0*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (store,) = tmp_path.glob("out/runs/*/gram.zarr")
    (store / "row_sums" / "c" / "2" / "5" / "0").unlink()
    again, bits = result(job)
    assert again["resumed_passes"] == 0
    assert again["tiles"]["computed"] == 1
    assert bits == expected
