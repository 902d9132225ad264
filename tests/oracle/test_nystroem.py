"""The streaming Nyström fit is what dense linear algebra and scikit-learn make of the same landmarks."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import pairwise_kernels

from scalable_kpca.errors import AccuracyWarning, ConfigError, InvalidInputError
from scalable_kpca.kernels import RBF, Cosine, Laplacian, Linear, Matern32, Polynomial, Sigmoid, kernel_block
from scalable_kpca.nystroem import (
    Accumulators,
    Projection,
    accumulate,
    build_basis,
    in_features,
    solve_spectrum,
    trace_residual,
)
from scalable_kpca.source import ArrayRows, row_spans

N, M, K = 700, 120, 6
EPS = {"float64": np.finfo(np.float64).eps, "float32": np.finfo(np.float32).eps}


def rows(n=N, d=6, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2, 0.5, d)
    X.setflags(write=False)
    return X


def chosen(n=N, m=M, seed=1):
    return np.random.default_rng(seed).choice(n, m, replace=False)


def sums_of(X, basis, span_rows=97, batch_rows=40):
    total = Accumulators.zero(basis)
    for span in row_spans(ArrayRows(X), span_rows):
        total += accumulate(span, basis, batch_rows)
    return total


def fit(X, landmarks, kernel, dtype="float64", n_components=K, **options):
    basis = build_basis(kernel, landmarks, dtype, **options)
    found = solve_spectrum(basis, sums_of(X, basis), n_components, **options)
    return found, Projection(basis, found.weights, found.offset)


def centred(K):
    K = K - K.mean(axis=0)
    return K - K.mean(axis=1)[:, None]


KERNELS = {
    "rbf, smooth": RBF(0.02),
    "rbf": RBF(0.3),
    "rbf, narrow": RBF(20.0),
    "poly": Polynomial(1 / 6, 3, 1.0),
    "linear": Linear(),
    "laplacian": Laplacian(0.2),
    "cosine": Cosine(),
    "matern32": Matern32(0.3),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(kernel, marks=() if name in ("rbf, smooth", "rbf", "poly") else pytest.mark.slow, id=name)
        for name, kernel in KERNELS.items()
    ],
)
def test_eigenvalues_are_those_of_the_dense_approximation(kernel, dtype):
    X, at = rows(), chosen()
    found, project = fit(X, X[at], kernel, dtype)
    values = np.linalg.eigvalsh(centred(dense(kernel, X, at, dtype)))
    largest = values[-1]
    # float64: products of n terms, and the cut at √m·eps of W, carry no more; float32: its rounding is estimated
    tolerance = 1e-12 if dtype == "float64" else 2e-6
    expected = np.pad(values[::-1], (0, K))[:K]
    assert np.abs(found.eigenvalues - np.where(found.eigenvalues == 0, 0, expected)).max() <= tolerance * largest
    scores = project(X)
    gram = scores.T @ scores
    assert np.abs(gram - np.diag(found.eigenvalues)).max() <= tolerance * largest
    assert np.abs(scores.mean(axis=0)).max() <= tolerance * np.sqrt(largest)


def dense(kernel, X, at, dtype):
    """K̂ = CW⁺Cᵀ in float64, the pseudo-inverse cut where the basis cuts it."""
    C = kernel_block(kernel, X, X[at])
    basis = build_basis(kernel, X[at], dtype)
    features = C / basis.scale @ basis.projection * np.sqrt(basis.scale)
    return features @ features.T


@pytest.mark.parametrize(
    ("kernel", "parameters"),
    [
        (RBF(0.3), {"kernel": "rbf", "gamma": 0.3}),
        (Laplacian(0.2), {"kernel": "laplacian", "gamma": 0.2}),
        (RBF(2.0), {"kernel": "rbf", "gamma": 2.0}),
    ],
    ids=["rbf", "laplacian", "rbf narrow"],
)
def test_all_landmarks_kept_equals_scikit_learn_nystroem_and_pca(kernel, parameters):
    X, at = rows(), chosen()
    found, project = fit(X, X[at], kernel)
    assert found.certificate.rank == M  # nothing is cut, here or there
    theirs = Nystroem(n_components=M, **parameters)
    theirs.components_ = X[at]
    U, S, V = np.linalg.svd(pairwise_kernels(X[at], metric=theirs.kernel, gamma=theirs.gamma))
    theirs.normalization_ = U / np.sqrt(np.maximum(S, 1e-12)) @ V  # as Nystroem.fit makes it, with these components
    theirs.component_indices_ = at
    pca = PCA(K, svd_solver="full").fit(theirs.transform(X))
    expected = pca.explained_variance_ * (N - 1)
    assert np.abs(found.eigenvalues - expected).max() <= 1e-10 * expected[0]
    scores, peers = project(X), pca.transform(theirs.transform(X))
    signs = np.sign((scores * peers).sum(axis=0))
    # vectors of eigenvalues that lie close turn by rounding over the gap
    assert np.abs(scores - peers * signs).max() <= 1e-8 * np.sqrt(expected[0])


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_every_row_a_landmark_equals_the_exact_spectrum(kernel):
    X = rows(300)
    found, project = fit(X, X, kernel)
    values, vectors = np.linalg.eigh(centred(kernel_block(kernel, X, X, diagonal=True)))
    assert np.abs(found.eigenvalues - values[::-1][:K]).max() <= 1e-10 * values[-1]
    assert abs(found.certificate.trace_residual) <= 1e-10 * found.certificate.trace
    exact = vectors[:, -1] * np.sqrt(values[-1])
    assert np.abs(np.abs(project(X)[:, 0]) - np.abs(exact)).max() <= 1e-7 * np.sqrt(values[-1])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", [RBF(0.02), RBF(0.3), Linear(), Polynomial(1 / 6, 2, 1.0)])
def test_bounds_hold_for_the_exact_spectrum(kernel, dtype):
    X, at = rows(), chosen(m=25)
    found, _ = fit(X, X[at], kernel, dtype)
    K_ = kernel_block(kernel, X, X, diagonal=True)
    values = np.linalg.eigvalsh(centred(K_))[::-1]
    certificate, rounding = found.certificate, found.certificate.rounding
    residual = np.trace(K_) - np.trace(dense(kernel, X, at, dtype))
    assert certificate.certified
    assert abs(certificate.trace_residual - residual) <= rounding
    assert (found.eigenvalues <= values[:K] + rounding).all()
    assert (values[:K] <= found.eigenvalues + certificate.eigenvalue_bounds).all()
    assert values[K] <= certificate.missed_bound
    assert values.sum() <= certificate.total_variance_bound
    share = values[:K].sum() / values.sum()
    assert certificate.explained_variance_ratio.sum() <= share + rounding / values.sum()
    assert share <= certificate.explained_variance_bound + rounding / values.sum()
    assert rounding <= 1e-3 * values[0]  # an estimate that is of use


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("copies", [2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kernel", [RBF(0.3), RBF(0.02), Linear(), Polynomial(1 / 6, 3, 1.0)])
def test_repeated_landmarks_change_nothing(kernel, copies, dtype):
    X, at = rows(), chosen()
    once, project = fit(X, X[at], kernel, dtype)
    again, project_again = fit(X, X[np.tile(at, copies)], kernel, dtype)
    # a cut relative to ω₁, which grows with the copies, may leave one more direction out: of size √m·eps·ω₁/m a row
    tolerance = 50 * EPS[dtype] * np.sqrt(M * copies)
    largest = once.eigenvalues[0]
    assert again.certificate.rank <= once.certificate.rank
    assert np.abs(again.eigenvalues - once.eigenvalues).max() <= tolerance * largest
    assert np.abs(np.abs(project(X)[:, 0]) - np.abs(project_again(X)[:, 0])).max() <= 20 * tolerance**0.5 * largest**0.5


@pytest.mark.parametrize("span_rows", [1, 97, 300, 700])
def test_sums_in_any_grouping_give_the_same_fit(span_rows):
    X, at, kernel = rows(), chosen(), RBF(0.3)
    basis = build_basis(kernel, X[at], "float64")
    whole = solve_spectrum(basis, sums_of(X, basis, N, N), K)
    parts = sums_of(X, basis, span_rows, 17)
    found = solve_spectrum(basis, parts, K)
    assert np.abs(found.eigenvalues - whole.eigenvalues).max() <= 1e-10 * whole.eigenvalues[0]
    # and backwards, in a tree
    pieces = [accumulate(span, basis, 50) for span in reversed(row_spans(ArrayRows(X), 100))]
    while len(pieces) > 1:
        pieces = [sum(pieces[i + 1 : i + 2], pieces[i]) for i in range(0, len(pieces), 2)]
    tree = solve_spectrum(basis, pieces[0], K)
    assert np.abs(tree.eigenvalues - whole.eigenvalues).max() <= 1e-10 * whole.eigenvalues[0]
    assert pieces[0].n_samples == N


def test_rows_that_are_taken_away_leave_the_fit_of_the_others():
    X, at, kernel = rows(), chosen(400), RBF(0.3)
    basis = build_basis(kernel, X[at], "float64")
    left = sums_of(X, basis) - sums_of(X[500:], basis)
    expected = solve_spectrum(basis, sums_of(X[:500], basis), K)
    found = solve_spectrum(basis, left, K)
    assert left.n_samples == 500
    assert np.abs(found.eigenvalues - expected.eigenvalues).max() <= 1e-10 * expected.eigenvalues[0]


def test_sums_over_other_landmarks_are_not_added():
    X = rows()
    one, two = (build_basis(RBF(0.3), X[chosen(seed=seed)], "float64") for seed in (1, 2))
    with pytest.raises(ConfigError, match="same landmarks"):
        sums_of(X, one) + sums_of(X, two)
    with pytest.raises(InvalidInputError, match="cannot be taken away"):
        sums_of(X[:10], one) - sums_of(X, one)


def test_trace_residual_of_rows_unlike_the_landmarks_is_large():
    X, at, kernel = rows(), chosen(), RBF(0.02)
    basis = build_basis(kernel, X[at], "float64")
    near, far = sums_of(X, basis), sums_of(X[:100] + 20.0, basis)
    assert trace_residual(basis, near) / near.diagonal_sum < 0.05
    assert trace_residual(basis, far) / far.diagonal_sum > 0.99  # k is 0 between them: nothing is reached


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_indefinite_kernel_is_refused_by_its_negative_share_or_clipped_never_made_positive(dtype):
    X, at, kernel = rows(), chosen(), Sigmoid(0.5, -1.0)
    W = kernel_block(kernel, X[at], X[at], diagonal=True)
    omega, u = np.linalg.eigh(W)
    share = np.abs(omega[omega < 0]).sum() / np.abs(omega).sum()
    assert share > 0.05
    with pytest.raises(InvalidInputError, match=f"{share:.2%}".replace(".", r"\.")):
        fit(X, X[at], kernel, dtype)
    found, _ = fit(X, X[at], kernel, dtype, indefinite="clip")
    C = kernel_block(kernel, X, X[at])
    keep = omega > np.sqrt(M) * EPS[dtype] * omega[-1]
    features = C @ (u[:, keep] / np.sqrt(omega[keep]))
    expected = np.linalg.eigvalsh(centred(features @ features.T))[::-1][:K]
    assert np.abs(found.eigenvalues - expected).max() <= (1e-10 if dtype == "float64" else 1e-5) * expected[0]
    assert not found.certificate.certified
    assert not found.certificate.complete
    assert "nothing is certified" in found.certificate.completeness


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("X", [np.zeros((50, 3)), np.ones((50, 3)), np.full((50, 3), 1e6)], ids=["0", "1", "1e6"])
@pytest.mark.parametrize("kernel", [RBF(0.3), Linear(), Polynomial(0.5, 2, 1.0), Cosine()])
def test_constant_rows_have_zero_eigenvalues_and_zero_scores(X, kernel, dtype):
    found, project = fit(X, X[:10], kernel, dtype, n_components=4)
    assert found.eigenvalues.tolist() == [0.0] * 4
    assert (project(X) == 0).all()
    assert found.certificate.explained_variance_ratio.tolist() == [0.0] * 4


def test_more_components_than_directions_are_zeros():
    X = rows(d=3)
    found, project = fit(X, X[:20], Linear(), n_components=8)
    assert (found.eigenvalues[:3] > 0).all()
    assert (found.eigenvalues[3:] == 0).all()
    assert (project(X)[:, 3:] == 0).all()
    assert len(fit(X, X[:20], Linear(), n_components=None)[0].eigenvalues) == 3


def test_components_beyond_the_landmarks_that_were_found_are_zeros():
    X = rows()
    found, project = fit(X, X[:5], RBF(0.3), n_components=8)
    assert (found.eigenvalues[:5] > 0).all()
    assert found.eigenvalues[5:].tolist() == [0.0] * 3
    assert project(X).shape == (N, 8)


def test_a_share_of_the_variance_is_reached_for_certain_or_a_warning_says_how_much_is():
    X, at, kernel = rows(), chosen(), RBF(0.02)
    found, _ = fit(X, X[at], kernel, n_components=0.9)
    share = found.certificate.explained_variance_ratio
    assert share.sum() >= 0.9 > share[:-1].sum()
    exact = np.linalg.eigvalsh(centred(kernel_block(kernel, X, X, diagonal=True)))[::-1]
    assert exact[: len(share)].sum() / exact.sum() >= 0.9
    with pytest.warns(AccuracyWarning, match="certify no more than"):
        found, _ = fit(X, X[at[:5]], RBF(20.0), n_components=0.9)
    assert len(found.eigenvalues) == 5


@pytest.mark.parametrize("n", [1, 2, 3])
def test_one_two_and_three_rows(n):
    X = rows(n)
    found, project = fit(X, X, RBF(0.3), n_components=n)
    values = np.linalg.eigvalsh(centred(kernel_block(RBF(0.3), X, X, diagonal=True)))[::-1]
    assert np.abs(found.eigenvalues - np.maximum(values, 0)).max() <= 1e-14
    assert np.abs((project(X) ** 2).sum() - found.eigenvalues.sum()) <= 1e-14


def test_features_are_accumulated_where_products_of_kernel_values_would_round_too_much():
    X, at = rows(d=2), chosen()
    assert build_basis(RBF(0.02), X[at], "float32").accumulates_features
    assert not build_basis(RBF(2.0), rows()[at], "float32").accumulates_features
    # the price of the direct way, had it been taken: far more than the estimate of the other allows
    basis = build_basis(RBF(0.02), X[at], "float32")
    direct = type(basis)(**{**fields(basis), "accumulates_features": False})
    exact = np.linalg.eigvalsh(centred(dense(RBF(0.02), X, at, "float32")))[::-1]
    good, bad = (solve_spectrum(each, sums_of(X, each), basis.rank).eigenvalues for each in (basis, direct))
    error = [np.abs(values - exact[: basis.rank]).max() / exact[0] for values in (good, bad)]
    assert error[0] < 1e-6
    assert error[1] > 3 * error[0]


def test_kernel_values_are_accumulated_where_many_rows_average_their_rounding_out():
    X, at = rows(d=5), chosen()
    few, many = (build_basis(RBF(0.1), X[at], "float32", n_samples=n) for n in (1000, 10**9))
    assert (few.accumulates_features, many.accumulates_features) == (True, False)


def test_sums_of_kernel_values_become_those_of_features():
    X, at = rows(), chosen()
    basis = build_basis(RBF(0.3), X[at], "float64")
    direct = type(basis)(**{**fields(basis), "accumulates_features": False})
    featured, sums = in_features(direct, sums_of(X[:300], direct))
    added = sums + sums_of(X[300:], featured)
    expected = solve_spectrum(featured, sums_of(X, featured), K)
    assert np.abs(solve_spectrum(featured, added, K).eigenvalues - expected.eigenvalues).max() <= 1e-10 * N


def fields(basis):
    return {name: getattr(basis, name) for name in basis.__dataclass_fields__}
