"""Memory of a Nyström fit is what the plan says, and does not grow with the rows: measured in real processes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MIB = 2**20

FIT = """
import json, sys
from pathlib import Path
import numpy as np
from scalable_kpca import KernelPCA

n, d, settings = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
rows = np.random.default_rng(0).standard_normal((n, d), dtype="float32")
fit = KernelPCA(10, kernel="rbf", method="nystroem", n_jobs=2, **settings).fit(rows)
fit.transform(rows[:100])
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps({"peak": peak, "planned": fit.plan_.peak_memory}))
"""

RUN = """
import sys
from pathlib import Path
from scalable_kpca.cli import skpca
try:
    skpca(sys.argv[1:])
finally:
    print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("n", "d", "settings"),
    [
        (200_000, 64, {"n_landmarks": 1000}),
        (50_000, 784, {"n_landmarks": 500}),
        (50_000, 784, {"n_landmarks": 500, "landmarks": "kmeans++"}),
        (20_000, 8, {"n_landmarks": 3000}),
        (100_000, 32, {"n_landmarks": 800, "landmarks": "rpcholesky"}),
        (100_000, 32, {"n_landmarks": 800, "landmarks": "kmeans++"}),
    ],
)
def test_fit_keeps_to_its_plan(n, d, settings):
    asked = [sys.executable, "-c", FIT, str(n), str(d), json.dumps(settings)]
    finished = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found["peak"] <= found["planned"] <= 4 * found["peak"]


def write_files(folder: Path, n: int, rows_of_a_file: int) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for start in range(0, n, rows_of_a_file):
        rows = rng.standard_normal((rows_of_a_file, 64), dtype=np.float32)
        columns = {"id": np.arange(start, start + len(rows))} | {f"x{j:02d}": rows[:, j] for j in range(64)}
        # one row group a file, as pyarrow writes it by default: the dear case
        pq.write_table(pa.table(columns), folder / f"part-{start}.parquet")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_parquet_to_parquet_keeps_to_its_limit_and_does_not_grow_with_the_rows(tmp_path):
    peaks, limit = {}, 800 * MIB
    for n in (250_000, 1_000_000):
        write_files(tmp_path / str(n), n, 250_000)
        config = {
            "source": {"uri": str(n), "id": "id"},
            "kernel": {"name": "rbf"},
            "method": "nystroem",
            "budget": {"memory": limit},
            "output": {"path": f"out-{n}"},
            "cluster": {"n_threads": 2},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(config))
        asked = [sys.executable, "-c", RUN, "run", str(tmp_path / "job.yaml")]
        finished = subprocess.run(asked, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
        peaks[n] = int(finished.stdout.splitlines()[-1])
        assert peaks[n] <= limit
        for stage in ("look", "accumulate", "score"):
            assert f"{stage}: {n} of {n}" in finished.stderr
        (pointer,) = (tmp_path / f"out-{n}").glob("latest.json")
        run = tmp_path / f"out-{n}" / "runs" / json.loads(pointer.read_text())["run"]
        ids = np.concatenate([pq.read_table(part)["id"].to_numpy() for part in sorted((run / "embedding").iterdir())])
        assert np.array_equal(np.sort(ids), np.arange(n))
    # four times the rows: what grows is the tables of scores that wait to be written, which are bounded
    assert peaks[1_000_000] <= peaks[250_000] + 200 * MIB
