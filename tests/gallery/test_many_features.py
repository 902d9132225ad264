"""The page docs/gallery/many_features.py."""

import numpy as np

from tests.support import EPS


def test_gram_and_covariance_matrix_of_5000_genes_have_the_same_59_eigenvalues(page):
    shown = page("many_features")
    values, singular = shown["pca"].eigenvalues_, shown["singular_values"]
    tolerance = 60 * EPS * np.linalg.norm(shown["X"]) ** 2
    assert values.shape == (59,)
    np.testing.assert_allclose(values, singular[:59] ** 2, rtol=0, atol=tolerance)
    assert singular[59] ** 2 <= tolerance < values[58]
    assert "59 eigenvalues are not zero\nthe same both ways, to 1e-12 of the first: True" in shown.printed


def test_eigenvectors_of_the_gram_matrix_give_those_of_the_covariance_matrix(page):
    shown = page("many_features")
    centred, u, values = shown["centred"], shown["directions"], shown["pca"].eigenvalues_
    tolerance = 60 * EPS * np.linalg.norm(shown["X"]) ** 2
    np.testing.assert_allclose(u.T @ u, np.eye(59), rtol=0, atol=tolerance / values[-1])
    np.testing.assert_allclose(centred.T @ (centred @ u), u * values, rtol=0, atol=tolerance)
    # and of those back: C u = λ u gives X u / √λ
    np.testing.assert_allclose(centred @ u / np.sqrt(values), shown["pca"].eigenvectors_, rtol=0, atol=1e-10)


def test_the_covariance_matrix_that_is_formed_has_the_eigenvalues_of_the_gram_matrix_over_n_and_zeros(page):
    shown = page("many_features")
    values, covariance = shown["few_pca"].eigenvalues_, shown["few_covariance"]
    tolerance = 400 * EPS * np.linalg.norm(shown["few"]) ** 2 / 60
    assert values.shape == (59,)
    assert covariance.shape == (400,)
    np.testing.assert_allclose(covariance, np.append(values / 60, np.zeros(341)), rtol=0, atol=tolerance)


def test_the_gram_matrix_of_60_rows_takes_seven_thousand_times_less_than_the_covariance_matrix(page):
    shown = page("many_features")
    assert (shown["gram_bytes"], shown["covariance_bytes"]) == (28_800, 200_000_000)
    assert "Gram matrix 28800 bytes, covariance matrix 200000000 bytes" in shown.printed
