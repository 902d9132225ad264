"""The page docs/gallery/landmarks_compared.py."""

import numpy as np
import pytest

from tests.support import EPS, centred


@pytest.fixture
def shown(page):
    return page("landmarks_compared")


def kernel(X, Y):
    return np.exp(-np.square(X[:, None] - Y[None]).sum(axis=2))


def test_the_trace_that_is_left_out_is_that_of_the_schur_complement(shown):
    plane = shown["plane"]
    for fitted in shown["brackets"].values():
        landmarks = fitted.landmarks_
        within, across = kernel(landmarks, landmarks), kernel(plane, landmarks)
        expected = len(plane) - np.einsum("ij,ji->", across, np.linalg.lstsq(within, across.T, rcond=1e-12)[0])
        # directions of the landmarks below the cut add up to no more than m·1e-10 of n
        tolerance = 1e-8 * len(plane)
        assert fitted.certificate_.trace_residual == pytest.approx(expected, abs=tolerance)


def test_every_bracket_holds_the_exact_eigenvalues_and_closes_with_more_landmarks(shown):
    K = kernel(shown["plane"], shown["plane"])
    exact = np.linalg.eigvalsh(centred(K))[::-1][:8]
    rounding = len(K) * EPS * np.linalg.norm(K)
    np.testing.assert_allclose(shown["exact"].eigenvalues_, exact, rtol=0, atol=rounding)
    widths = []
    for m, fitted in shown["brackets"].items():
        certificate = fitted.certificate_
        assert certificate.certified
        assert (fitted.eigenvalues_ - certificate.rounding - rounding <= exact).all()
        assert (exact <= fitted.eigenvalues_ + certificate.eigenvalue_bounds + rounding).all()
        widths.append(certificate.eigenvalue_bounds[0])
        assert f"{m} landmarks: eigenvalue 1 in {fitted.eigenvalues_[0]:.3f} …" in shown.printed
    # measured 78, 6.7 and 0.2 of 220
    assert widths[0] > 3 * widths[1] > 9 * widths[2]
    assert "exactly 219.670" in shown.printed


def test_landmarks_that_look_for_what_is_not_reached_leave_out_less_of_a_decaying_spectrum(shown):
    plane, digits = shown["residuals"]["plane"], shown["residuals"]["digits"]
    for values in (*plane.values(), *digits.values()):
        assert (np.diff(values) < 0).all()
    # measured 6.5e-3, 1.8e-5 and 1.3e-7 with 80 landmarks
    assert plane["kmeans++"][-1] < plane["uniform"][-1] / 20
    assert plane["rpcholesky"][-1] < plane["kmeans++"][-1] / 10
    assert plane["rpcholesky"][-1] < plane["uniform"][-1] / 1000
    # measured 0.032 to 0.037 with 160
    assert max(values[-1] for values in digits.values()) < 1.5 * min(values[-1] for values in digits.values())
    for name in ("plane", "digits"):
        for method, values in shown["residuals"][name].items():
            assert f"{name}, {method}: left out 10: {values[0]:.1e}" in shown.printed
