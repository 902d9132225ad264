"""The promise of `memory_limit`, measured: the peak resident size of a real process."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource, sys
import numpy as np
from scalable_kpca import KernelPCA

n, d, limit, workdir = int(sys.argv[1]), 64, sys.argv[2], sys.argv[3]
rng = np.random.default_rng(0)
rows = np.tanh(rng.uniform(-1, 1, (n, 6)) @ rng.normal(size=(6, d))).astype("float32")
rows += 0.1 * rng.standard_normal((n, d), dtype="float32")
fit = KernelPCA(10, kernel="rbf", gram="zarr", memory_limit=limit, workdir=workdir, n_jobs=2).fit(rows)
print(json.dumps({
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "planned": fit.plan_.peak_memory,
    "dtype": fit.plan_.dtype,
    "n_tiles": fit.plan_.n_tiles,
    "n_passes": fit.n_passes_,
    "residual": float((fit.certificate_.residual_norms / fit.eigenvalues_[0]).max()),
}))
"""


def measure(n_samples: int, limit: str, workdir) -> dict:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(n_samples), limit, str(workdir)], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_exact_fit_of_30000_rows_stays_under_700_mib_with_a_gram_of_3600_mb(tmp_path):
    found = measure(30_000, "700MiB", tmp_path)
    assert found["dtype"] == "float32"
    # out of core for real: the matrix is several times the limit
    assert found["planned"] * 4 < 30_000**2 * 4
    assert found["peak"] <= 700 * 2**20
    assert found["peak"] <= found["planned"]
    assert found["residual"] <= 1e-12
    assert len(list(tmp_path.glob("gram-*.zarr/tiles/c/*/*"))) == found["n_tiles"]


def test_planned_memory_is_an_upper_bound_at_the_smallest_limit(tmp_path):
    from scalable_kpca import plan
    from scalable_kpca.errors import MemoryLimitError

    with pytest.raises(MemoryLimitError) as refused:
        plan(3000, 64, memory_limit=1, n_jobs=2, gram="zarr", resident_bytes=3000 * 64 * 4)
    smallest = str(refused.value).split("raise memory_limit to ")[1].split(" bytes")[0]
    found = measure(3000, smallest, tmp_path)
    assert found["peak"] <= found["planned"] <= int(smallest)
