"""The page docs/gallery/iris.py."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from tests.support import rounding, score_tolerance


def test_two_components_of_iris_explain_what_those_of_scikit_learn_do(page):
    shown = page("iris")
    oracle = PCA().fit(shown["X"])
    np.testing.assert_allclose(shown["pca"].explained_variance_ratio_, oracle.explained_variance_ratio_, atol=1e-12)
    assert shown["share"] == pytest.approx(0.9776852, abs=1e-7)
    assert "4 components; the first two explain 97.77% of the variance" in shown.printed


def test_scores_of_iris_are_those_of_scikit_learn_up_to_the_sign_of_each_component(page):
    shown = page("iris")
    X, scores = shown["X"], shown["scores"]
    oracle = PCA().fit_transform(X)
    signs = np.sign((scores * oracle).sum(axis=0))
    error = rounding(X @ X.T)
    spectrum = shown["pca"].eigenvalues_
    # eigenvectors that turn move every score by at most √λ times the angle
    tolerance = np.sqrt(spectrum[0]) * score_tolerance(np.append(spectrum, 0), 4, error).max()
    np.testing.assert_allclose(scores, signs * oracle, rtol=0, atol=tolerance)
