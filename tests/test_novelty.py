"""Novelty is the distance from the subspace of the components, for new rows and for training rows alike."""

import warnings
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from scalable_kpca.approximate import solve_model
from scalable_kpca.errors import AccuracyWarning, InvalidInputError
from scalable_kpca.kernels import Linear, Precomputed, resolve_kernel
from scalable_kpca.model import load_model, save_model
from scalable_kpca.novelty import novelty, novelty_lazily, novelty_threshold, training_novelty
from scalable_kpca.nystroem import accumulate, build_basis
from scalable_kpca.source import ArrayRows, NoRows, RowsSpan
from scalable_kpca.transform import project
from tests.support import EPS, fit

N_SAMPLES, N_FEATURES = 60, 3
POLY = {"gamma": 0.5, "degree": 2, "coef0": 1.0}


def training_rows(seed=0, n_samples=N_SAMPLES):
    rows = np.random.default_rng(seed).standard_normal((n_samples, N_FEATURES)) + 0.3
    rows.flags.writeable = False
    return rows


X, NEW = training_rows(), training_rows(1, 17)


def features_of(rows):
    """Features of (γxᵀy + c₀)²: c₀, √(2c₀γ)x_i, γx_i², √2γx_ix_j."""
    gamma, coef0 = POLY["gamma"], POLY["coef0"]
    i, j = np.triu_indices(N_FEATURES, 1)
    constant = np.full((len(rows), 1), coef0)
    pairs = np.sqrt(2) * gamma * rows[:, i] * rows[:, j]
    return np.hstack([constant, np.sqrt(2 * coef0 * gamma) * rows, gamma * rows**2, pairs])


def nystroem(rows, kernel, landmarks, n_components, dtype="float64"):
    """Nyström model on an array of landmarks."""
    basis = build_basis(kernel, landmarks, dtype, n_samples=len(rows))
    return solve_model(basis, accumulate(RowsSpan(ArrayRows(rows), 0, len(rows)), basis, 1000), n_components)


def fitted(method, rows, *, gamma=0.2, n_components=2, n_landmarks=20, dtype="float64"):
    """Model of the RBF kernel by either method."""
    if method == "exact":
        return fit(rows, "rbf", n_components=n_components, gamma=gamma, tile_rows=32, dtype=dtype).model
    kernel = resolve_kernel("rbf", gamma=gamma, n_features=rows.shape[1])
    return nystroem(rows, kernel, rows[:n_landmarks], n_components, dtype)


def tolerance(model, rows):
    """n·eps of the terms of k̃(x, x) + Σ score² of rows."""
    return 8 * model.n_samples * EPS * float(np.abs(model.kernel.diagonal(np.asarray(rows, np.float64))).max())


@pytest.mark.parametrize("k", [1, 3, 6])
def test_novelty_is_the_distance_from_the_subspace_in_an_explicit_feature_space(k):
    model = fit(X, "poly", n_components=k, tile_rows=16, **POLY).model
    centre = features_of(X).mean(axis=0)
    axes = np.linalg.svd(features_of(X) - centre, full_matrices=False)[2][:k]
    centred = features_of(NEW) - centre
    expected = np.square(centred - centred @ axes.T @ axes).sum(axis=1)
    np.testing.assert_allclose(novelty(model, NEW), expected, rtol=0, atol=tolerance(model, NEW))
    assert expected.min() > 1e3 * tolerance(model, NEW)


def test_novelty_of_the_linear_kernel_is_the_reconstruction_error_of_pca():
    model, pca = fit(X, "linear", n_components=2, tile_rows=16).model, PCA(2).fit(X)
    for rows in (X, NEW):
        expected = np.square(rows - pca.inverse_transform(pca.transform(rows))).sum(axis=1)
        np.testing.assert_allclose(novelty(model, rows), expected, rtol=0, atol=tolerance(model, rows))


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear", "matern32"])
def test_novelty_of_training_rows_needs_no_kernel_values(kernel):
    model = fit(X, kernel, n_components=2, tile_rows=16).model
    np.testing.assert_allclose(training_novelty(model), novelty(model, X), rtol=0, atol=tolerance(model, X))
    # Σ over the training rows is what the components leave of the trace
    left = model.certificate.total_variance - model.eigenvalues.sum()
    assert abs(training_novelty(model).sum() - left) <= N_SAMPLES * tolerance(model, X)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_nothing_is_left_of_training_rows_when_all_components_are_kept(kernel):
    model = fit(X, kernel, n_components=None, tile_rows=16).model
    # what counts as zero in the spectrum may be left: Σ λ_j v_ij² of the components that were dropped
    dropped = N_SAMPLES * EPS * model.eigenvalues[0]
    assert training_novelty(model).max() <= dropped + tolerance(model, X)
    assert novelty(model, X).max() <= dropped + tolerance(model, X)
    assert (novelty(model, X + 3.0) > 0).all() == (kernel == "rbf")  # the linear kernel has no other direction


def exact_features(kernel, rows):
    """Features of a kernel in extended precision."""
    rows = rows.astype(np.longdouble)
    if kernel == "cosine":
        return rows / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    if kernel == "linear":
        return rows
    i, j = np.triu_indices(rows.shape[1], 1)  # (xᵀy + 1)²
    root = np.sqrt(np.longdouble(2))
    return np.hstack([root * rows, rows**2, root * rows[:, i] * rows[:, j]])


def exact_novelty(kernel, rows, new, k):
    """Distance from the subspace: features are centred in extended precision, and small from then on."""
    features = exact_features(kernel, rows)
    mean = features.mean(axis=0)
    axes = np.linalg.svd((features - mean).astype(np.float64), full_matrices=False)[2][:k]
    away = (exact_features(kernel, new) - mean).astype(np.float64)
    return np.square(away - away @ axes.T @ axes).sum(axis=1)


def rows_in_a_plane(offset, dtype, seed=0):
    """Training rows near a plane, new ones near it, and outliers."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((6, 6)))[0]

    def draw(n, off):
        return (rng.standard_normal((n, 6)) * [3, 2, off, off, off, off] @ axes + offset).astype(dtype)

    return draw(400, 1e-3), draw(40, 1e-3), draw(40, 3.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("method", ["exact", "nystroem"])
@pytest.mark.parametrize("kernel", ["linear", "poly", "cosine"])
def test_novelty_far_from_the_origin_is_that_of_extended_precision_up_to_rounding(kernel, method, offset, dtype):
    rows, near, outliers = rows_in_a_plane(offset, dtype)
    parameters = {"gamma": 1.0, "degree": 2, "coef0": 1.0} if kernel == "poly" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)  # see below
        model = fit(rows, kernel, n_components=2, tile_rows=128, **parameters).model
        if method == "nystroem":
            model = nystroem(rows, model.kernel, rows[:100], 2)
        found = [novelty(model, new) for new in (near, outliers)]
    # √n·eps of some terms that are as large as k(x, x)
    rounding = 8 * len(rows) ** 0.5 * EPS * float(model.kernel.diagonal(rows.astype(np.float64)).max())
    for new, values in zip((near, outliers), found, strict=True):
        expected = exact_novelty(kernel, rows, new, 2)
        np.testing.assert_allclose(values, expected, rtol=1e-6, atol=rounding)
        # nothing that can be told from rounding is hidden
        assert (values > 0)[expected > rounding].all()


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_kernels_of_differences_do_not_see_an_offset(method):
    here, there = (rows_in_a_plane(offset, np.float64) for offset in (0.0, 1e6))
    found = []
    for rows, near, outliers in (here, there):
        model = fitted(method, rows, gamma=0.05, n_components=4, n_landmarks=100)
        found.append(novelty(model, np.vstack([near, outliers])))
    # rows at 1e6 are known to 1e-10, and Nyström sees what that makes of W⁻¹
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-9 if method == "exact" else 1e-7)


@pytest.mark.parametrize(
    ("kernel", "method", "offset", "dtype", "remedy"),
    [
        ("linear", "exact", 1e6, "float32", "set dtype='float64'"),
        ("linear", "nystroem", 1e6, "float32", "set dtype='float64'"),
        # directions of the landmarks that hold the rows apart are cut as rounding, and all rows are novel
        ("linear", "nystroem", 1e3, "float32", "set dtype='float64'"),
        ("linear", "exact", 1e9, "float64", "subtract the mean"),
        ("linear", "nystroem", 1e9, "float64", "subtract the mean"),
        ("rbf", "exact", 0.0, "float32", "use a larger gamma"),
    ],
)
def test_scores_that_are_rounding_come_with_a_warning_that_says_what_helps(kernel, method, offset, dtype, remedy):
    rows = rows_in_a_plane(offset, np.float64)[0]
    parameters = {"gamma": 1e-9} if kernel == "rbf" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)  # of the fit
        model = fit(rows, kernel, n_components=2, tile_rows=128, dtype=dtype, **parameters).model
    if method == "nystroem":
        model = nystroem(rows, model.kernel, rows[:100], 2, dtype)
    for score in (lambda: novelty(model, rows[:5]), lambda: novelty_lazily(model, da.from_array(rows[:5]))):
        with pytest.warns(AccuracyWarning, match=rf"good to about .* only.*{remedy}"):
            score()


@pytest.mark.parametrize("n_samples", [200, 1000])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("method", ["exact", "nystroem"])
@pytest.mark.parametrize("gamma", [1e-3, 1e-5])
def test_ordinary_scores_come_without_a_warning_and_none_is_hidden(method, n_samples, dtype, gamma):
    digits = load_digits().data[:n_samples]
    model = fitted(method, digits, gamma=gamma, n_components=5, n_landmarks=100, dtype=dtype)
    assert (novelty(model, digits) > 0).all()  # warnings are errors here
    if method == "exact":
        assert (training_novelty(model) > 0).all()


def test_values_within_rounding_are_exactly_zero_and_none_is_negative():
    # all rows on a line, far from the origin: k̃ is small beside its terms, which are of the size 1e8
    line = 1e4 + np.outer(np.linspace(-1, 1, 40), [1.0, 2.0, -1.0])
    model = fit(line, "linear", n_components=1, tile_rows=16).model
    assert (training_novelty(model) == 0).all()
    assert (novelty(model, line) == 0).all()
    off = line + np.array([2.0, 0.0, 2.0])  # orthogonal to the line
    np.testing.assert_allclose(novelty(model, off), 8.0, rtol=1e-5)


@pytest.mark.parametrize(
    "kernel", [("rbf", {"gamma": 0.2}), ("poly", POLY), ("linear", {})], ids=["rbf", "poly", "linear"]
)
def test_nystroem_with_every_row_a_landmark_gives_the_exact_novelty(kernel):
    name, parameters = kernel
    exact = fit(X, name, n_components=3, tile_rows=16, **parameters).model
    model = nystroem(X, exact.kernel, X, 3)
    for rows in (X, NEW):
        # directions of W below √m·eps·ω₁ are cut, which shows in what their square root carries
        size = float(np.abs(exact.kernel.diagonal(rows)).max())
        np.testing.assert_allclose(novelty(model, rows), novelty(exact, rows), rtol=0, atol=2e-7 * size)


def test_nystroem_counts_what_the_landmarks_do_not_reach():
    few = fitted("nystroem", X, gamma=1.0, n_landmarks=5)
    far = np.full((1, N_FEATURES), 40.0)  # k(x, ·) = 0 with every landmark, so that Πφ(x) = 0
    C, W = (np.exp(-np.square(A[:, None] - X[None, :5]).sum(axis=2)) for A in (X, X[:5]))
    mean = C.mean(axis=0)
    centre = mean @ np.linalg.solve(W, mean)  # ‖Πφ̄‖²
    scores = project(few, far)
    assert abs(novelty(few, far)[0] - (1 + centre - np.square(scores).sum())) <= 1e-12
    # of any row, by the same definition
    cross = np.exp(-np.square(NEW[:, None] - X[None, :5]).sum(axis=2))
    expected = 1 - 2 * cross @ np.linalg.solve(W, mean) + centre - np.square(project(few, NEW)).sum(axis=1)
    np.testing.assert_allclose(novelty(few, NEW), expected, rtol=0, atol=1e-12)


def test_kernel_values_that_are_divided_by_a_scale_give_the_same_novelty():
    large, small = (nystroem(rows, Linear(), rows, 2) for rows in (1e3 * X, X))
    assert large.basis.scale > 1
    np.testing.assert_allclose(novelty(large, 1e3 * NEW), 1e6 * novelty(small, NEW), rtol=1e-9)


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_dask_rows_are_scored_block_by_block_and_only_when_asked(method):
    model = fitted(method, X)
    expected = novelty(model, NEW)
    for chunks in ((17, 3), (5, 2), ((1, 16), 3)):
        rows = da.from_array(NEW, chunks=chunks)
        lazy = novelty_lazily(model, rows)
        assert lazy.chunks == rows.chunks[:1]
        np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), expected, rtol=0, atol=64 * EPS)
    with pytest.raises(InvalidInputError, match="2 features"):
        novelty_lazily(model, da.from_array(NEW[:, :2]))


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_a_saved_model_gives_the_same_novelty(method, tmp_path):
    model = fitted(method, X)
    save_model(model, tmp_path / "model")
    assert (novelty(load_model(tmp_path / "model"), NEW) == novelty(model, NEW)).all()


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_float32_rows_and_tiles_are_good_for_their_digits(method):
    wide, narrow = fitted(method, X), fitted(method, X.astype(np.float32), dtype="float32")
    np.testing.assert_allclose(novelty(narrow, NEW.astype(np.float32)), novelty(wide, NEW), rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_rows_that_cannot_be_scored_are_refused_by_name(method):
    model = fitted(method, X)
    bad = NEW.copy()
    bad[3, 1] = np.nan
    with pytest.raises(InvalidInputError, match="row 3, column 1 is NaN"):
        novelty(model, bad)
    with pytest.raises(InvalidInputError, match="2 features"):
        novelty(model, NEW[:, :2])
    assert novelty(model, NEW[:0]).shape == (0,)


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_a_precomputed_kernel_has_no_novelty_and_says_why(method):
    model = fitted(method, X)
    if method == "exact":
        model = replace(model, kernel=Precomputed(), rows=NoRows(N_SAMPLES))
        with pytest.raises(InvalidInputError, match=r"needs k\(x, x\)"):
            training_novelty(model)
    else:
        model = replace(model, columns=np.arange(20))
    with pytest.raises(InvalidInputError, match=r"needs k\(x, x\)"):
        novelty(model, np.ones((2, N_SAMPLES)))


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "cosine"])
def test_sparse_rows_are_as_novel_as_dense_ones(kernel):
    rows, new = (np.where(np.abs(block) > 0.5, block, 0.0) for block in (X, NEW))
    exact = fit(rows, kernel, n_components=2, tile_rows=32).model
    for model in (exact, nystroem(rows, exact.kernel, rows[:20], 2)):
        found = novelty(model, scipy.sparse.csr_array(new))
        np.testing.assert_allclose(found, novelty(model, new), rtol=0, atol=tolerance(exact, new))


def test_threshold_is_the_smallest_score_that_a_share_does_not_exceed():
    scores = np.random.default_rng(0).permutation(np.arange(100) / 100)
    scores.flags.writeable = False
    for quantile in (0.0, 0.25, 0.5, 0.95, 1.0):
        threshold = novelty_threshold(scores, quantile)
        assert threshold in scores
        assert (scores <= threshold).mean() >= quantile
        assert (scores < threshold).mean() < max(quantile, 1e-9)
    assert novelty_threshold([3.0], 0.5) == 3.0


@pytest.mark.parametrize("scores", [[], [[1.0]], [1.0, np.nan], [np.inf], [[1.0], [1.0, 2.0]], None, ["a"], 5])
def test_scores_that_have_no_threshold_are_refused(scores):
    with pytest.raises(InvalidInputError, match="all finite"):
        novelty_threshold(scores, 0.5)


@pytest.mark.parametrize("quantile", [-0.1, 1.1, np.nan, True, "a", None, [0.5]])
def test_quantiles_that_are_no_share_are_refused(quantile):
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        novelty_threshold([1.0], quantile)


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_malignant_tumours_are_novel_to_a_model_of_benign_ones(method):
    rows, benign = load_breast_cancer(return_X_y=True)
    known = rows[benign == 1]
    mean, deviation = known[:200].mean(axis=0), known[:200].std(axis=0)
    known, unknown = (known - mean) / deviation, (rows[benign == 0] - mean) / deviation
    model = fitted(method, known[:200], gamma=0.01, n_components=20, n_landmarks=100)
    found = novelty(model, np.concatenate([known[200:], unknown]))
    is_novel = np.repeat([0, 1], [len(known) - 200, len(unknown)])
    assert roc_auc_score(is_novel, found) >= 0.95


def test_other_digits_are_novel_to_a_model_of_zeros():
    rows, digit = load_digits(return_X_y=True)
    zeros, others = rows[digit == 0], rows[digit != 0]
    model = fitted("exact", zeros[:120], gamma=1e-3, n_components=10)
    found = novelty(model, np.concatenate([zeros[120:], others]))
    is_novel = np.repeat([0, 1], [len(zeros) - 120, len(others)])
    assert roc_auc_score(is_novel, found) >= 0.99
    # hardly another digit passes the threshold of the zeros that were fitted
    threshold = novelty_threshold(training_novelty(model), 0.99)
    assert (found[is_novel == 1] > threshold).mean() >= 0.95
