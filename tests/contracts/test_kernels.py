"""What every kernel must do, and that every way to evaluate one gives the same numbers."""

import json
import math
import pickle

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import pairwise_kernels

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.gram import StoredGram
from scalable_kpca.kernels import (
    FLOAT32_GOOD,
    KERNELS,
    RBF,
    TileStrips,
    kernel_array,
    kernel_block,
    kernel_from_json,
    place_strip,
    resolve_kernel,
)
from tests.support import EPS, gram_of

PARAMETERS = {
    "linear": [{}],
    "poly": [{}, *({"gamma": 0.3, "degree": degree, "coef0": 0.5} for degree in (0, 2, 4, 5))],
    "rbf": [{}, {"gamma": 0.7}, {"gamma": 0.0}],
    "sigmoid": [{}, {"gamma": 0.2, "coef0": -0.5}],
    "laplacian": [{}, {"gamma": 0.7}],
    "cosine": [{}],
    "matern12": [{}, {"gamma": 0.7}],
    "matern32": [{}, {"gamma": 0.7}, {"gamma": 0.0}],
    "matern52": [{}, {"gamma": 0.7}],
}
SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
CASES = [(name, parameters) for name, choices in PARAMETERS.items() for parameters in choices]
N_FEATURES = 6

X = np.random.default_rng(1).standard_normal((37, N_FEATURES))
Y = np.random.default_rng(2).standard_normal((21, N_FEATURES))
X[5] = 0  # cosine has no direction here


def resolved(name, parameters, n_features=N_FEATURES):
    return resolve_kernel(name, n_features=n_features, **parameters)


def reference(name, parameters, X, Y):
    """scikit-learn's values of the same kernel; its Matérn kernels are Gaussian processes', with a length scale."""
    if name not in SMOOTHNESS:
        return pairwise_kernels(X, Y, metric=name, **parameters)
    gamma = parameters.get("gamma", 1 / N_FEATURES)
    length_scale = 1 / math.sqrt(2 * gamma) if gamma > 0 else math.inf
    return Matern(length_scale, nu=SMOOTHNESS[name])(X, Y)


def size(kernel, *rows):
    """What a value of the kernel is a rounded sum of: the largest k(x, x), and the exponent or argument behind it."""
    largest = max(float(np.square(block).sum(axis=1).max(initial=0)) for block in rows)
    gamma, degree = getattr(kernel, "gamma", 1.0), getattr(kernel, "degree", 1.0)
    value = max(float(np.abs(kernel.diagonal(block)).max(initial=1)) for block in rows)
    return max(value, 1.0) * (1 + 4 * gamma * largest) * max(degree, 1.0)


def tolerance(kernel, *rows):
    """(n_features + 8)·eps of `size`: one inner product, a few scalar operations, and what they are multiplied by."""
    return 2 * (rows[0].shape[1] + 8) * EPS * size(kernel, *rows)


def test_every_kernel_is_in_the_contract():
    assert set(PARAMETERS) == set(KERNELS)


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_block_agrees_with_scikit_learn(name, parameters):
    kernel = resolved(name, parameters)
    expected = reference(name, parameters, X, Y)
    np.testing.assert_allclose(kernel_block(kernel, X, Y), expected, rtol=0, atol=tolerance(kernel, X, Y))


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_diagonal_of_a_diagonal_block_is_exactly_the_kernel_of_a_row_with_itself(name, parameters):
    kernel = resolved(name, parameters)
    block = kernel_block(kernel, X, X, diagonal=True)
    np.testing.assert_array_equal(np.diag(block), kernel.diagonal(X))
    expected = np.diag(reference(name, parameters, X, X))
    np.testing.assert_allclose(kernel.diagonal(X), expected, rtol=0, atol=tolerance(kernel, X))
    without = kernel_block(kernel, X, X)
    off_diagonal = ~np.eye(len(X), dtype=bool)
    # BLAS may take another path when both sides are one array
    np.testing.assert_allclose(block[off_diagonal], without[off_diagonal], rtol=0, atol=tolerance(kernel, X))


@pytest.mark.parametrize(("name", "parameters"), CASES)
@pytest.mark.parametrize("strip_rows", [1, 7, 36, 256])
@pytest.mark.parametrize("diagonal", [False, True])
def test_strips_of_any_height_make_up_the_block(name, parameters, strip_rows, diagonal):
    kernel = resolved(name, parameters)
    columns = X if diagonal else Y
    strips = [
        (start, strip.copy())
        for start, strip in TileStrips(kernel, X, columns, diagonal=diagonal, strip_rows=strip_rows)
    ]
    assert [start for start, _ in strips] == list(range(0, len(X), strip_rows))
    assert all(len(strip) <= strip_rows for _, strip in strips)
    joined = np.empty((len(X), len(columns)))
    for start, strip in strips:
        place_strip(joined, start, strip, diagonal=diagonal)
    # BLAS may add in another order for another height
    expected = kernel_block(kernel, X, columns, diagonal=diagonal)
    np.testing.assert_allclose(joined, expected, rtol=0, atol=tolerance(kernel, X, columns))
    if diagonal:
        np.testing.assert_array_equal(np.diag(joined), kernel.diagonal(X))


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_strips_share_one_buffer(name, parameters):
    strips = [strip for _, strip in TileStrips(resolved(name, parameters), X, Y, strip_rows=9)]
    assert len(strips) == 5
    assert all(np.shares_memory(strip, strips[0]) for strip in strips)


@pytest.mark.parametrize(("name", "parameters"), CASES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 21), (37, 1), (0, 21)])
def test_block_of_few_rows_is_the_part_of_the_whole_block(name, parameters, shape):
    kernel = resolved(name, parameters)
    part = kernel_block(kernel, X[: shape[0]], Y[: shape[1]])
    assert part.shape == shape
    whole = kernel_block(kernel, X, Y)[: shape[0], : shape[1]]
    np.testing.assert_allclose(part, whole, rtol=0, atol=tolerance(kernel, X, Y))


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_float32_block_is_within_its_own_error_of_the_float64_block(name, parameters):
    kernel = resolved(name, parameters)
    single = kernel_block(kernel, X, Y, dtype="float32")
    assert single.dtype == np.float32
    exact = kernel_block(kernel, X, Y)
    error = TileStrips(kernel, X, Y, dtype="float32").error
    largest = max(np.abs(kernel.diagonal(X)).max(), np.abs(kernel.diagonal(Y)).max(), np.abs(exact).max())
    assert np.abs(single - exact).max() <= error * largest
    assert error <= 1e-5


@pytest.mark.parametrize(("name", "parameters"), CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_diagonal_block_is_exactly_symmetric(name, parameters, dtype):
    block = kernel_block(resolved(name, parameters), X, X, diagonal=True, dtype=dtype)
    np.testing.assert_array_equal(block, block.T)


@pytest.mark.parametrize(("name", "parameters"), CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_blocks_of_the_lazy_gram_matrix_are_kernel_blocks_and_their_mirrors(name, parameters, dtype):
    kernel = resolved(name, parameters)
    K = kernel_array(da.from_array(X, chunks=(10, 4)), kernel, dtype)
    assert K.shape == (37, 37)
    assert K.chunks == ((10, 10, 10, 7),) * 2
    assert K.dtype == dtype
    for i in range(4):
        for j in range(i, 4):
            rows, columns = X[10 * i : 10 * i + 10], X[10 * j : 10 * j + 10]
            block = kernel_block(kernel, rows, columns, i == j, dtype)
            np.testing.assert_array_equal(K.blocks[i, j].compute(scheduler="synchronous"), block)
            if i != j:
                np.testing.assert_array_equal(K.blocks[j, i].compute(scheduler="synchronous"), block.T)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("tile_rows", [12, 37])
def test_tiles_of_both_homes_are_the_blocks_of_the_lazy_gram_matrix(name, parameters, dtype, tile_rows, tmp_path):
    options = {"tile_rows": tile_rows, "dtype": dtype, "workdir": tmp_path, **parameters}
    lazy = kernel_array(da.from_array(X, chunks=(tile_rows, -1)), resolved(name, parameters), dtype)
    expected = lazy.compute(scheduler="synchronous")
    for home in ("memory", "zarr"):
        with gram_of(X, name, gram=home, **options) as gram:
            gram.build()
            array = gram.to_array()
            assert array.dtype == dtype
            np.testing.assert_array_equal(array, expected)
            if isinstance(gram, StoredGram):
                stored = gram.to_dask()
                assert stored.chunks == lazy.chunks
                assert stored.dtype == dtype
                np.testing.assert_array_equal(stored.compute(scheduler="synchronous"), array)


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_rows_are_never_written_to(name, parameters):
    left, right = X.copy(), Y.copy()
    left.flags.writeable = right.flags.writeable = False
    kernel_block(resolved(name, parameters), left, right)
    list(TileStrips(resolved(name, parameters), left, left, diagonal=True))
    np.testing.assert_array_equal(left, X)
    np.testing.assert_array_equal(right, Y)


@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_kernel_survives_json_and_pickle(name, parameters):
    kernel = resolved(name, parameters)
    described = json.loads(json.dumps(kernel.to_json(), allow_nan=False))
    assert described["name"] == name
    assert kernel_from_json(described) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert hash(kernel_from_json(described)) == hash(kernel)


def test_numpy_parameters_become_plain_numbers():
    kernel = resolve_kernel("poly", gamma=np.float32(0.5), degree=np.int64(2), coef0=np.float64(1), n_features=3)
    assert json.loads(json.dumps(kernel.to_json())) == {"name": "poly", "gamma": 0.5, "degree": 2, "coef0": 1}


def test_gamma_is_resolved_against_the_training_rows_once():
    assert resolve_kernel("rbf", n_features=8).gamma == 1 / 8
    assert resolve_kernel("poly", n_features=8).gamma == 1 / 8
    assert resolve_kernel("rbf", gamma="scale", n_features=8, variance=0.5).gamma == 1 / 4
    # rows without variance have no scale
    assert resolve_kernel("rbf", gamma="scale", n_features=8, variance=0.0).gamma == 1.0


@pytest.mark.parametrize(
    ("name", "parameters", "named"),
    [
        ("gaussian", {}, "'gaussian'.*rbf"),
        ("rbf", {"gamma": -0.5}, "gamma=-0.5.*≥ 0"),
        ("rbf", {"gamma": float("nan")}, "gamma=nan"),
        ("rbf", {"gamma": float("inf")}, "gamma=inf"),
        ("laplacian", {"gamma": -2}, "gamma=-2"),
        ("sigmoid", {"gamma": -1e-9}, "gamma=-1e-09"),
        ("rbf", {"gamma": "auto"}, "gamma='auto'.*scale"),
        ("rbf", {"gamma": "scale"}, "variance"),
        ("rbf", {"gamma": [0.1]}, r"gamma=\[0.1\] is not a number"),
        ("poly", {"degree": -1}, "degree=-1.*≥ 0"),
        ("poly", {"degree": None}, "degree=None is not a number"),
        ("poly", {"coef0": float("nan")}, "coef0=nan"),
        ("sigmoid", {"coef0": float("-inf")}, "coef0=-inf"),
        ("sigmoid", {"coef0": "one"}, "coef0='one' is not a number"),
    ],
)
def test_bad_parameter_is_refused_with_its_value(name, parameters, named):
    with pytest.raises(InvalidInputError, match=named):
        resolve_kernel(name, n_features=4, **parameters)


@pytest.mark.parametrize(
    ("description", "named"),
    [
        ({}, "None"),
        ({"name": 3}, "3"),
        ({"name": "gaussian", "gamma": 1.0}, "gaussian"),
        ({"name": "rbf"}, r"\['gamma'\], found \[\]"),
        ({"name": "rbf", "gamma": 1.0, "degree": 2}, "degree"),
        ({"name": "rbf", "gamma": "1/2"}, "1/2"),
        ({"name": "rbf", "gamma": float("nan")}, "nan"),
        ({"name": "rbf", "gamma": -1.0}, "-1.0"),
        ({"name": "laplacian", "gamma": -1.0}, "-1.0"),
        ({"name": "poly", "gamma": 1.0, "degree": -2, "coef0": 0}, "-2"),
    ],
)
def test_damaged_description_is_refused_with_what_was_found(description, named):
    with pytest.raises(InvalidInputError, match=named):
        kernel_from_json(description)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("poly", {"gamma": 1.0, "degree": 0.5}), ("poly", {"degree": 300}), ("linear", {})],
)
@pytest.mark.parametrize("home", ["memory", "zarr"])
def test_kernel_value_that_is_not_finite_is_refused_with_its_rows(name, parameters, home, tmp_path):
    # (−99)^½, 10^600 and 10^320: rows 2 and 3 are the first that meet
    rows = np.full((7, 2), 1e-3)
    rows[2], rows[3] = (1e160, 0), (1e160, 0)
    if name == "poly":
        rows[2], rows[3] = (10, 0), (-10, 0)
    options = {"gram": home, "tile_rows": 2, "workdir": tmp_path, **parameters}
    with gram_of(rows, name, **options) as gram, pytest.raises(InvalidInputError, match=r"rows \d and \d is"):
        gram.build()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [1e4, 1e8])
def test_rbf_of_close_rows_far_from_the_origin_is_exact_to_rounding(offset, dtype):
    # in float32 the textbook formula gives a squared distance of 0 instead of 0.25 at offset 1e4
    kernel = RBF(gamma=1.0)
    left, right = np.array([[offset, offset]]), np.array([[offset + 0.5, offset]])
    np.testing.assert_allclose(kernel_block(kernel, left, right, dtype=dtype), np.exp(-0.25), rtol=np.finfo(dtype).eps)


def from_differences(name, gamma, left, right):
    """Kernels of a distance by their textbook formulas, from differences of coordinates in float64."""
    u = 2 * np.sqrt(SMOOTHNESS.get(name, 1) * gamma) * cdist(left, right)
    return {
        "rbf": lambda: np.exp(-gamma * cdist(left, right, "sqeuclidean")),
        "matern12": lambda: np.exp(-u),
        "matern32": lambda: (1 + u) * np.exp(-u),
        "matern52": lambda: (1 + u + u**2 / 3) * np.exp(-u),
    }[name]()


def rows_with(*, offset=0.0, outlier=0.0):
    """Standard normal rows, some of them twice, some again 1e-9 and 1e-5 away, all moved, and one moved far."""
    rows = np.random.default_rng(3).standard_normal((40, N_FEATURES))
    rows[10:15], rows[15:20], rows[20:25] = rows[:5], rows[:5] + 1e-9, rows[:5] + 1e-5
    rows[39, 0] += outlier
    return rows + offset


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["rbf", *SMOOTHNESS])
@pytest.mark.parametrize(
    "rows",
    [rows_with(), rows_with(offset=1e6), rows_with(outlier=1e4), rows_with(outlier=1e8, offset=1e6)],
    ids=["near", "offset", "outlier", "outlier-offset"],
)
def test_kernel_of_a_distance_is_as_exact_as_it_says_for_equal_near_and_far_rows(name, rows, dtype):
    kernel = resolved(name, {"gamma": 0.2})
    exact = from_differences(name, 0.2, rows, rows)
    for diagonal in (False, True):
        strips = TileStrips(kernel, rows, rows, diagonal=diagonal, dtype=dtype)
        block = kernel_block(kernel, rows, rows, diagonal=diagonal, dtype=dtype)
        # to first order: the second one adds eps² at most, the reference its own few eps
        assert np.abs(block - exact).max() <= strips.error + 4 * EPS
        assert strips.error <= {"float64": 1e-12, "float32": FLOAT32_GOOD}[dtype]
    np.testing.assert_array_equal(np.diag(block), 1)
    assert block.max() <= 1


@pytest.mark.parametrize("name", ["rbf", "matern32", "matern52"])
def test_rows_far_from_the_origin_are_folded_like_rows_near_it(name):
    # from differences they would be as exact, but some five times slower
    kernel = resolved(name, {"gamma": 0.2})
    far, near = (TileStrips(kernel, rows, rows).error for rows in (rows_with(offset=1e6), rows_with()))
    assert far == pytest.approx(near, rel=1e-6)
    assert near > TileStrips(kernel.direct(), X, X).error


def test_matern_12_tells_rows_apart_that_are_1e9_times_closer_than_they_are_long():
    # a distance from squared norms is rounded to 0 or to 2e-8 here
    rows = rows_with()
    block = kernel_block(resolved("matern12", {"gamma": 0.5}), rows[:5], rows[15:20])
    np.testing.assert_allclose(1 - np.diag(block), 1e-9 * np.sqrt(N_FEATURES), rtol=0, atol=8 * EPS)


def test_matern_comes_closer_to_rbf_of_the_same_gamma_the_smoother_it_is():
    gamma = 0.3
    rbf = kernel_block(resolved("rbf", {"gamma": gamma}), X, Y)
    limit = Matern(1 / math.sqrt(2 * gamma), nu=math.inf)(X, Y)
    np.testing.assert_allclose(rbf, limit, rtol=0, atol=tolerance(RBF(gamma), X, Y))
    away = [np.abs(kernel_block(resolved(name, {"gamma": gamma}), X, Y) - rbf).max() for name in SMOOTHNESS]
    # O(1/ν): between the third and the limit lies less than a tenth
    assert away[0] > away[1] > away[2]
    assert away[2] < 0.1


@pytest.mark.parametrize("name", ["rbf", "laplacian", *SMOOTHNESS])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_too_far_apart_for_their_squares_have_nothing_in_common(name, dtype):
    left, right = np.array([[1e200, 0.0], [0.0, 0.0]]), np.array([[-1e200, 0.0], [0.0, 0.0]])
    with np.errstate(over="ignore"):
        block = kernel_block(resolved(name, {"gamma": 1.0}), left, right, dtype=dtype)
    np.testing.assert_array_equal(block, [[0, 0], [0, 1]])


# widths and offsets at which a wrong formula shows and a right one has digits to spare
MATRICES = st.integers(1, 5).flatmap(
    lambda d: st.tuples(st.integers(1, 12), st.just(d)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.integers(-64, 64).map(lambda value: value / 16))
    )
)
ANY_KERNEL = st.sampled_from(CASES)
POSITIVE = st.sampled_from([case for case in CASES if resolved(*case).positive_semidefinite])


@settings(max_examples=50, deadline=None)
@given(MATRICES, ANY_KERNEL)
def test_kernel_is_symmetric(rows, case):
    kernel = resolved(*case, n_features=rows.shape[1])
    block = kernel_block(kernel, rows, rows)
    np.testing.assert_allclose(block, block.T, rtol=0, atol=tolerance(kernel, rows))
    left, right = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    np.testing.assert_allclose(
        kernel_block(kernel, left, right) if len(left) else np.empty((0, len(right))),
        kernel_block(kernel, right, left).T if len(left) else np.empty((0, len(right))),
        rtol=0,
        atol=tolerance(kernel, rows),
    )


@settings(max_examples=50, deadline=None)
@given(MATRICES, POSITIVE)
def test_positive_semidefinite_kernel_is_bounded_by_its_diagonal_and_has_no_negative_eigenvalue(rows, case):
    kernel = resolved(*case, n_features=rows.shape[1])
    block = kernel_block(kernel, rows, rows, diagonal=True)
    slack = tolerance(kernel, rows)
    bound = np.sqrt(np.outer(kernel.diagonal(rows), kernel.diagonal(rows)))
    assert (np.abs(block) <= bound + slack).all()
    assert np.abs(block).max() <= kernel.diagonal(rows).max() + slack
    assert np.linalg.eigvalsh((block + block.T) / 2)[0] >= -len(rows) * slack


@settings(max_examples=50, deadline=None)
@given(MATRICES, st.integers(-(2**24), 2**24), st.sampled_from(["rbf", "laplacian", *SMOOTHNESS]))
def test_distance_kernels_do_not_change_when_all_rows_are_shifted(rows, offset, name):
    # multiples of 1/16 are exact beside 2²⁴, so that the shifted rows are the same points
    kernel = resolved(name, {"gamma": 0.3}, n_features=rows.shape[1])
    shifted = kernel_block(kernel, rows + offset, rows[::-1] + offset)
    np.testing.assert_allclose(shifted, kernel_block(kernel, rows, rows[::-1]), rtol=0, atol=tolerance(kernel, rows))


@settings(max_examples=50, deadline=None)
@given(MATRICES, ANY_KERNEL, st.integers(1, 13))
def test_any_strip_height_gives_the_same_block(rows, case, strip_rows):
    kernel = resolved(*case, n_features=rows.shape[1])
    strips = TileStrips(kernel, rows, rows, diagonal=True, strip_rows=strip_rows)
    joined = np.empty((len(rows), len(rows)))
    for start, strip in strips:
        place_strip(joined, start, strip, diagonal=True)
    np.testing.assert_allclose(
        joined, kernel_block(kernel, rows, rows, diagonal=True), rtol=0, atol=tolerance(kernel, rows)
    )
