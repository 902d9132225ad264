"""What `KernelPCA` takes: every form of the same rows gives the same fit, and X is never written to."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from scipy import sparse

from scalable_kpca import KernelPCA
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.estimators.inputs import copy_is_needed, held_bytes, read_input

N, D, K = 60, 4, 3
NAMES = ["a", "b", "c", "d"]


def integers():
    rows = np.random.default_rng(5).integers(0, 9, size=(N, D)).astype(np.float64)
    rows.setflags(write=False)
    return rows


def strided(X):
    wide = np.zeros((2 * N, 3 * D))
    wide[::2, 1::3] = X
    return wide[::2, 1::3]


def framed(X):
    return pd.DataFrame(X, columns=NAMES)


def dask_frame(X):
    dataframe = pytest.importorskip("dask.dataframe")
    return dataframe.from_pandas(framed(X), npartitions=3)


def unknown_rows(X):
    lazy_rows = da.from_array(np.array(X), chunks=(25, 2))
    return lazy_rows[lazy_rows[:, 0] > -1]


def stored(X, tmp_path, dtype="float64"):
    array = zarr.create_array(str(tmp_path / "rows.zarr"), shape=X.shape, chunks=(17, 3), dtype=dtype)
    array[...] = X.astype(dtype)
    return array


FORMS = {
    "list": lambda X, _: X.tolist(),
    "C order, read-only": lambda X, _: X,
    "F order": lambda X, _: np.asfortranarray(X),
    "strided": lambda X, _: strided(X),
    "float16": lambda X, _: X.astype(np.float16),
    "float32": lambda X, _: X.astype(np.float32),
    "big-endian": lambda X, _: X.astype(">f8"),
    "int8": lambda X, _: X.astype(np.int8),
    "uint64": lambda X, _: X.astype(np.uint64),
    "objects": lambda X, _: X.astype(object),
    "memory map": lambda X, path: mapped(X, path),
    "pandas": lambda X, _: framed(X),
    "pandas, mixed": lambda X, _: framed(X).astype({"a": "int64", "c": "float32"}),
    "pandas, nullable": lambda X, _: framed(X).astype("Int64"),
    "pyarrow": lambda X, _: pa.Table.from_pandas(framed(X)),
    "pyarrow batches": lambda X, _: pa.Table.from_batches(pa.Table.from_pandas(framed(X)).to_batches(7)),
    "dask": lambda X, _: da.from_array(np.array(X), chunks=(25, 2)),
    "dask, integers": lambda X, _: da.from_array(X.astype(np.int32), chunks=(25, 2)),
    "dask, unknown rows": lambda X, _: unknown_rows(X),
    "dask frame": lambda X, _: dask_frame(X),
    "dask frame, some columns": lambda X, _: dask_frame(np.column_stack([X, X[:, :0]]))[NAMES],
    "zarr": lambda X, path: stored(X, path),
    "zarr, integers": lambda X, path: stored(X, path, "int16"),
    "csr": lambda X, _: sparse.csr_array(X),
    "csc matrix": lambda X, _: sparse.csc_matrix(X),
    "coo": lambda X, _: sparse.coo_array(X),
}


def mapped(X, path):
    np.save(path / "rows.npy", X)
    return np.load(path / "rows.npy", mmap_mode="r")


@pytest.mark.parametrize("method", ["exact", "nystroem"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_rows_gives_the_same_fit_and_scores(form, method, tmp_path):
    X = integers()
    settings = {"kernel": "rbf", "gamma": 0.05, "method": method, "landmarks": np.arange(0, N, 2), "tile_rows": 32}
    expected = KernelPCA(K, **settings).fit(X)
    given = FORMS[form](X, tmp_path)
    ours = KernelPCA(K, **settings).fit(given)
    largest = expected.eigenvalues_[0]
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, atol=1e-12 * largest)
    # signs are settled by the largest entry, which rounding does not change here
    scores = np.asarray(ours.transform(given))
    np.testing.assert_allclose(scores, expected.transform(X), atol=1e-9 * np.sqrt(largest))
    if "pandas" in form or "pyarrow" in form or "frame" in form:
        assert list(ours.feature_names_in_) == NAMES
    else:
        assert not hasattr(ours, "feature_names_in_")
    np.testing.assert_array_equal(integers(), X)


def test_booleans_are_numbers():
    X = integers() > 4
    assert KernelPCA(1).fit(X).eigenvalues_[0] == KernelPCA(1).fit(X.astype(float)).eigenvalues_[0]


@pytest.mark.parametrize("table", [framed, lambda X: pa.Table.from_pandas(framed(X)), dask_frame])
def test_columns_in_another_order_are_refused_by_name(table):
    rows = table(integers())
    ours = KernelPCA(1).fit(rows)
    other = ["b", "a", "c", "d"]
    with pytest.raises(ValueError, match=r"feature names|columns are not those of the fit: 'b' where 'a' was"):
        ours.transform(rows.select(other) if isinstance(rows, pa.Table) else rows[other])


def test_tables_with_text_or_nulls_say_which_column():
    text = pa.table({"a": [1.0, 2.0], "name": ["x", "y"]})
    with pytest.raises(InvalidInputError, match=r'column "name" is string'):
        KernelPCA(1).fit(text)
    nulls = pa.table({"a": [1.0, None, 3.0], "b": [1, 2, 3]})
    with pytest.raises(InvalidInputError, match=r'row 1, column "a" is NaN'):
        KernelPCA(1).fit(nulls)
    with pytest.raises(InvalidInputError, match="not a number"):
        KernelPCA(1).fit(pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"]}))


def test_missing_entries_of_a_masked_array_are_not_read_as_numbers():
    X = np.ma.masked_greater(integers(), 7)
    with pytest.raises(InvalidInputError, match=rf"masked array, and {np.ma.count_masked(X)} of its entries"):
        KernelPCA(1).fit(X)
    np.testing.assert_array_equal(
        KernelPCA(1).fit(np.ma.masked_greater(integers(), 9)).eigenvalues_, KernelPCA(1).fit(integers()).eigenvalues_
    )


def test_a_dask_array_without_rows_after_all_is_refused():
    lazy_rows = da.from_array(np.array(integers()), chunks=(25, 2))
    with pytest.raises(InvalidInputError, match="no rows"):
        KernelPCA(1).fit(lazy_rows[lazy_rows[:, 0] > 100])


def test_a_model_does_not_change_when_the_caller_writes_to_x():
    X = np.array(integers())
    kept, referred = KernelPCA(K, kernel="rbf").fit(X), KernelPCA(K, kernel="rbf", copy_X=False).fit(X)
    new = integers()[:5] + 0.5
    before = kept.transform(new)
    np.testing.assert_array_equal(referred.X_fit_, X)
    assert np.shares_memory(referred.X_fit_, X)
    X[:, 0] = 666
    np.testing.assert_array_equal(kept.transform(new), before)
    np.testing.assert_array_equal(kept.X_fit_, integers())


def test_a_frame_that_is_written_to_later_does_not_change_the_model():
    X = framed(np.array(integers()))
    ours = KernelPCA(K, kernel="rbf").fit(X)
    before = ours.transform(framed(integers()))
    X.iloc[:, 0] = 666.0
    np.testing.assert_array_equal(ours.transform(framed(integers())), before)


def test_a_file_that_is_mapped_is_not_read_into_memory(tmp_path):
    X = mapped(integers(), tmp_path)
    ours = KernelPCA(K, kernel="rbf").fit(X)
    assert np.shares_memory(ours.X_fit_, X)


@pytest.mark.parametrize("state", [np.random.RandomState(3), np.random.default_rng(3), np.int64(3), 3, None])
def test_any_source_of_randomness_will_do(state):
    expected = KernelPCA(2, kernel="rbf").fit(integers()).eigenvalues_
    np.testing.assert_allclose(
        KernelPCA(2, kernel="rbf", random_state=state).fit(integers()).eigenvalues_, expected, rtol=1e-12
    )


def test_generators_draw_another_seed_each_time():
    rng = np.random.RandomState(0)
    settings = {"kernel": "rbf", "method": "nystroem", "n_landmarks": 10, "random_state": rng}
    first, second = (KernelPCA(2, **settings).fit(integers()).landmarks_ for _ in range(2))
    assert not np.array_equal(first, second)


def test_parameters_without_effect_are_said_to_have_none():
    with pytest.warns(UserWarning, match="iterated_power=7 has no effect"):
        KernelPCA(1, eigen_solver="randomized", iterated_power=7).fit(integers())
    with pytest.warns(UserWarning, match="kernel_params has no effect with kernel='rbf'"):
        KernelPCA(1, kernel="rbf", kernel_params={"gamma": 3}).fit(integers())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KernelPCA(1, iterated_power="auto", kernel_params={}, max_iter=50, eigen_solver="arpack").fit(integers())


def test_max_iter_limits_arpack_as_scikit_learns_does():
    X = np.random.default_rng(0).normal(size=(300, 40))
    with pytest.raises(ArithmeticError, match="ARPACK has not found"):
        KernelPCA(10, kernel="rbf", gamma=1e-3, eigen_solver="arpack", max_iter=1).fit(X)
    assert KernelPCA(10, kernel="rbf", gamma=1e-3, eigen_solver="arpack", max_iter=100).fit(X).certificate_.complete


def test_a_dask_array_of_unknown_lengths_stays_what_it_is():
    lazy_rows = unknown_rows(integers())
    KernelPCA(K).fit(lazy_rows)
    assert np.isnan(lazy_rows.shape[0])


def test_names_of_a_dask_frame_that_are_no_text_are_no_names():
    dataframe = pytest.importorskip("dask.dataframe")
    lazy_rows = dataframe.from_pandas(pd.DataFrame(integers()), npartitions=3)
    ours = KernelPCA(K).fit(dask_frame(integers()))
    assert list(ours.feature_names_in_) == NAMES
    assert not hasattr(ours.fit(lazy_rows), "feature_names_in_")
    ours.transform(pd.DataFrame(integers()))  # as of a frame that scikit-learn reads: nothing to compare, no warning


def framed_apart(X):
    """Two blocks of one dtype, which pandas puts side by side in an array of its own."""
    return pd.concat([framed(X)[["a", "b"]], framed(X)[["c", "d"]]], axis=1)


def test_a_copy_is_made_of_what_the_caller_may_write_to_and_of_nothing_else(tmp_path):
    X = np.array(integers())
    one, mixed, apart = framed(X), framed(X).astype({"a": int}), framed_apart(X)
    mapped = {mode: memory_mapped(X, tmp_path / mode, mode) for mode in ("r", "r+", "c")}
    cases = [(X, True, 0), (one, True, 0), (mixed, False, mixed.memory_usage().sum()), (X.tolist(), False, 0)]
    cases += [(apart, False, apart.memory_usage().sum()), (mapped["r"], False, 0), (mapped["r+"], True, 0)]
    cases += [(mapped["c"], True, 0), (X.astype(np.float16), False, X.size * 2), (X[::2], True, 0)]
    for given, copied, held in cases:
        found = read_input(KernelPCA(K), given, reset=True)
        assert copy_is_needed(found, given) is copied
        assert held_bytes(found, given) == held


def memory_mapped(X, path, mode):
    np.save(path, X)
    return np.load(path.with_name(path.name + ".npy"), mmap_mode=mode)


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_writing_to_a_mapped_file_does_not_change_the_model(mode, tmp_path):
    X = memory_mapped(integers(), tmp_path / "rows", mode)
    ours = KernelPCA(K, kernel="rbf").fit(X)
    scores = ours.transform(integers())
    X[...] = 7
    np.testing.assert_array_equal(ours.transform(integers()), scores)


@pytest.mark.parametrize("kernel", ["chi2", "additive_chi2"])
def test_kernels_of_amounts_take_few_sparse_columns_and_refuse_many(kernel):
    few = sparse.csr_array(integers())
    ours, expected = KernelPCA(K, kernel=kernel).fit(few), KernelPCA(K, kernel=kernel).fit(integers())
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(ours.novelty(few), expected.novelty(integers()), atol=1e-12)
    many = sparse.random_array((90, 300), density=0.02, rng=np.random.default_rng(0)).tocsr()
    with pytest.raises(InvalidInputError, match=r"takes no sparse rows|takes dense numpy rows"):
        KernelPCA(K, kernel=kernel, method="exact").fit(many)
