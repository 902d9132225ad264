"""The page docs/gallery/clustering_of_scores.py."""

import numpy as np
import pytest

from scalable_kpca import KernelPCA


@pytest.fixture
def shown(page):
    return page("clustering_of_scores")


def adjusted_rand(first, second):
    """From pairs of rows, by the definition of Hubert and Arabie (1985)."""
    here = np.triu_indices(len(first), 1)
    together = [(groups[:, None] == groups[None])[here] for groups in (first, second)]
    both, of_first, of_second = (together[0] & together[1]).sum(), *(pairs.sum() for pairs in together)
    expected = of_first * of_second / len(here[0])
    return (both - expected) / ((of_first + of_second) / 2 - expected)


def test_kernel_pca_lets_k_means_find_rings_and_moons(shown):
    indices = shown["indices"]
    assert indices["rings", "scores"] == 1.0
    assert abs(indices["rings", "rows"]) < 0.05
    # measured 0.98 and 0.27: a row among 400 is worth 0.01
    assert indices["moons", "scores"] > 0.9
    assert indices["moons", "rows"] < 0.4
    assert "rings, k-means on rows: adjusted Rand index 0.00" in shown.printed
    assert "rings, k-means on scores: adjusted Rand index 1.00" in shown.printed


def test_the_rings_need_one_component_and_the_moons_the_first_alone(shown):
    for name, gamma, k, low, high in (("rings", 4, 1, 1, 1), ("rings", 4, 4, 1, 1), ("moons", 20, 2, 0, 0.4)):
        rows, groups, _ = shown["plane"][name]
        scores = KernelPCA(k, kernel="rbf", gamma=gamma).fit_transform(rows)
        assert low <= adjusted_rand(groups, shown["clusters_of"](scores, 2)) <= high


def test_directions_of_scores_tell_digits_apart_better_than_rows_do(shown):
    indices, classes = shown["indices"], shown["classes"]
    for features, clusters in shown["found"].items():
        assert indices["digits", features] == pytest.approx(adjusted_rand(classes, clusters), abs=1e-12)
    # measured 0.75, 0.67 and 0.53; other starts of k-means move them by 0.01, other numbers of components by 0.03
    assert indices["digits", "directions of scores"] > indices["digits", "rows"] + 0.03
    assert indices["digits", "scores"] < indices["digits", "rows"]
    assert f"directions of scores: adjusted Rand index {indices['digits', 'directions of scores']:.2f}" in shown.printed


def test_digits_among_others_have_long_images_and_k_means_takes_the_short_ones_for_a_cluster(shown):
    X, lengths = shown["X"], np.linalg.norm(shown["scores"], axis=1)
    squares = np.square(X).sum(axis=1)
    near = np.exp(-0.5 * np.maximum(squares[:, None] + squares[None] - 2 * X @ X.T, 0)).mean(axis=1)
    assert np.corrcoef(near, lengths)[0, 1] > 0.5
    clusters = shown["found"]["scores"]
    shortest = min((lengths[clusters == cluster].mean(), cluster) for cluster in range(10))[1]
    here = clusters == shortest
    assert lengths[here].mean() < 0.7 * lengths.mean()
    # of many classes: none has half of it
    assert np.bincount(shown["classes"][here]).max() < 0.5 * here.sum()
