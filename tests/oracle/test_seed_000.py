"""Every equation of seed 000 (Welling, Kernel Principal Components Analysis), one test each, in feature space.

The kernel is (γ xᵀy + c)², whose features are few enough to be written down: the left side of each equation is taken
from the features, the right side from the fitted model, which has seen K alone. The seed's eigenvalue of the
covariance matrix is λ_a; the model's is the Gram matrix's, N λ_a.
"""

import numpy as np
import pytest

from scalable_kpca.centering import Centering
from scalable_kpca.transform import project
from tests.support import EPS, centred, fit, gram_of, rounding

GAMMA, COEF0, N, K_COMPONENTS = 0.4, 1.5, 23, 6


def features(X):
    """Φ with Φ(x)Φ(y)ᵀ = (γ xᵀy + c)²."""
    products = np.einsum("ni,nj->nij", X, X).reshape(len(X), -1)
    return np.hstack([GAMMA * products, np.sqrt(2 * GAMMA * COEF0) * X, np.full((len(X), 1), COEF0)])


X = np.random.default_rng(3).standard_normal((N, 4)) + 0.5
NEW = np.random.default_rng(4).standard_normal((5, 4))
PHI, PHI_NEW = features(X), features(NEW)
MEAN = PHI.sum(axis=0) / N
K, K_NEW = PHI @ PHI.T, PHI_NEW @ PHI.T
# all numbers below are sums of products of Φ; ‖K_NEW‖ is of the size of ‖K‖
ROUNDING = rounding(K) + rounding(K_NEW)


@pytest.fixture(scope="module")
def model():
    options = {"gamma": GAMMA, "degree": 2, "coef0": COEF0}
    return fit(X, "poly", n_components=K_COMPONENTS, tile_rows=5, **options).model


@pytest.fixture(scope="module")
def covariance():
    """C of the centred features, and its eigenvalues, descending."""
    C = (PHI - MEAN).T @ (PHI - MEAN) / N
    return C, np.linalg.eigvalsh(C)[::-1][:K_COMPONENTS]


@pytest.fixture(scope="module")
def directions(model):
    """Columns u_a = Σ_i α_i^a Φ_i."""
    return (PHI - MEAN).T @ model.dual_coefficients


def test_kernel_is_the_inner_product_of_its_features():
    with gram_of(X, "poly", tile_rows=5, gamma=GAMMA, degree=2, coef0=COEF0) as gram:
        gram.build()
        np.testing.assert_allclose(gram.to_array(), K, rtol=0, atol=ROUNDING)


def test_eq_4_scores_are_decorrelated_with_the_covariance_eigenvalues_as_variances(model, covariance):
    Y = model.training_scores
    np.testing.assert_allclose(Y.T @ Y / N, np.diag(covariance[1]), rtol=0, atol=ROUNDING)


def test_eq_5_reconstruction_error_is_the_variance_that_was_left_out(model, directions):
    inside = (PHI - MEAN) @ directions @ directions.T
    error = np.square(PHI - MEAN - inside).sum()
    left_out = model.certificate.total_variance - model.eigenvalues.sum()
    # u has an error of rounding/√λ, Φ̃ a length of at most √‖K‖
    allowed = 10 * ROUNDING * np.sqrt(np.linalg.norm(K) / model.eigenvalues[-1])
    assert left_out > 1e3 * allowed
    assert abs(error - left_out) <= allowed


def test_eq_6_combinations_of_the_rows_are_unit_eigenvectors_of_the_covariance(model, covariance, directions):
    C, eigenvalues = covariance
    allowed = ROUNDING / np.sqrt(model.eigenvalues)
    assert (np.abs(C @ directions - directions * eigenvalues) <= allowed).all()
    gram_of_directions = directions.T @ directions
    np.testing.assert_allclose(gram_of_directions, np.eye(K_COMPONENTS), rtol=0, atol=ROUNDING / model.eigenvalues[-1])


def test_eq_7_projected_eigenvalue_equations_hold_for_every_row(model, covariance):
    # x_iᵀ C u = λ x_iᵀ u in terms of K alone: K̃²α/N = λ K̃α
    K_centred = (PHI - MEAN) @ (PHI - MEAN).T
    left = K_centred @ K_centred @ model.dual_coefficients / N
    right = (K_centred @ model.dual_coefficients) * covariance[1]
    allowed = ROUNDING * np.linalg.norm(K) / np.sqrt(model.eigenvalues)
    assert (np.abs(left - right) <= allowed).all()


def test_eq_8_dual_coefficients_are_eigenvectors_of_the_gram_matrix_with_n_times_the_eigenvalue(model, covariance):
    np.testing.assert_allclose(model.eigenvalues, N * covariance[1], rtol=0, atol=ROUNDING)
    K_centred = (PHI - MEAN) @ (PHI - MEAN).T
    difference = K_centred @ model.dual_coefficients - model.dual_coefficients * (N * covariance[1])
    assert (np.abs(difference) <= ROUNDING / np.sqrt(model.eigenvalues)).all()


def test_eq_9_length_is_one_over_root_n_lambda_when_lambda_is_the_covariance_eigenvalue(model, covariance):
    lengths = np.linalg.norm(model.dual_coefficients, axis=0)
    np.testing.assert_allclose(lengths * np.sqrt(N * covariance[1]), 1, rtol=0, atol=ROUNDING / model.eigenvalues[-1])


def test_eq_9_length_is_one_over_root_lambda_when_lambda_is_the_gram_eigenvalue(model):
    alpha = model.dual_coefficients
    np.testing.assert_allclose(np.linalg.norm(alpha, axis=0) * np.sqrt(model.eigenvalues), 1, rtol=0, atol=N * EPS)
    normalised = alpha.T @ centred(K) @ alpha
    np.testing.assert_allclose(normalised, np.eye(K_COMPONENTS), rtol=0, atol=ROUNDING / model.eigenvalues[-1])


def test_eq_10_projection_of_a_new_row_needs_the_kernel_alone(model, directions):
    # Σ_i α_i = 0, so that the uncentred kernel already gives uᵀΦ(t), up to uᵀ times the mean feature
    allowed = 2 * ROUNDING / np.sqrt(model.eigenvalues)
    assert (np.abs(K_NEW @ model.dual_coefficients - PHI_NEW @ directions) <= allowed).all()
    assert (np.abs(project(model, NEW) - (PHI_NEW - MEAN) @ directions) <= allowed).all()


def test_eq_11_centred_features_have_mean_zero(model):
    # seen from K alone: rows of K̃ and columns of scores, inner products with centred features, add up to zero
    assert np.abs((PHI - MEAN).sum(axis=0)).max() <= ROUNDING
    assert np.abs(model.centering.centre(K).sum(axis=0)).max() <= ROUNDING
    assert (np.abs(model.training_scores.sum(axis=0)) <= ROUNDING / np.sqrt(model.eigenvalues)).all()


def test_eq_12_centred_kernel_is_the_inner_product_of_centred_features(model):
    expected = (PHI - MEAN) @ (PHI - MEAN).T
    np.testing.assert_allclose(model.centering.centre(K), expected, rtol=0, atol=ROUNDING)


def test_eq_13_centred_kernel_expands_into_four_products(model):
    expected = PHI @ PHI.T - (MEAN @ PHI.T)[None, :] - (PHI @ MEAN)[:, None] + MEAN @ MEAN
    np.testing.assert_allclose(model.centering.centre(K), expected, rtol=0, atol=ROUNDING)


def test_eq_14_centred_kernel_needs_row_means_and_grand_mean_alone():
    kappa, k = K.sum(axis=1) / N, K.sum() / N**2
    ones = np.ones(N)
    expected = K - np.outer(kappa, ones) - np.outer(ones, kappa) + k * np.outer(ones, ones)
    centering = Centering.from_row_sums(K.sum(axis=1))
    np.testing.assert_allclose(centering.centre(K), expected, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(centering.centre(K), centred(K), rtol=0, atol=ROUNDING)


def test_eq_15_row_means_are_inner_products_with_the_mean_feature(model):
    np.testing.assert_allclose(model.centering.row_means, PHI @ MEAN, rtol=0, atol=ROUNDING)


def test_eq_16_grand_mean_is_the_squared_length_of_the_mean_feature(model):
    assert abs(model.centering.grand_mean - MEAN @ MEAN) <= ROUNDING


def test_eq_17_new_rows_are_centred_with_the_mean_of_the_training_rows(model):
    expected = (PHI_NEW - MEAN) @ (PHI - MEAN).T
    np.testing.assert_allclose(model.centering.centre_new(K_NEW), expected, rtol=0, atol=ROUNDING)
    # not with their own mean
    own = (PHI_NEW - PHI_NEW.mean(axis=0)) @ (PHI - MEAN).T
    assert np.abs(expected - own).max() > 1


def test_eq_18_new_rows_are_centred_from_kernel_values_alone(model):
    kappa_new, kappa, k = K_NEW.mean(axis=1), K.mean(axis=1), K.mean()
    expected = K_NEW - kappa_new[:, None] - kappa[None, :] + k
    np.testing.assert_allclose(model.centering.centre_new(K_NEW), expected, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(model.centering.centre_new(K), model.centering.centre(K), rtol=0, atol=ROUNDING)
    # the streaming projection never forms it, and is the same
    scores = expected @ model.dual_coefficients
    assert (np.abs(project(model, NEW) - scores) <= 2 * ROUNDING / np.sqrt(model.eigenvalues)).all()


def test_eq_18_holds_for_coefficients_that_do_not_add_up_to_zero(model):
    # dual coefficients do, which would hide a wrong mean
    coefficients = np.random.default_rng(5).standard_normal((N, 3)) + 1
    expected = model.centering.centre_new(K_NEW) @ coefficients
    found = model.centering.project(K_NEW @ coefficients, K_NEW.mean(axis=1), coefficients)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * np.linalg.norm(coefficients))
