"""The page docs/gallery/kernels_compared.py."""

import re

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel, sigmoid_kernel

from tests.support import centred, rounding


@pytest.fixture
def shown(page):
    return page("kernels_compared")


def grams(X):
    """The kernels of the panels, by scikit-learn."""
    return {
        "linear, which is PCA": X @ X.T,
        "poly, c = 1, d = 2": polynomial_kernel(X, gamma=1, coef0=1, degree=2),
        "poly, c = 1, d = 5": polynomial_kernel(X, gamma=1, coef0=1, degree=5),
        "sigmoid, α = 1, c = −1": sigmoid_kernel(X, gamma=1, coef0=-1),
        **{f"rbf, σ = {sigma}": rbf_kernel(X, gamma=1 / (2 * sigma**2)) for sigma in (1, 0.5, 0.2, 0.05)},
    }


def test_every_panel_has_the_kernel_that_it_names(shown):
    expected = grams(shown["X"])
    assert list(expected) == list(shown["fits"])
    for name, K in expected.items():
        eigenvalues = np.linalg.eigvalsh(centred(K))[:-3:-1]
        np.testing.assert_allclose(shown["fits"][name].eigenvalues_, eigenvalues, rtol=0, atol=rounding(K))
    titles = [axes.get_title() for axes in shown.figures[0].axes]
    assert [title.split("\n")[0] for title in titles] == list(expected)


def test_a_sigmoid_that_is_indefinite_is_refused_with_its_lowest_eigenvalue(shown):
    lowest = np.linalg.eigvalsh(centred(sigmoid_kernel(shown["X"], gamma=1, coef0=-1)))[0]
    assert lowest < -16
    said = float(re.search(r"a centred eigenvalue is (-[\d.]+) or lower", shown["refusal"])[1])
    assert said == pytest.approx(lowest, rel=5e-3)  # three digits are said
    assert 'indefinite="clip"' in shown["refusal"]
    assert shown["refusal"] in " ".join(shown.printed.split())


def test_a_kernel_of_the_right_width_separates_the_moons_and_others_do_not(shown):
    shares = dict(shown["shares"])
    # measured 98.3 %, and 61 to 82 % of the others
    assert shares.pop("rbf, σ = 0.2") > 0.95
    assert max(shares.values()) < 0.9
    assert min(shares.values()) >= 0.5
    for name, share in shown["shares"].items():
        scores, moon = shown["fits"][name].transform(shown["X"])[:, 0], shown["moon"]
        right = [np.mean((scores > threshold) == moon) for threshold in [*scores, -np.inf]]
        assert share == pytest.approx(max(*right, 1 - min(right)), abs=1e-12)
        assert f"{name}: {share:.1%} by a threshold" in shown.printed


def test_the_table_has_what_pca_of_scikit_learn_leaves_over(shown):
    for name, k in (("moons", 1), ("of_digits", 16)):
        pca, _, kernel_pca = shown[name].sides
        assert pca.decoder == "linear"
        assert kernel_pca.share_of == "feature space"
        # of three quarters of the rows, drawn at random: of all rows it is near
        rows, classes = (
            (shown["X"], shown["moon"])
            if name == "moons"
            else (shown["digits"].data[:600], shown["digits"].target[:600])
        )
        fitted = PCA(k).fit(rows)
        left_over = 1 - fitted.explained_variance_ratio_.sum()
        assert pca.reconstruction_error == pytest.approx(left_over, abs=0.05)
        assert pca.separation == pytest.approx(silhouette_score(fitted.transform(rows), classes), abs=0.1)


def test_kernel_pca_separates_the_moons_better_and_the_digits_no_better_worth_the_choice(shown):
    moons, of_digits = shown["moons"].sides, shown["of_digits"].sides
    # measured 0.26 and 0.61, 0.21 and 0.23
    assert moons[2].separation > moons[0].separation + 0.2
    assert abs(of_digits[2].separation - of_digits[0].separation) < 0.1
    # measured 0.118 and 0.398, 0.086 and 0.087
    assert moons[2].reconstruction_error > 2 * moons[1].reconstruction_error
    assert of_digits[2].reconstruction_error == pytest.approx(of_digits[1].reconstruction_error, rel=0.2)
    assert "separation of the moons: PCA 0.26, kernel PCA 0.61" in shown.printed
    # the tables are on the page, with a line for each side
    for compared in (shown["moons"], shown["of_digits"]):
        for side in compared.sides:
            line = f"{side.method} +{side.decoder} .* {side.reconstruction_error:.3f} +{side.separation:.3f}"
            assert re.search(line, shown.printed), line
