"""Small data is the common case: what a small fit does not do, and what it proves."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.linalg
import threadpoolctl

from scalable_kpca import KernelPCA, load_model, machine
from scalable_kpca.engine import LocalEngine, blas, open_engine, several_blas_threads, single_threaded_blas
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.operator import CenteredGram
from scalable_kpca.planning import calibration, plan
from scalable_kpca.report import metrics, summary_lines
from scalable_kpca.solvers import dense, leading, solve_dense
from scalable_kpca.tiling import is_few, plan_exact
from tests.support import EPS, centred, fit, gram_of

ROWS = np.random.default_rng(3).standard_normal((420, 20))
ROWS.flags.writeable = False
CONSTANT = np.full((30, 4), 3.0)
CONSTANT.flags.writeable = False


def imported_by(program: str) -> set[str]:
    report = "\nimport sys\nprint(' '.join({name.partition('.')[0] for name in sys.modules}))"
    finished = subprocess.run([sys.executable, "-c", program + report], capture_output=True, text=True, check=True)
    return set(finished.stdout.splitlines()[-1].split())


HEAVY = {"numpy", "dask", "scipy", "sklearn", "zarr", "pyarrow", "pydantic", "pandas", "distributed"}
HELP = """
import sys
from scalable_kpca.cli import main
sys.argv = ["skpca", "--help"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
"""


@pytest.mark.parametrize(
    ("program", "unwanted"), [("import scalable_kpca", HEAVY), (HELP, HEAVY)], ids=["import", "help"]
)
def test_heavy_imports_wait_until_they_are_needed(program, unwanted):
    assert imported_by(program) & unwanted == set()


@pytest.mark.slow
def test_the_estimator_imports_no_cluster_no_tables_and_no_configuration():
    # dask and scikit-learn bring some of them themselves
    asked = imported_by("import sklearn.decomposition, dask.array")
    found = imported_by("from scalable_kpca import KernelPCA")
    assert {"numpy", "sklearn", "dask"} <= found
    assert (found - asked) & {"distributed", "pyarrow", "pydantic", "click", "pandas"} == set()


# ---------------------------------------------------------------- what is not done


def test_a_pass_over_one_tile_opens_no_threads(monkeypatch):
    opened = []
    threads_of = LocalEngine._threads
    monkeypatch.setattr(LocalEngine, "_threads", lambda engine: (opened.append(engine), threads_of(engine))[1])
    KernelPCA(2, kernel="rbf", n_jobs=2).fit(ROWS[:200])
    assert opened == []
    KernelPCA(2, kernel="rbf", n_jobs=2, tile_rows=256).fit(ROWS)
    assert opened


def test_tasks_beside_one_another_run_at_the_same_time():
    both = threading.Barrier(2, timeout=20)
    with open_engine("threads", n_threads=2) as engine:
        engine.run({"a": (both.wait,), "b": (both.wait,)}, ["a", "b"])


def test_libraries_are_looked_for_once_and_again_after_an_import(monkeypatch):
    scans = []

    class Counted(threadpoolctl.ThreadpoolController):
        def __init__(self):
            scans.append(1)
            super().__init__()

    monkeypatch.setattr(blas, "ThreadpoolController", Counted)
    monkeypatch.setattr(blas, "_scanned", None)
    estimator = KernelPCA(2, kernel="rbf").fit(ROWS[:50])
    first = len(scans)
    for _ in range(5):
        estimator.fit(ROWS[:50])
    assert len(scans) <= first + 1  # what the first fit imported may be looked for once more
    before = len(scans)
    monkeypatch.setitem(sys.modules, "tests.a_module_that_was_not_there", sys)
    with single_threaded_blas():
        pass
    assert len(scans) == before + 1


def test_a_plan_reads_no_metadata_twice(monkeypatch):
    plan(100, 5, n_components=2)
    monkeypatch.setattr(calibration, "threadpool_info", pytest.fail)
    monkeypatch.setattr(machine, "version", pytest.fail)
    plan(100, 5, n_components=2)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_each_tile_is_evaluated_once(kernel):
    found = fit(ROWS, kernel, n_components=3, tile_rows=100, gram="memory")
    assert found.build_counts.computed == 5 * 6 // 2
    assert found.model.n_passes == 2
    assert KernelPCA(3, kernel=kernel).fit(ROWS).plan_.gram == "memory"


def test_what_is_planned_is_the_same_without_a_comparison():
    options = {"n_components": 3, "memory_limit": 2**30, "n_threads": 2}
    whole, outline = plan_exact(5000, 20, **options), plan_exact(5000, 20, **options, compares=False)
    assert whole.alternatives[:1] == outline.alternatives
    assert {**vars(whole), "alternatives": ()} == {**vars(outline), "alternatives": ()}


# ---------------------------------------------------------------- few pairs of a formed matrix


def operator_of(X, kernel="rbf", **options):
    return gram_of(X, kernel, tile_rows=128, **options)


SPECTRA = {
    "decaying": 0.5 ** np.arange(30),
    "slow": 1 / np.arange(1, 201),
    "flat": np.ones(200),
    "tight cluster": np.r_[1 - 1e-9 * np.arange(8), np.linspace(0.9, 0.1, 200)],
    "equal pairs": np.repeat(np.arange(40, 0, -1.0), 2),
    "rank three": np.array([5.0, 3, 1]),
    "many scales": 10.0 ** -np.arange(14),
}


def rows_with(spectrum, n=420):
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, len(spectrum)))]))[0]
    return basis[:, 1:] * np.sqrt(spectrum)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("k", [1, 2, 7, 10])
def test_few_pairs_are_those_of_lapack_and_proven(name, k):
    X = rows_with(SPECTRA[name])
    K = centred(X @ X.T)
    expected = scipy.linalg.eigvalsh(K)[::-1][:k]
    assert is_few(len(X), k)
    model = fit(X, "linear", n_components=k).model
    allowed = len(X) * EPS * expected[0] * 4
    kept = np.where(expected > len(X) * EPS * expected[0], expected, 0)
    np.testing.assert_allclose(model.eigenvalues, kept, rtol=0, atol=allowed)
    V = model.eigenvectors
    np.testing.assert_allclose(V.T @ V, np.eye(k), rtol=0, atol=1e-12)
    assert np.linalg.norm(K @ V - V * model.eigenvalues, axis=0).max() <= allowed
    certificate = model.certificate
    assert certificate.complete
    assert certificate.failure_probability == 0
    rest = scipy.linalg.eigvalsh(K - (V * model.eigenvalues) @ V.T)[-1]
    assert rest <= certificate.missed_bound + allowed


def test_a_missed_pair_is_seen_and_lapack_finds_it(monkeypatch):
    X = rows_with(SPECTRA["decaying"])
    found = leading._lanczos

    def blind(product, n, k, *rest, **options):
        pairs = found(product, n, k + 1, *rest, **options)
        # as a start without the leading eigenvector would give: every pair but the first
        return leading._Found(pairs.values[1:], pairs.vectors[:, 1:])

    monkeypatch.setattr(leading, "_lanczos", blind)
    model = fit(X, "linear", n_components=4).model
    np.testing.assert_allclose(model.eigenvalues, SPECTRA["decaying"][:4], rtol=0, atol=1e-12)
    assert model.certificate.completeness == "the whole spectrum was computed"
    assert model.n_passes == 4  # the matrix was formed twice


def test_flat_spectra_are_proven_by_a_factorisation_and_thin_ones_by_the_norm():
    flat = fit(ROWS, "rbf", n_components=4, gamma=0.5).model.certificate
    thin = fit(rows_with(SPECTRA["rank three"]), "linear", n_components=2).model.certificate
    assert flat.completeness.startswith("a Cholesky factorisation excludes another eigenvalue above")
    assert thin.completeness.startswith("the Frobenius norm leaves no room for another eigenvalue above")


def test_many_pairs_and_few_rows_are_for_lapack():
    assert not is_few(200, 1)
    assert is_few(201, 5)
    assert not is_few(201, 6)
    assert not is_few(5000, 0)  # an unknown number
    whole = fit(ROWS, n_components=40).model
    few = fit(ROWS, n_components=10).model
    assert whole.certificate.completeness == "the whole spectrum was computed"
    np.testing.assert_allclose(few.eigenvalues, whole.eigenvalues[:10], rtol=0, atol=420 * EPS * few.eigenvalues[0])


@pytest.mark.parametrize("n_components", [3, 40])
def test_kernels_that_may_be_indefinite_are_refused_by_their_lowest_eigenvalue(n_components):
    with pytest.raises(InvalidInputError, match="not positive semi-definite"):
        fit(ROWS, "sigmoid", n_components=n_components, gamma=1.0, coef0=-1.0)
    kept = fit(ROWS, "sigmoid", n_components=n_components, gamma=1.0, coef0=-1.0, indefinite="clip").model
    expected = scipy.linalg.eigvalsh(centred(np.tanh(ROWS @ ROWS.T - 1)))[::-1][:n_components]
    np.testing.assert_allclose(kept.eigenvalues, expected, rtol=0, atol=420 * EPS * expected[0] * 4)


def spectrum_of(values, seed=0):
    """Centred symmetric matrix with some eigenvalues beside 0."""
    rng = np.random.default_rng(seed)
    n = len(values) + 1
    vectors = rng.normal(size=(n, n - 1))
    vectors = np.linalg.qr(vectors - vectors.mean(axis=0))[0]
    matrix = (vectors * values) @ vectors.T
    return (matrix + matrix.T) / 2


@pytest.mark.parametrize(("largest", "lowest"), [(100.0, -0.01), (1e4, -0.02), (10.0, -0.5)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_small_negative_eigenvalue_beside_large_ones_is_refused_by_few_pairs_too(largest, lowest, seed):
    K = spectrum_of(np.r_[largest, np.linspace(0.02, 1, 420), lowest], seed)
    for solver in ("dense", "arpack"):
        with pytest.raises(InvalidInputError, match=f"a centred eigenvalue is {lowest:.3g} or lower, "):
            KernelPCA(1, kernel="precomputed", eigen_solver=solver).fit(K)
    allowed = spectrum_of(np.r_[largest, np.linspace(0.02, 1, 420), -1e-7 * largest], seed)
    assert KernelPCA(1, kernel="precomputed", eigen_solver="dense").fit(allowed).certificate_.complete


@pytest.mark.parametrize("exponent", [-60, -20, 60])
@pytest.mark.parametrize("solver", ["dense", "arpack", "block_krylov"])
def test_the_unit_of_the_rows_changes_nothing(solver, exponent):
    X = np.random.default_rng(0).standard_normal((300, 8)) * np.arange(8, 0, -1)
    unit = 2.0 ** int(exponent / 0.30103)
    settings = {"kernel": "linear", "eigen_solver": solver}
    expected = KernelPCA(3, **settings).fit(X)
    found = KernelPCA(3, **settings).fit(X * unit)
    np.testing.assert_allclose(found.eigenvalues_ / unit / unit, expected.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(found.transform(X * unit) / unit, expected.transform(X), atol=1e-5)
    assert found.certificate_.complete
    assert found.certificate_.missed_bound >= 0.9 * np.linalg.svd(X - X.mean(0))[1][3] ** 2 * unit * unit


@pytest.mark.parametrize("solver", ["dense", "arpack", "block_krylov"])
def test_values_whose_squares_vanish_are_refused(solver):
    X = np.random.default_rng(0).standard_normal((300, 8))
    with pytest.raises(InvalidInputError, match=r"tiles of float64 need 1e-130: .*; scale the features up"):
        KernelPCA(3, kernel="linear", eigen_solver=solver).fit(X * 1e-90)
    with pytest.raises(InvalidInputError, match=r"tiles of float32 need 1e-30: .* or set dtype='float64'"):
        KernelPCA(3, kernel="linear", eigen_solver=solver, dtype="float32").fit(X * 1e-20)
    assert KernelPCA(3, kernel="linear").fit(X * 0).certificate_.complete


def test_bits_of_few_pairs_do_not_depend_on_threads():
    one, two = (KernelPCA(4, kernel="rbf", n_jobs=n_jobs, gram="memory").fit(ROWS) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.eigenvectors_, two.eigenvectors_)


# ---------------------------------------------------------------- threads of LAPACK


def blas_threads():
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


def test_lapack_has_the_threads_of_the_fit_while_it_is_alone():
    with single_threaded_blas():
        with several_blas_threads(2):
            assert blas_threads() == {2}
        assert blas_threads() == {1}
        with single_threaded_blas(), several_blas_threads(2):
            assert blas_threads() == {1}  # another user computes
        with pytest.raises(ZeroDivisionError), several_blas_threads(2):
            raise ZeroDivisionError
        assert blas_threads() == {1}


def in_a_thread(function):
    """What a function returns in another thread, which ends."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_the_limit_is_back_when_another_begins_to_compute():
    with single_threaded_blas():
        with several_blas_threads(2):
            assert blas_threads() == {2}
            with single_threaded_blas():
                assert blas_threads() == {1}
        assert blas_threads() == {1}


def test_the_limit_holds_whichever_threads_begin_and_end_it():
    before = blas_threads()
    KernelPCA(2, kernel="rbf").fit(ROWS[:50])  # in this thread first, which goes on
    first, second = single_threaded_blas(), single_threaded_blas()
    in_a_thread(first.__enter__)
    assert blas_threads() == {1}
    second.__enter__()
    in_a_thread(lambda: first.__exit__(None, None, None))
    assert blas_threads() == {1}
    in_a_thread(lambda: second.__exit__(None, None, None))
    assert blas_threads() == before


def test_limits_of_others_work_in_other_threads_after_a_fit():
    KernelPCA(2, kernel="rbf").fit(ROWS[:50])

    def limited():
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            return blas_threads()

    assert in_a_thread(limited) == {1}


def test_bits_of_few_pairs_do_not_depend_on_the_thread():
    here = KernelPCA(4, kernel="rbf", gram="memory").fit(ROWS)
    there = in_a_thread(lambda: KernelPCA(4, kernel="rbf", gram="memory").fit(ROWS))
    np.testing.assert_array_equal(here.eigenvectors_, there.eigenvectors_)


FORKING = """
import faulthandler, multiprocessing, sys, threading
import numpy as np
from scalable_kpca import KernelPCA
faulthandler.dump_traceback_later(100, exit=True)
X = np.random.default_rng(0).normal(size=(1100, 5))
stop = threading.Event()

def fits():
    while not stop.is_set():
        KernelPCA(None, kernel="rbf", gamma=0.1, n_jobs=2).fit(X)

def child():
    import threadpoolctl
    from scalable_kpca.engine.blas import _state
    fit = KernelPCA(2, kernel="rbf").fit(X[:50])
    sys.exit(0 if _state.users == 0 and fit.eigenvalues_[0] > 0 else 1)

thread = threading.Thread(target=fits)
thread.start()
children = [multiprocessing.get_context("fork").Process(target=child) for _ in range(6)]
for process in children:
    process.start()
    process.join(15)
stop.set()
thread.join()
print([process.exitcode for process in children])
for process in children:
    process.kill()
"""


@pytest.mark.slow
def test_children_of_fork_fit_while_their_parent_does():
    finished = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=False)
    assert finished.stdout.strip() == str([0] * 6), finished.stderr


@pytest.mark.parametrize(("n_threads", "rows"), [(2, 420), (1, 10)])
def test_few_rows_do_not_wait_for_threads(monkeypatch, n_threads, rows):
    asked = []
    monkeypatch.setattr(dense, "several_blas_threads", lambda n: (asked.append(n), several_blas_threads(n))[1])
    with operator_of(ROWS[:rows]) as gram:
        solve_dense(CenteredGram(gram), n_threads=n_threads)
    assert asked == [1]


# ---------------------------------------------------------------- no components at all


@pytest.mark.parametrize(
    "options",
    [
        {"n_components": None},
        {"n_components": 3, "remove_zero_eig": True},
        {"n_components": 0.5, "remove_zero_eig": True},
        {"n_components": 3, "remove_zero_eig": True, "eigen_solver": "arpack"},
        {"n_components": 3, "remove_zero_eig": True, "eigen_solver": "block_krylov"},
        {"n_components": 3, "remove_zero_eig": True, "eigen_solver": "power"},
        {"n_components": None, "method": "nystroem", "n_landmarks": 8},
        {"n_components": 3, "remove_zero_eig": True, "method": "nystroem", "n_landmarks": 8},
        {"n_components": 3, "remove_zero_eig": True, "method": "nystroem", "n_landmarks": 8, "max_passes": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_constant_rows_have_no_component_that_is_not_zero(options, kernel, tmp_path):
    found = KernelPCA(kernel=kernel, **options)
    assert found.fit_transform(CONSTANT).shape == (30, 0)
    assert found.transform(ROWS[:5, :4]).shape == (5, 0)
    assert found.explained_variance_ratio_.shape == found.eigenvalues_.shape == (0,)
    found.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.n_components == 0
    assert loaded.certificate.to_json() == found.certificate_.to_json()


def test_no_components_have_a_report():
    found = fit(CONSTANT, n_components=None)
    lines = summary_lines(found, 0.1)
    assert lines[1].startswith("no eigenvalue that is not zero")
    assert metrics(found.model)["eigenvalues"] == []


@pytest.mark.parametrize("solver", ["block_krylov", "power"])
def test_a_tolerance_of_zero_is_the_default_of_blocks(solver):
    options = {"n_components": 2, "solver": solver, "gamma": 0.05, "tile_rows": 128}
    default, zero = (fit(ROWS, tol=tol, **options).model for tol in (None, 0.0))
    np.testing.assert_array_equal(zero.eigenvectors, default.eigenvectors)
    assert zero.n_passes == default.n_passes
