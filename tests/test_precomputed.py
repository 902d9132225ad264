"""Exact fits of kernels that the caller has evaluated, wholly (`precomputed`) or as a function."""

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.decomposition import KernelPCA as Reference
from sklearn.metrics.pairwise import additive_chi2_kernel, chi2_kernel, rbf_kernel

from scalable_kpca import KernelPCA, load_model, project
from scalable_kpca.errors import ConfigError, InvalidInputError

N, K = 90, 4
GAMMA = 0.3


def rows(n=N, seed=3):
    X = np.random.default_rng(seed).normal(size=(n, 5))
    X.setflags(write=False)
    return X


def gram():
    matrix = rbf_kernel(rows(), gamma=GAMMA)
    matrix.setflags(write=False)
    return matrix


def by_rows(**settings):
    return KernelPCA(K, kernel="rbf", gamma=GAMMA, **settings).fit(rows())


def stored(matrix, tmp_path):
    return zarr.create_array(str(tmp_path / "gram.zarr"), data=np.array(matrix), chunks=(17, 40))


HOLDERS = {
    "numpy": lambda matrix, _: matrix,
    "float32": lambda matrix, _: matrix.astype(np.float32),
    "F order": lambda matrix, _: np.asfortranarray(matrix),
    "dask": lambda matrix, _: da.from_array(np.array(matrix), chunks=(25, 31)),
    "zarr": stored,
}


@pytest.mark.parametrize("home", ["auto", "memory", "zarr", "recompute"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_precomputed_kernel_gives_what_its_rows_give(holder, home, tmp_path):
    matrix, expected = HOLDERS[holder](gram(), tmp_path), by_rows()
    ours = KernelPCA(K, kernel="precomputed", gram=home, tile_rows=32, dtype="float64").fit(matrix)
    eps = np.finfo(np.float32 if holder == "float32" else np.float64).eps
    largest = expected.eigenvalues_[0]
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, atol=N * eps * largest)
    assert ours.certificate_.complete
    assert ours.plan_.method == "exact"
    # eigenvectors turn by the error over the gap to their neighbours, here at least a tenth of the largest eigenvalue
    new = rows(7, seed=8)
    scores = ours.transform(rbf_kernel(new, rows(), gamma=GAMMA))
    np.testing.assert_allclose(scores, expected.transform(new), atol=1e4 * eps * np.sqrt(largest))
    np.testing.assert_array_equal(gram(), np.asarray(gram()))


@pytest.mark.parametrize("solver", ["dense", "arpack", "block_krylov", "power"])
def test_every_solver_takes_a_precomputed_kernel(solver):
    ours = KernelPCA(K, kernel="precomputed", eigen_solver=solver, tile_rows=32, dtype="float64").fit(gram())
    np.testing.assert_allclose(ours.eigenvalues_, by_rows().eigenvalues_, rtol=1e-9)


def decaying(X, Y):
    return np.exp(-0.02 * np.square(X[:, None] - Y[None, :]).sum(axis=2))


def of_low_rank(X, Y):
    return X @ Y.T


def nearly_singular(X, Y):
    return (X @ Y.T / 10 + 1) ** 3


@pytest.mark.parametrize("solver", ["arpack", "block_krylov"])
@pytest.mark.parametrize("kernel", [decaying, of_low_rank, nearly_singular])
def test_a_kernel_that_is_not_known_to_be_definite_takes_few_passes_more(kernel, solver):
    # its lowest eigenvalues cannot be told from 0: Krylov spaces that look for them do not converge
    settings = {"method": "exact", "eigen_solver": solver, "dtype": "float64"}
    X = rows(600)
    clipped = KernelPCA(3, kernel=kernel, indefinite="clip", **settings).fit(X)
    ours = KernelPCA(3, kernel=kernel, **settings).fit(X)
    np.testing.assert_array_equal(ours.eigenvalues_, clipped.eigenvalues_)
    assert ours.certificate_.complete
    assert ours.n_passes_ <= clipped.n_passes_ + 40


def test_a_limit_of_passes_holds_for_the_look_at_the_lowest_eigenvalue():
    settings = {"method": "exact", "eigen_solver": "block_krylov", "dtype": "float64", "kernel": decaying}
    clipped = KernelPCA(3, indefinite="clip", **settings).fit(rows(600))
    limit = clipped.n_passes_ + 1  # enough for the solve
    assert KernelPCA(3, **settings).fit(rows(600)).n_passes_ > clipped.n_passes_ + limit
    assert KernelPCA(3, max_passes=limit, **settings).fit(rows(600)).n_passes_ <= clipped.n_passes_ + limit


def test_rounding_of_products_in_float32_makes_no_kernel_indefinite():
    # far from the origin K is much larger than K centred
    settings = {"method": "exact", "eigen_solver": "block_krylov", "dtype": "float32"}
    ours = KernelPCA(2, kernel=lambda X, Y: X @ Y.T + 3e3, **settings).fit(rows(600))
    assert ours.plan_.product_dtype == "float32"
    truth = np.linalg.svd(rows(600) - rows(600).mean(axis=0))[1][:2] ** 2
    np.testing.assert_allclose(ours.eigenvalues_, truth, rtol=1e-2)


def test_centred_additive_chi2_is_positive_semidefinite_and_no_pass_asks_for_more():
    X = np.abs(rows(300))
    settings = {"method": "exact", "eigen_solver": "arpack", "kernel": "additive_chi2", "dtype": "float64"}
    ours = KernelPCA(3, **settings).fit(X)
    K = additive_chi2_kernel(X)
    centring = np.eye(300) - 1 / 300
    truth = np.linalg.eigvalsh(centring @ K @ centring)[::-1]
    assert truth[-1] >= -300 * np.finfo(float).eps * np.abs(K).max() * 300
    np.testing.assert_allclose(ours.eigenvalues_, truth[:3], rtol=1e-10)
    assert (ours.certificate_.eigenvalue_bounds > 0).all()
    assert ours.n_passes_ == KernelPCA(3, indefinite="clip", **settings).fit(X).n_passes_


def test_a_float32_matrix_has_tiles_of_float32():
    assert KernelPCA(K, kernel="precomputed").fit(gram().astype(np.float32)).plan_.dtype == "float32"
    assert KernelPCA(K, kernel="precomputed").fit(gram()).plan_.dtype == "float64"


def test_nothing_of_a_precomputed_kernel_stays_in_a_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    KernelPCA(K, kernel="precomputed", gram="zarr", tile_rows=32).fit(da.from_array(np.array(gram()), chunks=25))
    workdir = tmp_path / "work"
    leftover = workdir / "passing-of-a-killed-fit"
    leftover.mkdir(parents=True)
    KernelPCA(K, kernel="precomputed", gram="zarr", tile_rows=32, workdir=workdir).fit(gram())
    assert [path for path in tmp_path.rglob("*") if path != workdir] == []


@pytest.mark.slow
def test_an_active_client_reads_a_precomputed_kernel_from_the_workdir(tmp_path):
    from distributed import Client, LocalCluster

    expected = KernelPCA(K, kernel="precomputed", tile_rows=32).fit(gram())
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster),
    ):
        ours = KernelPCA(K, kernel="precomputed", tile_rows=32, workdir=tmp_path).fit(gram())
        by_columns = KernelPCA(K, kernel="precomputed", max_passes=2, method="nystroem", workdir=tmp_path)
        refined = by_columns.set_params(landmarks=np.arange(0, N, 2)).fit(gram())
    np.testing.assert_array_equal(ours.eigenvalues_, expected.eigenvalues_)
    np.testing.assert_allclose(refined.eigenvalues_, expected.eigenvalues_, rtol=1e-3)
    assert list(tmp_path.iterdir()) == []  # a matrix is of no use to another fit


@pytest.mark.parametrize("holder", ["numpy", "dask", "zarr"])
@pytest.mark.parametrize("place", [(3, 80), (80, 3), (50, 50), (40, 41)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_not_finite_are_named(holder, place, value, tmp_path):
    matrix = np.array(gram())
    matrix[place] = value
    words = rf"K\[{place[0]}, {place[1]}\] of the precomputed kernel is {value} \(1 of 1 such entries\)"
    with pytest.raises(InvalidInputError, match=words):
        KernelPCA(K, kernel="precomputed", tile_rows=32).fit(HOLDERS[holder](matrix, tmp_path))


@pytest.mark.parametrize(("place", "name"), [((17, 40), r"K\[:, 40\]"), ((17, 17), r"K\[i, i\]")])
def test_entries_that_landmarks_read_are_named_as_entries_of_the_matrix(place, name):
    matrix = np.array(gram())
    matrix[place] = np.nan
    settings = {"kernel": "precomputed", "method": "nystroem", "landmarks": np.array([3, 40, 8])}
    with pytest.raises(InvalidInputError, match=rf'row 17, column "{name}" is NaN'):
        KernelPCA(2, **settings).fit(matrix)


def test_functions_of_truth_values_and_of_unsigned_numbers_are_kernels():
    def alike(X, Y):
        return (X[:, None, 0] > 0) == (Y[None, :, 0] > 0)

    expected = KernelPCA(1, kernel=lambda X, Y: alike(X, Y).astype(float)).fit(rows()).eigenvalues_
    for kernel in (alike, lambda X, Y: alike(X, Y).astype(np.uint8)):
        np.testing.assert_allclose(KernelPCA(1, kernel=kernel).fit(rows()).eigenvalues_, expected)


def test_entries_whose_difference_is_beyond_float64_are_asymmetric_without_a_warning():
    matrix = np.eye(20)
    matrix[2, 3], matrix[3, 2] = 1e308, -1e308
    with pytest.raises(InvalidInputError, match=r"K\[2, 3\] = 1e\+308"):
        KernelPCA(1, kernel="precomputed").fit(matrix)


def test_values_of_a_function_that_are_no_real_numbers_are_refused():
    for function, words in (
        (lambda X, Y: X @ Y.T + 0j, "gave values of dtype complex128"),
        (lambda X, Y: (X @ Y.T).astype(object), "gave values of dtype object"),
        (lambda x, y: complex(float(x @ y)), "gave the complex number"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            KernelPCA(2, kernel=function).fit(rows())


def test_a_function_that_gives_no_number_is_not_called_asymmetric():
    with pytest.raises(InvalidInputError, match="the kernel of rows 0 and 0 is nan"):
        KernelPCA(2, kernel=lambda X, Y: X @ Y.T + np.nan).fit(rows())


@pytest.mark.parametrize("holder", ["numpy", "dask", "zarr"])
@pytest.mark.parametrize("place", [(3, 80), (80, 3), (50, 49)])
def test_the_worst_pair_that_is_not_symmetric_is_named(holder, place, tmp_path):
    matrix = np.array(gram())
    matrix[place] += 1e-3
    matrix[0, 1] += 1e-4
    upper, lower = sorted(place), sorted(place, reverse=True)
    words = rf"not symmetric: K\[{upper[0]}, {upper[1]}\] = .* and K\[{lower[0]}, {lower[1]}\] = "
    with pytest.raises(InvalidInputError, match=words):
        KernelPCA(K, kernel="precomputed", tile_rows=32).fit(HOLDERS[holder](matrix, tmp_path))


def test_rounding_is_no_asymmetry():
    X = np.random.default_rng(0).normal(size=(N, 3000))
    X = np.concatenate([X, X])
    matrix = np.vstack([block @ X.T for block in np.array_split(X, 7)])  # not syrk: halves round apart
    noisy = matrix * (1 + 1e-15 * np.random.default_rng(1).choice([-1, 1], size=matrix.shape))
    assert KernelPCA(2, kernel="precomputed", tile_rows=64).fit(noisy).certificate_.complete


def test_a_kernel_that_is_not_square_or_sparse_is_refused():
    with pytest.raises(InvalidInputError, match=r"shape \(n_samples, n_samples\), and X has \(90, 89\)"):
        KernelPCA(K, kernel="precomputed").fit(gram()[:, :-1])
    from scipy import sparse

    with pytest.raises(TypeError, match=r"[Ss]parse"):
        KernelPCA(K, kernel="precomputed").fit(sparse.csr_array(gram()))


def test_a_precomputed_model_keeps_no_rows_and_survives_saving(tmp_path):
    ours = KernelPCA(K, kernel="precomputed").fit(gram())
    with pytest.raises(AttributeError, match="X_fit_"):
        ours.X_fit_  # noqa: B018
    ours.save(tmp_path / "model")
    new = rbf_kernel(rows(7, seed=8), rows(), gamma=GAMMA)
    np.testing.assert_array_equal(project(load_model(tmp_path / "model"), new), ours.transform(new))
    assert not hasattr(ours, "novelty")
    assert not hasattr(ours, "partial_fit")


def test_all_components_of_what_does_not_fit_in_memory_take_landmarks_and_say_so():
    lazy_ones = da.ones((4000, 4000), chunks=1000)
    with pytest.warns(UserWarning, match=r"approximate.*method=nystroem: exact does not fit"):
        ours = KernelPCA(kernel="precomputed", n_landmarks=30, memory_limit="500MiB").fit(lazy_ones)
    assert ours.plan_.method == "nystroem"
    assert ours.eigenvalues_.shape == (0,)


# ---------------------------------------------------------------------------------------------------- functions


def blocks(X, Y, gamma=GAMMA):
    return rbf_kernel(X, Y, gamma=gamma)


def pairs(x, y, gamma=GAMMA):
    return float(np.exp(-gamma * np.sum((x - y) ** 2)))


def histogram(x, y):
    return np.minimum(x, y).sum()


@pytest.mark.parametrize("home", ["memory", "zarr", "recompute"])
@pytest.mark.parametrize("function", [blocks, pairs])
def test_a_function_is_a_kernel_in_every_home(function, home, tmp_path):
    ours = KernelPCA(K, kernel=function, gram=home, tile_rows=32, workdir=tmp_path).fit(rows())
    expected = by_rows(tile_rows=32)
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-12)
    new = rows(7, seed=8)
    np.testing.assert_allclose(ours.transform(new), expected.transform(new), atol=1e-10)
    assert not list(tmp_path.rglob("*.zarr"))  # tiles of a function have no identity by which to be found again


def test_functions_of_two_rows_give_what_scikit_learn_gives():
    X = np.abs(rows(30))
    ours, theirs = KernelPCA(3, kernel=histogram).fit(X), Reference(3, kernel=histogram, eigen_solver="dense").fit(X)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-12)


def test_kernel_params_reach_the_function():
    ours = KernelPCA(K, kernel=blocks, kernel_params={"gamma": 0.7}).fit(rows())
    expected = KernelPCA(K, kernel="rbf", gamma=0.7).fit(rows())
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-12)


def test_a_function_works_with_landmarks_and_on_dask():
    lazy_rows = da.from_array(np.array(rows()), chunks=(25, 5))
    settings = {"method": "nystroem", "landmarks": np.arange(0, N, 3)}
    ours = KernelPCA(K, kernel=blocks, **settings).fit(lazy_rows)
    expected = KernelPCA(K, kernel="rbf", gamma=GAMMA, **settings).fit(rows())
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(ours.transform(lazy_rows).compute(), expected.transform(rows()), atol=1e-8)


def test_a_function_that_is_no_kernel_is_refused_with_what_it_did():
    with pytest.raises(InvalidInputError, match=r"takes neither two blocks of rows \(.*\) nor two rows \(.*\); give f"):
        KernelPCA(K, kernel=lambda X: X).fit(rows())
    with pytest.raises(InvalidInputError, match=r"is not symmetric: .* differ by"):
        KernelPCA(K, kernel=lambda X, Y: X @ Y.T + X.sum(axis=1)[:, None]).fit(rows())
    with pytest.raises(InvalidInputError, match=r"not positive semi-definite.*indefinite=\"clip\""):
        KernelPCA(K, kernel=lambda X, Y: -(X @ Y.T)).fit(rows())
    with pytest.raises(InvalidInputError, match=r"rows 0 and 0 is nan"):
        KernelPCA(K, kernel=lambda X, Y: np.sqrt(0 * (X @ Y.T) - (len(X) > 3))).fit(rows())


def test_a_function_takes_no_sparse_rows():
    from scipy import sparse

    with pytest.raises(InvalidInputError, match=r"takes no sparse rows; pass dense ones"):
        KernelPCA(K, kernel=blocks).fit(sparse.csr_array(rows()))


def test_one_row_is_enough_to_tell_what_a_function_takes():
    for function in (blocks, pairs):
        ours = KernelPCA(1, kernel=function).fit(rows(1))
        assert ours.eigenvalues_ == [0]


def test_a_model_of_a_function_is_loaded_with_the_function(tmp_path):
    ours = KernelPCA(K, kernel=blocks, kernel_params={"gamma": 0.2}).fit(rows())
    ours.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"test_precomputed:blocks.*load_model\(path, kernel=function\)"):
        load_model(tmp_path / "model")
    new = rows(7, seed=8)
    loaded = load_model(tmp_path / "model", kernel=blocks)
    np.testing.assert_array_equal(project(loaded, new), ours.transform(new))
    by_rows().save(tmp_path / "named")
    with pytest.raises(ValueError, match="is 'rbf'"):
        load_model(tmp_path / "named", kernel=blocks)


def test_arguments_that_cannot_be_written_down_are_refused_where_they_have_to_be(tmp_path):
    ours = KernelPCA(K, kernel=lambda X, Y, w: (X * w) @ (Y * w).T, kernel_params={"w": np.ones(5)}).fit(rows())
    with pytest.raises(ConfigError, match=r"functools\.partial"):
        ours.save(tmp_path / "model")


# ---------------------------------------------------------------------------------------------------- scikit-learn's


@pytest.mark.parametrize(("name", "function"), [("chi2", chi2_kernel), ("additive_chi2", additive_chi2_kernel)])
def test_scikit_learns_pairwise_kernels_give_what_their_matrix_gives(name, function):
    X, options = np.abs(rows()), {"gamma": 0.4} if name == "chi2" else {}
    ours = KernelPCA(K, kernel=name, tile_rows=32, **options).fit(X)
    theirs = Reference(K, kernel="precomputed", eigen_solver="dense").fit(function(X, **options))
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-10)
    scores = theirs.transform(function(X, **options))
    np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(scores), atol=1e-9)


def test_polynomial_is_poly():
    by_name = [KernelPCA(K, kernel=name, gamma=0.4).fit(rows()).eigenvalues_ for name in ("polynomial", "poly")]
    np.testing.assert_array_equal(*by_name)


def test_chi2_tiles_are_scikit_learns_function():
    from scalable_kpca.kernels import kernel_block, resolve_kernel

    X, Y = np.abs(rows(40)), np.abs(rows(50, seed=1))
    ours = kernel_block(resolve_kernel("chi2", gamma=0.4, n_features=5), X, Y)
    np.testing.assert_array_equal(ours, chi2_kernel(X, Y, 0.4))
    ours = kernel_block(resolve_kernel("additive_chi2", n_features=5), X, Y)
    np.testing.assert_array_equal(ours, additive_chi2_kernel(X, Y))


@pytest.mark.parametrize("name", ["chi2", "additive_chi2"])
def test_negative_amounts_are_refused_by_chi2(name):
    with pytest.raises(InvalidInputError, match=rf"kernel='{name}' compares amounts, and a feature is -"):
        KernelPCA(K, kernel=name).fit(rows())
