"""What every eigensolver must do, on spectra that are known by construction."""

from contextlib import contextmanager

import numpy as np
import pytest

from scalable_kpca.certificate import GramScale, certify
from scalable_kpca.errors import NotConvergedError
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers import (
    EigenResult,
    canonical,
    lowest_eigenvalue,
    solve_arpack,
    solve_block_krylov,
    solve_dense,
)
from tests.support import EPS, centred, fit, gram_of, rounding


def solve_krylov(operator, k, seed=0, **options):
    """Block Krylov from a random block, to the rounding of the products."""
    n = operator.shape[0]
    start = np.random.default_rng(seed).standard_normal((n, min(k + 6, n)))
    options = {"tol": 1e-13, "max_basis": 10 * n, "seed": seed, **options}
    return solve_block_krylov(operator, start, lambda *_: k, **options)


SOLVERS = {"dense": solve_dense, "arpack": solve_arpack, "block_krylov": solve_krylov}
HOMES = ["memory", "zarr"]
N, TILE_ROWS = 47, 12

SPECTRA = {
    "decaying": 0.5 ** np.arange(20),
    "slow": 1 / np.arange(1, 41),
    "gap": np.r_[[100.0, 50, 25], np.full(30, 1e-3)],
    "tight cluster": np.r_[1 - 1e-4 * np.arange(6), np.linspace(0.9, 0.1, 30)],
    "equal pairs": np.repeat([4.0, 3, 2, 1], 2),
    "flat": np.ones(46),
    "rank one": np.array([7.0]),
    "many scales": 10.0 ** -np.arange(14),
}


def rows_with_spectrum(spectrum, seed=0):
    """Rows whose centred linear Gram matrix has this spectrum: U√Λ for orthonormal U beside the ones."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(np.column_stack([np.ones(N), rng.standard_normal((N, len(spectrum)))]))[0]
    return basis[:, 1:] * np.sqrt(spectrum)


@contextmanager
def operator_of(X, kernel="linear", **options):
    with gram_of(X, kernel, tile_rows=TILE_ROWS, **options) as gram:
        built = gram.build()
        yield CenteredGram(gram, built)


def solve(solver, operator, k):
    return SOLVERS[solver](operator, k)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("k", [1, 4, 6])
def test_eigenvalues_are_those_that_the_rows_were_made_of(solver, name, k):
    X = rows_with_spectrum(SPECTRA[name])
    expected = np.r_[SPECTRA[name], np.zeros(N)][:k]
    with operator_of(X) as operator:
        result = solve(solver, operator, k)
    np.testing.assert_allclose(result.eigenvalues, expected, rtol=0, atol=rounding(X @ X.T))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(3))
def test_no_member_of_a_tight_cluster_is_missed(solver, seed):
    # where a loosened ARPACK tolerance returns eigenvalues from below the cluster and calls them converged
    spectrum = np.r_[1 - 1e-5 * np.arange(6), 1 - 1e-2 * np.arange(1, 20), np.full(20, 0.5)]
    X = rows_with_spectrum(spectrum, seed)
    with operator_of(X) as operator:
        result = SOLVERS[solver](operator, 5, **({} if solver == "dense" else {"seed": seed}))
    np.testing.assert_allclose(result.eigenvalues, spectrum[:5], rtol=0, atol=rounding(X @ X.T))


# ARPACK makes some forty passes, which a disk makes slow: one spectrum is enough there
IDENTITIES = [
    *(("dense", home, name) for home in HOMES for name in SPECTRA),
    *(("arpack", "memory", name) for name in SPECTRA),
    ("arpack", "zarr", "decaying"),
    *(("block_krylov", home, name) for home in HOMES for name in SPECTRA),
]


@pytest.mark.parametrize(("solver", "home", "name"), IDENTITIES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_result_satisfies_the_identities_of_eigenpairs(solver, home, name, dtype, tmp_path):
    X = rows_with_spectrum(SPECTRA[name])
    with operator_of(X, gram=home, dtype=dtype, workdir=tmp_path) as operator:
        result = solve(solver, operator, 3)
        K = operator.to_dense()
        residuals = operator.matmat(result.eigenvectors) - result.eigenvectors * result.eigenvalues
    V, error = result.eigenvectors, rounding(X @ X.T)
    assert V.shape == (N, 3)
    assert V.dtype == result.eigenvalues.dtype == np.float64
    assert (np.diff(result.eigenvalues) <= 0).all()
    np.testing.assert_allclose(V.T @ V, np.eye(3), rtol=0, atol=N * EPS * 10)
    if solver != "dense":
        # each restart rotates the Lanczos basis and adds a rounding to it; one restart is at most 17 products
        error *= 1 + result.n_passes // 17
        error += 1e-13 * SPECTRA[name][0] if solver == "block_krylov" else 0.0  # the tolerance it was given
    assert np.linalg.norm(residuals, axis=0).max() <= error
    np.testing.assert_allclose(V.T @ K @ V, np.diag(result.eigenvalues), rtol=0, atol=error)
    # K̃1 = 0, so that a vector with eigenvalue λ > 0 is orthogonal to the ones
    sums = np.abs(V.sum(axis=0)) * result.eigenvalues
    assert (sums <= 2 * np.sqrt(N) * error).all()
    largest = np.abs(V).argmax(axis=0)
    assert (V[largest, np.arange(3)] > 0).all()


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_operator_is_the_centred_matrix(home, dtype, tmp_path):
    X = np.random.default_rng(2).standard_normal((N, 3))
    V = np.random.default_rng(3).standard_normal((N, 5))
    with gram_of(X, "rbf", gram=home, dtype=dtype, tile_rows=TILE_ROWS, workdir=tmp_path) as gram:
        built = gram.build()
        K = gram.to_array().astype(np.float64)
        operator = CenteredGram(gram, built)
        error = rounding(K)
        np.testing.assert_allclose(built.row_sums, K.sum(axis=1), rtol=0, atol=error)
        assert abs(built.squared_norm - np.square(K).sum()) <= N**2 * EPS * built.squared_norm
        np.testing.assert_allclose(gram.multiply(V).product, K @ V, rtol=0, atol=error * np.linalg.norm(V))
        # the column of ones rides along in every pass; BLAS may add in another order for another width
        np.testing.assert_allclose(gram.multiply(V).row_sums, built.row_sums, rtol=0, atol=error)
        np.testing.assert_allclose(operator.to_dense(), centred(K), rtol=0, atol=error)
        np.testing.assert_allclose(operator @ V, centred(K) @ V, rtol=0, atol=error * np.linalg.norm(V))
        np.testing.assert_allclose(operator @ V[:, 0], (operator @ V[:, :1])[:, 0], rtol=0, atol=error)
        # symmetric: x'(Ay) = (Ax)'y
        np.testing.assert_allclose(V.T @ (operator @ V), (operator @ V).T @ V, rtol=0, atol=30 * error)
        np.testing.assert_allclose(operator.T @ V, operator @ V, rtol=0, atol=0)
        assert np.abs(operator @ np.ones(N)).max() <= error


@pytest.mark.parametrize("n_samples", [1, 2, TILE_ROWS - 1, TILE_ROWS, TILE_ROWS + 1, N])
@pytest.mark.parametrize("home", HOMES)
def test_only_tiles_on_and_above_the_diagonal_are_computed_and_each_of_them_once(home, n_samples, tmp_path):
    X = np.random.default_rng(2).standard_normal((n_samples, 3))
    n_blocks = -(-n_samples // TILE_ROWS)
    n_tiles = n_blocks * (n_blocks + 1) // 2
    with gram_of(X, "rbf", gram=home, tile_rows=TILE_ROWS, workdir=tmp_path) as gram:
        counts = gram.build().counts
        assert (counts.computed, counts.read, counts.repaired) == (n_tiles, 0, 0)
        counts = gram.multiply(np.ones((n_samples, 2))).counts
        assert (counts.computed, counts.read, counts.repaired) == (0, n_tiles, 0)


@pytest.mark.parametrize("home", HOMES)
def test_dense_fit_visits_the_tiles_three_times(home, tmp_path):
    # to build, to form the matrix, to certify
    X = np.random.default_rng(2).standard_normal((N, 3))
    model = fit(X, n_components=4, gram=home, tile_rows=TILE_ROWS, workdir=tmp_path).model
    assert model.n_passes == 3


def test_every_product_with_the_operator_is_one_pass_whatever_its_width():
    X = np.random.default_rng(2).standard_normal((N, 3))
    with operator_of(X, "rbf") as operator:
        for width in (1, 4, 30):
            before = operator.n_passes
            operator.matmat(np.ones((N, width)))
            assert operator.n_passes == before + 1
        before = operator.n_passes
        result = solve_arpack(operator, 3)
        assert operator.n_passes == before + result.n_passes
        # at least the Lanczos vectors of one cycle
        assert result.n_passes >= 20


@pytest.mark.parametrize("k", [1, 2, 46, 47, 48, None])
def test_dense_solver_returns_as_many_pairs_as_there_are(k):
    X = np.random.default_rng(2).standard_normal((N, 3))
    with operator_of(X, "rbf") as operator:
        result = solve_dense(operator, k)
        K = operator.to_dense()
    expected = np.linalg.eigvalsh(K)[::-1][:k]
    np.testing.assert_allclose(result.eigenvalues, expected, rtol=0, atol=N * rounding(np.eye(N)))
    assert result.eigenvectors.shape == (N, len(expected))


@pytest.mark.parametrize("n_samples", [2, 3, 4, 5])
def test_arpack_finds_all_but_one_of_few_eigenvalues(n_samples):
    X = np.random.default_rng(2).standard_normal((n_samples, 3))
    with operator_of(X, "rbf") as operator:
        result = solve_arpack(operator, n_samples - 1)
        expected = np.linalg.eigvalsh(operator.to_dense())[::-1][: n_samples - 1]
    np.testing.assert_allclose(result.eigenvalues, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("max_passes", [10, 60])
def test_pass_limit_is_kept_and_the_error_names_the_remedy(max_passes):
    # forty equal steps from 1 to 0.9 are hard to tell apart
    X = rows_with_spectrum(np.linspace(1, 0.9, 40))
    with (
        operator_of(X) as operator,
        pytest.raises(NotConvergedError, match=rf"max_passes={max_passes} passes; raise max_passes"),
    ):
        solve_arpack(operator, 6, max_passes=max_passes)
    assert operator.n_passes <= max_passes


@pytest.mark.parametrize("negative", [-1e-3, -0.5, -3.0])
def test_lowest_eigenvalue_is_found_to_one_per_cent_from_above(negative):
    # k(x, y) = (xᵀy − c)² on a circle has the spectrum n/2·½ twice, and −c·n twice
    theta = 2 * np.pi * np.arange(N) / N
    X = np.column_stack([np.cos(theta), np.sin(theta)])
    with operator_of(X, "poly", gamma=1.0, degree=2, coef0=negative) as operator:
        lowest = lowest_eigenvalue(operator)
    slack = rounding((X @ X.T + negative) ** 2)
    assert N * negative - slack <= lowest <= 0.99 * N * negative + slack


def test_ties_for_the_largest_entry_go_to_the_lowest_row():
    vectors = np.array([[0.5, -0.5, 0.1], [-0.5, 0.5, -0.7], [0.5, 0.5, 0.7], [-0.5, -0.5, 0.1]])
    values, signed = canonical(np.array([3.0, 2.0, 1.0]), vectors)
    np.testing.assert_array_equal(values, [3, 2, 1])
    np.testing.assert_array_equal(signed, vectors * [1, -1, -1])


def test_canonical_order_is_descending_and_stable():
    vectors = np.eye(4)[:, [2, 0, 3, 1]] * [-1, 1, -1, 1]
    values, ordered = canonical(np.array([1.0, 5.0, -2.0, 5.0]), vectors)
    np.testing.assert_array_equal(values, [5, 5, 1, -2])
    np.testing.assert_array_equal(ordered, np.eye(4)[:, [0, 1, 2, 3]])


def certificate_of(operator, spectrum, wanted):
    """Certificate of some of the true pairs, as an iterative solver might return them."""
    result = solve_dense(operator)
    squared = float(np.square(spectrum).sum())
    scale = GramScale(
        n_samples=operator.shape[0],
        dtype="float64",
        max_diagonal=float(spectrum.max()),
        gram_norm=float(np.sqrt(squared)),
        squared_norm=squared,
        total_variance=float(spectrum.sum()),
    )
    vectors = np.ascontiguousarray(result.eigenvectors[:, wanted])
    partial = EigenResult(result.eigenvalues[wanted], vectors, "partial", 1, is_whole_spectrum=False)
    return certify(operator, partial.eigenvalues, vectors, scale, partial)


@pytest.mark.parametrize("name", ["decaying", "slow", "gap", "tight cluster", "equal pairs", "many scales"])
@pytest.mark.parametrize("missed", [0, 1])
def test_set_with_a_larger_eigenvalue_missed_is_never_called_complete(name, missed):
    spectrum = SPECTRA[name]
    wanted = [j for j in range(4) if j != missed]
    with operator_of(rows_with_spectrum(spectrum)) as operator:
        certificate = certificate_of(operator, spectrum, wanted)
    assert not certificate.complete
    assert "not proven" in certificate.completeness


@pytest.mark.parametrize(
    ("name", "complete"), [("decaying", True), ("gap", True), ("many scales", True), ("flat", False), ("slow", False)]
)
def test_leading_set_is_complete_exactly_when_the_frobenius_norm_leaves_no_room(name, complete):
    spectrum = SPECTRA[name]
    with operator_of(rows_with_spectrum(spectrum)) as operator:
        certificate = certificate_of(operator, spectrum, [0, 1, 2])
    assert certificate.complete is complete
    assert complete == (np.sqrt(np.square(spectrum[3:]).sum()) < spectrum[2])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", SPECTRA)
def test_fit_is_called_complete_by_the_dense_solver_always_and_by_others_when_proven(solver, name):
    spectrum = SPECTRA[name]
    X = rows_with_spectrum(spectrum)
    certificate = fit(X, "linear", n_components=3, solver=solver, tile_rows=TILE_ROWS).model.certificate
    left = np.sqrt(np.square(spectrum[3:]).sum())
    smallest = np.r_[spectrum, 0, 0][2]
    if solver == "block_krylov":
        # its other Ritz values leave less room, and these small spectra are nearly exhausted
        assert certificate.complete or name in ("flat", "rank one")
        np.testing.assert_allclose(
            certificate.explained_variance_ratio * spectrum.sum(), np.r_[spectrum, 0, 0][:3], atol=1e-8
        )
    else:
        assert certificate.complete is (solver == "dense" or bool(left < smallest))
    assert (certificate.residual_norms <= certificate.eigenvalue_bounds).all()
    accepted = 1e-9 * spectrum[0] if solver == "block_krylov" else 0.0  # its default tolerance in float64
    assert (certificate.residual_norms <= accepted + rounding(X @ X.T)).all()
    squared = np.square(spectrum).sum()
    assert abs(certificate.squared_norm - squared) <= N**2 * EPS * squared


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-10])
def test_residuals_of_the_recurrence_are_those_of_another_pass(name, tol):
    X = rows_with_spectrum(SPECTRA[name])
    with operator_of(X) as operator:
        result = solve_krylov(operator, 3, tol=tol)
        measured = operator.matmat(result.eigenvectors) - result.eigenvectors * result.eigenvalues
    found = np.linalg.norm(measured, axis=0)
    np.testing.assert_allclose(np.sort(found), np.sort(result.residual_norms), rtol=0, atol=20 * rounding(X @ X.T))
    assert found.max() <= tol * result.eigenvalues[0] + 20 * rounding(X @ X.T)


@pytest.mark.parametrize("name", ["decaying", "slow", "tight cluster", "many scales"])
def test_thick_restarts_change_the_memory_and_not_the_answer(name):
    X = rows_with_spectrum(SPECTRA[name])
    with operator_of(X) as operator:
        result = solve_krylov(operator, 3, tol=1e-10, max_basis=27, max_passes=400)
    np.testing.assert_allclose(result.eigenvalues, SPECTRA[name][:3], rtol=0, atol=1e-9 * SPECTRA[name][0])


def test_interrupted_solve_goes_on_from_its_state_with_the_same_bits_and_repeats_no_pass():
    X = rows_with_spectrum(SPECTRA["slow"])
    states = []
    with operator_of(X) as operator:
        whole = solve_krylov(operator, 3, tol=1e-10, checkpoint=states.append)
    with operator_of(X) as operator:
        resumed = solve_krylov(operator, 3, tol=1e-10, state=states[1])
        assert operator.n_passes == whole.n_passes - 2
    np.testing.assert_array_equal(resumed.eigenvalues, whole.eigenvalues)
    np.testing.assert_array_equal(resumed.eigenvectors, whole.eigenvectors)
    assert resumed.n_passes == whole.n_passes


def test_random_columns_beside_a_blind_start_find_what_it_cannot_see():
    # a start block in the span of the trailing eigenvectors alone would never find the leading ones
    spectrum = np.r_[[5.0, 4, 3], np.linspace(1, 0.5, 30)]
    X = rows_with_spectrum(spectrum)
    with operator_of(X) as operator:
        vectors = solve_dense(operator, 33).eigenvectors
        random = np.random.default_rng(0).standard_normal((N, 4)) / np.sqrt(N)
        start = np.column_stack([vectors[:, 10:16], random])
        result = solve_block_krylov(operator, start, lambda *_: 3, tol=1e-11, max_basis=1000)
    np.testing.assert_allclose(result.eigenvalues, spectrum[:3], rtol=0, atol=1e-10)


def test_pass_limit_of_block_krylov_is_kept_and_the_error_names_what_was_reached():
    X = rows_with_spectrum(np.linspace(1, 0.9, 40))
    with operator_of(X) as operator:
        with pytest.raises(NotConvergedError, match=r"λ₁ in max_passes=2 passes.* raise max_passes or tol"):
            solve_krylov(operator, 3, max_passes=2)
        assert operator.n_passes == 2


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
def test_leading_set_of_block_krylov_is_called_complete_only_when_it_is(name, tol):
    spectrum = SPECTRA[name]
    k = min(3, len(spectrum))
    X = rows_with_spectrum(spectrum)
    with operator_of(X) as operator:
        for seed in range(5):
            result = solve_krylov(operator, k, seed=seed, tol=tol)
            squared = float(np.square(spectrum).sum())
            scale = GramScale(N, "float64", float(spectrum.max()), squared**0.5, squared, float(spectrum.sum()))
            certificate = certify(operator, result.eigenvalues, result.eigenvectors, scale, result)
            missed = np.abs(result.eigenvalues - spectrum[:k]) > np.linalg.norm(certificate.eigenvalue_bounds) + 1e-12
            assert not (certificate.complete and missed.any())
