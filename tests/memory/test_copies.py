"""Memory of copying: a CSV or Arrow file never stands in memory, and what is copied is all of it."""

import gzip
import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

MIB = 2**20

SCRIPT = """
import json, sys
from pathlib import Path
from scalable_kpca.source import Copies, open_source

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024

here, uri = Path(sys.argv[1]), sys.argv[2]
copies = Copies(here / "tables")
open_source("small" + uri.removeprefix("large"), here, id_columns=["id"], copies=copies)  # imports
before = peak()
n_rows = open_source(uri, here, id_columns=["id"], copies=copies).n_samples
print(json.dumps({"growth": peak() - before, "n_rows": n_rows}))
"""


def measure(folder, uri):
    command = [sys.executable, "-c", SCRIPT, str(folder), uri]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A file of 300 MiB, and one of few rows."""
    folder = tmp_path_factory.mktemp("text")
    values = np.random.default_rng(0).standard_normal((2000, 20))
    lines = "".join(f"row-{number}," + ",".join(map(repr, map(float, row))) + "\n" for number, row in enumerate(values))
    header = "id," + ",".join(f"x{column}" for column in range(20)) + "\n"
    times = -(-300 * MIB // len(lines))
    with (folder / "large.csv").open("w") as stream:
        stream.write(header)
        for _ in range(times):
            stream.write(lines)
    (folder / "small.csv").write_text(header + lines)
    yield folder, 2000 * times
    shutil.rmtree(folder)


@pytest.mark.slow
def test_text_of_300_mib_is_copied_within_160(text):
    folder, n_rows = text
    found = measure(folder, "large.csv")
    assert found["n_rows"] == n_rows
    # 32 blocks of 2 MiB that are read ahead, tables of 32 MiB, and these encoded, with what the allocator keeps
    assert found["growth"] <= 160 * MIB, found


@pytest.mark.slow
def test_compressed_text_is_copied_within_160_mib_too(text):
    folder, n_rows = text
    for name in ("small.csv", "large.csv"):
        with (folder / name).open("rb") as plain, gzip.open(folder / f"{name}.gz", "wb", compresslevel=1) as packed:
            shutil.copyfileobj(plain, packed, 2**20)
    found = measure(folder, "large.csv.gz")
    assert found["n_rows"] == n_rows
    assert found["growth"] <= 160 * MIB, found


@pytest.mark.slow
def test_arrow_in_many_batches_is_copied_within_160_mib_of_its_own_pages(tmp_path):
    def write(name, times):
        rng = np.random.default_rng(0)
        columns = {"id": np.arange(20_000)} | {f"x{column}": rng.standard_normal(20_000) for column in range(20)}
        batch = pa.record_batch(columns)
        options = ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(tmp_path / name), "wb") as sink, ipc.new_file(sink, batch.schema, options=options) as file:
            for _ in range(times):
                file.write_batch(batch)

    write("small.arrow", 1)
    write("large.arrow", 100)
    size = (tmp_path / "large.arrow").stat().st_size
    assert size > 300 * MIB
    found = measure(tmp_path, "large.arrow")
    assert found["n_rows"] == 2_000_000
    # the pages of the mapped file, which the system takes back when it needs them, count as memory of the process
    assert found["growth"] <= size + 160 * MIB, found
