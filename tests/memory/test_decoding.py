"""Memory of reading: a span of a file never holds what its row group or the file holds."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

N, D, SPAN_ROWS, BATCH_ROWS = 2**20, 64, 2**16, 2048

SCRIPT = """
import json, sys
from pathlib import Path
from scalable_kpca.source import open_source

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024

def read(spans):
    for span in spans:
        for batch in span.batches(batch_rows):
            pass
        del batch  # it may be a view of the whole span
    return sum(span.n_rows for span in spans)

here, uri, span_rows, batch_rows = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
read(open_source("small" + Path(uri).suffix, here).spans(span_rows))  # what is imported at the first read
spans = open_source(uri, here).spans(span_rows)
before = peak()
n_rows = read(spans)
print(json.dumps({
    "growth": peak() - before,
    "n_rows": n_rows,
    "n_spans": len(spans),
    "held": max(getattr(span, "held_bytes", 0) for span in spans),
}))
"""


def table(n):
    rng = np.random.default_rng(0)
    return pa.table({f"x{c}": rng.standard_normal(n, dtype="float32") for c in range(D)})


def measure(folder, uri, span_rows=SPAN_ROWS):
    command = [sys.executable, "-c", SCRIPT, str(folder), uri, str(span_rows), str(BATCH_ROWS)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found["n_rows"] == N
    return found


@pytest.mark.slow
def test_span_of_a_row_group_of_a_million_rows_holds_little_more_than_its_own_rows(tmp_path):
    """Row groups of 64 chunks, 4 MiB each and a dictionary of 1 MiB: pyarrow's defaults."""
    pq.write_table(table(100), tmp_path / "small.parquet")
    pq.write_table(table(N), tmp_path / "large.parquet")
    assert pq.read_metadata(tmp_path / "large.parquet").num_row_groups == 1
    found = measure(tmp_path, "large.parquet")
    assert found["n_spans"] == N // SPAN_ROWS
    # the rows of the span, 16 of the columns at 2 MiB each, and two pieces
    assert found["held"] == SPAN_ROWS * D * 4 + 16 * 2 * 2**20 + 2 * 2**20
    # pyarrow's allocator keeps up to as much as it has given out; the row group is 256 MiB, and 300 as it is stored
    assert found["growth"] <= 2 * found["held"] < 2**27


@pytest.mark.slow
def test_whole_file_is_read_without_holding_its_row_group(tmp_path):
    pq.write_table(table(100), tmp_path / "small.parquet")
    pq.write_table(table(N), tmp_path / "large.parquet")
    found = measure(tmp_path, "large.parquet", span_rows=N)
    # every column with its dictionary and page, 2 MiB, and two pieces; the rows are 256 MiB
    assert found["held"] == D * 2 * 2**20 + 2 * 2**20
    assert found["growth"] <= 1.5 * found["held"]


@pytest.mark.slow
def test_mapped_array_does_not_stay_in_memory(tmp_path):
    np.save(tmp_path / "small.npy", np.zeros((10, D), "float32"))
    np.save(tmp_path / "large.npy", np.ones((N, D), "float32"))
    found = measure(tmp_path, "large.npy", span_rows=N)
    # a batch, the pages that it is copied from and the batch before, and as much for what was not imported before
    assert found["growth"] <= 2 * 3 * BATCH_ROWS * D * 4 + 2**22 < N * D * 4 / 30
