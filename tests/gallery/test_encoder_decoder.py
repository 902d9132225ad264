"""The page docs/gallery/encoder_decoder.py."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from tests.support import EPS, centred, rounding


@pytest.fixture
def shown(page):
    return page("encoder_decoder")


def test_the_error_of_pca_is_the_sum_of_the_squared_singular_values_that_are_left_out(shown):
    X, of_pca = shown["X"], shown["of_pca"]
    squares = np.linalg.eigvalsh(X.T @ X)[::-1]
    expected = [squares[k:].sum() for k in range(14)]
    tolerance = rounding(X.T @ X)
    np.testing.assert_allclose(of_pca, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(shown["left_out"], expected, rtol=0, atol=tolerance)
    # a decoder of another library
    fitted = PCA(3).fit(X)
    decoded = fitted.inverse_transform(fitted.transform(X))
    assert of_pca[3] == pytest.approx(np.square(X - decoded).sum(), abs=tolerance)
    assert f"k = 3: error {of_pca[3]:.2f}, squared singular values left out {of_pca[3]:.2f}" in shown.printed


def test_no_other_encoder_has_a_smaller_error(shown):
    of_pca, of_random = shown["of_pca"], shown["of_random"]
    assert of_random[0] == pytest.approx(of_pca[0], rel=1e-12)
    # the best of twenty is worse by 6 % and more as measured, until it has as many columns as there are features
    assert (of_random[1:13] > 1.02 * of_pca[1:13]).all()
    assert of_random[13] == pytest.approx(0, abs=rounding(shown["X"].T @ shown["X"]))


def test_the_error_in_feature_space_is_the_total_variance_less_what_is_kept(shown):
    K = np.exp(-shown["pca"].gamma_ * np.square(shown["X"][:, None] - shown["X"][None]).sum(axis=2))
    spectrum = np.linalg.eigvalsh(centred(K))[::-1]
    tolerance = len(K) * rounding(K)  # a sum of up to n eigenvalues
    expected = [spectrum[k:].sum() for k in range(len(K))]
    np.testing.assert_allclose(shown["of_kernel_pca"], expected, rtol=0, atol=tolerance)
    assert shown["of_kernel_pca"][0] == pytest.approx(np.trace(centred(K)), abs=tolerance)
    assert shown["of_kernel_pca"][3] == pytest.approx(shown["distances"].sum(), abs=tolerance)
    said = f"{shown['of_kernel_pca'][3]:.4f}"
    assert f"total variance less eigenvalues {said}, distances {said}" in shown.printed


def test_the_encoded_rows_are_the_scores(shown):
    scores = shown["three"].transform(shown["X"])
    # products with n terms up to ‖A‖ = 1/√λ₃
    tolerance = rounding(shown["K"]) / np.sqrt(shown["three"].eigenvalues_[2])
    np.testing.assert_allclose(shown["encoded"], scores, rtol=0, atol=tolerance)
    np.testing.assert_allclose(shown["G"], centred(shown["K"]), rtol=0, atol=len(shown["K"]) * EPS)
    difference = float(shown.printed.split("differ by ")[1])
    assert difference <= tolerance
