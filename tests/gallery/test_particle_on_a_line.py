"""The page docs/gallery/particle_on_a_line.py."""

import numpy as np
import pytest

from tests.support import EPS, rounding


def test_a_particle_on_a_line_has_one_eigenvalue_that_is_not_zero_and_it_is_the_sum_of_squares(page):
    shown = page("particle_on_a_line")
    values = shown["pca"].eigenvalues_
    tolerance = rounding(shown["X"] @ shown["X"].T)
    assert values.shape == (3,)
    assert values[0] == pytest.approx(0.25 * 60 * (60**2 - 1) / 12, abs=tolerance)
    assert (values[1:] == 0).all()
    assert "1 eigenvalue is not zero: 4498.75, by the sum 4498.75" in shown.printed


def test_the_direction_of_the_particle_is_found_from_scores_and_rows(page):
    shown = page("particle_on_a_line")
    direction = shown["direction"]
    assert shown["direction_error"] <= 60 * EPS * 10
    np.testing.assert_allclose(abs(direction), [2 / 7, 3 / 7, 6 / 7], atol=60 * EPS * 10)
    assert "direction [2.0, 3.0, 6.0] / 7" in shown.printed


def test_the_scores_are_the_distance_along_the_line_up_to_sign_and_shift(page):
    shown = page("particle_on_a_line")
    distance = 0.5 * np.arange(60)
    tolerance = rounding(shown["X"] @ shown["X"].T) / np.sqrt(shown["pca"].eigenvalues_[0])
    scores = shown["scores"]
    np.testing.assert_allclose(abs(np.diff(scores)), 0.5, atol=2 * tolerance)
    assert scores.sum() == pytest.approx(0, abs=60 * tolerance)
    np.testing.assert_allclose(shown["recovered"], distance, rtol=0, atol=2 * tolerance)
