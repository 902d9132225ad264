"""The page docs/gallery/power_method.py."""

import numpy as np
import pytest

from tests.support import rounding


@pytest.fixture
def shown(page):
    return page("power_method")


def test_powers_of_either_product_find_the_singular_values_and_vectors(shown):
    X = shown["X"]
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    known = 10 / np.sqrt([1, 2, 3, 4])
    # λ = s², so that an error e of λ is one of e/(2s); (4/5)^100 is 2e-10 in a vector, and its square in s
    tolerance = rounding(X @ X.T) / (2 * s[3])
    np.testing.assert_allclose(s[:4], known, rtol=0, atol=tolerance)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-13)
    for of_right, of_left, number in zip(shown["right"], shown["left"], range(4), strict=True):
        for u, value, v in (of_right, of_left[::-1]):
            assert value == pytest.approx(known[number], abs=tolerance)
            assert abs(u @ U[:, number]) == pytest.approx(1, abs=1e-12)
            assert abs(v @ Vt[number]) == pytest.approx(1, abs=1e-12)
    values = "10.000000 7.071068 5.773503 5.000000"
    for name in ("singular values", "by powers of XᵀX", "by powers of XXᵀ"):
        assert f"{name} {values}" in shown.printed


def test_a_vector_converges_by_the_ratio_of_two_eigenvalues_a_step(shown):
    for number, residuals in enumerate(shown["residuals"]):
        rate = (residuals[60] / residuals[40]) ** (1 / 20) if number else (residuals[30] / residuals[20]) ** (1 / 10)
        # what comes after the second of the two has died out but for a few percent by then
        assert rate == pytest.approx((number + 1) / (number + 2), rel=0.05)


def test_both_solvers_of_the_package_find_the_squares_and_block_krylov_in_fewer_passes(shown):
    known = 100 / np.array([1, 2, 3, 4])
    for solver, fitted in shown["fits"].items():
        assert (np.abs(fitted.eigenvalues_ - known) <= fitted.certificate_.eigenvalue_bounds).all()
        assert fitted.certificate_.complete
        # a hundred times what is asked of the residual, relative to λ₁
        assert fitted.certificate_.eigenvalue_bounds.max() <= 1e-7 * known[0]
        assert f"{solver}, {fitted.n_passes_} passes 10.000000 7.071068 5.773503 5.000000" in shown.printed
        assert (np.diff(shown["histories"][solver]) < 0).all()
    # measured 21 and 58
    assert 2 * shown["fits"]["block_krylov"].n_passes_ < shown["fits"]["power"].n_passes_
    at_8 = {solver: shown["histories"][solver][shown["limits"][solver].index(8)] for solver in shown["fits"]}
    # measured 3.6e-6 and 3.4e-4
    assert at_8["block_krylov"] < 0.1 * at_8["power"]
