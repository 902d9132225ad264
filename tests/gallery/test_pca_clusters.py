"""The page docs/gallery/pca_clusters.py."""

import numpy as np
import pytest

from tests.support import rounding


@pytest.mark.parametrize("name", ["three", "four"])
def test_eigenvalues_over_n_are_those_of_the_covariance_and_directions_its_eigenvectors(page, name):
    shown = page("pca_clusters")
    X, pca = shown[name], shown[f"{name}_pca"]
    C = np.cov(X.T, bias=True)
    values, vectors = np.linalg.eigh(C)
    tolerance = rounding(X @ X.T) / len(X)
    assert pca.eigenvalues_.shape == (7,)
    np.testing.assert_allclose(pca.eigenvalues_ / len(X), values[::-1], rtol=0, atol=tolerance)
    found = shown["directions"](X, pca)
    np.testing.assert_allclose(C @ found, found * values[::-1], rtol=0, atol=10 * tolerance)
    np.testing.assert_allclose(found.T @ found, np.eye(7), rtol=0, atol=10 * tolerance / values[0])
    np.testing.assert_allclose(abs((vectors[:, ::-1] * found).sum(axis=0)), 1, rtol=0, atol=1e-10)


def test_clusters_on_a_diagonal_have_one_large_eigenvalue_and_those_of_a_square_two(page):
    shown = page("pca_clusters")
    assert (shown["n_three"], shown["n_four"]) == (1, 2)
    # the variance between clusters on top of that of noise: (0 + 50 + 50)/3 along the diagonal, 25/4 along each side
    assert shown["three_pca"].eigenvalues_[0] / 60 == pytest.approx(1 + 100 / 3, rel=0.15)
    np.testing.assert_allclose(shown["four_pca"].eigenvalues_[:2] / 80, 1 + 25 / 4, rtol=0.25)


def test_clusters_stay_apart_among_the_scores_on_large_eigenvalues(page):
    shown = page("pca_clusters")
    # half the distance of two centres is 3.5 and 2.5 standard deviations: 1 in 2000 and 1 in 80 on the wrong side of
    # one border; a row of a square has two
    assert shown["near_three"] >= 59
    assert shown["near_four"] >= 75
    assert f"three clusters: 1; {shown['near_three']} of 60\n" in shown.printed
    assert f"four clusters: 2; {shown['near_four']} of 80\n" in shown.printed
