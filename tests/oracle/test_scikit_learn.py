"""Exact fits against scikit-learn's dense `KernelPCA`, and against linear algebra on explicit features."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as Reference
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import laplacian_kernel, pairwise_kernels

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import kernel_block, resolve_kernel
from scalable_kpca.transform import project
from tests.support import centred, fit, gram_of, rounding, score_tolerance

# sigmoid: steep enough to be indefinite, so that the clipped part is there to be dropped
KERNELS = {
    "linear": {},
    "poly": {"gamma": 0.2, "degree": 3, "coef0": 1.0},
    "rbf": {"gamma": 0.1},
    "sigmoid": {"gamma": 0.15, "coef0": 0.2},
    "laplacian": {"gamma": 0.15},
    "cosine": {},
    "matern12": {"gamma": 0.1},
    "matern32": {"gamma": 0.1},
    "matern52": {"gamma": 0.1},
}
SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
# one of the Matérn family by default, its sisters in CI
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in ("matern12", "matern52") else name for name in KERNELS]
# scikit-learn's KernelPCA does not know these by name
UNNAMED = {"laplacian", *SMOOTHNESS}
# n = tiles · tile_rows + rest; n = 1 has a test of its own
SIZES = {"2": (0, 2), "3": (0, 3), "tile-1": (1, -1), "tile": (1, 0), "tile+1": (1, 1), "3tile+7": (3, 7)}
# DESIGN: what the fit promises, relative to λ₁
ACCURACY = {"float64": 1e-10, "float32": 1e-6}


def rows_of(n_samples):
    return np.random.default_rng(7).standard_normal((n_samples, 5))


def rows_of_size(size, tile_rows):
    tiles, rest = SIZES[size]
    return rows_of(tiles * tile_rows + rest)


def reference_gram(kernel, X, Y=None):
    if kernel == "laplacian":
        return laplacian_kernel(X, Y, **KERNELS[kernel])
    if kernel in SMOOTHNESS:
        # γ = 1/(2ℓ²), as for RBF
        return Matern(1 / np.sqrt(2 * KERNELS[kernel]["gamma"]), nu=SMOOTHNESS[kernel])(X, Y)
    return pairwise_kernels(X, Y, metric=kernel, **KERNELS[kernel])


def reference_fit(kernel, X, n_components):
    """scikit-learn on its own kernel values."""
    name = "precomputed" if kernel in UNNAMED else kernel
    model = Reference(n_components, kernel=name, eigen_solver="dense", **KERNELS[kernel])
    return model.fit(reference_gram(kernel, X) if kernel in UNNAMED else X)


def spectrum(kernel, X):
    """All eigenvalues of the centred Gram matrix of scikit-learn's kernel values, descending."""
    return np.linalg.eigvalsh(centred(reference_gram(kernel, X)))[::-1]


def check_against_reference(X, kernel, *, solver, dtype, k, **options):
    """Eigenvalues, and scores of training and of new rows, of the positive part of the spectrum."""
    whole = spectrum(kernel, X)
    k = min(k, len(X) - 1, int((whole > 1e-3 * whole[0]).sum()))
    model = fit(
        X, kernel, n_components=k, solver=solver, dtype=dtype, indefinite="clip", **options, **KERNELS[kernel]
    ).model
    assert model.solver == solver
    reference = reference_fit(kernel, X, k)
    error = ACCURACY[dtype] * whole[0]
    np.testing.assert_allclose(model.eigenvalues, reference.eigenvalues_, rtol=0, atol=error)

    # an eigenvector turns by what the matrix moved, divided by the gap; where the gap is small it means nothing
    turns = score_tolerance(whole, k, error)
    separated = turns < 0.1
    assert separated.any()
    theirs = reference.eigenvectors_ * np.sqrt(reference.eigenvalues_)
    signs = np.sign((theirs * model.training_scores).sum(axis=0))
    scores = np.abs(model.training_scores - signs * theirs)[:, separated]
    # √λ moves by error/2√λ
    allowed = turns * np.sqrt(whole[:k]) + error / np.sqrt(whole[:k])
    assert (scores <= allowed[separated]).all()

    new = np.random.default_rng(8).standard_normal((4, 5))
    given = reference_gram(kernel, new, X) if kernel in UNNAMED else new
    difference = np.abs(project(model, new) - signs * reference.transform(given))[:, separated]
    # K̃(t, X)α is bounded by ‖K̃(t, X)‖/√λ times the turn of v
    lengths = np.linalg.norm(reference_gram(kernel, new, X), axis=1)[:, None]
    assert (difference <= (2 * lengths * (turns + error / whole[:k]) / np.sqrt(whole[:k]))[:, separated]).all()


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("solver", "tile_rows"), [("dense", 8), ("dense", 13), ("arpack", 8)])
def test_float64_tiles_in_memory_agree_with_scikit_learn(kernel, size, solver, tile_rows):
    X = rows_of_size(size, tile_rows)
    check_against_reference(X, kernel, solver=solver, dtype="float64", k=4, gram="memory", tile_rows=tile_rows)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("size", SIZES)
def test_float64_tiles_on_disk_agree_with_scikit_learn(kernel, size, tmp_path):
    X = rows_of_size(size, 9)
    check_against_reference(X, kernel, solver="dense", dtype="float64", k=9, gram="zarr", tile_rows=9, workdir=tmp_path)


@pytest.mark.parametrize("kernel", NAMES)
def test_arpack_on_tiles_on_disk_agrees_with_scikit_learn(kernel, tmp_path):
    X = rows_of(10)
    check_against_reference(
        X, kernel, solver="arpack", dtype="float64", k=2, gram="zarr", tile_rows=9, workdir=tmp_path
    )


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("solver", "tile_rows"), [("dense", 8), ("dense", 13), ("arpack", 13)])
def test_float32_tiles_in_memory_agree_with_scikit_learn(kernel, size, solver, tile_rows):
    X = rows_of_size(size, tile_rows)
    check_against_reference(X, kernel, solver=solver, dtype="float32", k=3, gram="memory", tile_rows=tile_rows)


@pytest.mark.parametrize("kernel", NAMES)
def test_float32_tiles_on_disk_agree_with_scikit_learn(kernel, tmp_path):
    X = rows_of(34)
    check_against_reference(X, kernel, solver="dense", dtype="float32", k=3, gram="zarr", tile_rows=9, workdir=tmp_path)


@pytest.mark.parametrize("kernel", NAMES)
def test_tiles_of_several_strips_agree_with_scikit_learn(kernel):
    # 262 rows are one strip of 256 and one of 6; the last block is shorter than a strip
    X = rows_of(533)
    check_against_reference(X, kernel, solver="dense", dtype="float64", k=5, gram="memory", tile_rows=262)


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("gram", ["memory", "zarr"])
@pytest.mark.parametrize("solver", ["dense", "arpack"])
def test_one_row_has_one_eigenvalue_which_is_exactly_zero(kernel, gram, solver, tmp_path):
    # scikit-learn divides by the eigenvalue here, so there is nothing to compare with; K − K = 0 is
    X = rows_of(1)
    model = fit(
        X, kernel, n_components=1, gram=gram, solver=solver, tile_rows=8, workdir=tmp_path, **KERNELS[kernel]
    ).model
    assert model.eigenvalues.tolist() == [0.0]
    assert model.training_scores.tolist() == [[0.0]]
    assert project(model, X + 1).tolist() == [[0.0]]
    assert model.certificate.total_variance == 0.0
    assert model.certificate.explained_variance_ratio.tolist() == [0.0]


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_new_row_scores_of_training_rows_are_their_training_scores(kernel, dtype):
    X = rows_of(31)
    model = fit(X, kernel, n_components=4, tile_rows=8, dtype=dtype, indefinite="clip", **KERNELS[kernel]).model
    K = reference_gram(kernel, X)
    # a new row meets the kernel itself, the training rows met tiles rounded to dtype: each entry of K̃ differs by at
    # most 4 roundings (entry, two means, grand mean), and α has length 1/√λ
    tiles = 4 * model.certificate.kernel_error * np.sqrt(len(X)) if dtype == "float32" else 0.0
    allowed = (tiles + rounding(K)) / np.sqrt(model.eigenvalues)
    assert (np.abs(project(model, X) - model.training_scores) <= allowed).all()


def test_polynomial_of_degree_two_is_pca_of_its_explicit_features():
    X = rows_of(31)
    gamma, coef0 = 0.3, 0.7
    products = np.einsum("ni,nj->nij", X, X).reshape(len(X), -1)
    features = np.hstack([gamma * products, np.sqrt(2 * gamma * coef0) * X, np.full((len(X), 1), coef0)])
    pca = PCA(n_components=6, svd_solver="full").fit(features)
    model = fit(X, "poly", n_components=6, tile_rows=8, gamma=gamma, degree=2, coef0=coef0).model
    K = features @ features.T
    np.testing.assert_allclose(model.eigenvalues, pca.explained_variance_ * (len(X) - 1), rtol=0, atol=rounding(K))
    np.testing.assert_allclose(
        model.certificate.explained_variance_ratio,
        pca.explained_variance_ratio_,
        rtol=0,
        atol=rounding(K) / model.certificate.total_variance,
    )
    theirs = pca.transform(features)
    signs = np.sign((theirs * model.training_scores).sum(axis=0))
    whole = np.linalg.eigvalsh(centred(K))[::-1]
    turns = score_tolerance(whole, 6, rounding(K))
    assert (np.abs(model.training_scores - signs * theirs) <= turns * np.sqrt(whole[:6]) + rounding(K)).all()


def test_linear_kernel_has_the_spectrum_of_the_covariance_matrix():
    X = rows_of(31) @ np.diag([5, 3, 1, 0.5, 0.1]) + 4
    model = fit(X, "linear", n_components=None, tile_rows=8).model
    covariance = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    assert model.n_components == 5
    np.testing.assert_allclose(model.eigenvalues / (len(X) - 1), covariance, rtol=0, atol=rounding(X @ X.T))


@pytest.mark.parametrize("offset", [1e6, 1e8])
def test_rbf_far_from_the_origin_equals_rbf_at_the_origin(offset):
    # multiples of 1/16 stay exact at 1e8, so that nothing is lost before the kernel is reached
    X = np.round(rows_of(31) * 16) / 16
    near = fit(X, "rbf", n_components=5, tile_rows=8, gamma=0.1).model
    far = fit(X + offset, "rbf", n_components=5, tile_rows=8, gamma=0.1).model
    # without the shift the exponent would be wrong by γ·offset²·eps ≥ 2e-5
    np.testing.assert_allclose(far.eigenvalues, near.eigenvalues, rtol=0, atol=1e-10 * near.eigenvalues[0])
    np.testing.assert_allclose(project(far, X + offset), project(near, X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("layout", ["read-only", "fortran", "strided", "reversed", "float32 rows"])
def test_layout_of_the_rows_does_not_change_the_result(kernel, layout):
    X = rows_of(31).astype(np.float32).astype(np.float64)
    wide = np.zeros((2 * len(X), 15))
    wide[::2, 1::3] = X
    given = {
        "read-only": X.copy(),
        "fortran": np.asfortranarray(X),
        "strided": wide[::2, 1::3],
        "reversed": X[::-1].copy()[::-1],
        "float32 rows": X.astype(np.float32),
    }[layout]
    given.flags.writeable = False
    options = {"n_components": 4, "tile_rows": 8, "indefinite": "clip", **KERNELS[kernel]}
    plain, model = fit(X, kernel, **options).model, fit(given, kernel, **options).model
    # BLAS may add in another order for another layout
    error = rounding(reference_gram(kernel, X))
    np.testing.assert_allclose(model.eigenvalues, plain.eigenvalues, rtol=0, atol=error)
    allowed = 2 * error / np.sqrt(plain.eigenvalues)
    assert (np.abs(project(model, given) - model.training_scores) <= allowed).all()
    np.testing.assert_array_equal(given, X)


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("solver", ["dense", "arpack"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("row", [[0.1, -0.7, 3.3, 1e3 / 7, 2.0], [1.0, 2.0, 0.0, -3.0, 4.0], [0.0] * 5])
def test_constant_rows_have_zero_eigenvalues_and_exactly_zero_scores(kernel, solver, dtype, row):
    X = np.tile(row, (21, 1))
    # of the order of 1/‖x‖², so that no kernel saturates
    parameters = {name: value if name != "gamma" else 1e-5 for name, value in KERNELS[kernel].items()}
    model = fit(X, kernel, n_components=3, solver=solver, tile_rows=8, dtype=dtype, **parameters).model
    assert model.eigenvalues.tolist() == [0.0] * 3
    assert not model.training_scores.any()
    assert not project(model, X).any()
    assert not project(model, X + 1).any()
    assert model.certificate.total_variance == 0.0
    assert not model.certificate.explained_variance_ratio.any()


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("solver", ["dense", "arpack"])
def test_repeating_every_row_doubles_the_spectrum_and_repeats_the_scores(kernel, solver):
    X = rows_of(16)
    options = {"n_components": 3, "solver": solver, "tile_rows": 8, "indefinite": "clip", **KERNELS[kernel]}
    once, twice = fit(X, kernel, **options).model, fit(np.vstack([X, X]), kernel, **options).model
    error = 1e-10 * twice.eigenvalues[0]
    np.testing.assert_allclose(twice.eigenvalues, 2 * once.eigenvalues, rtol=0, atol=error)
    turns = score_tolerance(2 * spectrum(kernel, X), 3, error)
    allowed = (turns + error / twice.eigenvalues) * np.sqrt(twice.eigenvalues)
    scores = twice.training_scores
    assert (np.abs(scores[:16] - scores[16:]) <= allowed).all()
    # a feature-space direction does not change when every row is repeated
    signs = np.sign((scores[:16] * once.training_scores).sum(axis=0))
    assert (np.abs(scores[:16] - signs * once.training_scores) <= allowed).all()


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "laplacian", "cosine", *SMOOTHNESS])
@pytest.mark.parametrize("n_components", [None, 31])
def test_ratios_of_all_components_add_up_to_one(kernel, n_components):
    X = rows_of(31)
    K = reference_gram(kernel, X)
    model = fit(X, kernel, n_components=n_components, tile_rows=8, **KERNELS[kernel]).model
    trace = float(np.trace(centred(K)))
    assert abs(model.certificate.total_variance - trace) <= rounding(K)
    assert abs(model.certificate.explained_variance_ratio.sum() - 1) <= 2 * rounding(K) / trace


@pytest.mark.filterwarnings("ignore:eigenvalues are certain only to")  # so small a matrix is what is looked at
@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("gram", ["memory", "zarr"])
def test_total_variance_is_the_trace_of_the_float32_matrix_that_was_evaluated(kernel, gram, tmp_path):
    # far from the origin the linear kernel is large beside its centred self: one rounding to float32 shows
    X = rows_of(31) + 100
    parameters = {name: value if name != "gamma" else 1e-4 for name, value in KERNELS[kernel].items()}
    options = {"gram": gram, "tile_rows": 8, "dtype": "float32", "workdir": tmp_path, **parameters}
    model = fit(X, kernel, n_components=1, indefinite="clip", **options).model
    with gram_of(X, kernel, **options) as opened:
        opened.build()
        K = opened.to_array().astype(np.float64)
    trace, noise = np.trace(centred(K)), 2 * len(X) * model.certificate.kernel_error
    # a trace that the entries' own errors can make is reported as zero
    expected = trace if abs(trace) > noise else 0.0
    assert abs(model.certificate.total_variance - expected) <= rounding(K)


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("solver", ["dense", "arpack"])
def test_ratio_of_few_components_has_the_exact_trace_as_denominator(kernel, solver):
    X = rows_of(31)
    K = reference_gram(kernel, X)
    model = fit(X, kernel, n_components=2, solver=solver, tile_rows=8, indefinite="clip", **KERNELS[kernel]).model
    expected = model.eigenvalues / np.trace(centred(K))
    allowed = 2 * expected * rounding(K) / abs(np.trace(centred(K)))
    assert (np.abs(model.certificate.explained_variance_ratio - expected) <= allowed).all()


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("solver", ["dense", "arpack"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_eigenvalue_bound_contains_an_eigenvalue(kernel, solver, dtype):
    X = rows_of(31)
    options = {"tile_rows": 8, "dtype": dtype, **KERNELS[kernel]}
    model = fit(X, kernel, n_components=5, solver=solver, indefinite="clip", **options).model
    with gram_of(X, kernel, **options) as gram:
        gram.build()
        evaluated = np.linalg.eigvalsh(centred(gram.to_array()))
    bounds = model.certificate.eigenvalue_bounds
    assert (np.abs(evaluated[None, :] - model.eigenvalues[:, None]).min(axis=1) <= bounds).all()
    assert (bounds < 1e-10 * model.eigenvalues[0]).all()
    # of the exact kernel: the tiles' rounding moves no eigenvalue by more than its 2-norm
    exact = spectrum(kernel, X)
    rounded = len(X) * model.certificate.kernel_error
    assert (np.abs(exact[None, :] - model.eigenvalues[:, None]).min(axis=1) <= bounds + rounded).all()


@pytest.mark.parametrize("solver", ["dense", "arpack"])
@pytest.mark.parametrize("kernel", NAMES)
def test_largest_entry_of_every_eigenvector_is_positive(kernel, solver):
    X = rows_of(31)
    model = fit(X, kernel, n_components=4, solver=solver, tile_rows=8, indefinite="clip", **KERNELS[kernel]).model
    largest = np.abs(model.eigenvectors).argmax(axis=0)
    assert (model.eigenvectors[largest, np.arange(4)] > 0).all()


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "laplacian", "cosine", *SMOOTHNESS])
@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.9, 0.95, 0.999])
def test_fraction_gives_the_smallest_number_of_components_that_reaches_it(kernel, fraction):
    X = rows_of(31)
    model = fit(X, kernel, n_components=fraction, tile_rows=8, **KERNELS[kernel]).model
    reached = np.cumsum(spectrum(kernel, X)) / np.trace(centred(reference_gram(kernel, X)))
    assert model.n_components == int(np.argmax(reached >= fraction)) + 1
    assert model.certificate.explained_variance_ratio.sum() >= fraction


@pytest.mark.parametrize(
    ("kernel", "rank"),
    [("linear", 5), ("cosine", 5), *((name, 22) for name in ("poly", "rbf", "laplacian", *SMOOTHNESS))],
)
def test_none_gives_every_component_that_is_not_zero(kernel, rank):
    # 23 different rows and 8 repeated ones: centring and each repetition take one from the rank
    X = rows_of(23)
    model = fit(np.vstack([X, X[:8]]), kernel, n_components=None, tile_rows=8, **KERNELS[kernel]).model
    assert model.n_components == rank
    assert (model.eigenvalues > 0).all()


def test_component_beyond_the_rank_is_zero_and_so_are_its_scores():
    X = rows_of(31)
    model = fit(X, "linear", n_components=8, tile_rows=8).model
    assert (model.eigenvalues[:5] > 0).all()
    assert not model.eigenvalues[5:].any()
    assert not model.training_scores[:, 5:].any()
    assert not project(model, X)[:, 5:].any()
    removed = fit(X, "linear", n_components=8, tile_rows=8, remove_zero_eig=True).model
    np.testing.assert_array_equal(removed.eigenvalues, model.eigenvalues[:5])


@pytest.mark.parametrize("solver", ["dense", "arpack"])
def test_indefinite_kernel_is_refused_with_its_lowest_eigenvalue(solver):
    X = rows_of(31)
    lowest = spectrum("sigmoid", X)[-1]
    with pytest.raises(InvalidInputError, match="not positive semi-definite") as refusal:
        fit(X, "sigmoid", n_components=2, solver=solver, tile_rows=8, **KERNELS["sigmoid"])
    named = float(str(refusal.value).split("eigenvalue is ")[1].split(" or lower")[0])
    # three digits are printed; ARPACK's estimate has one per cent, and is never below the eigenvalue
    assert lowest * (1 + 5e-3) <= named <= lowest * 0.99
    with pytest.raises(InvalidInputError, match='indefinite="clip"'):
        fit(X, "sigmoid", n_components=None, tile_rows=8, **KERNELS["sigmoid"])


@pytest.mark.parametrize("parameters", [{"degree": 2, "coef0": -3.0}, {"degree": 1.5, "coef0": 60.0}])
@pytest.mark.parametrize("solver", ["dense", "arpack"])
def test_polynomial_that_is_not_positive_semidefinite_is_refused_too(parameters, solver):
    # (x·y + c)^p has a negative coefficient for c < 0, and for a p that is no integer
    X = 3 * rows_of(31)
    kernel = resolve_kernel("poly", gamma=1.0, n_features=5, **parameters)
    values = np.linalg.eigvalsh(centred(kernel_block(kernel, X, X)))
    assert values[0] < -1e-4 * values[-1]
    with pytest.raises(InvalidInputError, match="not positive semi-definite"):
        fit(X, kernel, n_components=2, solver=solver, tile_rows=8)


def test_more_components_than_rows_are_as_many_as_rows():
    model = fit(rows_of(3), "rbf", n_components=9, tile_rows=8).model
    assert model.n_components == 3
    assert model.eigenvalues[2] == 0.0
    assert model.eigenvalues[1] > 1e-3
