"""Rows on which a careless kernel PCA loses digits, against dense float64 linear algebra on the textbook formulas.

The tolerance is the one that the certificate states: an eigenvalue of the evaluated matrix is within
`eigenvalue_bounds`, and that matrix within n·`kernel_error` of the exact one in the 2-norm (Weyl). That is worth
something only while it is small beside λ₁, so this is asserted as well.
"""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from scalable_kpca.kernels import KERNELS
from scalable_kpca.transform import project
from tests.support import centred, fit, score_tolerance

# relative to λ₁, which is at least n/25 times the largest k(x, x) for the kernels of a distance. In float32 an entry is
# within 1e-5 of that (`FLOAT32_GOOD`); in float64 within 1e-12, and residuals up to 1e-9·λ₁ are allowed beside it
SMALL = {"float32": 25 * 1e-5 + 1e-6, "float64": 25 * 1e-12 + 1e-9}
# a lone far row has a k(x, x) as large as λ₁, to a hundredth: n·4·degree·eps(float32)
SMALL_OF_OUTLIER = 1.01 * 320 * 12 * float(np.finfo(np.float32).eps) + 1e-6
PARAMETERS = {
    "linear": {},
    "cosine": {},
    "poly": {"degree": 3, "coef0": 1.0},
    "sigmoid": {"coef0": 0.2},
    **{name: {} for name in ("rbf", "laplacian", "matern12", "matern32", "matern52")},
}
DISTANCES = ("rbf", "laplacian", "matern12", "matern32", "matern52")
K = 4


def clusters(n_samples, n_features, seed=5):
    """Four unequal groups, so that the leading eigenvalues are apart, and noise in every feature."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.standard_normal((4, n_features))
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    return centres[rng.choice(4, n_samples, p=weights)] + rng.standard_normal((n_samples, n_features))


def moved(rows, offset):
    rows[37] += offset
    return rows


def with_near_copies(rows):
    """Every row three times: exactly, and again 1e-9 away."""
    return np.vstack([rows, rows, rows + 1e-9])


# rows, and the kernels that are tried on them; far from the origin an inner product has no digits left to centre
ROWS = {
    "wide": (clusters(301, 784), ("rbf", "poly", "matern12", "matern52", "cosine")),
    "two features": (clusters(340, 2), ("rbf", "poly", "laplacian", "matern12", "matern32", "matern52")),
    "repeated": (with_near_copies(clusters(110, 6)), tuple(KERNELS)),
    "offset 1e6": (clusters(320, 6) + 1e6, DISTANCES),
    "outlier": (moved(clusters(320, 6), 1e5), (*DISTANCES, "cosine")),
    "outlier of a polynomial": (moved(clusters(320, 6), 30.0), ("linear", "poly")),
}
for shared, _ in ROWS.values():
    shared.flags.writeable = False
CASES = [(rows, kernel) for rows, (_, kernels) in ROWS.items() for kernel in kernels]


def by_hand(kernel, X, Y):
    """Kernel values by the definition, γ = 1/n_features; distances from differences of coordinates."""
    gamma = 1 / X.shape[1]
    if kernel in ("linear", "poly", "sigmoid", "cosine"):
        inner = X @ Y.T
        lengths = np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(Y, axis=1))
        return {
            "linear": inner,
            "poly": (gamma * inner + 1) ** 3,
            "sigmoid": np.tanh(gamma * inner + 0.2),
            "cosine": inner / lengths,
        }[kernel]
    if kernel == "laplacian":
        return np.exp(-gamma * cdist(X, Y, "cityblock"))
    r = np.sqrt(2 * gamma) * cdist(X, Y)  # distance over the length scale
    return {
        "rbf": np.exp(-(r**2) / 2),
        "matern12": np.exp(-r),
        "matern32": (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
        "matern52": (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
    }[kernel]


def check(rows, kernel, dtype, **options):
    X = ROWS[rows][0]
    exact = by_hand(kernel, X, X)
    values, vectors = np.linalg.eigh(centred(exact))
    values, vectors = values[::-1], vectors[:, ::-1][:, :K]
    model = fit(
        X, kernel, n_components=K, dtype=dtype, tile_rows=96, indefinite="clip", **options, **PARAMETERS[kernel]
    ).model

    stated = model.certificate.eigenvalue_bounds + len(X) * model.certificate.kernel_error
    small = SMALL_OF_OUTLIER if (rows, dtype) == ("outlier of a polynomial", "float32") else SMALL[dtype]
    assert (stated <= small * values[0]).all()
    # the reference has the rounding of a backward stable eigensolver of its own
    error = stated.max() + len(X) * np.finfo(np.float64).eps * np.linalg.norm(exact)
    np.testing.assert_allclose(model.eigenvalues, values[:K], rtol=0, atol=error)

    turns = score_tolerance(values, K, error)
    separated = turns < 0.1
    assert separated[0]
    theirs = vectors * np.sqrt(values[:K])
    signs = np.sign((theirs * model.training_scores).sum(axis=0))
    difference = np.abs(model.training_scores - signs * theirs)
    assert (difference <= turns * np.sqrt(values[:K]) + error / np.sqrt(values[:K]))[:, separated].all()

    # rows projected like new ones: K̃(t, X)α is bounded by ‖K(t, X)‖/√λ times the turn of v
    some = X[30:40]
    lengths = np.linalg.norm(by_hand(kernel, some, X), axis=1)[:, None]
    difference = np.abs(project(model, some) - signs * theirs[30:40])
    assert (difference <= 2 * lengths * (turns + error / values[:K]) / np.sqrt(values[:K]))[:, separated].all()


def test_every_kernel_meets_hard_rows():
    assert {kernel for _, kernel in CASES} == set(PARAMETERS) == set(KERNELS)


@pytest.mark.parametrize(("rows", "kernel"), CASES)
@pytest.mark.parametrize(
    ("solver", "dtype"), [("block_krylov", "float32"), pytest.param("arpack", "float64", marks=pytest.mark.slow)]
)
def test_eigenvalues_and_scores_are_within_the_stated_tolerance(rows, kernel, solver, dtype):
    check(rows, kernel, dtype, solver=solver, gram="memory")


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["wide", "two features", "repeated", "offset 1e6", "outlier"])
@pytest.mark.parametrize(("gram", "solver", "dtype"), [
    ("recompute", "block_krylov", "float64"),
    ("zarr", "block_krylov", "float32"),
    ("zarr", "arpack", "float32"),
])  # fmt: skip
def test_every_home_is_within_the_stated_tolerance(rows, gram, solver, dtype, tmp_path):
    check(rows, "rbf", dtype, solver=solver, gram=gram, workdir=tmp_path)
