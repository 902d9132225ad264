"""`KernelPCA` by landmarks: the same numbers from any input, more rows later, passes that refine, a saved model."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.base import clone

from scalable_kpca import KernelPCA, load_model, merge, project
from scalable_kpca.errors import AccuracyWarning, ConfigError, InvalidInputError, MemoryLimitError
from scalable_kpca.model import NystroemModel

N, D, M, K = 600, 5, 80, 4
GAMMA = 0.1


def rows(n=N, seed=0, dtype="float64"):
    X = (np.random.default_rng(seed).standard_normal((n, D)) * np.linspace(2, 0.5, D)).astype(dtype)
    X.setflags(write=False)
    return X


def estimator(**options):
    asked = {"kernel": "rbf", "gamma": GAMMA, "method": "nystroem", "n_landmarks": M, "dtype": "float64"}
    return KernelPCA(K, **{**asked, **options})


@pytest.fixture(scope="module")
def fitted():
    return estimator().fit(rows())


def assert_same_fit(found, expected, tolerance=1e-10):
    assert np.abs(found.eigenvalues_ - expected.eigenvalues_).max() <= tolerance * expected.eigenvalues_[0]


def test_fit_transform_is_the_transform_of_the_training_rows(fitted):
    scores = estimator().fit_transform(rows())
    assert np.array_equal(scores, fitted.transform(rows()))
    assert np.abs(scores.T @ scores - np.diag(fitted.eigenvalues_)).max() <= 1e-12 * fitted.eigenvalues_[0]
    assert np.abs(project(fitted.model_, rows()[:7]) - scores[:7]).max() <= 1e-12 * np.abs(scores).max()


def test_attributes_say_what_kind_of_fit_it_is(fitted):
    assert isinstance(fitted.model_, NystroemModel)
    assert fitted.plan_.method == "nystroem"
    assert fitted.n_passes_ == 0
    assert fitted.landmarks_.shape == (M, D)
    assert fitted.gamma_ == GAMMA
    assert not hasattr(fitted, "eigenvectors_")
    assert fitted.certificate_.trace_residual > 0
    assert list(fitted.get_feature_names_out()) == [f"kernelpca{i}" for i in range(K)]
    again = clone(fitted).fit(rows())
    assert np.array_equal(again.eigenvalues_, fitted.eigenvalues_)


def test_attributes_of_an_earlier_fit_do_not_stay():
    found = estimator().fit(rows())
    found.set_params(method="exact").fit(rows(100))
    assert not hasattr(found, "landmarks_")
    assert found.eigenvectors_.shape == (100, K)


@pytest.mark.parametrize("chunks", [(600,), (100, 1, 499), (300, 0, 300)])
def test_dask_rows_are_streamed_by_their_own_blocks_to_the_same_fit(fitted, chunks):
    X = da.from_array(rows(), chunks=(600, 2)).rechunk((chunks, 3))
    found = estimator()
    scores = found.fit_transform(X)
    assert_same_fit(found, fitted)
    assert np.array_equal(found.landmarks_, fitted.landmarks_)  # drawn by row numbers, whatever the blocks
    assert np.abs(scores - fitted.transform(rows())).max() <= 1e-9
    lazy = found.transform(X)
    assert isinstance(lazy, da.Array)
    assert np.abs(lazy.compute(scheduler="synchronous") - scores).max() <= 1e-12


def test_zarr_rows_are_read_where_they_are(fitted, tmp_path):
    X = zarr.open_array(str(tmp_path / "X"), mode="w", shape=(N, D), chunks=(64, D), dtype="float64")
    X[...] = rows()
    assert_same_fit(estimator().fit(X), fitted, 1e-13)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_every_scheduler_gives_the_same_bits(fitted, scheduler):
    with dask.config.set(scheduler=scheduler):
        found = estimator(n_jobs=3).fit(rows())
    assert np.array_equal(found.eigenvalues_, fitted.eigenvalues_)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky"])
def test_every_choice_of_landmarks_fits(landmarks):
    found = estimator(landmarks=landmarks).fit(rows())
    K_ = estimator(method="exact").fit(rows())
    assert (found.eigenvalues_ <= K_.eigenvalues_ + 1e-10).all()
    assert (K_.eigenvalues_ <= found.eigenvalues_ + found.certificate_.eigenvalue_bounds).all()


def test_landmarks_are_given_as_rows_or_by_number():
    at = np.arange(0, N, 7)
    by_rows, by_number = estimator(landmarks=rows()[at]).fit(rows()), estimator(landmarks=at).fit(rows())
    assert np.array_equal(by_rows.eigenvalues_, by_number.eigenvalues_)
    assert np.array_equal(by_rows.landmarks_, rows()[at])
    with pytest.raises(InvalidInputError, match="3 features"):
        estimator(landmarks=np.ones((4, 3))).fit(rows())


def test_rows_that_come_later_are_added_without_the_earlier_ones():
    found = estimator(landmarks=rows()[:M])
    for start in range(0, N, 100):
        found.partial_fit(rows()[start : start + 100])
    expected = estimator(landmarks=rows()[:M]).fit(rows())
    assert found.model_.n_samples == N
    assert_same_fit(found, expected)
    assert found.certificate_.trace_residual == pytest.approx(expected.certificate_.trace_residual, rel=1e-9)
    assert 0.5 < found.landmark_drift_ < 2


def test_batches_may_be_smaller_than_the_number_of_components():
    found = estimator().fit(rows()[:500])
    found.partial_fit(rows()[500:501]).partial_fit(rows()[501:])
    assert found.model_.n_samples == N
    small = estimator()
    with pytest.warns(UserWarning, match="more than the 2 rows"):
        small.partial_fit(rows()[:2])
    small.partial_fit(rows()[2:])
    assert small.eigenvalues_.shape == (K,)
    assert small.eigenvalues_[2:].tolist() == [0.0] * (K - 2)  # two landmarks are all there are
    with pytest.raises(AttributeError) as refused:
        estimator().fit(rows()).set_params(max_passes=1).partial_fit  # noqa: B018
    assert "max_passes=None" in str(refused.value.__cause__)


@pytest.mark.parametrize(("kernel", "landmarks"), [("linear", "rpcholesky"), ("rbf", "kmeans++")])
def test_fewer_landmarks_than_components_may_be_found(kernel, landmarks):
    X = np.round(np.abs(np.sign(rows()[:, :3])) * (rows()[:, :3] > 0))
    found = KernelPCA(10, kernel=kernel, method="nystroem", n_landmarks=40, landmarks=landmarks).fit(X)
    assert found.eigenvalues_[0] > 0
    assert found.eigenvalues_[8:].tolist() == [0.0] * 2
    zero = KernelPCA(5, kernel="linear", method="nystroem", n_landmarks=40, landmarks="rpcholesky").fit(X * 0)
    assert zero.eigenvalues_.tolist() == [0.0] * 5


def test_rows_unlike_the_landmarks_show_in_the_drift():
    found = estimator().fit(rows())
    before = found.certificate_.relative_residual
    found.partial_fit(rows(50, seed=3) + 30.0)
    assert found.landmark_drift_ == pytest.approx(1 / before, rel=1e-6)  # nothing of them is reached


def test_rows_cannot_be_added_to_an_exact_fit():
    exact = estimator(method="exact").fit(rows())
    with pytest.raises(AttributeError) as refused:
        exact.partial_fit  # noqa: B018
    assert "method='nystroem'" in str(refused.value.__cause__)
    with pytest.raises(ConfigError, match="method='nystroem'"):
        exact.set_params(method="nystroem").partial_fit(rows())


def test_models_of_parts_merge_in_any_grouping():
    X, options = rows(), {"landmarks": rows()[:M]}
    expected = estimator(**options).fit(X)
    a, b, c = (estimator(**options).fit(part).model_ for part in (X[:50], X[50:450], X[450:]))
    for merged in (merge(merge(a, b), c), merge(a, merge(b, c)), merge(merge(c, a), b)):
        assert merged.n_samples == N
        assert np.abs(merged.eigenvalues - expected.eigenvalues_).max() <= 1e-10 * expected.eigenvalues_[0]
    with pytest.raises(ConfigError, match="same landmarks"):
        merge(a, estimator(landmarks=X[1 : M + 1]).fit(X).model_)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_saved_model_scores_grows_and_merges_as_before(dtype, tmp_path):
    found = estimator(dtype=dtype).fit(rows()[:400])
    found.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(project(loaded, rows()), project(found.model_, rows()))
    assert loaded.certificate.to_json() == found.certificate_.to_json()
    other = estimator(dtype=dtype, landmarks=found.landmarks_).fit(rows()[400:]).model_
    assert np.array_equal(merge(loaded, other).eigenvalues, merge(found.model_, other).eigenvalues)


def test_each_pass_brings_the_pairs_nearer_to_the_exact_ones():
    X, exact = rows(), estimator(method="exact").fit(rows())
    start = estimator(n_landmarks=20).fit(X)
    errors = [np.abs(start.eigenvalues_ - exact.eigenvalues_).max()]
    for passes in (1, 2, 3):
        found = estimator(n_landmarks=20, max_passes=passes, tol=0).fit(X)
        assert found.n_passes_ == passes
        assert [len(norms) for norms in found.residual_history_] == [K] * passes
        errors.append(np.abs(found.eigenvalues_ - exact.eigenvalues_).max())
        # an eigenvalue lies within the residual of each value, and block Krylov's values only rise
        assert (exact.eigenvalues_ - found.eigenvalues_ <= found.certificate_.eigenvalue_bounds + 1e-10).all()
        assert found.transform(X).shape == (N, K)
    assert errors[0] > 5 * errors[1] > 500 * errors[2]
    assert max(found.residual_history_[2]) < 0.1 * max(found.residual_history_[0])


def test_no_pass_at_all_is_nystroem_whatever_the_method(fitted):
    for method in ("auto", "exact", "nystroem"):
        assert np.array_equal(estimator(method=method, max_passes=0).fit(rows()).eigenvalues_, fitted.eigenvalues_)


def test_small_data_is_exact_by_default_and_what_does_not_fit_is_not():
    assert KernelPCA(K, kernel="rbf").fit(rows()).plan_.method == "exact"
    large = KernelPCA(2, kernel="rbf", n_landmarks=50, memory_limit="500MiB")
    with pytest.warns(AccuracyWarning, match=r"approximate.* \(method=nystroem: exact does not fit"):
        large.fit(da.zeros((2_000_000, 3), chunks=100_000))
    assert large.plan_.method == "nystroem"
    assert any("exact" in reason for reason in large.plan_.reasons)


def test_a_limit_that_cannot_hold_the_landmarks_is_refused_with_numbers():
    with pytest.raises(MemoryLimitError, match="n_landmarks"):
        estimator(n_landmarks=20_000, memory_limit="500MiB").fit(da.zeros((30_000, 3), chunks=10_000))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_entries_are_named_by_row_and_column(fitted, bad):
    X = rows().copy()
    X[433, 2] = bad
    for call in (estimator().fit, estimator().fit(rows()).partial_fit, fitted.transform):
        with pytest.raises(InvalidInputError, match="row 433, column 2"):
            call(X)


def test_more_components_than_landmarks_are_refused_before_any_pass():
    with pytest.raises(ConfigError, match="n_landmarks"):
        estimator(n_landmarks=K - 1).fit(rows())


def test_sigmoid_is_refused_and_clipped_on_request():
    with pytest.raises(InvalidInputError, match="not positive semi-definite"):
        estimator(
            kernel="sigmoid",
            gamma=0.5,
        ).fit(rows())
    found = estimator(kernel="sigmoid", gamma=0.5, indefinite="clip").fit(rows())
    assert not found.certificate_.certified


def test_share_of_variance_is_certain():
    found = estimator(gamma=0.01).set_params(n_components=0.9).fit(rows())
    assert found.explained_variance_ratio_.sum() >= 0.9
    with pytest.warns(AccuracyWarning, match="more landmarks"):
        estimator(gamma=5.0, n_landmarks=10).set_params(n_components=0.99).fit(rows())


# ---------------------------------------------------------------- precomputed


def gram(X, Y):
    return np.exp(-GAMMA * ((X[:, None] - Y[None]) ** 2).sum(axis=2))


@pytest.mark.parametrize("kind", ["numpy", "dask", "zarr"])
def test_precomputed_kernel_with_fewer_landmarks_than_rows_equals_the_evaluated_one(kind, tmp_path):
    X = rows(300)
    K_ = gram(X, X)
    K_.setflags(write=False)
    given = K_
    if kind == "dask":
        given = da.from_array(K_, chunks=(70, 110))
    if kind == "zarr":
        given = zarr.open_array(str(tmp_path / "K"), mode="w", shape=K_.shape, chunks=(50, 50), dtype="float64")
        given[...] = K_
    at = np.arange(0, 300, 5)
    found = estimator(kernel="precomputed", landmarks=at).fit(given)
    expected = estimator(landmarks=at).fit(X)
    assert_same_fit(found, expected)
    new = rows(20, seed=9)
    scores, peers = found.transform(gram(new, X)), expected.transform(new)
    assert np.abs(scores - peers).max() <= 1e-9
    assert found.transform(gram(new[:1], X)).shape == (1, K)
    with pytest.raises(ValueError, match="300 features"):
        found.transform(gram(new, X)[:, :10])


def test_precomputed_kernel_saved_and_loaded(tmp_path):
    X = rows(200)
    found = estimator(kernel="precomputed", n_landmarks=50).fit(gram(X, X).astype(np.float32))
    found.save(tmp_path / "model")
    assert np.array_equal(project(load_model(tmp_path / "model"), gram(X[:9], X)), found.transform(gram(X[:9], X)))


def test_precomputed_kernel_that_is_not_symmetric_or_square_is_refused():
    X = rows(100)
    K_ = gram(X, X)
    K_[3, 7] += 1e-3
    with pytest.raises(InvalidInputError, match=r"not symmetric: K\[3, 7\]|not symmetric: K\[7, 3\]"):
        estimator(kernel="precomputed", landmarks=np.arange(20)).fit(K_)
    with pytest.raises(InvalidInputError, match=r"\(100, 50\)"):
        estimator(kernel="precomputed").fit(K_[:, :50])


def test_precomputed_kernel_that_is_indefinite_is_refused():
    X = rows(100)
    with pytest.raises(InvalidInputError, match="negative eigenvalues"):
        estimator(kernel="precomputed", n_landmarks=60).fit(np.tanh(0.5 * X @ X.T - 1))


@pytest.mark.slow
def test_a_cluster_gives_the_same_bits_from_arrays_and_from_blocks(tmp_path):
    from distributed import Client, LocalCluster

    X = rows(20_000)
    expected = estimator().fit(X)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        staged = estimator(workdir=tmp_path).fit(X)
        blocks = estimator(workdir=tmp_path)
        scores = blocks.fit_transform(da.from_array(X, chunks=(staged.plan_.span_rows, D)))
    assert np.array_equal(staged.eigenvalues_, expected.eigenvalues_)
    assert np.array_equal(blocks.eigenvalues_, expected.eigenvalues_)
    assert np.array_equal(scores, expected.transform(X))
