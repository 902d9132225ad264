"""The example reads a database in batches, and a job runs on what it wrote."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from scalable_kpca import KernelPCA

SCRIPT = Path(__file__).parents[2] / "pipelines" / "from_sql.py"


def call(*command):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)


def test_a_query_becomes_the_source_of_a_job(tmp_path):
    n = 25_000  # three batches
    rows = np.random.default_rng(0).normal(size=(n, 3))
    with closing(sqlite3.connect(tmp_path / "orders.sqlite")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, amount REAL, weight REAL, distance REAL)")
        every = [(number, *row) for number, row in enumerate(rows.tolist())]
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", [*every[::-1], (n, None, 0.0, 0.0)])
        connection.commit()
    made = call(SCRIPT, tmp_path / "orders.sqlite", tmp_path / "rows")
    assert (made.returncode, made.stdout) == (0, f"{n} rows\n"), made.stderr
    again = call(SCRIPT, tmp_path / "orders.sqlite", tmp_path / "rows")
    assert again.returncode != 0
    assert "rows exists; name a new directory" in again.stderr
    config = {
        "source": {"uri": "rows", "id": "id"},
        "kernel": {"name": "linear"},
        "n_components": 2,
        "method": "nystroem",
        "nystroem": {"n_landmarks": 3},
        "dtype": "float64",
        "output": {"path": "out"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(config))
    done = call("-m", "scalable_kpca.cli", "run", tmp_path / "job.yaml", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    scores = pq.read_table(answer["embedding"])
    assert scores["id"].to_pylist() == list(range(n))
    found = np.column_stack([scores["pc_000"], scores["pc_001"]])
    pca = KernelPCA(2, kernel="linear", method="nystroem", n_landmarks=3, dtype="float64", random_state=0)
    expected = pca.fit_transform(rows)
    # three independent rows span the space, so that linear scores do not depend on which; signs may
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)
