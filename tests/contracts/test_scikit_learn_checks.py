"""Every check that scikit-learn has for an estimator, on every way of fitting; exemptions with their reason."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from scalable_kpca import KernelPCA

WAYS = [
    KernelPCA(),
    KernelPCA(2, kernel="rbf", fit_inverse_transform=True),
    KernelPCA(2, kernel="rbf", method="nystroem", n_landmarks=5),
    KernelPCA(1, kernel="precomputed"),
]
MORE_WAYS = [
    KernelPCA(2, kernel="rbf", gamma="median"),
    KernelPCA(1, eigen_solver="arpack", gram="recompute"),
    KernelPCA(1, eigen_solver="block_krylov", gram="zarr", tile_rows=8),
    KernelPCA(2, kernel="rbf", method="nystroem", n_landmarks=5, max_passes=3),
    KernelPCA(1, kernel="precomputed", method="nystroem", n_landmarks=5),
]

NOT_SQUARE = "the check gives no square matrix, and that is what is refused, before its NaN"
SHIFTED = "the check gives a kernel less a constant: definite when it is centred, which landmarks alone cannot know"
TRUNCATED = "the check truncates kernel values to integers, which makes them indefinite (-1.9 beside 28): refused"


def exempt(estimator):
    if estimator.kernel != "precomputed":
        return {}
    by_landmarks = {"check_positive_only_tag_during_fit": SHIFTED} if estimator.method == "nystroem" else {}
    return {"check_estimators_nan_inf": NOT_SQUARE, "check_estimators_dtypes": TRUNCATED, **by_landmarks}


# their rows are few, constant and extreme, of which ours warns
pytestmark = pytest.mark.filterwarnings("ignore")


@parametrize_with_checks(WAYS, expected_failed_checks=exempt)
def test_scikit_learn_has_nothing_to_say_against(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(MORE_WAYS, expected_failed_checks=exempt)
def test_scikit_learn_has_nothing_to_say_against_less_common_ways(estimator, check):
    check(estimator)
