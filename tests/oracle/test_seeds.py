"""Exact and published facts of the seeds, through the public interface."""

import numpy as np
import pytest

from scalable_kpca import KernelPCA
from scalable_kpca.kernels import kernel_block, resolve_kernel
from tests.support import fit, rounding

SIX_POINTS = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [3, 3], [4, 3]], float)
PRML_CENTRES = np.array([[-0.5, -0.2], [0.0, 0.6], [0.5, 0.0]])
# means over many draws, by another program; of the rows of the figure itself nothing but its look is known
PRML_EIGENVALUES = [22.6, 21.5, 4.3, 3.75, 3.4, 2.9, 2.6, 2.2]


def three_clusters(seed):
    """90 rows and their clusters, as in Bishop (2006), figure 12.17."""
    labels = np.repeat(np.arange(3), 30)
    rows = PRML_CENTRES[labels] + 0.1 * np.random.default_rng(seed).standard_normal((90, 2))
    return rows, labels


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_six_points_have_their_spectrum(method):
    estimator = KernelPCA(6, kernel="rbf", gamma=0.5, method=method, landmarks=np.arange(6), dtype="float64")
    if method == "exact":
        estimator.set_params(landmarks="uniform")
    estimator.fit(SIX_POINTS)
    expected = [1.92370031, 0.63236390, 0.63212055, 0.39327020, 0.15470034, 0.0]
    # half a unit of the last digit that is given
    np.testing.assert_allclose(estimator.eigenvalues_, expected, rtol=0, atol=5.1e-9)
    assert estimator.eigenvalues_[5] == 0.0
    total = estimator.eigenvalues_.sum() / estimator.explained_variance_ratio_.sum()
    assert abs(total - 3.73615531) <= 1e-8


def test_three_clusters_have_the_known_leading_eigenvalues_on_average():
    # exp(−‖x − y‖²/0.1) is gamma = 10
    draws = np.array(
        [fit(three_clusters(seed)[0], "rbf", n_components=8, gamma=10.0).model.eigenvalues for seed in range(100)]
    )
    mean, deviation = draws.mean(axis=0), draws.std(axis=0, ddof=1)
    # of a mean of 100 draws, three standard errors; and the last digit that is given
    last_digit = [0.05, 0.05, 0.05, 0.005, 0.05, 0.05, 0.05, 0.05]
    tolerance = 3 * deviation / 10 + last_digit
    assert (np.abs(mean - PRML_EIGENVALUES) <= tolerance).all(), (mean, tolerance)
    # an average is worth something here: the tolerance is a few percent
    assert (tolerance <= 0.08 * mean).all()


@pytest.mark.parametrize("seed", range(5))
def test_first_two_components_separate_the_three_clusters(seed):
    rows, labels = three_clusters(seed)
    scores = KernelPCA(2, kernel="rbf", gamma=10.0).fit_transform(rows)
    means = np.array([scores[labels == cluster].mean(axis=0) for cluster in range(3)])
    nearest = np.linalg.norm(scores[:, None] - means[None], axis=2).argmin(axis=1)
    assert (nearest == labels).all()


@pytest.mark.parametrize("n_samples", [5, 30, 200])
def test_circle_has_five_eigenvalues_of_the_quadratic_kernel_and_four_when_centred(n_samples):
    # of the six features 1, √2x, √2y, x², √2xy, y², x² + y² = 100 is a constant; any points will do, not only even ones
    theta = np.random.default_rng(n_samples).uniform(0, 2 * np.pi, n_samples)
    rows = 10 * np.column_stack([np.cos(theta), np.sin(theta)])
    kernel = resolve_kernel("poly", gamma=1.0, degree=2, coef0=1.0, n_features=2)
    K = kernel_block(kernel, rows, rows, diagonal=True)
    assert int((np.linalg.eigvalsh(K) > rounding(K)).sum()) == 5
    estimator = KernelPCA(None, kernel="poly", gamma=1.0, degree=2, coef0=1.0).fit(rows)
    assert estimator.eigenvalues_.shape == (4,)
    assert (estimator.eigenvalues_ > 0).all()
    kept = KernelPCA(5, kernel="poly", gamma=1.0, degree=2, coef0=1.0, eigen_solver="dense").fit(rows)
    assert kept.eigenvalues_[4] == 0.0
