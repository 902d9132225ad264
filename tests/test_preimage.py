"""Rows from scores: identities of the ridge map and of the fixed point, and what happens at the edges."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as ScikitKernelPCA

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import (
    RBF,
    CallableKernel,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Sigmoid,
    kernel_block,
)
from scalable_kpca.kernels.callables import AdditiveChi2, Chi2
from scalable_kpca.model import NystroemModel
from scalable_kpca.nystroem import Accumulators, accumulate, build_basis, solve_spectrum
from scalable_kpca.preimage import (
    best_preimages,
    choose_training_pairs,
    expand,
    find_preimages,
    fit_ridge_map,
    preimage_finder,
    reconstruct_lazily,
    ridge_bytes,
)
from scalable_kpca.source import ArrayRows, row_spans
from scalable_kpca.transform import project
from tests.support import EPS, centred, fit, store_rows

GAMMA = 0.15


def rows_of(n=60, d=4, seed=0, offset=2.0, dtype=np.float64):
    X = (np.random.default_rng(seed).standard_normal((n, d)) + offset).astype(dtype)
    X.setflags(write=False)
    return X


def rbf_model(X, n_components=5, gamma=GAMMA, tile_rows=17, **options):
    return fit(X, "rbf", n_components=n_components, gamma=gamma, tile_rows=tile_rows, **options).model


def nystroem_model(X, landmarks, n_components=5, features=False):
    basis = replace(build_basis(RBF(GAMMA), landmarks, "float64"), accumulates_features=features)
    sums = Accumulators.zero(basis)
    for span in row_spans(ArrayRows(X), 23):
        sums += accumulate(span, basis, 10)
    found = solve_spectrum(basis, sums, n_components)
    return NystroemModel(basis, sums, found.eigenvalues, found.weights, found.offset, found.certificate)


def ridge_of(model, alpha, **options):
    scores, rows = choose_training_pairs(model, **options)
    return fit_ridge_map(scores, rows, model.kernel, alpha)


# the ridge map


@pytest.mark.parametrize("kernel", ["rbf", "poly", "cosine", "linear"])
@pytest.mark.parametrize("alpha", [1.0, 1e-3])
def test_ridge_map_of_rows_with_mean_zero_is_that_of_scikit_learn(kernel, alpha):
    X = rows_of(offset=0.0)
    X = X - X.mean(axis=0)
    theirs = ScikitKernelPCA(4, kernel=kernel, gamma=GAMMA, fit_inverse_transform=True, alpha=alpha).fit(X)
    model = fit(X, kernel, n_components=4, **({} if kernel in {"cosine", "linear"} else {"gamma": GAMMA})).model
    ours = ridge_of(model, alpha)
    new = rows_of(9, seed=5, offset=0.0)
    expected = theirs.inverse_transform(theirs.transform(new))
    # scores agree to some 1e-13 of their size, and solving multiplies that by a condition of 1e2/alpha or less
    np.testing.assert_allclose(ours(project(model, new)), expected, rtol=0, atol=1e-11 / alpha)
    # these kernels see no signs that both sides share, and so the coefficients agree too
    np.testing.assert_allclose(ours.coefficients, theirs.dual_coef_, rtol=0, atol=1e-11 / alpha**2)


def test_ridge_map_adds_the_mean_back():
    X = rows_of(offset=100.0)
    ridge = ridge_of(rbf_model(X), 1e9)
    # so large a ridge leaves nothing but the mean; scikit-learn returns 0 here
    np.testing.assert_allclose(ridge(np.zeros((1, 5))), [X.mean(axis=0)], rtol=1e-7)


@pytest.mark.parametrize("k", [1, 3, 4])
def test_ridge_map_of_the_linear_kernel_reconstructs_as_pca_does_as_alpha_vanishes(k):
    X, new = rows_of(), rows_of(11, seed=8)
    model = fit(X, "linear", n_components=k).model
    pca = PCA(k).fit(X)
    expected = pca.inverse_transform(pca.transform(new))
    # (SSᵀ + αI)⁻¹ differs from the limit by α/λ_k, λ_k ≈ 60; rounding is eps·λ₁/α
    np.testing.assert_allclose(ridge_of(model, 1e-6)(project(model, new)), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ridge_of(model, 0.0)(project(model, new)), expected, rtol=0, atol=1e-10)


def test_ridge_map_reproduces_training_rows_of_a_strictly_definite_kernel_as_alpha_vanishes():
    X = rows_of(30)
    model = fit(X, "laplacian", n_components=6, gamma=1.0).model
    for alpha, error in [(1e-3, 1e-1), (1e-6, 1e-4), (0.0, 1e-10)]:
        back = ridge_of(model, alpha)(model.training_scores)
        # eigenvalues of K between scores are above 0.05 here: α/0.05 of what is reproduced
        assert np.abs(back - X).max() <= error


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.5), Sigmoid(0.3, 0.2)])
@pytest.mark.parametrize("alpha", [0.0, 4 * EPS])  # so small a ridge lets Cholesky pass, and is rounding all the same
def test_ridge_map_without_ridge_fits_best_where_scores_repeat(kernel, alpha):
    rng = np.random.default_rng(2)
    scores, rows = np.repeat(rng.standard_normal((8, 3)), 2, axis=0), rng.standard_normal((16, 4))
    K = kernel_block(kernel, scores, scores, diagonal=True)
    best = K @ np.linalg.lstsq(K, rows - rows.mean(axis=0), rcond=1e-12)[0] + rows.mean(axis=0)
    np.testing.assert_allclose(fit_ridge_map(scores, rows, kernel, alpha)(scores), best, rtol=0, atol=1e-8)


def test_ridge_map_of_an_indefinite_kernel_solves_its_equations():
    rng = np.random.default_rng(3)
    scores, rows, kernel = rng.standard_normal((20, 3)), rng.standard_normal((20, 4)), Sigmoid(0.7, -0.5)
    K = kernel_block(kernel, scores, scores, diagonal=True) + 0.1 * np.eye(20)
    assert np.linalg.eigvalsh(K)[0] < 0
    found = fit_ridge_map(scores, rows, kernel, 0.1).coefficients
    expected = rows - rows.mean(axis=0)
    np.testing.assert_allclose(K @ found, expected, rtol=0, atol=1e-12 * np.linalg.cond(K))


def test_ridge_map_of_a_single_row_of_constant_rows_and_of_no_components_is_the_mean():
    single, constant = rows_of(1), np.full((7, 3), 2.5)
    ridge = fit_ridge_map(np.zeros((1, 2)), single, RBF(0.1), 1.0)
    np.testing.assert_array_equal(ridge(np.array([[3.0, -1.0]])), single)
    model = fit(constant, "rbf", n_components=2, gamma=1.0).model
    np.testing.assert_array_equal(ridge_of(model, 1.0)(np.ones((2, 2))), constant[:2])
    X = rows_of(9)
    none = fit_ridge_map(np.zeros((9, 0)), X, RBF(0.1), 1e-3)
    np.testing.assert_allclose(none(np.zeros((2, 0))), np.tile(X.mean(axis=0), (2, 1)), rtol=1e-12)


def test_ridge_map_of_float32_rows_is_float64_and_arguments_stay_as_they_are():
    X = rows_of(dtype=np.float32)
    model = rbf_model(X)
    scores, rows = choose_training_pairs(model)
    scores.setflags(write=False)
    ridge = fit_ridge_map(scores, rows, model.kernel, 0.01)
    back = ridge(scores)
    assert (back.dtype, ridge.mean.dtype) == (np.float64, np.float64)
    wide = fit_ridge_map(scores, rows.astype(np.float64), model.kernel, 0.01)
    np.testing.assert_allclose(back, wide(scores), rtol=0, atol=1e-10)


def test_ridge_map_of_many_scores_is_that_of_each():
    model = rbf_model(rows_of())
    ridge = ridge_of(model, 0.1)
    scores = np.random.default_rng(4).standard_normal((600, 5))  # more than one strip
    parts = np.concatenate([ridge(scores[i : i + 100]) for i in range(0, 600, 100)])
    np.testing.assert_allclose(ridge(scores), parts, rtol=0, atol=1e-12)
    assert ridge(scores[:0]).shape == (0, 4)


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (np.full((2, 5), np.nan), "row 0.*score 0.*NaN"),
        (np.zeros((2, 4)), r"\(2, 4\).*5 components"),
        (np.zeros(5), r"\(5,\)"),
        (np.full((2, 5), "a"), "real numbers"),
        ([[1.0] * 5, [1.0]], "scores are no matrix"),
        (np.full((2, 5), 1e200), r"as large as 1e\+200, and squares of such are beyond float64"),
        (None, r"shape \(\)"),
    ],
)
def test_scores_that_are_not_scores_are_refused_in_the_same_words(scores, words):
    model = rbf_model(rows_of())
    for reconstruct in (ridge_of(model, 1.0), preimage_finder(model)):
        with pytest.raises(InvalidInputError, match=words):
            reconstruct(scores)


@pytest.mark.parametrize(
    ("kernel", "alpha"),
    [
        (RBF(0.1), 1.0),  # by Cholesky
        (Laplacian(0.1), 1.0),
        (Polynomial(0.1, 3.0, 1.0), 1.0),
        (RBF(0.1), 0.0),  # by least squares
        (Sigmoid(0.01, 0.0), 0.0),
    ],
)
@pytest.mark.parametrize(("m", "k", "d"), [(600, 20, 5), (400, 400, 5), (200, 5, 600)])
def test_ridge_map_takes_no_more_memory_than_it_says(kernel, alpha, m, k, d):
    def learn(m):
        rng = np.random.default_rng(0)
        scores, rows = rng.standard_normal((m, k)), rng.standard_normal((m, d))
        if alpha == 0:
            scores[m // 2 : 2 * (m // 2)] = scores[: m // 2]  # not definite
        fit_ridge_map(scores, rows, kernel, alpha)

    learn(20)  # what is imported at the first use
    tracemalloc.start()
    try:
        learn(m)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    claimed = ridge_bytes(m, k, d)
    # f2py's arrays for LAPACK are numpy's, and counted too
    assert peak <= claimed
    assert claimed <= 2.2 * peak  # and the claim is no fantasy


def test_ridge_map_of_a_kernel_that_does_not_take_scores_is_refused():
    X = rows_of(6)
    for kernel in (Chi2(1.0), AdditiveChi2()):
        with pytest.raises(InvalidInputError, match=r"compares amounts.*choose another kernel"):
            fit_ridge_map(X, X, kernel)

    def of_four(x, y):
        return x @ np.eye(4) @ y.T

    found = fit_ridge_map(X, X, CallableKernel(of_four, {}, False))(X)
    np.testing.assert_allclose(found, fit_ridge_map(X, X, Linear())(X), rtol=0, atol=1e-12)
    with pytest.raises(InvalidInputError, match=r"between scores, rows of 3 numbers.*ValueError.*set fit_inverse_tr"):
        fit_ridge_map(X[:, :3], X, CallableKernel(of_four, {}, False))


def test_what_a_ridge_map_cannot_be_learned_from_is_refused():
    from scipy.sparse import csr_array

    X = rows_of(6)
    for alpha in (-1.0, np.nan, np.inf, "a", None, True):
        with pytest.raises(InvalidInputError, match="alpha"):
            fit_ridge_map(X, X, RBF(1.0), alpha)
    with pytest.raises(InvalidInputError, match="sparse"):
        fit_ridge_map(X, csr_array(X), RBF(1.0))
    with pytest.raises(InvalidInputError, match="precomputed"):
        fit_ridge_map(X, X, Precomputed())
    with pytest.raises(InvalidInputError, match="as many rows"):
        fit_ridge_map(X, X[:5], RBF(1.0))
    with pytest.raises(InvalidInputError, match="at least one"):
        fit_ridge_map(X[:0], X[:0], RBF(1.0))


# training pairs


def test_training_pairs_are_all_rows_up_to_the_limit_and_a_reproducible_sample_above(tmp_path):
    X = rows_of(50)
    model = rbf_model(store_rows(X, tmp_path / "rows.zarr", 17), tile_rows=17)
    scores, rows = choose_training_pairs(model, limit=50)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(scores, model.training_scores)
    scores, rows = choose_training_pairs(model, limit=20, seed=3)
    again = choose_training_pairs(model, limit=20, seed=3)
    np.testing.assert_array_equal(rows, again[1])
    numbers = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in rows]
    assert numbers == sorted(set(numbers))
    np.testing.assert_array_equal(scores, model.training_scores[numbers])
    assert not np.array_equal(rows, choose_training_pairs(model, limit=20, seed=4)[1])
    with pytest.raises(InvalidInputError, match="limit=0"):
        choose_training_pairs(model, limit=0)


def test_training_pairs_of_a_nystroem_model_are_its_landmarks_or_rows_that_are_given():
    X = rows_of(80)
    model = nystroem_model(X, X[::4])
    scores, rows = choose_training_pairs(model)
    np.testing.assert_array_equal(rows, X[::4])
    np.testing.assert_array_equal(scores, model.scores(X[::4]))
    assert len(choose_training_pairs(model, limit=7)[0]) == 7
    scores, rows = choose_training_pairs(model, rows=X)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(scores, project(model, X))


# the fixed point


def test_expansion_is_the_projection_in_feature_space():
    # ‖φ(z) − Pφ(x)‖² from K alone: γ solves nothing here, it is made from P = φ̄ + VVᵀ(φ(x) − φ̄) in coordinates
    X, new, Z = rows_of(), rows_of(6, seed=1), rows_of(6, seed=2)
    model = rbf_model(X)
    joint = np.concatenate([X, new, Z])
    values, vectors = np.linalg.eigh(kernel_block(model.kernel, joint, joint, diagonal=True))
    phi = vectors * np.sqrt(np.maximum(values, 0.0))
    mean = phi[:60].mean(axis=0)
    V = (phi[:60] - mean).T @ model.dual_coefficients
    projected = mean + (phi[60:66] - mean) @ V @ V.T
    scores = project(model, new)
    expansion = expand(model)
    sums = expansion.sums(Z.copy(), scores)
    np.testing.assert_allclose(sums.values, (phi[66:] * projected).sum(axis=1), rtol=0, atol=1e-12)
    expected = np.square(phi[66:] - projected).sum(axis=1)
    np.testing.assert_allclose(expansion.distances(sums.values, scores), expected, rtol=0, atol=1e-12)
    assert (sums.sizes >= np.abs(sums.values)).all()


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_fixed_point_of_a_projection_onto_all_components_is_the_row(offset):
    X = rows_of(40, offset=offset)
    model = fit(X, "rbf", n_components=None, gamma=1.0).model
    found = find_preimages(model, model.training_scores)
    np.testing.assert_allclose(found.rows, X, rtol=0, atol=1e-8 * max(1.0, offset * 1e-3))
    assert found.converged.all()
    assert (found.distances <= 1e-10).all()
    # and from another place than the row itself; σ = 0.7 here, so that rows of a neighbourhood are within reach
    near = find_preimages(model, model.training_scores, start=X + 0.1)
    np.testing.assert_allclose(near.rows, X, rtol=0, atol=1e-5)


@pytest.mark.parametrize("make", [rbf_model, lambda X: nystroem_model(X, X[::3])])
def test_what_is_found_is_a_stationary_point_of_the_distance(make):
    X, new = rows_of(), rows_of(7, seed=1)
    model = make(X)
    scores = project(model, new)
    found = find_preimages(model, scores, tol=1e-9)
    assert found.converged.all()
    expansion, step = expand(model), 1e-4

    def distance(Z):
        return expansion.distances(expansion.sums(Z, scores).values, scores)

    np.testing.assert_allclose(distance(found.rows), found.distances, rtol=0, atol=1e-12)
    for direction in step * np.eye(4):
        ahead, behind = distance(found.rows + direction), distance(found.rows - direction)
        # central differences: step² of the third derivative, and rounding over the step
        assert np.abs((ahead - behind) / (2 * step)).max() <= 1e-6
        assert (ahead >= found.distances - 1e-12).all()  # a minimum, no saddle
    assert (found.distances <= distance(np.array(new)) + 1e-12).all()


@pytest.mark.parametrize("features", [False, True])
def test_nystroem_with_every_row_a_landmark_finds_what_the_exact_model_finds(features):
    X = rows_of(50)
    exact, approximate = rbf_model(X), nystroem_model(X, X, features=features)
    scores = project(exact, rows_of(9, seed=3))
    signs = np.sign((exact.training_scores * approximate.scores(X)).sum(axis=0))
    found, expected = find_preimages(approximate, scores * signs, tol=1e-9), find_preimages(exact, scores, tol=1e-9)
    # directions of W below √m·eps are cut, and eigenvectors agree to some 1e-10
    np.testing.assert_allclose(found.rows, expected.rows, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.distances, expected.distances, rtol=0, atol=1e-8)


def test_one_iteration_is_reported_as_not_converged_and_no_worse_than_its_start():
    X = rows_of()
    model = rbf_model(X)
    scores, start = project(model, rows_of(8, seed=4)), rows_of(8, seed=4) + 1.0
    short = find_preimages(model, scores, start=start, max_iterations=1)
    assert not short.converged.any()
    assert (short.n_iterations == 1).all()
    expansion = expand(model)
    assert (short.distances <= expansion.distances(expansion.sums(start, scores).values, scores)).all()
    full = find_preimages(model, scores, start=start)
    assert full.converged.all()
    assert (full.n_iterations > 1).all()


def two_rows():
    """Two rows and scores s of their one component: γ = ½ ± t."""
    X = np.array([[-0.5, 0.0], [0.5, 0.0]])
    model = fit(X, "rbf", n_components=1, gamma=1.0).model
    k = float(np.exp(-1.0))
    alpha = model.dual_coefficients[:, 0]
    return X, model, k, alpha


def test_a_denominator_that_vanishes_or_is_negative_starts_the_row_again():
    X, model, k, alpha = two_rows()
    # f(x₂) = γ₁k + γ₂ = 0 for t = ½(1 + k)/(1 − k), and negative beyond
    vanishing = 0.5 * (1 + k) / (1 - k) / alpha[0]
    scores = np.array([[vanishing], [2 * vanishing], [0.5 / alpha[0]]])
    start = X[[1, 1, 1]]
    found = find_preimages(model, scores, start=start)
    assert found.n_restarts.tolist() == [1, 1, 0]
    assert found.converged.all()
    # γ₂ < 0 in the first two: the best point is beyond x₁; in the last one γ = (1, 0)
    assert (found.rows[:2, 0] < -0.5).all()
    np.testing.assert_allclose(found.rows[2], X[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.rows[:, 1], 0.0, atol=1e-12)


def test_a_row_without_restarts_left_reports_that_it_failed():
    X, model, k, alpha = two_rows()
    scores = np.array([[(1 + k) / (1 - k) / alpha[0]]])
    found = find_preimages(model, scores, start=X[[1]], n_restarts=0)
    assert (found.converged.tolist(), found.n_restarts.tolist(), found.n_iterations.tolist()) == ([False], [0], [1])
    np.testing.assert_array_equal(found.rows, X[[1]])


def test_a_row_that_flies_off_and_has_no_restarts_left_is_the_best_that_was_seen():
    X, model, k, alpha = two_rows()
    # just before the denominator vanishes: the first step is some 1e6 long
    scores = np.array([[(1 - 1e-6) * 0.5 * (1 + k) / (1 - k) / alpha[0]]])
    found = find_preimages(model, scores, start=X[[1]], n_restarts=0)
    assert (found.converged.tolist(), found.n_iterations.tolist()) == ([False], [2])
    np.testing.assert_array_equal(found.rows, X[[1]])
    again = find_preimages(model, scores, start=X[[1]])
    assert (again.converged.tolist(), again.n_restarts.tolist()) == ([True], [1])
    assert (again.distances < found.distances).all()


@pytest.mark.parametrize("far", [1e3, 1e200, 1e308])
def test_a_start_so_far_that_every_kernel_value_vanishes_starts_again(far):
    X = rows_of()
    model = rbf_model(X)
    scores = project(model, rows_of(2, seed=6))
    found = find_preimages(model, scores, start=np.full((2, 4), far))
    assert found.n_restarts.tolist() == [1, 1]
    assert found.converged.all()
    np.testing.assert_allclose(found.rows, find_preimages(model, scores).rows, rtol=0, atol=1e-5)
    lost = find_preimages(model, scores, start=np.full((2, 4), far), n_restarts=0)
    assert not lost.converged.any()
    assert np.isfinite(lost.distances).all()


def test_best_of_several_starts_is_the_nearest_of_each_row():
    X = rows_of()
    model = rbf_model(X, gamma=2.0)
    scores = project(model, rows_of(12, seed=7))
    found = [find_preimages(model, scores, start=X[first : first + 12]) for first in (0, 12, 24)]
    best = best_preimages(*found)
    np.testing.assert_array_equal(best.distances, np.min([each.distances for each in found], axis=0))
    source = np.argmin([each.distances for each in found], axis=0)
    assert len(set(source)) > 1
    np.testing.assert_array_equal(best.rows, [found[which].rows[row] for row, which in enumerate(source)])


def test_rows_are_found_alone_as_they_are_found_together(tmp_path):
    X = rows_of(70)
    model = rbf_model(store_rows(X, tmp_path / "rows.zarr", 32), tile_rows=32)
    scores = project(model, rows_of(300, seed=9))  # more than one strip
    together = find_preimages(model, scores)
    find = preimage_finder(model)
    for row in (0, 255, 256, 299):
        alone = find(scores[row : row + 1])
        # both stop within 1e-6·σ of the fixed point, σ = 1.8
        np.testing.assert_allclose(alone.rows[0], together.rows[row], rtol=0, atol=1e-5)
    # nor do blocks of training rows matter
    whole = find_preimages(rbf_model(X, tile_rows=70), scores)
    np.testing.assert_allclose(whole.rows, together.rows, rtol=0, atol=1e-5)


def test_single_row_constant_rows_and_kernels_that_are_constant_have_the_row_as_pre_image():
    single = rows_of(1)
    for X, gamma in [(single, GAMMA), (np.full((7, 3), 2.5), GAMMA), (np.repeat(rows_of(1, 3), 5, axis=0), 0.0)]:
        model = rbf_model(X, 1, gamma=gamma)
        found = find_preimages(model, np.array([[0.0], [3.0]]))  # the score of a zero component says nothing
        np.testing.assert_allclose(found.rows, X[[0, 0]], rtol=1e-14)
        assert found.converged.all()
        np.testing.assert_allclose(found.distances, 0.0, atol=10 * EPS)


def test_constant_kernel_of_different_rows_has_their_mean_as_pre_image():
    X = rows_of(8)
    found = find_preimages(rbf_model(X, 2, gamma=0.0), np.zeros((1, 2)))
    np.testing.assert_allclose(found.rows, [X.mean(axis=0)], rtol=1e-14)


def test_scores_far_from_any_row_raise_no_warning():
    model = rbf_model(rows_of())
    scores = 1e150 * model.training_scores[:3]
    assert np.isfinite(find_preimages(model, scores).distances).all()  # warnings are errors here
    assert np.isfinite(ridge_of(model, 1.0)(scores)).all()


def test_no_scores_have_no_pre_images():
    found = find_preimages(rbf_model(rows_of()), np.zeros((0, 5)))
    assert found.rows.shape == (0, 4)
    assert found.converged.shape == (0,)


def test_float32_rows_and_read_only_arguments_give_float64_pre_images():
    X = rows_of(dtype=np.float32)
    model = rbf_model(X)
    scores, start = project(model, X[:3]), rows_of(3, dtype=np.float32)
    scores.setflags(write=False)
    found = find_preimages(model, scores, start=start)
    assert found.rows.dtype == np.float64
    expected = find_preimages(rbf_model(X.astype(np.float64)), scores, start=start.astype(np.float64))
    np.testing.assert_allclose(found.rows, expected.rows, rtol=0, atol=1e-5)


def test_other_kernels_than_rbf_are_sent_to_the_ridge_map():
    model = fit(rows_of(), "laplacian", n_components=2, gamma=1.0).model
    assert isinstance(model.kernel, Laplacian)
    with pytest.raises(InvalidInputError, match=r"laplacian.*ridge map"):
        find_preimages(model, np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": np.zeros((2, 4))}, r"\(2, 4\).*3 scores"),
        ({"start": np.zeros((3, 5))}, "5 features"),
        ({"start": np.full((3, 4), np.inf)}, "infinity"),
        ({"max_iterations": 0}, "max_iterations=0"),
        ({"n_restarts": -1}, "n_restarts=-1"),
        ({"tol": np.nan}, "tol"),
        *(({"max_iterations": value}, f"max_iterations={value!r}; an integer ≥ 1") for value in (1.5, "a", None, True)),
        *(({"n_restarts": value}, f"n_restarts={value!r}; an integer ≥ 0") for value in (1.5, "a", None)),
        *(({"tol": value}, f"tol={value!r}; a finite number ≥ 0") for value in ("a", None, -1, True)),
        *(({"seed": value}, f"seed={value!r}; an integer ≥ 0") for value in (-1, "a", None)),
        ({"start": np.full((3, 4), "a")}, "start has dtype"),
        ({"start": [[1.0], [1.0, 2.0], []]}, "start rows are no matrix"),
    ],
)
def test_starts_and_options_outside_their_range_are_refused(options, words):
    with pytest.raises(InvalidInputError, match=words):
        find_preimages(rbf_model(rows_of()), np.zeros((3, 5)), **options)


# lazily


def test_rows_of_dask_scores_are_lazy_and_the_same_block_by_block():
    import dask.array as da

    X = rows_of()
    model = rbf_model(X)
    ridge, find = ridge_of(model, 0.1), preimage_finder(model)
    scores = model.training_scores
    lazy = reconstruct_lazily(ridge, da.from_array(scores, chunks=(25, 2)), 4)
    assert (lazy.shape, lazy.chunks[0]) == ((60, 4), (25, 25, 10))
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), ridge(scores), rtol=0, atol=1e-12)
    lazy = reconstruct_lazily(lambda block: find(block).rows, da.from_array(scores, chunks=(25, 2)), 4)
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), find(scores).rows, rtol=0, atol=1e-5)


def test_centring_enters_the_coefficients_once():
    X = rows_of(20)
    model = rbf_model(X, 3)
    A = expand(model).coefficients
    # eigenvectors of K̃ sum to zero, so that Σγ = 1 whatever the scores
    np.testing.assert_allclose(A.sum(axis=0), [0, 0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(A[:, :3].T @ centred(kernel_block(model.kernel, X, X)) @ A[:, :3], np.eye(3), atol=1e-12)
