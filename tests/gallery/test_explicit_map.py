"""The page docs/gallery/explicit_map.py."""

from math import comb

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures

from tests.support import EPS, centred, rounding, score_tolerance


def aligned(scores, oracle):
    """The same, with the signs of the oracle's components."""
    return scores * np.sign((scores * oracle).sum(axis=0))


@pytest.fixture
def shown(page):
    return page("explicit_map")


@pytest.fixture
def tolerance(shown):
    """How far scores may differ: √λ₁ times how far eigenvectors turn by the rounding of K."""
    spectrum = shown["pca"].eigenvalues_
    return np.sqrt(spectrum[0]) * score_tolerance(np.append(spectrum, 0), 5, rounding(shown["K"])).max()


def test_the_quadratic_kernel_is_the_inner_product_of_six_features(shown):
    phi = shown["features"](shown["X"])
    assert phi.shape == (90, 6)
    np.testing.assert_allclose(shown["K"], phi @ phi.T, rtol=8 * EPS, atol=8 * EPS * shown["K"].max())
    assert "kernel and inner products of six features are the same to 1e-12: True" in shown.printed


def test_kernel_pca_is_pca_of_the_features(shown, tolerance):
    pca, oracle = shown["pca"], shown["pca_of_features"]
    assert pca.eigenvalues_.shape == (5,)
    np.testing.assert_allclose(pca.eigenvalues_, 89 * oracle.explained_variance_, rtol=0, atol=rounding(shown["K"]))
    of_features = oracle.transform(shown["features"](shown["X"]))
    np.testing.assert_allclose(aligned(shown["scores"], of_features), of_features, rtol=0, atol=tolerance)
    assert "5 components are not zero" in shown.printed


def test_scores_are_the_centred_kernel_times_eigenvectors_over_roots_of_eigenvalues(shown, tolerance):
    np.testing.assert_allclose(shown["Kc"], centred(shown["K"]), rtol=0, atol=rounding(shown["K"]))
    np.testing.assert_allclose(aligned(shown["by_product"], shown["scores"]), shown["scores"], rtol=0, atol=tolerance)


def test_new_rows_are_projected_by_the_means_of_the_fitted_ones(shown, tolerance):
    new = shown["pca"].transform(shown["new"])
    of_features = shown["pca_of_features"].transform(shown["features"](shown["new"]))
    np.testing.assert_allclose(aligned(new, of_features), of_features, rtol=0, atol=2 * tolerance)
    np.testing.assert_allclose(aligned(shown["new_by_product"], new), new, rtol=0, atol=2 * tolerance)


def test_degree_p_of_d_features_stands_for_as_many_as_the_binomial_says(shown):
    for (d, p), found in zip(shown["SIZES"], shown["counted"], strict=True):
        n_features = PolynomialFeatures(p).fit(np.zeros((1, d))).n_output_features_
        assert found + 1 == n_features == comb(d + p, p)
        assert f"d = {d}, p = {p}: {found} eigenvalues and a constant, {n_features} features" in shown.printed
