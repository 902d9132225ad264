"""Inputs that are hard or wrong: the same answer, or the same words, from every solver and every home of the tiles."""

import itertools
import warnings

import numpy as np
import pytest

from scalable_kpca import KernelPCA

N, D, K = 60, 4, 3
SOLVERS = ("dense", "arpack", "block_krylov", "power")
HOMES = ("memory", "zarr", "recompute")
SLOW = [("arpack", "zarr"), ("power", "zarr")]  # a pass reads a file for each tile, and these make many passes


def exact_way(solver, home):
    marks = [pytest.mark.slow] if (solver, home) in SLOW else []
    way = {"method": "exact", "eigen_solver": solver, "gram": home}
    return pytest.param(way, marks=marks, id=f"{solver}-{home}")


EXACT_WAYS = [exact_way(solver, home) for solver, home in itertools.product(SOLVERS, HOMES)]
every_exact_way = pytest.mark.parametrize("way", EXACT_WAYS)
every_way = pytest.mark.parametrize(
    "way", [*EXACT_WAYS, pytest.param({"method": "nystroem", "n_landmarks": 1000}, id="nystroem")]
)


def rows(n=N, d=D, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    X.setflags(write=False)
    return X


def fit(X, way, k=K, **settings):
    return KernelPCA(k, tile_rows=16, dtype="float64", **{"kernel": "rbf", "gamma": 0.2, **settings, **way}).fit(X)


def refusal(X, way, **settings):
    with pytest.raises(ValueError, match=r".*[;:] .*") as refused:
        fit(X, way, **settings)
    return str(refused.value)


def dense_spectrum(matrix):
    centring = np.eye(len(matrix)) - 1 / len(matrix)
    return np.linalg.eigvalsh(centring @ matrix @ centring)[::-1]


def rbf(X):
    return np.exp(-0.2 * np.square(X[:, None] - X[None, :]).sum(axis=2))


@every_way
def test_not_a_number_is_named_by_row_and_column(way):
    X = rows().copy()
    X[17, 2] = X[40, 0] = np.nan
    assert refusal(X, way) == (
        "row 17, column 2 is NaN (1 of 2 such rows); kernel PCA needs finite numbers and accepts no NaN or infinity: "
        "remove or fill these rows first."
    )


@every_exact_way
def test_a_kernel_that_is_not_symmetric_is_named_by_its_entries(way):
    matrix = rbf(rows())
    matrix[3, 50] += 0.25
    assert refusal(matrix, way, kernel="precomputed") == (
        f"the precomputed kernel is not symmetric: K[3, 50] = {matrix[3, 50]:.6g} and K[50, 3] = {matrix[50, 3]:.6g}; "
        "pass (K + K.T) / 2 if that is what you mean."
    )


@every_exact_way
@pytest.mark.parametrize("precomputed", [False, True])
def test_an_indefinite_kernel_is_refused_by_its_lowest_eigenvalue(way, precomputed):
    X = 2 * rows()
    matrix = np.tanh(0.5 * (X @ X.T) - 1)
    spectrum = dense_spectrum(matrix)
    assert spectrum[-1] < -0.1 * spectrum[0]
    settings = {"kernel": "precomputed"} if precomputed else {"kernel": "sigmoid", "gamma": 0.5, "coef0": -1}
    name = settings["kernel"]
    assert refusal(matrix if precomputed else X, way, **settings) == (
        f"kernel {name!r} is not positive semi-definite on these rows: a centred eigenvalue is {spectrum[-1]:.3g} or "
        f'lower, the largest found {spectrum[0]:.3g}; set indefinite="clip" to drop the negative part, or '
        "choose another kernel or other parameters."
    )
    clipped = fit(matrix if precomputed else X, way, **settings, indefinite="clip")
    np.testing.assert_allclose(clipped.eigenvalues_, spectrum[:K], atol=1e-8 * spectrum[0])


@every_way
def test_constant_rows_have_eigenvalues_and_scores_of_zero(way):
    X = np.full((N, D), 3.25)
    ours = fit(X, way)
    np.testing.assert_array_equal(ours.eigenvalues_, np.zeros(K))
    np.testing.assert_array_equal(ours.transform(X), np.zeros((N, K)))
    np.testing.assert_array_equal(ours.explained_variance_ratio_, np.zeros(K))
    assert ours.certificate_.complete or way["method"] == "nystroem"  # whose bound is above 0 by its rounding
    assert fit(X, way, remove_zero_eig=True).transform(X).shape == (N, 0)


@every_way
def test_duplicated_rows_count_twice(way):
    X = np.concatenate([rows(20), rows(20), rows(10)])
    ours, spectrum = fit(X, way), dense_spectrum(rbf(X))
    np.testing.assert_allclose(ours.eigenvalues_, spectrum[:K], rtol=1e-8)
    scores = ours.transform(X)
    np.testing.assert_allclose(scores[:20], scores[20:40], atol=1e-7)


@every_way
def test_one_row_has_nothing_to_vary(way):
    ours = fit(rows(1), way, k=1)
    np.testing.assert_array_equal(ours.eigenvalues_, [0])
    np.testing.assert_array_equal(ours.transform(rows(3)), np.zeros((3, 1)))


@every_way
def test_one_column_is_enough(way):
    X = rows(d=1)
    ours, spectrum = fit(X, way), dense_spectrum(rbf(X))
    np.testing.assert_allclose(ours.eigenvalues_, spectrum[:K], atol=1e-8 * spectrum[0])


@every_way
def test_more_components_than_rows_are_as_many_as_rows_and_a_warning(way):
    X = rows(6)
    with pytest.warns(UserWarning, match="n_components=9 is more than the 6 rows have; 6 are computed"):
        ours = fit(X, way, k=9)
    spectrum = dense_spectrum(rbf(X))
    np.testing.assert_allclose(ours.eigenvalues_, spectrum, atol=1e-10 * spectrum[0])
    assert ours.eigenvalues_[-1] == 0
    assert not ours.transform(X)[:, -1].any()


@every_exact_way
def test_more_components_than_the_rank_are_zero(way):
    X = rows(d=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = fit(X, way, k=5, kernel="linear")
    np.testing.assert_array_equal(ours.eigenvalues_[2:], np.zeros(3))
    np.testing.assert_allclose(ours.eigenvalues_[:2], dense_spectrum(X @ X.T)[:2], rtol=1e-10)
