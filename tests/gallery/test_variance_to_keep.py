"""The page docs/gallery/variance_to_keep.py."""

import numpy as np
import pytest
from sklearn.decomposition import PCA


def test_the_95_percent_rule_keeps_as_many_components_of_digits_as_the_whole_spectrum_says(page):
    shown = page("variance_to_keep")
    n = PCA(0.95, svd_solver="full").fit(shown["X"]).n_components_
    assert shown["by_rule"] == shown["by_spectrum"] == n
    # far from the line on both sides, so that rounding does not decide it
    below, reached = shown["cumulative"][n - 2 : n]
    assert below < 0.95 - 1e-6
    assert reached > 0.95 + 1e-6
    np.testing.assert_allclose(shown["kept"].eigenvalues_, shown["whole"].eigenvalues_[:n], rtol=1e-10)
    assert n < 32
    assert f"digits: {n} of 64 components by the rule, {n} by the whole spectrum" in shown.printed


def test_on_a_ring_the_rule_keeps_both_directions(page):
    shown = page("variance_to_keep")
    assert shown["on_the_ring"] == shown["ring"].shape[1] == 2
    first = shown["ring_pca"].explained_variance_ratio_[0]
    # radii vary by 5 %, their squares by 10 %: the mean of 300 such differs by little more than half a percent
    assert first == pytest.approx(0.5, abs=0.02)
    assert f"ring: 2 of 2, the first explains {first:.1%}" in shown.printed
