"""The page docs/gallery/novelty_detection.py."""

import numpy as np
import pytest

from tests.support import centred, rounding


@pytest.fixture
def shown(page):
    return page("novelty_detection")


def distances(training, rows, gamma, k):
    """Squared distances in feature space, from the eigenvectors of the dense matrix."""

    def kernel(X, Y):
        return np.exp(-gamma * np.square(X[:, None] - Y[None]).sum(axis=2))

    K, new = kernel(training, training), kernel(rows, training)
    eigenvalues, vectors = np.linalg.eigh(centred(K))
    eigenvalues, vectors = eigenvalues[::-1][:k], vectors[:, ::-1][:, :k]
    centred_new = new - new.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()
    squares = 1 - 2 * new.mean(axis=1) + K.mean()
    return squares - np.square(centred_new @ vectors / np.sqrt(eigenvalues)).sum(axis=1), rounding(K) / eigenvalues[-1]


def area(normal, novel):
    """Chance that a novel row scores higher than a normal one, by counting pairs."""
    return np.mean((novel[:, None] > normal[None]) + 0.5 * (novel[:, None] == normal[None]))


def test_novelty_is_the_distance_to_the_components_in_feature_space(shown):
    places = np.array([[0.0, 0.0], [0.75, 0.0], *shown["rows"][:20]])
    expected, tolerance = distances(shown["rows"], places, 10, 30)
    found = np.concatenate([[shown["centre"], shown["between"]], shown["plane"].novelty(shown["rows"][:20])])
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    expected, tolerance = distances(shown["training"], shown["judged"][:50], shown["pca"].gamma_, 48)
    np.testing.assert_allclose(shown["novelty"][:50], expected, rtol=0, atol=tolerance)


def test_the_middle_of_two_rings_is_novel_and_so_is_what_lies_between_them(shown):
    # measured 0.98 and 0.44, the threshold 0.14
    assert shown["centre"] > 2 * shown["of_plane"]
    assert shown["between"] > 2 * shown["of_plane"]
    assert f"threshold {shown['of_plane']:.3f}, the centre {shown['centre']:.3f}" in shown.printed
    share = np.mean(shown["plane"].novelty(shown["rows"]) <= shown["of_plane"] * (1 + 1e-9))
    assert 0.985 <= share <= 0.9975


def test_classes_that_were_not_fitted_score_higher_and_kernel_pca_stands_more_components_than_pca(shown):
    areas, numbers = shown["areas"], shown["numbers"]
    is_novel, novelty = shown["is_novel"], shown["novelty"]
    assert areas["kernel PCA"][-1] == pytest.approx(area(novelty[~is_novel], novelty[is_novel]), abs=1e-12)
    # measured 0.94 to 0.97 from 8 components on; another division of the rows moves them by 0.02
    assert (np.array(areas["kernel PCA"][1:]) > 0.9).all()
    assert areas["kernel PCA"][-1] == max(areas["kernel PCA"])
    # measured 0.85 and 0.74, where kernel PCA has 0.97
    for place in (-2, -1):
        assert areas["PCA"][place] < areas["kernel PCA"][place] - 0.05
    assert max(areas["kernel PCA"]) > max(areas["PCA"])
    for k, linear, kernel in zip(numbers, *areas.values(), strict=True):
        assert f"{k} components: area under the ROC curve {linear:.3f} by PCA, {kernel:.3f} by k" in shown.printed


def test_a_threshold_of_fitted_rows_gives_more_false_alarms_than_one_of_rows_that_were_held_out(shown):
    alarms, found, thresholds = shown["alarms"], shown["found"], shown["thresholds"]
    assert thresholds["fitted"] < thresholds["held out"]
    assert thresholds["held out"] == pytest.approx(
        np.quantile(shown["pca"].novelty(shown["calibration"]), 0.99, method="higher"), rel=0.2
    )
    # 1 % is meant, of 151 rows: 6 or more of them would come by chance once in 200 times
    assert alarms["held out"] <= 5 / 151
    assert alarms["fitted"] > alarms["held out"]
    assert found["fitted"] > found["held out"] > 0.3
    assert f"threshold of held out rows: {alarms['held out']:.1%} false alarms" in shown.printed
