"""The same plan gives the same bits: again, on any scheduler, with any number of workers, in either home."""

import numpy as np
import pytest

from scalable_kpca.engine import ClusterSettings, open_engine
from scalable_kpca.transform import project
from tests.support import fit, fit_on, store_rows

# four blocks and a short one: enough tasks for two threads or workers to finish in any order
TILE_ROWS, N_SAMPLES = 24, 4 * 24 + 5
X = np.random.default_rng(11).standard_normal((N_SAMPLES, 7))
CASES = [
    (home, solver, dtype)
    for home in ("memory", "zarr")
    for solver in ("dense", "arpack")
    for dtype in ("float64", "float32")
    # ARPACK on disk visits the tiles some forty times; one dtype is enough for it
    if (home, solver, dtype) != ("zarr", "arpack", "float64")
]
CASES_OF_FEW_PASSES = [case for case in CASES if case[1] == "dense"]


def options(case, workdir):
    home, solver, dtype = case
    return {
        "n_components": 3,
        "gamma": 0.05,
        "tile_rows": TILE_ROWS,
        "gram": home,
        "solver": solver,
        "dtype": dtype,
        "workdir": workdir / "-".join(case),
    }


def assert_same_bits(left, right):
    for name in ("eigenvalues", "eigenvectors"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    np.testing.assert_array_equal(left.centering.row_means, right.centering.row_means)
    assert left.centering.grand_mean == right.centering.grand_mean
    assert left.n_passes == right.n_passes
    assert left.certificate.to_json() == right.certificate.to_json()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Models of every case by the reference scheduler, one task after another."""
    workdir = tmp_path_factory.mktemp("reference")
    with open_engine("synchronous") as engine:
        return {case: fit_on(engine, X, **options(case, workdir)).model for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_same_plan_gives_the_same_bits_again(case, reference, tmp_path):
    assert_same_bits(fit(X, **options(case, tmp_path)).model, reference[case])


@pytest.mark.parametrize(
    ("case", "n_threads"),
    [*((case, 2) for case in CASES), *((case, 5) for case in CASES_OF_FEW_PASSES)],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)
def test_threads_give_the_bits_of_the_reference_scheduler(case, n_threads, reference, tmp_path):
    model = fit(X, scheduler="threads", n_threads=n_threads, **options(case, tmp_path)).model
    assert_same_bits(model, reference[case])


@pytest.mark.slow
def test_worker_processes_give_the_bits_of_the_reference_scheduler(reference, tmp_path):
    rows = store_rows(X, tmp_path / "rows.zarr", TILE_ROWS)
    with open_engine(ClusterSettings("local", n_workers=2), n_threads=1) as engine:
        for case in (*CASES_OF_FEW_PASSES, ("memory", "arpack", "float32")):
            model = fit_on(engine, rows, **options(case, tmp_path)).model
            assert_same_bits(model, reference[case])
            np.testing.assert_array_equal(project(model, X[:9]), project(reference[case], X[:9]))


@pytest.mark.parametrize("solver", ["dense", "arpack"])
def test_both_homes_give_the_same_bits(solver, reference):
    assert_same_bits(reference["memory", solver, "float32"], reference["zarr", solver, "float32"])
    if solver == "dense":
        assert_same_bits(reference["memory", solver, "float64"], reference["zarr", solver, "float64"])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tiles_that_are_read_give_the_bits_of_tiles_that_were_just_computed(dtype, tmp_path):
    chosen = options(("zarr", "dense", dtype), tmp_path)
    first, second = fit(X, **chosen), fit(X, **chosen)
    n_tiles = 5 * 6 // 2
    assert (first.build_counts.computed, first.build_counts.read) == (n_tiles, 0)
    assert (second.build_counts.computed, second.build_counts.read) == (0, n_tiles)
    assert_same_bits(first.model, second.model)


@pytest.mark.parametrize(
    "kernel", ["linear", "poly", "sigmoid", "laplacian", "cosine", "matern12", "matern32", "matern52"]
)
def test_every_kernel_gives_the_same_bits_on_threads(kernel):
    chosen = {"n_components": 4, "tile_rows": TILE_ROWS, "indefinite": "clip"}
    reference, threaded = fit(X, kernel, **chosen), fit(X, kernel, scheduler="threads", **chosen)
    assert_same_bits(reference.model, threaded.model)


def test_seed_of_arpack_changes_the_start_and_not_the_answer():
    chosen = {"n_components": 4, "tile_rows": TILE_ROWS, "gamma": 0.05, "solver": "arpack"}
    one, other = fit(X, seed=1, **chosen).model, fit(X, seed=2, **chosen).model
    assert (one.eigenvectors != other.eigenvectors).any()
    np.testing.assert_allclose(other.eigenvalues, one.eigenvalues, rtol=0, atol=1e-10 * one.eigenvalues[0])
    assert_same_bits(fit(X, seed=1, **chosen).model, one)


def test_arpack_gives_the_same_bits_where_its_start_spans_too_little():
    # five different rows: Lanczos ends after a few exact steps, and ARPACK goes on from a random vector
    rows = np.repeat(np.eye(5), 6, axis=0)
    chosen = {"kernel": "linear", "n_components": 3, "tile_rows": TILE_ROWS, "solver": "arpack"}
    reference = fit(rows, **chosen).model
    for _ in range(3):
        assert_same_bits(fit(rows, **chosen).model, reference)
