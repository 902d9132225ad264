"""The operator, what is particular to each eigensolver, and certificates, on spectra known by construction."""

import numpy as np
import pytest

from scalable_kpca.certificate import certificate_of, residual_bounds
from scalable_kpca.completeness import examine
from scalable_kpca.errors import NotConvergedError
from scalable_kpca.kernels import GramEntries
from scalable_kpca.operator import CenteredGram
from scalable_kpca.scale import GramScale
from scalable_kpca.solvers import (
    EigenResult,
    canonical,
    lowest_eigenvalue,
    random_directions,
    solve_arpack,
    solve_block_krylov,
    solve_dense,
    solve_power,
)
from scalable_kpca.source import MatrixEntries
from tests.contracts.spectra import (
    HOMES,
    SPECTRA,
    TILE_ROWS,
    TOL,
    N,
    operator_of,
    rows_with_spectrum,
    solve_by_power,
    solve_krylov,
)
from tests.support import EPS, centred, fit, gram_of, rounding

SOLVERS = ["dense", "arpack", "block_krylov"]  # those that reach the rounding of the products


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


@pytest.mark.parametrize("deflation", [False, True])
def test_power_on_the_rows_and_on_their_transpose_finds_the_singular_values_of_seed_003(deflation):
    # rows and columns with mean zero, so that centring changes neither XXᵀ nor XᵀX
    spectrum, tol = 2.0 ** -np.arange(6), TOL["power"]
    W = rows_with_spectrum(np.ones(6), seed=1, n_samples=9)
    X = rows_with_spectrum(spectrum) @ W.T
    results = []
    for rows in (X, X.T.copy()):
        with operator_of(rows) as operator:
            results.append(solve_by_power(operator, 6, deflation=deflation))
    residual, rng = X.copy(), np.random.default_rng(0)
    for j in range(6):
        y = rng.standard_normal(9)
        for _ in range(60):  # the ratio of neighbours is 1/2: to rounding
            y = residual.T @ (residual @ y)
            y /= np.linalg.norm(y)
        s = np.linalg.norm(residual @ y)
        residual -= np.outer(residual @ y, y)
        u, v = (result.eigenvectors[:, j] for result in results)
        for result in results:
            assert abs(result.eigenvalues[j] - s**2) <= tol + rounding(X @ X.T)
        # ‖X'u − s v‖ is as small as the residuals, beside the gap to the next eigenvalue, which is λ/2
        assert abs(abs(u @ X @ v) - s) <= 4 * np.sqrt(6) * tol / s


def rows_on_a_circle():
    theta = 2 * np.pi * np.arange(N) / N
    return np.column_stack([np.cos(theta), np.sin(theta)])


@pytest.mark.parametrize(
    ("kernel", "parameters", "deflation"),
    [
        # (xᵀy − ½)² on a circle has 11.75 twice and −23.5 twice, and nothing else
        ("poly", {"gamma": 1.0, "degree": 2, "coef0": -0.5}, False),
        ("poly", {"gamma": 1.0, "degree": 2, "coef0": -0.5}, True),
        ("sigmoid", {"gamma": 2.0, "coef0": -1.0}, False),
    ],
)
def test_power_finds_the_largest_eigenvalues_and_not_the_most_negative_ones(kernel, parameters, deflation):
    X = rows_on_a_circle() if kernel == "poly" else np.random.default_rng(0).standard_normal((N, 3))
    with operator_of(X, kernel, **parameters) as operator:
        spectrum = np.linalg.eigvalsh(operator.to_dense())[::-1]
        result = solve_by_power(operator, 4, tol=1e-8, deflation=deflation)
    assert spectrum[-1] < -0.1 * spectrum[0]
    accepted = np.sqrt(4) * 1e-8 * spectrum[0] + N * EPS * np.abs(spectrum).sum()
    np.testing.assert_allclose(result.eigenvalues, spectrum[:4], rtol=0, atol=accepted)


def test_power_leaves_a_start_block_of_the_most_negative_eigenvectors():
    # exact eigenvectors, with residuals zero, and the wrong ones
    with operator_of(rows_on_a_circle(), "poly", gamma=1.0, degree=2, coef0=-0.5) as operator:
        lowest = np.linalg.eigh(operator.to_dense())[1][:, :2]
        result = solve_power(operator, lowest, 2, tol=1e-8)
    np.testing.assert_allclose(result.eigenvalues, [11.75, 11.75], rtol=0, atol=2 * 1e-8 * 11.75)


@pytest.mark.parametrize("deflation", [False, True])
def test_power_at_tolerance_zero_stops_at_the_rounding_of_the_products(deflation):
    X = rows_with_spectrum(SPECTRA["decaying"])
    with operator_of(X) as operator:
        result = solve_by_power(operator, 3, tol=0.0, deflation=deflation)
    np.testing.assert_allclose(result.eigenvalues, SPECTRA["decaying"][:3], rtol=0, atol=rounding(X @ X.T))
    with operator_of(np.full((N, 3), 0.1), "rbf", gamma=1.0) as operator:  # K̃ is zero to rounding
        result = solve_by_power(operator, 3, tol=0.0, deflation=deflation)
    np.testing.assert_allclose(result.eigenvalues, np.zeros(3), rtol=0, atol=rounding(np.ones((N, N))))


def test_power_is_given_up_between_two_vectors_with_those_that_were_found():
    X = rows_with_spectrum(SPECTRA["flat"])
    with operator_of(X) as operator, pytest.raises(NotConvergedError, match="with 2 of 4 components") as caught:
        solve_by_power(operator, 4, max_passes=2, deflation=True)
    np.testing.assert_allclose(caught.value.result.eigenvalues, [1, 1], rtol=0, atol=rounding(X @ X.T))


@pytest.mark.parametrize("width", [0, 1, 3])
def test_power_completes_a_start_block_that_is_too_narrow(width):
    X = rows_with_spectrum(SPECTRA["decaying"])
    with operator_of(X) as operator:
        result = solve_power(operator, np.zeros((N, width)), 3, tol=1e-8, seed=1)
    np.testing.assert_allclose(result.eigenvalues, SPECTRA["decaying"][:3], rtol=0, atol=1e-8)


@pytest.mark.parametrize("negative", [-1e-3, -0.5, -3.0])
def test_lowest_eigenvalue_is_found_to_one_per_cent_from_above(negative):
    # k(x, y) = (xᵀy − c)² on a circle has the spectrum n/2·½ twice, and −c·n twice
    X = rows_on_a_circle()
    with operator_of(X, "poly", gamma=1.0, degree=2, coef0=negative) as operator:
        lowest = look_below(operator, np.empty((N, 0)), max_passes=20)
    slack = rounding((X @ X.T + negative) ** 2)
    assert N * negative - slack <= lowest <= 0.99 * N * negative + slack


def look_below(operator, vectors, *, max_passes, allowed=1e-6, width=4, seed=0):
    return lowest_eigenvalue(operator, vectors, allowed=allowed, width=width, max_passes=max_passes, seed=seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lowest", [-1.0, -0.1])
def test_lowest_eigenvalue_behind_a_flat_spectrum_is_not_missed(lowest, seed):
    rng, n = np.random.default_rng(seed), 200
    vectors = np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = rng.uniform(0.9, 1.1, n)
    values[0] = lowest
    matrix = (vectors * values) @ vectors.T
    with operator_of(np.arange(n, dtype=float)[:, None], GramEntries(MatrixEntries(matrix))) as operator:
        found = look_below(operator, np.empty((n, 0)), max_passes=20, seed=seed)
        centred = np.eye(n) - 1 / n
        truth = np.linalg.eigvalsh(centred @ matrix @ centred)[0]
        assert truth - rounding(matrix) <= found <= 0.99 * truth
        assert operator.n_passes <= 10


@pytest.mark.parametrize(("spectrum", "n_passes"), [("flat", 1), ("low rank", 3), ("decaying", 7)])
def test_search_for_a_lowest_eigenvalue_ends_where_there_is_none_or_with_its_passes(spectrum, n_passes):
    # a flat spectrum is exhausted at once; what is near zero on both sides of it cannot be told apart
    X = rows_with_spectrum({**SPECTRA, "low rank": [3.0, 2.0, 1.0]}[spectrum])
    with operator_of(X) as operator:
        before = operator.n_passes
        look_below(operator, np.empty((N, 0)), max_passes=7, width=2, allowed=1e-12)
        assert operator.n_passes - before == n_passes


def test_a_lowest_ritz_value_far_above_zero_ends_the_search():
    n = 300
    matrix = np.diag(np.linspace(1.0, 3.0, n))
    with operator_of(np.arange(n, dtype=float)[:, None], GramEntries(MatrixEntries(matrix))) as operator:
        assert 0.99 < look_below(operator, np.empty((n, 0)), max_passes=20) < 1.1
        assert 3 <= operator.n_passes < 12


def test_where_nothing_is_left_one_pass_tells():
    X = rows_with_spectrum([3.0, 2.0, 1.0])
    with operator_of(X) as operator:
        found = np.linalg.eigh(X @ X.T)[1][:, -3:]
        assert abs(look_below(operator, found, max_passes=20, allowed=1e-9)) < 1e-12
        assert operator.n_passes == 1


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_lowest_eigenvalue_below_a_decaying_spectrum_shows(power):
    n, rng = 300, np.random.default_rng(0)
    vectors = random_directions(np.empty((n, 0)), n - 1, rng)
    values = np.arange(1.0, n) ** -power
    values[200] = -1e-2
    matrix = (vectors * values) @ vectors.T
    with operator_of(np.arange(n, dtype=float)[:, None], GramEntries(MatrixEntries(matrix))) as operator:
        lowest = look_below(operator, vectors[:, :2], max_passes=20, width=14)
        assert -1e-2 - rounding(matrix) <= lowest < -5e-3


def test_nothing_is_below_when_everything_was_found():
    X = rows_with_spectrum(SPECTRA["decaying"])
    with operator_of(X) as operator:
        everything = np.linalg.eigh(np.eye(N) - 1 / N)[1][:, 1:]
        assert look_below(operator, everything, max_passes=5) == np.inf
        assert operator.n_passes == 0


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


def certify(operator, eigenvalues, eigenvectors, scale, result):
    """Certificate from norms alone: no pass but for residuals that the solver does not know."""
    norms, bounds = residual_bounds(operator, eigenvalues, eigenvectors, scale, result)
    options = {"probe_width": 1, "max_probe_passes": 0, "seed": 0, "positive_semidefinite": True}
    verdict = examine(operator, eigenvalues, eigenvectors, bounds, scale, result, **options)
    return certificate_of(eigenvalues, norms, bounds, scale, verdict)


def certificate_of_true_pairs(operator, spectrum, wanted):
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
        certificate = certificate_of_true_pairs(operator, spectrum, wanted)
    assert not certificate.complete
    assert "not proven" in certificate.completeness


@pytest.mark.parametrize(
    ("name", "complete"), [("decaying", True), ("gap", True), ("many scales", True), ("flat", False), ("slow", False)]
)
def test_leading_set_is_complete_exactly_when_the_frobenius_norm_leaves_no_room(name, complete):
    spectrum = SPECTRA[name]
    with operator_of(rows_with_spectrum(spectrum)) as operator:
        certificate = certificate_of_true_pairs(operator, spectrum, [0, 1, 2])
    assert certificate.complete is complete
    assert complete == (np.sqrt(np.square(spectrum[3:]).sum()) < spectrum[2])


@pytest.mark.parametrize("solver", [*SOLVERS, "power"])
@pytest.mark.parametrize("name", SPECTRA)
def test_fit_is_called_complete_with_every_solver_and_for_certain_when_the_norm_leaves_no_room(solver, name):
    spectrum = SPECTRA[name]
    X = rows_with_spectrum(spectrum)
    certificate = fit(X, "linear", n_components=3, solver=solver, tile_rows=TILE_ROWS).model.certificate
    left = np.sqrt(np.square(spectrum[3:]).sum())
    smallest = np.r_[spectrum, 0, 0][2]
    assert certificate.complete
    if solver in ("dense", "arpack"):
        # the others have further Ritz values, which leave less room
        assert (certificate.failure_probability == 0) is (solver == "dense" or bool(left < smallest))
    np.testing.assert_allclose(
        certificate.explained_variance_ratio * spectrum.sum(), np.r_[spectrum, 0, 0][:3], atol=1e-8
    )
    assert (certificate.residual_norms <= certificate.eigenvalue_bounds).all()
    accepted = 1e-9 * spectrum[0] if solver in ("block_krylov", "power") else 0.0  # its default tolerance in float64
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


@pytest.mark.parametrize("method", ["block_krylov", "power", "power with deflation"])
def test_random_columns_beside_a_blind_start_find_what_it_cannot_see(method):
    # a start block in the span of the trailing eigenvectors alone would never find the leading ones
    spectrum = np.r_[[5.0, 4, 3], np.linspace(1, 0.5, 30)]
    X = rows_with_spectrum(spectrum)
    with operator_of(X) as operator:
        vectors = solve_dense(operator, 33).eigenvectors
        random = np.random.default_rng(0).standard_normal((N, 4)) / np.sqrt(N)
        start = np.column_stack([vectors[:, 10:16], random])
        if method == "block_krylov":
            result = solve_block_krylov(operator, start, lambda *_: 3, tol=1e-11, max_basis=1000)
        else:
            result = solve_power(operator, start, 3, tol=1e-11, max_passes=500, deflation="deflation" in method)
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
