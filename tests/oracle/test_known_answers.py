"""Spectra that are known without a kernel PCA: by hand, by symmetry, or to eight digits from another program."""

import numpy as np
import pytest

from scalable_kpca.certificate import residual_bounds
from scalable_kpca.operator import CenteredGram
from scalable_kpca.scale import GramScale
from scalable_kpca.solvers import EigenResult
from scalable_kpca.transform import project
from tests.support import centred, fit, gram_of, rounding

SIX_POINTS = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [3, 3], [4, 3]], float)


@pytest.mark.parametrize("gram", ["memory", "zarr"])
@pytest.mark.parametrize("tile_rows", [1, 2, 4, 6])
def test_six_points_have_the_published_rbf_spectrum(gram, tile_rows, tmp_path):
    model = fit(SIX_POINTS, "rbf", n_components=6, gamma=0.5, gram=gram, tile_rows=tile_rows, workdir=tmp_path).model
    expected = [1.92370031, 0.63236390, 0.63212055, 0.39327020, 0.15470034, 0.0]
    # half a unit of the last digit given
    np.testing.assert_allclose(model.eigenvalues, expected, rtol=0, atol=5.1e-9)
    assert abs(model.certificate.total_variance - 3.73615531) <= 5.1e-9
    assert model.eigenvalues[5] == 0.0


def test_arpack_finds_the_same_six_point_spectrum():
    model = fit(SIX_POINTS, "rbf", n_components=4, gamma=0.5, solver="arpack", tile_rows=4).model
    np.testing.assert_allclose(model.eigenvalues, [1.92370031, 0.63236390, 0.63212055, 0.39327020], rtol=0, atol=5.1e-9)


def test_two_points_have_one_component_whose_scores_are_half_their_distance_apart_from_zero():
    # K̃ = (1 − k)/2 · [[1, −1], [−1, 1]] for k = k(x, y), so that λ = 1 − k
    model = fit(SIX_POINTS[:2], "rbf", n_components=None, gamma=0.5, tile_rows=1).model
    one_minus_k = 1 - np.exp(-0.5)
    np.testing.assert_allclose(model.eigenvalues, [one_minus_k], rtol=1e-14)
    np.testing.assert_allclose(np.abs(model.training_scores[:, 0]), np.sqrt(one_minus_k / 2), rtol=1e-14)


@pytest.mark.parametrize("solver", ["dense", "arpack"])
def test_circle_has_four_components_of_the_polynomial_kernel_of_degree_two(solver):
    # features x², √2xy, y², √2x, √2y; on the circle x² + y² is constant, and the rest oscillate with 2θ and θ:
    # Σ cos² = n/2 gives λ = n/2 · 5000 twice and n/2 · 200 twice
    n_samples = 40
    theta = 2 * np.pi * np.arange(n_samples) / n_samples
    X = 10 * np.column_stack([np.cos(theta), np.sin(theta)])
    n_components = None if solver == "dense" else 5
    options = {"gamma": 1.0, "degree": 2, "coef0": 1.0, "tile_rows": 9, "solver": solver}
    model = fit(X, "poly", n_components=n_components, remove_zero_eig=True, **options).model
    K = (X @ X.T + 1) ** 2
    expected = np.array([2500, 2500, 100, 100]) * n_samples
    np.testing.assert_allclose(model.eigenvalues, expected, rtol=0, atol=rounding(K))
    assert abs(model.certificate.total_variance - 5200 * n_samples) <= rounding(K)
    # one more without centring: the constant feature, shared with x² + y²
    assert int((np.linalg.eigvalsh(K) > rounding(K)).sum()) == 5


def test_rows_that_are_orthogonal_and_of_equal_length_have_a_flat_spectrum():
    # K = c·I, so that K̃ = c·H: n − 1 eigenvalues c, and one 0
    model = fit(3 * np.eye(7), "linear", n_components=7, tile_rows=3).model
    np.testing.assert_allclose(model.eigenvalues[:6], 9, rtol=0, atol=rounding(9 * np.eye(7)))
    assert model.eigenvalues[6] == 0.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_first_two_components_separate_three_clusters_and_the_next_three_halve_them(seed):
    rng = np.random.default_rng(seed)
    centres = np.array([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]])
    labels = np.repeat(np.arange(3), 30)
    X = centres[labels] + 0.1 * rng.standard_normal((90, 2))
    model = fit(X, "rbf", n_components=8, gamma=10.0, tile_rows=32).model
    scores = model.training_scores
    means = np.array([scores[labels == cluster].mean(axis=0) for cluster in range(3)])
    distances = np.linalg.norm(scores[:, None, :2] - means[None, :, :2], axis=2)
    assert (distances.argmin(axis=1) == labels).all()
    between = means[labels].var(axis=0) / scores.var(axis=0)
    assert (between[:2] > 0.8).all()
    assert (between[2:5] < 0.2).all()
    # a new point at a centre lands in its cluster
    at_centres = project(model, centres)[:, :2]
    nearest = np.linalg.norm(at_centres[:, None] - means[None, :, :2], axis=2).argmin(axis=1)
    assert nearest.tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-6, 1e-2])
def test_bounds_hold_for_vectors_that_are_not_eigenvectors(size):
    X = np.random.default_rng(5).standard_normal((29, 3))
    with gram_of(X, "rbf", tile_rows=8, gamma=0.2) as gram:
        built = gram.build()
        operator = CenteredGram(gram, built)
        true, vectors = np.linalg.eigh(centred(gram.to_array()))
        vectors = vectors[:, ::-1][:, :5] + size * np.random.default_rng(6).standard_normal((29, 5))
        vectors /= np.linalg.norm(vectors, axis=0)
        values = (vectors * operator.matmat(vectors)).sum(axis=0) * (1 + size)
        scale = GramScale(
            n_samples=29,
            dtype="float64",
            max_diagonal=1.0,
            gram_norm=float(np.sqrt(built.squared_norm)),
            squared_norm=float(np.square(true).sum()),
            total_variance=float(true.sum()),
        )
        result = EigenResult(values, vectors, "perturbed", 0, False)
        _, bounds = residual_bounds(operator, values, vectors, scale, result)
    distances = np.abs(true[:, None] - values[None, :]).min(axis=0)
    assert (distances <= bounds).all()
    # they are worth something: a residual is of the size of the perturbation
    assert (bounds <= 30 * (size + 1e-12) * true[-1]).all()
    assert (distances > 1e-3 * size * true[-1]).any() or size == 0
