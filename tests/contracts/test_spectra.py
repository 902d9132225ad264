"""One contract for every eigensolver, on every kind of spectrum."""

import numpy as np
import pytest

from scalable_kpca.errors import NotConvergedError
from scalable_kpca.solvers import solve_arpack
from tests.contracts.spectra import HOMES, SOLVERS, SPECTRA, TOL, N, operator_of, rows_with_spectrum, solve_by_power
from tests.support import EPS, centred, fit, rounding

pytestmark = pytest.mark.slow  # every solver on every spectrum; test_solvers.py has the quick part

FAST_SOLVERS = ["dense", "arpack", "block_krylov"]  # those that reach the rounding of the products
K = 4

PLANTED = {
    **{name: SPECTRA[name] for name in ("decaying", "slow", "equal pairs")},
    "step": SPECTRA["gap"],
    "repeated across the fourth": np.r_[[3.0], np.full(6, 2.0), np.linspace(1, 0.1, 20)],
    **{
        f"cluster {gap:g}": np.r_[1 - gap * np.arange(6), np.linspace(0.9, 0.1, 30)]
        for gap in (1e-5, 1e-7, 1e-9, 1e-12)
    },
    "two clusters": np.r_[2 - 1e-8 * np.arange(3), 1 - 1e-8 * np.arange(5), np.linspace(0.5, 0.1, 20)],
    "rank three": np.array([5.0, 3, 1]),
    "zero": np.zeros(1),
    "identity": np.ones(N - 1),
    "ratio 1e16": 10.0 ** -np.linspace(0, 16, 9),
}

# ARPACK at tolerance 0 needs thousands of passes for gaps below 1e-6 or gives up; of single vectors the error falls by
# the ratio of neighbours: equal ones cost nothing, nearly equal ones everything
UNRESOLVED = {
    "arpack": ("cluster 1e-07", "cluster 1e-09", "cluster 1e-12"),
    "power with deflation": (
        "slow",
        "cluster 1e-05",
        "cluster 1e-07",
        "cluster 1e-09",
        "cluster 1e-12",
        "two clusters",
    ),
}


def accuracy(solver, passes, scale, largest):
    """Residual that a solver may leave, and how much larger an eigenvalue may be that it missed."""
    residual = scale
    if solver != "dense":
        # each restart rotates the Lanczos basis and adds a rounding to it; one restart is at most 17 products
        residual = residual * (1 + passes // 17)
    tol = next((tol for name, tol in TOL.items() if name in solver), 0.0)
    # a vector that knows nothing of an eigenvalue has 1/√n of it in its residual
    return residual + tol * largest, np.sqrt(N) * tol * largest if "power" in solver else 0.0


def solve(solver, operator, k, spectrum, **options):
    if solver == "arpack" and not spectrum.any():
        return solve_arpack(operator, k, is_zero=True)  # it has to be told
    return SOLVERS[solver](operator, k, **options)


@pytest.mark.parametrize(
    ("solver", "name"),
    [(solver, name) for solver in SOLVERS for name in PLANTED if name not in UNRESOLVED.get(solver, ())],
)
def test_every_solver_returns_the_leading_eigenpairs_of_every_spectrum(solver, name):
    spectrum = PLANTED[name]
    X = rows_with_spectrum(spectrum)
    with operator_of(X) as operator:
        result = solve(solver, operator, K, spectrum)
        assert result.n_passes <= operator.n_passes
    values, V, dense = result.eigenvalues, result.eigenvectors, centred(X @ X.T)
    scale = rounding(X @ X.T)
    allowed, missed = accuracy(solver, result.n_passes, scale, spectrum[0])
    assert V.shape == (N, K)
    assert V.dtype == values.dtype == np.float64
    assert (np.diff(values) <= 0).all()
    np.testing.assert_allclose(V.T @ V, np.eye(K), rtol=0, atol=N * EPS * 10)
    assert (V[np.abs(V).argmax(axis=0), np.arange(K)] > 0).all()
    # every pair is one of the matrix itself, which no tile and no product has touched
    norms = np.linalg.norm(dense @ V - V * values, axis=0)
    assert norms.max() <= allowed
    if result.residual_norms is not None:
        np.testing.assert_allclose(result.residual_norms, norms, rtol=0, atol=20 * scale)
    # together they are the leading ones: Kahan's theorem for k pairs, ‖R‖_F ≤ √k max ‖r‖
    expected = np.r_[spectrum, np.zeros(N)][:K]
    np.testing.assert_allclose(values, expected, rtol=0, atol=np.sqrt(K) * allowed + missed)
    # and what they leave has nothing larger, whatever the values were planted to be
    P = np.eye(N) - V @ V.T
    assert np.linalg.eigvalsh(P @ dense @ P)[-1] <= values[-1] + np.linalg.norm(norms) + scale + missed


@pytest.mark.parametrize("solver", FAST_SOLVERS)
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("k", [1, 4, 6])
def test_eigenvalues_are_those_that_the_rows_were_made_of(solver, name, k):
    X = rows_with_spectrum(SPECTRA[name])
    expected = np.r_[SPECTRA[name], np.zeros(N)][:k]
    with operator_of(X) as operator:
        result = SOLVERS[solver](operator, k)
    np.testing.assert_allclose(result.eigenvalues, expected, rtol=0, atol=rounding(X @ X.T))


@pytest.mark.parametrize("solver", [*FAST_SOLVERS, "power"])
@pytest.mark.parametrize("seed", range(3))
def test_no_member_of_a_tight_cluster_is_missed(solver, seed):
    # where a loosened ARPACK tolerance returns eigenvalues from below the cluster and calls them converged
    spectrum = np.r_[1 - 1e-5 * np.arange(6), 1 - 1e-2 * np.arange(1, 20), np.full(20, 0.5)]
    X = rows_with_spectrum(spectrum, seed)
    with operator_of(X) as operator:
        # λ₁₂/λ₅ is 0.95: six hundred passes to 1e-13, while the error of a value is the square of its residual
        options = {"tol": 1e-8} if solver == "power" else {}
        result = SOLVERS[solver](operator, 5, seed=seed, **options)
    np.testing.assert_allclose(result.eigenvalues, spectrum[:5], rtol=0, atol=rounding(X @ X.T))


# ARPACK makes some forty passes, which a disk makes slow: one spectrum is enough there
IDENTITIES = [
    *(("dense", home, name) for home in HOMES for name in SPECTRA),
    *(("arpack", "memory", name) for name in SPECTRA),
    ("arpack", "zarr", "decaying"),
    *(("block_krylov", home, name) for home in HOMES for name in SPECTRA),
    *(("power", "memory", name) for name in ("decaying", "equal pairs", "rank one")),
    ("power", "zarr", "decaying"),
]


@pytest.mark.parametrize(("solver", "home", "name"), IDENTITIES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_result_satisfies_the_identities_of_eigenpairs(solver, home, name, dtype, tmp_path):
    X = rows_with_spectrum(SPECTRA[name])
    with operator_of(X, gram=home, dtype=dtype, workdir=tmp_path) as operator:
        result = SOLVERS[solver](operator, 3)
        dense = operator.to_dense()
        residuals = operator.matmat(result.eigenvectors) - result.eigenvectors * result.eigenvalues
    V = result.eigenvectors
    error, _ = accuracy(solver, result.n_passes, rounding(X @ X.T), SPECTRA[name][0])
    assert V.shape == (N, 3)
    assert V.dtype == result.eigenvalues.dtype == np.float64
    assert (np.diff(result.eigenvalues) <= 0).all()
    np.testing.assert_allclose(V.T @ V, np.eye(3), rtol=0, atol=N * EPS * 10)
    assert np.linalg.norm(residuals, axis=0).max() <= error
    np.testing.assert_allclose(V.T @ dense @ V, np.diag(result.eigenvalues), rtol=0, atol=error)
    # K̃1 = 0, so that a vector with eigenvalue λ > 0 is orthogonal to the ones
    sums = np.abs(V.sum(axis=0)) * result.eigenvalues
    assert (sums <= 2 * np.sqrt(N) * error).all()
    largest = np.abs(V).argmax(axis=0)
    assert (V[largest, np.arange(3)] > 0).all()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_samples", [2, 3, 5, 8])
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_as_many_pairs_as_there_are_when_almost_all_all_or_more_are_wanted(solver, n_samples, beyond):
    k = n_samples + beyond
    if solver == "arpack" and beyond >= 0:
        return  # scipy refuses; no plan asks for it: see the next test
    spectrum = 2.0 ** -np.arange(n_samples - 1)
    X = rows_with_spectrum(spectrum, n_samples=n_samples)
    with operator_of(X) as operator:
        result = SOLVERS[solver](operator, k)
    # K̃1 = 0 is a pair that iterative solvers may leave out
    least = n_samples if solver == "dense" else n_samples - 1
    assert min(k, least) <= len(result.eigenvalues) <= min(k, n_samples)
    assert result.eigenvectors.shape == (n_samples, len(result.eigenvalues))
    expected = np.append(spectrum, 0.0)[: len(result.eigenvalues)]
    tol = TOL["power"] if "power" in solver else 0.0
    np.testing.assert_allclose(result.eigenvalues, expected, rtol=0, atol=4 * rounding(X @ X.T) + tol)
    np.testing.assert_allclose(
        centred(X @ X.T) @ result.eigenvectors, result.eigenvectors * result.eigenvalues, atol=1e-9
    )


@pytest.mark.parametrize("solver", ["arpack", "block_krylov", "power"])
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_fit_with_almost_all_all_or_more_components_than_rows_gives_every_eigenvalue(solver, beyond):
    n_samples = 9
    spectrum = 2.0 ** -np.arange(n_samples - 1)
    X = rows_with_spectrum(spectrum, n_samples=n_samples)
    model = fit(X, "linear", n_components=n_samples + beyond, solver=solver).model
    assert model.solver == (solver if beyond < 0 else "dense")
    expected = np.append(spectrum, 0.0)[: min(n_samples, n_samples + beyond)]
    np.testing.assert_allclose(model.eigenvalues, expected, rtol=0, atol=1e-9)
    assert model.certificate.complete


@pytest.mark.parametrize("name", UNRESOLVED["arpack"])
def test_arpack_that_cannot_resolve_a_cluster_gives_up(name):
    with operator_of(rows_with_spectrum(PLANTED[name])) as operator:
        with pytest.raises(NotConvergedError, match="not found 4 components in max_passes=150"):
            solve_arpack(operator, K, max_passes=150)
        assert operator.n_passes == 150


@pytest.mark.parametrize("name", ["slow", "cluster 1e-05", "cluster 1e-07", "two clusters"])
@pytest.mark.parametrize("deflation", [False, True])
def test_power_that_cannot_resolve_a_spectrum_says_so_and_its_residuals_say_by_how_much(name, deflation):
    X = rows_with_spectrum(PLANTED[name])
    dense = centred(X @ X.T)
    with operator_of(X) as operator:
        with pytest.raises(NotConvergedError, match=r"residual of .*·λ₁ with .* max_passes=9 .*block_krylov") as caught:
            solve_by_power(operator, K, max_passes=9, deflation=deflation)
        assert operator.n_passes == 9
    found = caught.value.result
    norms = np.linalg.norm(dense @ found.eigenvectors - found.eigenvectors * found.eigenvalues, axis=0)
    np.testing.assert_allclose(found.residual_norms, norms, rtol=0, atol=20 * rounding(X @ X.T))
    assert norms.max() > TOL["power"]
    # a Rayleigh–Ritz value is never above the eigenvalue of its rank, and each is within its residual of one
    assert (found.eigenvalues <= PLANTED[name][: len(norms)] + rounding(X @ X.T)).all()
    distances = np.abs(found.eigenvalues[:, None] - np.r_[PLANTED[name], 0.0]).min(axis=1)
    assert (distances <= norms + rounding(X @ X.T)).all()


@pytest.mark.parametrize("name", ["cluster 1e-07", "cluster 1e-12", "two clusters", "slow"])
@pytest.mark.parametrize("deflation", [False, True])
def test_power_with_a_tolerance_above_the_gaps_returns_eigenvalues_within_it(name, deflation):
    X, tol = rows_with_spectrum(PLANTED[name]), 1e-5
    with operator_of(X) as operator:
        result = solve_by_power(operator, K, tol=tol, deflation=deflation)
    accepted = tol * PLANTED[name][0]
    assert (result.residual_norms <= accepted + rounding(X @ X.T)).all()
    np.testing.assert_allclose(result.eigenvalues, PLANTED[name][:K], rtol=0, atol=np.sqrt(K) * accepted)
