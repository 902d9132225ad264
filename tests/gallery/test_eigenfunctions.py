"""The page docs/gallery/eigenfunctions.py."""

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from tests.oracle.test_seeds import PRML_CENTRES, PRML_EIGENVALUES, three_clusters
from tests.support import centred, rounding


@pytest.fixture
def shown(page):
    return page("eigenfunctions")


def gram(rows):
    return np.exp(-np.square(rows[:, None] - rows[None]).sum(axis=2) / 0.1)


def test_the_page_has_the_eigenvalues_of_the_centred_kernel_matrix_of_its_rows(shown):
    rows, clusters = three_clusters(6)
    np.testing.assert_array_equal(shown["X"], rows)
    np.testing.assert_array_equal(shown["clusters"], clusters)
    np.testing.assert_array_equal(shown["centres"], PRML_CENTRES)
    K = gram(rows)
    expected = np.linalg.eigvalsh(centred(K))[::-1][:8]
    np.testing.assert_allclose(shown["pca"].eigenvalues_, expected, rtol=0, atol=rounding(K))
    assert "eigenvalues " + " ".join(f"{value:.2f}" for value in expected) in shown.printed


def test_the_eigenvalues_are_those_of_one_draw_of_the_distribution_whose_means_are_known(shown):
    assert shown["means_of_draws"].tolist() == PRML_EIGENVALUES
    # a draw beside the mean: three deviations, and √2 for that the mean itself is of draws
    draws = [np.linalg.eigvalsh(centred(gram(three_clusters(seed)[0])))[::-1][:8] for seed in range(100)]
    tolerance = 3 * np.sqrt(2) * np.std(draws, axis=0, ddof=1)
    assert (np.abs(shown["pca"].eigenvalues_ - PRML_EIGENVALUES) <= tolerance).all()
    # worth something: the third eigenvalue is neither the second nor the eighth
    assert (tolerance[2] < np.abs(shown["pca"].eigenvalues_[[1, 7]] - PRML_EIGENVALUES[2])).all()


def test_the_first_two_components_separate_the_clusters(shown):
    scores, clusters, means = shown["scores"][:, :2], shown["clusters"], shown["means"][:, :2]
    nearest = np.linalg.norm(scores[:, None] - means[None], axis=2).argmin(axis=1)
    np.testing.assert_array_equal(nearest, clusters)
    # measured 0.98 and less than 0.005
    assert (shown["between"][:2] > 0.9).all()
    assert (shown["between"][2:] < 0.05).all()


def slopes(shown, component):
    """Direction in which a component rises in the cluster that it halves: least squares."""
    here = shown["clusters"] == shown["halved"][component]
    rows = np.column_stack([shown["X"][here], np.ones(here.sum())])
    slope = np.linalg.lstsq(rows, shown["scores"][here, component], rcond=None)[0][:2]
    return slope / np.linalg.norm(slope)


def test_the_next_three_components_halve_a_cluster_each_and_the_last_three_halve_them_again_across(shown):
    halved, clusters = shown["halved"], shown["clusters"]
    assert sorted(halved[2:5]) == sorted(halved[5:]) == [0, 1, 2]
    # measured 0.91 to 0.99
    assert (shown["share"][2:] > 0.8).all()
    for component in range(2, 8):
        scores = shown["scores"][clusters == halved[component], component]
        # halves: at least a third of the 30 rows on either side
        assert 10 <= (scores > 0).sum() <= 20
    for cluster in range(3):
        first, second = np.flatnonzero(halved == cluster)[np.flatnonzero(halved == cluster) >= 2]
        # measured 84 to 90 degrees
        assert abs(slopes(shown, first) @ slopes(shown, second)) < np.cos(np.radians(75))
    assert f"components 3 to 5 halve {' '.join(map(str, halved[2:5]))} and 6 to 8" in shown.printed


def test_its_picture_has_eight_panels_with_their_eigenvalues(shown):
    (figure,) = shown.figures
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [f"eigenvalue {value:.2f}" for value in shown["pca"].eigenvalues_]
    for axes in figure.axes:
        marks = [drawn for drawn in axes.collections if isinstance(drawn, PathCollection)]
        assert [len(drawn.get_offsets()) for drawn in marks] == [30, 30, 30]
