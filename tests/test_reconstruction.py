"""The way back from scores to rows is saved with a model: the same bits after loading, and refused when damaged."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from scalable_kpca import KernelPCA, load_model, merge, project, reconstruct
from scalable_kpca.errors import ConfigError, InvalidInputError, ModelFormatError
from scalable_kpca.model import save_model
from tests.support import describe_model

N, D, K = 60, 4, 3
METHODS = {"exact": {}, "nystroem": {"n_landmarks": 20}}


def rows_of(n=N, seed=0, dtype="float64"):
    X = (np.random.default_rng(seed).standard_normal((n, D)) + 5).astype(dtype)
    X.setflags(write=False)
    return X


def fitted(method="exact", dtype="float64", **changes):
    options = {"kernel": "rbf", "gamma": 0.1, "fit_inverse_transform": True, **METHODS[method], **changes}
    return KernelPCA(K, method=method, alpha=0.1, **options).fit(rows_of(dtype=dtype))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved")
    for method in METHODS:
        fitted(method).save(place / method)
    return place


@pytest.fixture
def copy(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "saved"))


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("rbf", "float64"),
        ("rbf", "float32"),
        *(pytest.param(name, "float64", marks=pytest.mark.slow) for name in ("linear", "laplacian", "poly")),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_a_loaded_model_reconstructs_the_same_bits_as_the_estimator(tmp_path, method, kernel, dtype):
    estimator = fitted(method, dtype, kernel=kernel)
    estimator.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    scores = project(loaded, rows_of(7, seed=1))
    scores.setflags(write=False)
    back = reconstruct(loaded, scores)
    assert back.dtype == np.float64
    assert back.tobytes() == estimator.inverse_transform(scores).tobytes()
    save_model(loaded, tmp_path / "again")
    assert (tmp_path / "again" / "model.json").read_bytes() == (tmp_path / "model" / "model.json").read_bytes()


def test_a_loaded_model_of_a_function_reconstructs_with_the_function_that_is_given(tmp_path):
    def kernel(x, y):
        return np.exp(-0.1 * np.abs(x[:, None] - y[None]).sum(axis=2))

    estimator = fitted(kernel=kernel, gamma=None)
    estimator.save(tmp_path / "model")
    scores = estimator.transform(rows_of(5, seed=2))
    loaded = load_model(tmp_path / "model", kernel=kernel)
    assert reconstruct(loaded, scores).tobytes() == estimator.inverse_transform(scores).tobytes()


def test_rows_that_join_a_model_give_it_a_map_of_its_own(tmp_path):
    estimator = fitted("nystroem")
    before = estimator.model_.way_back
    estimator.partial_fit(rows_of(30, seed=3))
    assert not np.array_equal(estimator.model_.way_back.centres, before.centres)
    estimator.save(tmp_path / "model")
    scores = estimator.transform(rows_of(5, seed=2))
    assert (
        reconstruct(load_model(tmp_path / "model"), scores).tobytes() == estimator.inverse_transform(scores).tobytes()
    )


@pytest.mark.parametrize("preimage", [False, "fixed_point"])
def test_a_model_without_a_map_says_how_to_get_one(tmp_path, preimage):
    fitted(fit_inverse_transform=preimage).save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "model.json").read_text())["ridge_pairs"] == 0
    with pytest.raises(ConfigError, match=r"no map from scores to rows.*fit_inverse_transform=True.*inverse: true"):
        reconstruct(load_model(tmp_path / "model"), np.zeros((1, K)))


def test_a_merged_model_has_no_map_that_is_of_other_components():
    model = fitted("nystroem").model_
    assert model.way_back is not None
    assert merge(model, model).way_back is None


def test_kernels_of_amounts_have_no_way_back():
    with pytest.raises(InvalidInputError, match=r"kernel='chi2' compares amounts ≥ 0.*choose another kernel"):
        fitted(kernel="chi2")


@pytest.mark.parametrize("scores", [np.zeros((2, K + 1)), np.full((1, K), np.nan), np.zeros(K)])
def test_scores_that_are_none_are_refused(saved, scores):
    with pytest.raises(InvalidInputError, match="score"):
        reconstruct(load_model(saved / "exact"), scores)


# ---------------------------------------------------------------- damage


def poison(path, value):
    import zarr

    array = zarr.open_array(str(path), mode="r+")
    array[:1] = value  # the chunk is not all of the fill value, which would not be written


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("array", ["ridge_centres", "ridge_coefficients", "ridge_mean"])
@pytest.mark.parametrize("method", METHODS)
def test_a_map_with_entries_that_are_not_finite_is_refused_though_digests_fit(copy, method, array, value):
    poison(copy / method / "arrays.zarr" / array, value)
    describe_model(copy / method)
    with pytest.raises(ModelFormatError, match=f"{array} has entries that are missing or not finite"):
        load_model(copy / method)


@pytest.mark.parametrize("method", METHODS)
def test_a_map_with_centres_that_are_no_scores_is_refused_though_digests_fit(copy, method):
    poison(copy / method / "arrays.zarr" / "ridge_centres", 1e300)
    describe_model(copy / method)
    with pytest.raises(ModelFormatError, match="squares of such are beyond float64"):
        load_model(copy / method)


@pytest.mark.parametrize("pairs", [1, N + 1, 2**40, -1, True, 1.0, "60", None])
@pytest.mark.parametrize("method", METHODS)
def test_a_map_of_another_number_of_pairs_is_refused_though_digests_fit(copy, method, pairs):
    describe_model(copy / method, ridge_pairs=pairs)
    with pytest.raises(ModelFormatError, match=r"ridge_pairs is|the map from scores to rows is not of"):
        load_model(copy / method)


# an array of the same model that has another shape
OTHERS = {"ridge_centres": "ridge_coefficients", "ridge_coefficients": "ridge_centres", "ridge_mean": "eigenvalues"}


@pytest.mark.parametrize("array", OTHERS)
@pytest.mark.parametrize("method", METHODS)
def test_a_map_with_an_array_that_is_gone_or_of_another_shape_is_refused_though_digests_fit(copy, method, array):
    place = copy / method / "arrays.zarr"
    shutil.rmtree(place / array)
    describe_model(copy / method)
    with pytest.raises(ModelFormatError):
        load_model(copy / method)
    shutil.copytree(place / OTHERS[array], place / array)
    describe_model(copy / method)
    with pytest.raises(ModelFormatError, match="the map from scores to rows is not of"):
        load_model(copy / method)


def test_a_map_of_a_kernel_that_has_none_is_refused_though_digests_fit(copy):
    fields = {"name": "chi2", "gamma": 1.0}
    describe_model(copy / "exact", kernel=fields)
    with pytest.raises(ModelFormatError, match="compares amounts"):
        load_model(copy / "exact")
