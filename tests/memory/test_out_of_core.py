"""The promise of `memory_limit`, measured: the peak resident size of a real process."""

import json
import subprocess
import sys

import numpy as np
import pytest

from scalable_kpca import KernelPCA, plan
from scalable_kpca.errors import MemoryLimitError

SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
from scalable_kpca import KernelPCA

n, d, settings = int(sys.argv[1]), int(sys.argv[3]), {"n_components": 10} | json.loads(sys.argv[2])
dtype = settings.pop("of_rows", "float32")
rng = np.random.default_rng(0)
rows = rng.uniform(-1, 1, (n, 6)).astype("float32") @ rng.normal(size=(6, d)).astype("float32")
np.tanh(rows, out=rows)
for start in range(0, n, 500):
    rows[start : start + 500] += 0.1 * rng.standard_normal((len(rows[start : start + 500]), d), dtype="float32")
rows = rows.astype(dtype, copy=False)
fit = KernelPCA(kernel="rbf", n_jobs=2, **settings).fit(rows)
certificate = fit.certificate_
away = float("nan")
if fit.fit_inverse_transform:
    # how far rows are from what their scores say, and from the mean
    back = fit.inverse_transform(fit.transform(rows[:1000]))
    away = float(np.square(back - rows[:1000]).sum() / np.square(rows[:1000] - rows.mean(axis=0)).sum())
print(json.dumps({
    # of this program alone: ru_maxrss would begin with that of the process that started it
    "peak": int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024,
    "planned": fit.plan_.peak_memory,
    "dtype": fit.plan_.dtype,
    "gram": fit.plan_.gram,
    "solver": fit.plan_.solver,
    "n_tiles": fit.plan_.n_tiles,
    "basis": fit.plan_.max_basis,
    "n_passes": fit.n_passes_,
    "eigenvalues": fit.eigenvalues_.tolist(),
    "residual": float((certificate.residual_norms / fit.eigenvalues_[0]).max()),
    "complete": certificate.complete,
    "away": away,
}))
"""


def measure(n_samples: int, n_features: int = 64, **settings) -> dict:
    command = [sys.executable, "-c", SCRIPT, str(n_samples), json.dumps(settings), str(n_features)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_exact_fit_of_30000_rows_stays_under_700_mib_with_a_gram_of_3600_mb(tmp_path):
    """ARPACK and block Krylov on the same stored tiles: the same eigenvalues, a tenth of the passes."""
    settings = {"gram": "zarr", "memory_limit": "700MiB", "workdir": str(tmp_path), "tile_rows": 3000}
    arpack = measure(30_000, eigen_solver="arpack", **settings)
    krylov = measure(30_000, **settings)
    for found in (arpack, krylov):
        assert found["dtype"] == "float32"
        # out of core for real: the matrix is several times the limit
        assert found["planned"] * 4 < 30_000**2 * 4
        assert found["peak"] <= found["planned"] <= 700 * 2**20
    assert len(list(tmp_path.glob("gram-*.zarr/tiles/c/*/*"))) == arpack["n_tiles"] == 55
    assert (arpack["solver"], krylov["solver"]) == ("arpack", "block_krylov")
    assert arpack["residual"] <= 1e-11
    assert krylov["residual"] <= 1e-6
    assert krylov["n_passes"] <= 5 < 10 * krylov["n_passes"] <= arpack["n_passes"]
    np.testing.assert_allclose(krylov["eigenvalues"], arpack["eigenvalues"], atol=1e-8 * arpack["eigenvalues"][0])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_exact_fit_of_100000_rows_stays_under_1_gib_and_is_proven_complete():
    found = measure(100_000, memory_limit="1GiB", fit_inverse_transform=True, alpha=0.001)
    assert found["away"] < 0.5
    assert found["gram"] == "recompute"
    assert found["n_passes"] <= 5
    assert found["residual"] <= 1e-6
    assert found["complete"]
    assert found["peak"] <= found["planned"] <= 2**30


@pytest.mark.parametrize(
    "gram", ["recompute", *(pytest.param(home, marks=pytest.mark.slow) for home in ("zarr", "memory"))]
)
@pytest.mark.parametrize("solver", [pytest.param("arpack", marks=pytest.mark.slow), "block_krylov"])
def test_planned_memory_is_an_upper_bound_at_the_smallest_limit(gram, solver, tmp_path):
    with pytest.raises(MemoryLimitError) as refused:
        plan(3000, 64, memory_limit=1, n_jobs=2, gram=gram, solver=solver, resident_bytes=3000 * 64 * 4)
    smallest = str(refused.value).split("raise memory_limit to ")[1].split(" bytes")[0]
    workdir = str(tmp_path) if gram == "zarr" else None
    found = measure(3000, gram=gram, eigen_solver=solver, memory_limit=smallest, workdir=workdir)
    assert found["peak"] <= found["planned"] <= int(smallest)


@pytest.mark.slow
@pytest.mark.parametrize("copy_X", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("gram", ["zarr", "memory"])
def test_planned_memory_is_an_upper_bound_of_wide_rows_of_their_copy_and_of_what_they_were(gram, dtype, copy_X):
    rows = np.zeros((3000, 6000), dtype)
    with pytest.raises(MemoryLimitError) as refused:
        KernelPCA(10, kernel="rbf", gram=gram, n_jobs=2, copy_X=copy_X, memory_limit=1, method="exact").fit(rows)
    limit = refused.value.needed
    settings = {"gram": gram, "copy_X": copy_X, "of_rows": dtype, "memory_limit": limit, "method": "exact"}
    found = measure(3000, 6000, **settings)
    assert found["peak"] <= found["planned"] <= limit
    # of float16 there are float64 rows too, and of what is copied another
    kept = rows.nbytes + (8 * rows.size if dtype == "float16" else rows.nbytes * copy_X)
    assert limit >= 240 * 2**20 + kept


@pytest.mark.slow
def test_the_way_back_keeps_to_the_limit_and_names_the_smallest():
    with pytest.raises(MemoryLimitError, match=r"learned on 2000 of them.*raise memory_limit to \d+ bytes") as refused:
        KernelPCA(2, kernel="rbf", memory_limit="300MiB", fit_inverse_transform=True).fit(np.eye(3000, 64))
    found = measure(3000, n_components=2, memory_limit=refused.value.needed, fit_inverse_transform=True)
    assert found["peak"] <= refused.value.needed


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [None, 0.9])
def test_planned_memory_is_an_upper_bound_when_every_component_is_kept(n_components):
    found = measure(3000, n_components=n_components, eigen_solver="dense")
    assert found["peak"] <= found["planned"]


@pytest.mark.slow
def test_planned_memory_is_an_upper_bound_for_many_components():
    # what is square in the basis counts: 2496 columns
    found = measure(6000, n_components=300, eigen_solver="block_krylov", gram="recompute", tol=1e-3)
    assert found["peak"] <= found["planned"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_basis_of_four_blocks_keeps_to_its_limit_in_many_passes_and_a_probe():
    # a flat spectrum: some twenty passes with restarts, and norms that prove nothing
    settings = {"gram": "recompute", "method": "exact", "gamma": 0.2, "tol": 1e-7}
    with pytest.raises(MemoryLimitError) as refused:
        KernelPCA(10, kernel="rbf", n_jobs=2, memory_limit=1, **settings).fit(np.zeros((30_000, 64), "float32"))
    found = measure(30_000, memory_limit=refused.value.needed, **settings)
    assert found["basis"] == 4 * 22
    assert found["n_passes"] > 10
    assert found["complete"]
    assert found["peak"] <= found["planned"] <= refused.value.needed
