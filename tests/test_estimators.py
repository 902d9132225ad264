import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.base import clone
from sklearn.decomposition import KernelPCA as ReferenceKernelPCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import scalable_kpca
from scalable_kpca import KernelPCA, load_model, plan, project
from scalable_kpca.errors import AccuracyWarning, InvalidInputError, MemoryLimitError, NotConvergedError


@pytest.fixture(name="X")
def rows() -> np.ndarray:
    rows = np.random.default_rng(3).normal(size=(90, 5))
    rows.setflags(write=False)
    return rows


def reference(X, **parameters):
    return ReferenceKernelPCA(eigen_solver="dense", **parameters).fit(X)


def test_defaults_are_scikit_learns(X):
    ours, theirs = KernelPCA().get_params(), ReferenceKernelPCA().get_params()
    assert {name: ours[name] for name in theirs} == theirs
    fitted = KernelPCA(4).fit(X)
    expected = reference(X, n_components=4).eigenvalues_
    np.testing.assert_allclose(fitted.eigenvalues_, expected, atol=1e-10 * expected[0])
    assert fitted.n_features_in_ == 5


@pytest.mark.parametrize("gram", ["memory", "zarr"])
@pytest.mark.parametrize("eigen_solver", ["dense", "arpack"])
def test_fit_transform_equals_transform_and_scikit_learn(X, gram, eigen_solver):
    ours = KernelPCA(3, kernel="rbf", gamma=0.2, gram=gram, eigen_solver=eigen_solver, tile_rows=32)
    scores = ours.fit_transform(X)
    np.testing.assert_allclose(scores, ours.transform(X), atol=1e-12)
    expected = reference(X, n_components=3, kernel="rbf", gamma=0.2).transform(X)
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=1e-10)
    assert ours.plan_.gram == gram


def test_dask_rows_give_the_same_numbers_and_lazy_scores(X):
    lazy_rows = da.from_array(np.array(X), chunks=(25, 2))
    ours, expected = KernelPCA(3, kernel="rbf").fit(lazy_rows), KernelPCA(3, kernel="rbf").fit(X)
    np.testing.assert_array_equal(ours.eigenvalues_, expected.eigenvalues_)
    scores = ours.transform(lazy_rows)
    assert isinstance(scores, da.Array)
    assert scores.chunks == ((25, 25, 25, 15), (3,))
    np.testing.assert_allclose(scores.compute(), expected.transform(X), atol=1e-13)


def test_dask_rows_of_unknown_length_are_counted(X):
    lazy_rows = da.from_array(np.array(X), chunks=(25, 5))
    unknown = lazy_rows[lazy_rows[:, 0] > 0]
    ours = KernelPCA(2, kernel="rbf").fit(unknown)
    expected = KernelPCA(2, kernel="rbf").fit(X[X[:, 0] > 0])
    np.testing.assert_array_equal(ours.eigenvalues_, expected.eigenvalues_)


def test_zarr_rows_give_the_same_numbers(X, tmp_path):
    stored = zarr.create_array(str(tmp_path / "x.zarr"), data=np.array(X), chunks=(13, 5))
    ours = KernelPCA(3, kernel="rbf").fit(stored)
    np.testing.assert_array_equal(ours.eigenvalues_, KernelPCA(3, kernel="rbf").fit(X).eigenvalues_)


def test_workdir_is_resumed_and_reused(X, tmp_path):
    settings = {"kernel": "rbf", "gram": "zarr", "workdir": tmp_path, "tile_rows": 32}
    first = KernelPCA(3, **settings).fit(X)
    tiles = sorted(tmp_path.glob("gram-*.zarr/tiles/c/*/*"))
    assert len(tiles) == first.plan_.n_tiles == 6
    times = [tile.stat().st_mtime_ns for tile in tiles]
    second = KernelPCA(5, **settings).fit(X)
    assert [tile.stat().st_mtime_ns for tile in tiles] == times
    np.testing.assert_allclose(second.eigenvalues_[:3], first.eigenvalues_, atol=1e-12)


def test_other_rows_in_the_same_workdir_leave_the_first_model_intact(X, tmp_path):
    lazy_rows = da.from_array(np.array(X), chunks=(30, 5))
    first = KernelPCA(2, kernel="rbf", gram="zarr", workdir=tmp_path).fit(lazy_rows)
    scores = first.transform(X)
    KernelPCA(2, kernel="rbf", gram="zarr", workdir=tmp_path).fit(lazy_rows[::-1] + 1)
    np.testing.assert_array_equal(first.transform(X), scores)


def test_temporary_tiles_and_rows_are_gone_after_the_fit(X, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = KernelPCA(2, kernel="rbf", gram="zarr").fit(da.from_array(np.array(X), chunks=(30, 5)))
    assert list(tmp_path.iterdir()) == []
    assert ours.transform(X).shape == (90, 2)


def test_fraction_takes_the_smallest_number_that_reaches_it(X):
    everything = KernelPCA(None, kernel="rbf", gamma=0.1).fit(X)
    ratios = np.cumsum(everything.explained_variance_ratio_)
    np.testing.assert_allclose(ratios[-1], 1, atol=1e-12)
    ours = KernelPCA(0.8, kernel="rbf", gamma=0.1).fit(X)
    assert len(ours.eigenvalues_) == int(np.argmax(ratios >= 0.8)) + 1


def test_more_components_than_rows_are_capped_with_a_warning(X):
    with pytest.warns(UserWarning, match="n_components=9 is more than the 6 rows"):
        ours = KernelPCA(9, kernel="rbf").fit(X[:6])
    assert len(ours.eigenvalues_) == 6
    assert ours.eigenvalues_[-1] == 0
    assert not ours.transform(X)[:, -1].any()


def test_model_survives_saving_and_loading(X, tmp_path):
    ours = KernelPCA(3, kernel="poly", degree=2).fit(X)
    ours.save(tmp_path / "model")
    np.testing.assert_array_equal(project(load_model(tmp_path / "model"), X), ours.transform(X))


def test_synchronous_scheduler_of_dask_is_respected_with_the_same_bits(X):
    with dask.config.set(scheduler="synchronous"):
        ours = KernelPCA(3, kernel="rbf").fit(X)
    np.testing.assert_array_equal(ours.eigenvalues_, KernelPCA(3, kernel="rbf").fit(X).eigenvalues_)


@pytest.mark.slow
@pytest.mark.parametrize("gram", ["memory", "zarr"])
def test_an_active_client_is_used_with_the_same_bits(X, gram):
    from distributed import Client, LocalCluster

    expected = KernelPCA(3, kernel="rbf", gram=gram, tile_rows=32).fit(X)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster,
        Client(cluster),
    ):
        ours = KernelPCA(3, kernel="rbf", gram=gram, tile_rows=32).fit(X)
    np.testing.assert_array_equal(ours.eigenvalues_, expected.eigenvalues_)
    np.testing.assert_array_equal(ours.eigenvectors_, expected.eigenvectors_)
    np.testing.assert_array_equal(ours.transform(X), expected.transform(X))


def test_estimator_clones_and_works_in_a_pipeline(X):
    ours = clone(KernelPCA(2, kernel="rbf", gamma="scale"))
    scores = make_pipeline(StandardScaler(), ours).fit_transform(X)
    assert scores.shape == (90, 2)
    assert list(ours.get_feature_names_out()) == ["kernelpca0", "kernelpca1"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named_by_row_and_column(X, value):
    bad = np.array(X)
    bad[17, 3] = value
    with pytest.raises(InvalidInputError, match=r"row 17, column 3 is (NaN|infinity|-infinity) \(1 of 1 such rows\)"):
        KernelPCA(2).fit(bad)
    with pytest.raises(InvalidInputError, match="row 17, column 3"):
        KernelPCA(2).fit(X).transform(bad)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"kernel": "rfb"}, "kernel='rfb' is not known"),
        ({"kernel": "rbf", "gamma": -1}, "gamma=-1"),
        ({"kernel": "rbf", "gamma": "auto"}, "gamma='auto'"),
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": 1.5}, "n_components=1.5"),
        ({"n_components": True}, "n_components=True"),
        ({"gram": "tape"}, "gram='tape' is not known; choose one of auto, zarr, memory"),
        ({"eigen_solver": "magic"}, "eigen_solver='magic' is not known"),
        ({"dtype": "float16"}, "dtype='float16' is not known"),
        ({"tile_rows": 0}, "tile_rows=0"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"memory_limit": "much"}, "'much' is not a size"),
        ({"indefinite": "ignore"}, "indefinite='ignore' is not known"),
        ({"eigen_solver": "magic"}, "choose one of .*arpack.*randomized"),
        ({"kernel": ["rbf"]}, "kernel=.* is not known"),
        ({"gamma": [1.0]}, r"gamma=\[1.0\]; a number ≥ 0"),
        ({"gamma": -1.0}, r"gamma=-1.0; a finite number ≥ 0"),
        ({"degree": "three"}, "degree='three'; a finite number is needed"),
        ({"coef0": None}, "coef0=None; a finite number is needed"),
        ({"kernel_params": 3}, "kernel_params=3; a dict"),
        ({"tol": "a"}, "tol='a'; a finite number ≥ 0 or None"),
        ({"tol": np.nan}, "tol=nan; a finite number ≥ 0 or None"),
        ({"max_passes": "a"}, "max_passes='a'; an integer ≥ 0 or None"),
        ({"max_iter": 0}, "max_iter=0; an integer ≥ 1"),
        ({"iterated_power": -1}, "iterated_power=-1; an integer ≥ 0 or 'auto'"),
        ({"n_landmarks": 1.5}, "n_landmarks=1.5; an integer ≥ 1"),
        ({"landmarks": None}, "landmarks=None; one of uniform"),
        ({"landmarks": "far"}, "landmarks='far' is not known"),
        ({"landmarks": [[1.0], [1.0, 2.0]]}, r"landmarks=\[\[1.0\], \[1.0, 2.0\]\]; one of uniform"),
        ({"memory_limit": np.inf}, "memory_limit=inf is not a size"),
        ({"memory_limit": "1e400"}, "memory_limit='1e400' is not a size"),
        ({"fit_inverse_transform": 3.5}, "fit_inverse_transform=3.5; True, False, ridge or fixed_point"),
        ({"kernel_params": pd.Series({"a": 1})}, "a dict of the kernel function"),
        ({"workdir": 3}, "workdir=3; the path of a directory or None"),
        ({"remove_zero_eig": "no"}, "remove_zero_eig='no'; True or False"),
        ({"copy_X": None}, "copy_X=None; True or False"),
        ({"random_state": "dice"}, "random_state='dice'; an integer ≥ 0"),
        ({"random_state": -1}, "random_state=-1; an integer ≥ 0"),
        ({"memory_limit": [1]}, r"memory_limit=\[1\] is not a size"),
        ({"memory_limit": True}, "memory_limit=True is not a size"),
        ({"on_failure": "shrug"}, "on_failure='shrug' is not known"),
        ({"method": None}, "method=None is not known"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_by_name_before_rows_are_read(parameters, words):
    with pytest.raises(ValueError, match=words):
        KernelPCA(**parameters).fit(NotRead())


class NotRead:
    def __getattr__(self, name):
        raise AssertionError(f"{name} of the rows was looked at")


@pytest.mark.parametrize("solver", ["arpack", "randomized", "block_krylov", "power"])
def test_solvers_that_find_some_components_leave_all_of_them_to_the_dense_one(X, solver):
    ours, expected = KernelPCA(kernel="rbf", eigen_solver=solver).fit(X), KernelPCA(kernel="rbf").fit(X)
    np.testing.assert_array_equal(ours.eigenvalues_, expected.eigenvalues_)
    assert ours.plan_.solver == "dense"
    assert any("all components are wanted, and iterative solvers find some" in reason for reason in ours.plan_.reasons)


def test_rows_that_are_no_numbers_or_no_matrix_are_refused():
    with pytest.raises(InvalidInputError, match="not a number"):
        KernelPCA(2).fit(np.array([["a", "b"], ["c", "d"]], object))
    with pytest.raises(ValueError, match="0 sample"):
        KernelPCA(2).fit(np.empty((0, 3)))
    with pytest.raises(ValueError, match="0 feature"):
        KernelPCA(2).fit(np.empty((3, 0)))
    with pytest.raises(InvalidInputError, match=r"shape \(0, 3\)"):
        KernelPCA(2).fit(da.empty((0, 3)))
    with pytest.raises(ValueError, match="1D array"):
        KernelPCA(2).fit(np.arange(5.0))


def test_another_width_at_transform_is_refused_by_both_numbers(X):
    ours = KernelPCA(2).fit(X)
    with pytest.raises(ValueError, match=r"4 features.* 5 features"):
        ours.transform(X[:, :4])
    with pytest.raises(InvalidInputError, match=r"4 features.* 5 features"):
        ours.transform(da.from_array(np.array(X[:, :4])))


def test_indefinite_kernel_is_refused_in_the_same_words_by_both_solvers(X):
    messages = []
    for solver in ("dense", "arpack"):
        with pytest.raises(InvalidInputError, match="not positive semi-definite") as caught:
            KernelPCA(2, kernel="sigmoid", gamma=2, coef0=-1, eigen_solver=solver).fit(X)
        messages.append(str(caught.value).split(":")[0])
    assert messages[0] == messages[1]
    clipped = KernelPCA(2, kernel="sigmoid", gamma=2, coef0=-1, indefinite="clip").fit(X)
    assert (clipped.eigenvalues_ > 0).all()


def test_memory_limit_that_cannot_work_names_one_that_does(X):
    with pytest.raises(MemoryLimitError, match="raise memory_limit to") as caught:
        KernelPCA(2, memory_limit="1MiB").fit(X)
    named = int(str(caught.value).split("raise memory_limit to ")[1].split(" bytes")[0])
    KernelPCA(2, memory_limit=named).fit(X)


def test_public_plan_agrees_with_the_plan_of_the_fit(X):
    ours = KernelPCA(2, kernel="rbf", memory_limit="1GiB", n_jobs=2).fit(X)
    announced = plan(90, 5, n_components=2, memory_limit="1GiB", n_jobs=2)
    assert (announced.gram, announced.tile_rows, announced.solver) == (
        ours.plan_.gram, ours.plan_.tile_rows, ours.plan_.solver
    )  # fmt: skip


def test_public_names_are_few_and_exist():
    assert len(scalable_kpca.__all__) <= 12
    for name in scalable_kpca.__all__:
        assert getattr(scalable_kpca, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = scalable_kpca.nonsense


@pytest.mark.parametrize("solver", ["dense", "block_krylov"])
@pytest.mark.parametrize("outlier", [-999_999.0, 1e9, 1e12])
def test_one_far_outlier_does_not_spoil_the_other_rows(outlier, solver):
    rows = np.random.default_rng(0).normal(size=(500, 5))
    rows[7, 2] = outlier
    distances = np.square(rows[:, None] - rows[None]).sum(axis=2)
    K = np.exp(-0.1 * distances)
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    expected = np.linalg.eigvalsh(centred)[::-1][:4]
    ours = KernelPCA(4, kernel="rbf", gamma=0.1, eigen_solver=solver, dtype="float64", tol=1e-11).fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, expected, atol=1e-10 * expected[0])


def test_two_clusters_at_a_distance_of_1e8_are_both_resolved():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    rows[::2] += 1e8
    # differences of coordinates are exact to 1e-8 here: the reference is what these float64 rows really are
    distances = np.square(rows[:, None] - rows[None]).sum(axis=2)
    K = np.exp(-0.2 * distances)
    centred = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    expected = np.linalg.eigvalsh(centred)[::-1][:5]
    ours = KernelPCA(5, kernel="rbf", gamma=0.2).fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, expected, atol=1e-10 * expected[0])


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_cosine_does_not_depend_on_the_scale_of_the_rows(X, scale):
    expected = KernelPCA(3, kernel="cosine").fit(X).eigenvalues_
    np.testing.assert_allclose(
        KernelPCA(3, kernel="cosine").fit(np.array(X) * scale).eigenvalues_, expected, rtol=1e-12
    )


def test_transform_of_a_zarr_array_of_another_width_is_refused_and_changes_nothing(X, tmp_path):
    ours = KernelPCA(2).fit(X)
    narrow = zarr.create_array(str(tmp_path / "x.zarr"), data=np.array(X[:, :3]), chunks=(13, 3))
    with pytest.raises(InvalidInputError, match=r"3 features.* 5 features"):
        ours.transform(narrow)
    assert ours.n_features_in_ == 5
    stored = zarr.create_array(str(tmp_path / "y.zarr"), data=np.array(X), chunks=(13, 5))
    np.testing.assert_array_equal(ours.transform(stored), ours.transform(X))


def test_nan_in_lazy_rows_is_an_error_and_not_a_score(X):
    ours = KernelPCA(2).fit(X)
    bad = np.array(X)
    bad[3, 1] = np.nan
    with pytest.raises(InvalidInputError, match="row 3, column 1 is NaN"):
        ours.transform(da.from_array(bad)).compute()
    with pytest.raises(InvalidInputError, match="row 3, column 1 is NaN"):
        project(ours.model_, bad)
    with pytest.raises(InvalidInputError, match=r"shape \(5,\)"):
        project(ours.model_, bad[0])


@pytest.mark.parametrize("dtype", ["complex128", "datetime64[s]", "U3"])
def test_lazy_rows_that_are_no_real_numbers_are_refused(dtype):
    with pytest.raises(InvalidInputError, match="real numbers are needed"):
        KernelPCA(2).fit(da.from_array(np.zeros((6, 2), dtype)))


def test_repeated_fits_leave_one_copy_of_the_rows_in_workdir(X, tmp_path):
    lazy_rows = da.from_array(np.array(X), chunks=(30, 5))
    for _ in range(3):
        KernelPCA(2, kernel="rbf", gram="zarr", workdir=tmp_path).fit(lazy_rows)
    assert len(list(tmp_path.glob("rows-*.zarr"))) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_fits_of_the_same_rows_in_one_workdir_at_the_same_time_all_succeed(X, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    def fit(_):
        return KernelPCA(3, kernel="rbf", gram="zarr", workdir=tmp_path, tile_rows=30).fit(X).eigenvalues_

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(fit, range(4)))
    expected = KernelPCA(3, kernel="rbf", tile_rows=30).fit(X).eigenvalues_
    for eigenvalues in found:
        np.testing.assert_array_equal(eigenvalues, expected)


@pytest.mark.parametrize("shape", [(0, 5), (-4, 5), (1.7, 5), (True, 5), (10, 0)])
def test_plan_of_an_impossible_shape_is_refused(shape):
    with pytest.raises(ValueError, match="an integer ≥ 1 is needed"):
        plan(*shape)


def test_numpy_numbers_are_numbers(X):
    assert plan(10_000, 5, n_components=np.int64(10)).solver == "block_krylov"
    assert len(KernelPCA(np.int64(3)).fit(X).eigenvalues_) == 3
    assert len(KernelPCA(np.float32(0.5)).fit(X).eigenvalues_) >= 1


@pytest.mark.parametrize("gram", ["memory", "zarr", "recompute"])
def test_block_krylov_agrees_with_scikit_learn_in_every_home(X, gram):
    ours = KernelPCA(3, kernel="rbf", gamma=0.2, gram=gram, eigen_solver="randomized", tile_rows=32).fit(X)
    expected = reference(X, n_components=3, kernel="rbf", gamma=0.2).eigenvalues_
    np.testing.assert_allclose(ours.eigenvalues_, expected, atol=1e-9 * expected[0])
    assert ours.plan_.solver == "block_krylov"


def test_large_fraction_by_block_krylov_takes_the_number_that_dense_takes():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2300, 6)) * [5, 3, 2, 1, 0.5, 0.1]
    ours = KernelPCA(0.9, kernel="linear", dtype="float64").fit(rows)
    variances = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    assert ours.plan_.solver == "block_krylov"
    assert len(ours.eigenvalues_) == int(np.argmax(np.cumsum(variances) / variances.sum() >= 0.9)) + 1
    np.testing.assert_allclose(ours.eigenvalues_, (2299 * variances)[: len(ours.eigenvalues_)], rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rank_deficient_rows_are_not_called_indefinite_and_end_in_zeros(dtype):
    rows = np.random.default_rng(0).normal(size=(400, 3))
    ours = KernelPCA(8, kernel="linear", eigen_solver="block_krylov", dtype=dtype).fit(rows)
    expected = reference(rows, n_components=3).eigenvalues_
    np.testing.assert_allclose(ours.eigenvalues_[:3], expected, atol=1e-6 * expected[0])
    assert ours.eigenvalues_[3:].tolist() == [0.0] * 5
    assert not ours.transform(rows)[:, 3:].any()


def test_indefinite_kernel_is_refused_by_block_krylov_from_its_own_ritz_values(X):
    with pytest.raises(InvalidInputError, match="not positive semi-definite"):
        KernelPCA(2, kernel="sigmoid", gamma=2, coef0=-1, eigen_solver="block_krylov").fit(X)


@pytest.mark.parametrize("solver", ["dense", "arpack", "block_krylov"])
def test_constant_rows_have_zero_components_with_every_solver(solver):
    ours = KernelPCA(3, kernel="rbf", eigen_solver=solver).fit(np.ones((30, 4)))
    assert ours.eigenvalues_.tolist() == [0.0] * 3
    assert not ours.transform(np.random.default_rng(0).normal(size=(5, 4))).any()
    assert ours.certificate_.total_variance == 0


def test_tiny_gamma_in_float32_warns_and_float64_resolves_it():
    rows = np.random.default_rng(0).normal(size=(2500, 8))
    with pytest.warns(AccuracyWarning, match="set dtype='float64'"):
        KernelPCA(3, kernel="rbf", gamma=1e-6).fit(rows)
    exact = KernelPCA(3, kernel="rbf", gamma=1e-6, dtype="float64").fit(rows)
    # to first order in γ the kernel is 1 − γ‖x − y‖², whose centred Gram matrix is 2γ times that of the rows
    variances = np.linalg.eigvalsh(np.cov(rows.T))[::-1][:3]
    np.testing.assert_allclose(exact.eigenvalues_, 2e-6 * 2499 * variances, rtol=1e-4)


@pytest.mark.slow
def test_spectrum_that_cannot_be_told_apart_ends_after_a_hundred_passes_at_most():
    with pytest.raises(NotConvergedError, match="max_passes=100"):
        KernelPCA(
            3, kernel="rbf", gamma=0.2, eigen_solver="block_krylov", tol=1e-16, dtype="float64", tile_rows=120
        ).fit(np.random.default_rng(0).normal(size=(2000, 40)))  # 1e-7 is left then


@pytest.mark.parametrize("solver", ["auto", "dense", "block_krylov"])
@pytest.mark.parametrize("n_components", [1, 0.5, None])
def test_one_row_has_one_zero_component_and_none_that_is_not(n_components, solver):
    if n_components is None and solver == "block_krylov":
        return  # refused: it needs a number or a share
    found = KernelPCA(n_components, kernel="rbf", eigen_solver=solver).fit(np.ones((1, 3)))
    assert found.eigenvalues_.tolist() == ([] if n_components is None else [0.0])
