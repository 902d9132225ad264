"""A missed eigenvalue is found or bounded: the proofs, the random probe, and fits that heal."""

import math
import pickle

import numpy as np
import pytest

from scalable_kpca.certificate import residual_bounds
from scalable_kpca.completeness import Found, examine
from scalable_kpca.engine import open_engine, single_threaded_blas
from scalable_kpca.errors import AccuracyWarning, NotConvergedError
from scalable_kpca.kernels import Linear
from scalable_kpca.operator import CenteredGram
from scalable_kpca.probe import probe_remainder, random_start_bound
from scalable_kpca.scale import GramScale
from scalable_kpca.solvers import EigenResult, solve_arpack
from scalable_kpca.solving import Solve
from scalable_kpca.source import ArrayRows
from scalable_kpca.tiling import plan_exact
from tests.support import EPS, fit, gram_of


@pytest.fixture(autouse=True)
def _one_blas_thread():
    with single_threaded_blas():
        yield


class Planted:
    """A symmetric matrix with these eigenvalues, and 0 for the ones, that counts its products."""

    def __init__(self, eigenvalues, seed=0, n_samples=None):
        n = n_samples or len(eigenvalues) + 1
        columns = np.random.default_rng(seed).standard_normal((n, n - 1))
        basis = np.linalg.qr(np.column_stack([np.ones(n), columns]))[0][:, 1:]
        self.vectors, self.eigenvalues = basis[:, : len(eigenvalues)], np.asarray(eigenvalues, float)
        self.shape, self.n_passes = (n, n), 0

    def matmat(self, V):
        self.n_passes += 1
        return self.vectors @ (self.eigenvalues[:, None] * (self.vectors.T @ V))

    def scale(self):
        squares = float(np.square(self.eigenvalues).sum())
        return GramScale(
            n_samples=self.shape[0],
            dtype="float64",
            max_diagonal=float(np.abs(self.eigenvalues).max()),
            gram_norm=math.sqrt(squares),
            squared_norm=squares,
            total_variance=float(self.eigenvalues.sum()),
        )


def examined(operator, wanted, *, width=22, max_passes=40, seed=0):
    """Verdict on true pairs, some of which an iterative solver might have missed."""
    values, vectors = operator.eigenvalues[wanted], operator.vectors[:, wanted]
    result = EigenResult(values, vectors, "partial", 1, is_whole_spectrum=False)
    _, bounds = residual_bounds(operator, values, vectors, operator.scale(), result)
    return examine(
        operator, values, vectors, bounds, operator.scale(), result,
        probe_width=width, max_probe_passes=max_passes, seed=seed, positive_semidefinite=True,
    )  # fmt: skip


J = np.arange(1, 250)
SPECTRA = {
    "1/j": 1 / J,
    "1/sqrt j": J**-0.5,
    "linear": np.linspace(1, 0.01, 249),
    "cluster of gaps 1e-5": np.r_[1 - 1e-5 * np.arange(12), 1 - 1e-2 * np.arange(1, 20), np.full(218, 0.5)],
    "cluster on a floor": np.r_[1 - 1e-5 * np.arange(12), np.full(237, 0.9)],
    "step": np.r_[np.full(10, 1.0), np.full(239, 0.99)],
    "geometric": 0.8**J,
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("seed", range(2))
def test_leading_set_is_complete_with_the_probability_that_is_named(name, seed):
    spectrum = SPECTRA[name]
    operator = Planted(spectrum, seed)
    operator.n_passes = -1  # the pass that measures the residuals
    verdict = examined(operator, np.arange(10), seed=seed)
    assert verdict.complete
    assert verdict.alarm is None
    assert verdict.missed_bound >= spectrum[10] * (1 - 1e-12)
    assert "with probability 1 − 1e-06" in verdict.how
    assert 0 < operator.n_passes <= 20


@pytest.mark.parametrize("name", [name for name in SPECTRA if name != "step"])
@pytest.mark.parametrize("missed", [0, 3, 9])
def test_set_with_a_larger_eigenvalue_missed_raises_the_alarm_and_is_never_complete(name, missed):
    wanted = np.array([j for j in range(11) if j != missed])
    for seed in range(3):
        operator = Planted(SPECTRA[name], seed)
        verdict = examined(operator, wanted, seed=seed)
        assert not verdict.complete
        assert verdict.alarm is not None
        # a direction beside the found ones that is larger than the smallest of them
        shown = verdict.alarm[:, 0]
        assert np.abs(shown @ operator.vectors[:, wanted]).max() <= 1e-12
        assert shown @ operator.matmat(shown[:, None])[:, 0] > SPECTRA[name][10]


def test_equal_eigenvalues_leave_nothing_to_be_missed():
    verdict = examined(Planted(np.ones(60)), np.array([3, 7, 20]))
    assert verdict.complete
    assert verdict.missed_bound == pytest.approx(1, abs=1e-9)


def test_probe_keeps_its_budget_and_says_what_it_could_not_exclude():
    operator = Planted(np.linspace(1, 0.99, 900))
    operator.n_passes = -1
    verdict = examined(operator, np.arange(10), max_passes=3)
    assert operator.n_passes == 3
    assert not verdict.complete
    assert verdict.alarm is None
    assert verdict.missed_bound > operator.eigenvalues[9]
    assert "in 3 passes found nothing above" in verdict.how
    operator.n_passes = -1
    assert "not proven" in examined(operator, np.arange(10), max_passes=0).how
    assert operator.n_passes == 0


@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("spectrum", ["one above a floor", "decaying"])
def test_bound_from_a_random_start_fails_no_more_often_than_it_says(width, spectrum):
    # with a chance of 0.3 a fault in the derivation would show; three standard deviations of the count are allowed
    eigenvalues = np.r_[1.0, np.full(60, 0.9)] if spectrum == "one above a floor" else 1 / np.arange(1, 62)
    failures, trials, failure = 0, 200, 0.3
    for seed in range(trials):
        probe = probe_remainder(
            Planted(eigenvalues, n_samples=62),
            np.empty((62, 0)),
            alarm=math.inf,
            is_clear=lambda _: False,
            below=np.empty(0),
            squared_norm=float(np.square(eigenvalues).sum()),
            lowest=0.0,
            width=width,
            max_passes=3,
            failure=failure,
            seed=seed,
        )
        failures += probe.upper_bound < eigenvalues[0] * (1 - 1e-12)
    assert failures <= failure * trials + 3 * math.sqrt(failure * (1 - failure) * trials)


def test_bound_from_a_random_start_tightens_with_every_pass_and_never_beats_certainty():
    arguments = {"width": 12, "squared_norm": 9.0, "lowest": 0.0, "failure": 1e-6}
    bounds = [random_start_bound(1.0, np.r_[1.0, 0.5, 0.2], n_passes=q, **arguments) for q in range(1, 12)]
    assert bounds[0] == 3  # ‖B‖_F
    assert (np.diff(bounds) <= 1e-12).all()
    assert 1 < bounds[-1] < 1.2
    # with eigenvalues as low as −1 the same passes say less
    assert random_start_bound(1.0, np.r_[1.0], n_passes=8, **{**arguments, "lowest": 1.0}) > bounds[7]


@pytest.mark.parametrize("seed", range(20))
def test_proofs_hold_for_ritz_pairs_of_any_quality(seed):
    rng = np.random.default_rng(seed)
    n, m, k = 40, 12, 4
    A = np.diag(rng.exponential(size=n) ** 3)
    noise = 10.0 ** rng.uniform(-8, 0)
    leading = np.argsort(-np.diagonal(A))[:m]
    V = np.linalg.qr(np.eye(n)[:, leading] + noise * rng.standard_normal((n, m)))[0]
    values, coordinates = np.linalg.eigh(V.T @ A @ V)
    values, V = values[::-1], V @ coordinates[:, ::-1]
    R = A @ V - V * values
    found = Found(values, R.T @ R, float(np.square(A).sum()))
    spectrum = np.sort(np.diagonal(A))[::-1]
    slack = n * EPS * spectrum[0]
    for p in range(k, m + 1):
        rest = np.linalg.qr(np.column_stack([V[:, :p], np.eye(n)]))[0][:, p:n]
        beyond = float(np.linalg.eigvalsh(rest.T @ A @ rest)[-1])
        assert found.room(p) >= beyond - slack
        bound = found.missed_bound(k, p, beyond)
        weyl = max(beyond, values[k] if p > k else -np.inf) + found.spread(p)
        assert spectrum[k] - slack <= bound <= weyl + slack
    assert found.proven_bound(k) >= spectrum[k] - slack


N = 120


def rows_with_spectrum(spectrum, seed=0):
    columns = np.random.default_rng(seed).standard_normal((N, len(spectrum)))
    basis = np.linalg.qr(np.column_stack([np.ones(N), columns]))[0]
    return basis[:, 1:] * np.sqrt(spectrum)


# the shape of scipy issue 26112: a loosened ARPACK tolerance on a tight cluster returns a wrong set as converged
CLUSTERS = {
    gap: np.r_[1 - gap * np.arange(6), 1 - 1e-2 * np.arange(1, 20), np.full(90, 0.5)] for gap in (1e-5, 1e-7, 1e-9)
}


@pytest.mark.slow
@pytest.mark.parametrize("gap", CLUSTERS)
def test_wrong_set_of_a_loosened_arpack_is_cured(gap):
    spectrum, wrong = CLUSTERS[gap], 0
    for seed in range(4):
        X = rows_with_spectrum(spectrum, seed)
        with gram_of(X, "linear", tile_rows=50) as gram:
            alone = solve_arpack(CenteredGram(gram, gram.build()), 5, tol=1e-3, seed=seed)
        wrong += np.abs(alone.eigenvalues - spectrum[:5]).max() > 1e-3
        model = fit(X, "linear", n_components=5, solver="arpack", tol=1e-3, seed=seed, tile_rows=50).model
        assert model.certificate.complete
        assert np.abs(model.eigenvalues - spectrum[:5]).max() <= 1e-9 + model.certificate.eigenvalue_bounds.max()
        assert model.solver in ("arpack", "arpack and block_krylov")
    assert wrong >= 3  # else nothing was cured


@pytest.mark.parametrize("solver", ["arpack", "block_krylov", "power"])
def test_fit_of_a_spectrum_without_a_proof_is_complete_by_its_probe(solver):
    spectrum = np.arange(1, 119) ** -0.5
    certificate = fit(
        rows_with_spectrum(spectrum), "linear", n_components=12, solver=solver, max_passes=400, tile_rows=50
    ).model.certificate
    assert certificate.complete
    assert certificate.missed_bound >= spectrum[12] * (1 - 1e-9)
    assert certificate.effective_rank == pytest.approx(spectrum.sum() ** 2 / np.square(spectrum).sum())


@pytest.mark.parametrize("solver", ["block_krylov", "power"])
def test_solver_that_gives_up_carries_its_result_or_returns_it_incomplete(solver):
    X = rows_with_spectrum(np.linspace(1, 0.9, 110))
    options = {"n_components": 4, "solver": solver, "max_passes": 3, "tile_rows": 50}
    with pytest.raises(NotConvergedError, match="max_passes=3") as caught:
        fit(X, "linear", **options)
    kept = pickle.loads(pickle.dumps(caught.value)).result
    with pytest.warns(AccuracyWarning, match="returned, incomplete: .*max_passes=3"):
        model = fit(X, "linear", on_failure="return", **options).model
    for found in (kept, model):
        assert not found.certificate.complete
        assert "not proven" in found.certificate.completeness
        assert found.eigenvalues.shape == (4,)
        # residuals are those of the pairs: an eigenvalue lies within each bound
        distance = np.abs(np.linspace(1, 0.9, 110)[:, None] - found.eigenvalues).min(axis=0)
        assert (distance <= found.certificate.eigenvalue_bounds).all()
        assert found.certificate.residual_norms.max() > 1e-9  # the tolerance that was not reached


def test_arpack_without_a_result_raises_whatever_on_failure_says():
    X = rows_with_spectrum(np.linspace(1, 0.9, 110))
    with pytest.raises(NotConvergedError, match="max_passes=21"):
        fit(X, "linear", n_components=8, solver="arpack", max_passes=21, on_failure="return", tile_rows=50)


def test_rounding_of_the_products_is_part_of_every_bound():
    # Ritz values that are too large by their rounding use up the norm of what was missed
    true, rho = np.r_[1.0, 0.5, 1e-4, 3e-5 * 0.8 ** np.arange(60)], 6e-8
    values = np.delete(true, 2)[:12] + rho
    found = Found(values, np.zeros((12, 12)), float(np.square(true).sum()), rounding=rho)
    assert found.proven_bound(4) >= 1e-4
    exact = Found(values, np.zeros((12, 12)), float(np.square(true).sum()))
    assert exact.proven_bound(4) < 1e-4  # what the first assertion guards against


def test_bound_from_a_random_start_is_never_below_the_ritz_value_that_it_is_made_of():
    arguments = {"width": 4, "n_passes": 5, "lowest": 0.0, "failure": 1e-6}
    for squared_norm in (0.0, 0.5, 1.0, 1.1):
        assert random_start_bound(1.0, np.ones(1), squared_norm=squared_norm, **arguments) >= 1


@pytest.mark.parametrize(
    ("spectrum", "wanted", "expected"),
    [
        (np.r_[1.0, np.full(110, 0.5)], [3, 7, 20], [1, 0.5, 0.5]),
        (np.r_[1.0, 1.0, 1.0, np.full(40, 0.7)], [1, 5, 6, 9], [1, 1, 1, 0.7]),
        (np.r_[1.0, 0.9, 0.8, 0.7 * 0.9 ** np.arange(100)], [0, 2, 4], [1, 0.9, 0.8]),
    ],
)
def test_larger_eigenvalue_is_found_where_the_smallest_of_the_set_stays(spectrum, wanted, expected):
    X, k = rows_with_spectrum(spectrum), len(wanted)
    basis = np.linalg.svd(X, full_matrices=False)[0]
    values, vectors = spectrum[wanted], np.ascontiguousarray(basis[:, wanted])
    with open_engine("synchronous") as engine, gram_of(X, "linear", tile_rows=50) as gram:
        operator = CenteredGram(gram)
        plan = plan_exact(
            N, X.shape[1], n_components=k, solver="arpack", dtype="float64", memory_limit=2**31, n_threads=1
        )
        scale = Planted(spectrum, n_samples=N).scale()
        solve = Solve(operator, ArrayRows(X), Linear(), engine, plan, lambda: scale, n_components=k)
        wrong = EigenResult(values, vectors, "arpack", 1, is_whole_spectrum=False)
        settled = solve.settle(wrong, lambda result: (result.eigenvalues[:k], result.eigenvectors[:, :k]), None)
    np.testing.assert_allclose(settled.eigenvalues, expected, rtol=0, atol=1e-8)
    assert settled.certificate.complete
    assert settled.failure is None
    assert settled.solver == "arpack and block_krylov"


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.6, 0.75])
def test_basis_grows_until_a_share_of_the_variance_is_reached(share):
    X = np.random.default_rng(0).standard_normal((700, 20))
    K = np.exp(-0.05 * np.square(X[:, None] - X).sum(axis=2))
    H = np.eye(700) - 1 / 700
    spectrum = np.linalg.eigvalsh(H @ K @ H)[::-1]
    needed = int((np.cumsum(spectrum) < share * spectrum.sum()).sum()) + 1
    assert needed > 80  # more than eight blocks of 22 columns bring to convergence
    found = fit(X, "rbf", gamma=0.05, n_components=share, solver="block_krylov", tile_rows=350)
    assert found.model.n_components == needed
    assert found.selection.startswith(f"{needed} components, the fewest for {share:g} of the variance")


def test_share_that_the_passes_do_not_reach_is_an_error_that_says_so():
    X = np.random.default_rng(0).standard_normal((300, 20))
    with pytest.raises(NotConvergedError, match="too few for the share") as caught:
        fit(X, "rbf", gamma=0.05, n_components=0.9, solver="block_krylov", max_passes=3, tile_rows=150)
    assert 0 < caught.value.result.certificate.explained_variance_ratio.sum() < 0.9


@pytest.mark.parametrize("kernel", ["linear", "cosine"])
def test_eigenvalues_that_are_mostly_rounding_are_warned_of(kernel):
    X = np.random.default_rng(0).standard_normal((150, 20)) + 1e5
    with pytest.warns(AccuracyWarning, match="certain only to"):
        fit(X, kernel, n_components=3, dtype="float32")
