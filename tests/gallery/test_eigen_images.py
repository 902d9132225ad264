"""The page docs/gallery/eigen_images.py."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from scalable_kpca.quality import reconstruction_error
from tests.support import rounding


def test_the_error_of_a_reconstruction_is_the_sum_of_the_eigenvalues_that_are_left_out(page):
    shown = page("eigen_images")
    X = shown["X"]
    total = np.square(X - X.mean(axis=0)).sum() / len(X)
    for k, error, left_out in zip((4, 16, 40), shown["errors"], shown["left_out"], strict=True):
        oracle = PCA(k, svd_solver="full").fit(X)
        assert error == pytest.approx(left_out, abs=1e-10 * total)
        rebuilt = oracle.inverse_transform(oracle.transform(X))
        assert error == pytest.approx(np.square(X - rebuilt).sum(axis=1).mean(), abs=1e-10 * total)
        assert f"{k:2} components: error {error:.4f}, eigenvalues left out {left_out:.4f}" in shown.printed
    assert shown["errors"] == sorted(shown["errors"], reverse=True)
    # nothing is left out by all of them
    assert reconstruction_error(shown["pca"]) <= 1e-10 * total


def test_components_of_digits_are_orthonormal_pictures(page):
    shown = page("eigen_images")
    directions = shown["directions"]
    n = len(shown["pca"].eigenvalues_)
    assert directions.shape == (64, n)
    values = shown["pca"].eigenvalues_
    products = directions.T @ directions - np.eye(n)
    # each as certain as its eigenvalue is large
    assert (abs(products) <= rounding(shown["X"] @ shown["X"].T) / np.minimum.outer(values, values)).all()


def test_sixteen_weights_say_which_digit_it_is_as_well_as_all_pixels_do(page):
    shown = page("eigen_images")
    accuracy = shown["accuracy"]
    means = np.array([shown["X"][shown["labels"] == digit].mean(axis=0) for digit in range(10)])
    nearest = np.linalg.norm(shown["new"][:, None] - means, axis=2).argmin(axis=1)
    pixels = (nearest == shown["new_labels"]).mean()
    # a guess is right once in ten; 1.1 % is the standard deviation of a share of 0.87 of 997 digits
    assert accuracy > 0.8
    assert accuracy > pixels - 0.033
    assert f"{accuracy:.1%} of 997 new digits are recognised by 16 weights" in shown.printed
