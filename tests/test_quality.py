"""What quality helpers say of a fit is what a direct computation says, and their advice follows what they are shown."""

import builtins

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import zarr
from sklearn.datasets import load_digits, make_circles
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.metrics import silhouette_score

from scalable_kpca import KernelPCA
from scalable_kpca.approximate import solve_model
from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.kernels import RBF, Sigmoid, kernel_block, median_gamma
from scalable_kpca.novelty import novelty
from scalable_kpca.nystroem import accumulate, build_basis
from scalable_kpca.quality import compare_with_pca, eigenvalue_table, reconstruction_error, select_gamma
from scalable_kpca.source import ArrayRows, RowsSpan
from tests.support import EPS, centred, fit

X = np.random.default_rng(0).standard_normal((50, 3)) + 0.3
NEW = np.random.default_rng(1).standard_normal((11, 3))
CIRCLES, CIRCLE = make_circles(400, factor=0.3, noise=0.05, random_state=0)
for array in (X, NEW, CIRCLES):
    array.flags.writeable = False


def nystroem(rows, kernel, n_landmarks, n_components, **options):
    basis = build_basis(kernel, rows[:n_landmarks], "float64", n_samples=len(rows), **options)
    sums = accumulate(RowsSpan(ArrayRows(rows), 0, len(rows)), basis, 1000)
    return solve_model(basis, sums, n_components, **options)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_training_error_from_the_spectrum_is_the_mean_novelty(kernel):
    model = fit(X, kernel, n_components=2, tile_rows=16).model
    tolerance = 8 * len(X) * EPS * float(model.kernel.diagonal(X).max())
    assert abs(reconstruction_error(model) - novelty(model, X).mean()) <= tolerance
    assert abs(reconstruction_error(model, NEW) - novelty(model, NEW).mean()) == 0
    if kernel == "linear":
        pca = PCA(2).fit(X)
        expected = np.square(X - pca.inverse_transform(pca.transform(X))).sum(axis=1).mean()
        assert abs(reconstruction_error(model) - expected) <= tolerance


def test_training_error_of_nystroem_counts_what_landmarks_leave_out():
    model = nystroem(X, RBF(0.4), 15, 2)
    assert model.certificate.trace_residual > 1
    assert abs(reconstruction_error(model) - novelty(model, X).mean()) <= 1e-12
    # every row a landmark: the exact error
    exact = fit(X, RBF(0.4), n_components=2, tile_rows=16).model
    assert abs(reconstruction_error(nystroem(X, RBF(0.4), 50, 2)) - reconstruction_error(exact)) <= 1e-9


def test_error_of_dask_rows_is_added_up_block_by_block():
    model = fit(X, "rbf", n_components=2, tile_rows=16).model
    expected = reconstruction_error(model, NEW)
    assert abs(reconstruction_error(model, da.from_array(NEW, chunks=(4, 2))) - expected) <= 64 * EPS
    with pytest.raises(InvalidInputError, match="no rows"):
        reconstruction_error(model, NEW[:0])


def test_table_brackets_the_true_eigenvalues():
    model = fit(X, "rbf", n_components=4, solver="block_krylov", tol=1e-3, tile_rows=16).model
    table = eigenvalue_table(model)
    assert list(table.columns) == ["eigenvalue", "share", "cumulative", "residual_norm", "lower", "upper"]
    assert table.index.name == "component"
    assert table.index.tolist() == [0, 1, 2, 3]
    true = np.linalg.eigvalsh(centred(kernel_block(model.kernel, X, X, diagonal=True)))[::-1][:4]
    assert (table["lower"] <= true).all()
    assert (true <= table["upper"]).all()
    assert (table["upper"] - table["lower"] < 0.1 * true[0]).all()
    np.testing.assert_allclose(table["cumulative"].to_numpy()[-1], table["share"].sum(), rtol=8 * EPS)
    np.testing.assert_array_equal(table["residual_norm"], model.certificate.residual_norms)


def test_table_of_nystroem_brackets_the_exact_eigenvalues_and_has_no_residual_norms():
    exact = fit(X, RBF(0.4), n_components=3, tile_rows=16).model
    table = eigenvalue_table(nystroem(X, RBF(0.4), 25, 3))
    assert (table["lower"] <= exact.eigenvalues).all()
    assert (exact.eigenvalues <= table["upper"]).all()
    assert table["residual_norm"].isna().all()


def test_table_certifies_nothing_of_a_kernel_whose_negative_part_was_dropped():
    table = eigenvalue_table(nystroem(X, Sigmoid(0.5, -1.0), 25, 3, indefinite="clip"))
    assert table[["lower", "upper"]].isna().all(axis=None)
    assert (table["eigenvalue"] > 0).all()


def test_table_takes_an_estimator_and_names_pandas_when_it_is_missing(monkeypatch):
    model = fit(X, "rbf", n_components=2, tile_rows=16).model

    class Estimator:
        model_ = model

    assert eigenvalue_table(Estimator()).equals(eigenvalue_table(model))
    assert reconstruction_error(Estimator(), NEW) == reconstruction_error(model, NEW.tolist())
    whole = builtins.__import__

    def without(name, *arguments):
        if name.split(".")[0] == "pandas":
            raise ImportError(name)
        return whole(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="pip install pandas"):
        eigenvalue_table(model)


def test_kernel_pca_separates_circles_that_pca_does_not():
    comparison = compare_with_pca(CIRCLES, 2, gamma=2.0, labels=CIRCLE)
    pca, mapped, kernel_pca = comparison.sides
    assert (pca.method, pca.decoder, mapped.decoder, kernel_pca.method) == ("PCA", "linear", "ridge map", "kernel PCA")
    assert (comparison.n_fitted, comparison.n_held_out) == (300, 100)
    assert pca.separation == mapped.separation < 0.2
    assert kernel_pca.separation > 0.5
    # two components of two features: PCA loses nothing
    assert pca.reconstruction_error <= 1e-25
    assert pca.explained_share == 1.0
    assert pca.share_of == "rows"
    assert 0 < kernel_pca.explained_share < 1
    assert kernel_pca.share_of == "feature space"
    frame = comparison.to_frame()
    assert frame["method"].tolist() == ["PCA", "PCA", "kernel PCA"]
    assert frame["separation"].tolist() == [side.separation for side in comparison.sides]


def test_a_small_gamma_makes_kernel_pca_pca():
    # the first order of 1 − exp(−γd²) is γd²: scores become those of PCA times √(2γ)
    digits = load_digits().data
    pca, mapped, kernel_pca = compare_with_pca(digits, 5, gamma=1e-9, sample=400).sides
    assert abs(kernel_pca.explained_share - pca.explained_share) <= 1e-3
    assert abs(kernel_pca.reconstruction_error - mapped.reconstruction_error) <= 1e-3
    # by its definition
    assert 0 < mapped.reconstruction_error < pca.reconstruction_error < 1 - 0.5 * pca.explained_share
    assert np.isnan(pca.separation)


def test_clusters_are_found_in_fitted_scores_and_judged_on_held_out_ones():
    rng = np.random.default_rng(3)
    rows = np.repeat([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]], 40, axis=0) + 0.3 * rng.standard_normal((120, 2))
    by_clusters = compare_with_pca(rows, 2, n_clusters=3).sides
    by_labels = compare_with_pca(rows, 2, labels=np.repeat([0, 1, 2], 40)).sides
    for found, known in zip(by_clusters, by_labels, strict=True):
        assert abs(found.separation - known.separation) <= 1e-12
        assert found.separation > 0.8


def test_samples_of_every_kind_of_array_are_the_same(tmp_path):
    stored = zarr.create_array(str(tmp_path / "rows"), shape=CIRCLES.shape, chunks=(64, 2), dtype="float64")
    stored[...] = CIRCLES
    expected = compare_with_pca(CIRCLES, 1, sample=100, labels=CIRCLE)
    for rows in (stored, da.from_array(CIRCLES, chunks=(70, 1)), CIRCLES.astype(">f8")):
        assert compare_with_pca(rows, 1, sample=100, labels=CIRCLE) == expected
    assert compare_with_pca(CIRCLES, 1, sample=100, labels=CIRCLE, seed=1) != expected
    # labels are those of the rows that were drawn
    assert compare_with_pca(CIRCLES, 2, gamma=2.0, sample=100, labels=CIRCLE).sides[2].separation > 0.3


def test_gamma_that_separates_labelled_classes_is_found():
    choice = select_gamma(CIRCLES, 2, criterion="silhouette", labels=CIRCLE)
    # the halves and the middle candidate are what they are said to be
    assert [row.gamma for row in choice.table] == sorted(row.gamma for row in choice.table)
    assert len(choice.table) == 11
    best = max(choice.table, key=lambda row: row.score)
    assert (choice.gamma, choice.criterion) == (best.gamma, "silhouette")
    # circles of radius 1 and 0.3: wider than the gap is PCA, much narrower is noise
    assert 1 < choice.gamma < 12
    assert best.score > 0.5 > choice.table[0].score
    assert choice.advice.startswith("advice from one criterion (silhouette) on one sample of 200 fitted")
    assert choice.to_frame().shape == (11, 3)


def test_scores_of_candidates_are_those_of_a_fit_by_hand():
    gamma = 2.0
    choice = select_gamma(CIRCLES, 2, criterion="silhouette", labels=CIRCLE, candidates=[gamma, 4.0, gamma])
    assert [row.gamma for row in choice.table] == [2.0, 4.0]
    order = np.random.default_rng([0, 1]).permutation(400)
    held, kept = order[:200], order[200:]
    K, new = (RBF(gamma), kernel_block(RBF(gamma), CIRCLES[held], CIRCLES[kept]))
    inside = kernel_block(K, CIRCLES[kept], CIRCLES[kept], diagonal=True)
    values, vectors = np.linalg.eigh(centred(inside))
    axes = vectors[:, ::-1][:, :2] / np.sqrt(values[::-1][:2])
    scores = (new - new.mean(axis=1, keepdims=True) - inside.mean(axis=0) + inside.mean()) @ axes
    expected = silhouette_score(scores, CIRCLE[held])
    assert abs(choice.table[0].score - expected) <= 1e-9


def test_reconstruction_prefers_no_gamma_that_forgets_the_rows():
    digits = load_digits().data[:500]
    choice = select_gamma(digits, 5, candidates=[1e-3 * 4.0**power for power in (-2, -1, 0, 4)])
    scores = [row.score for row in choice.table]
    assert choice.gamma == choice.table[int(np.argmin(scores))].gamma
    # at the last one every row is far from every other: scores of new rows are nothing
    assert scores[-1] > 0.9 > 0.5 > min(scores)


def test_best_candidates_at_the_edge_say_so():
    choice = select_gamma(CIRCLES, 2, criterion="silhouette", labels=CIRCLE, candidates=[0.02, 2.0])
    assert "the largest candidate is the best one" in choice.advice
    choice = select_gamma(CIRCLES, 2, criterion="silhouette", labels=CIRCLE, candidates=[4.0, 400.0])
    assert "the smallest candidate is the best one" in choice.advice
    middle = select_gamma(CIRCLES, 2, criterion="silhouette", labels=CIRCLE, candidates=[0.02, 4.0, 400.0])
    assert middle.gamma == 4.0
    assert "candidate is the best" not in middle.advice


def test_default_candidates_are_around_the_median_of_the_fitted_half():
    order = np.random.default_rng([0, 1]).permutation(50)
    expected = median_gamma(X[order[25:]])
    found = [row.gamma for row in select_gamma(X, 2).table]
    np.testing.assert_allclose(found, expected * 2.0 ** np.arange(-5, 6), rtol=8 * EPS)


def test_constant_rows_have_an_answer():
    constant = np.full((20, 2), 3.0)
    sides = compare_with_pca(constant, 1, n_clusters=2).sides
    assert [side.reconstruction_error for side in sides] == [0.0, 0.0, 0.0]
    assert [side.separation for side in sides] == [-1.0, -1.0, -1.0]
    assert select_gamma(constant, 1).table[0].score == 0.0
    assert "all candidates score the same, so that nothing speaks for this one" in select_gamma(constant, 1).advice


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": scipy.sparse.csr_array(X)}, InvalidInputError, "dense rows"),
        ({"X": X[:, 0]}, InvalidInputError, "a matrix of numbers"),
        ({"X": X[:3]}, InvalidInputError, "at least 4"),
        ({"X": np.where(np.arange(50)[:, None] == 7, np.nan, X)}, InvalidInputError, "row 7, column 0 is nan"),
        ({"labels": [0, 1]}, InvalidInputError, "one for each of the 50 rows"),
    ],
)
def test_rows_that_cannot_be_sampled_are_refused(change, error, message):
    arguments = {"X": X, "labels": None, **change}
    rows = arguments.pop("X")
    for helper in (compare_with_pca, select_gamma):
        with pytest.raises(error, match=message):
            helper(rows, 1, **arguments)


def test_requests_that_mean_nothing_are_refused():
    with pytest.raises(InvalidInputError, match="compare that many"):
        compare_with_pca(X, 4)
    with pytest.raises(InvalidInputError, match="held_out=1"):
        compare_with_pca(X, 2, held_out=1)
    with pytest.raises(ConfigError, match="choose one of reconstruction, silhouette"):
        select_gamma(X, 2, criterion="rand")
    with pytest.raises(ConfigError, match="no candidates"):
        select_gamma(X, 2, candidates=[])
    with pytest.raises(ConfigError, match="no gamma to select"):
        select_gamma(X, 2, kernel="linear")
    with pytest.raises(InvalidInputError, match="gamma="):
        select_gamma(X, 2, candidates=[-1.0])


@pytest.mark.parametrize("helper", [eigenvalue_table, reconstruction_error])
def test_what_is_no_fitted_model_is_refused(helper):
    with pytest.raises(NotFittedError):
        helper(KernelPCA())
    for other in (5, None, "model", KernelPCA):
        with pytest.raises(InvalidInputError, match="is no model; a fitted KernelPCA"):
            helper(other)


@pytest.mark.parametrize("rows", [5, [], X[0], [["a", "b", "c"]]])
def test_rows_without_an_error_are_refused(rows):
    with pytest.raises(InvalidInputError, match="numbers are needed, 3 in each row"):
        reconstruction_error(fit(X, "rbf", n_components=2, tile_rows=16).model, rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(50)}, "all 50 labels are 0.0; two classes at least"),
        ({"labels": ["a"] * 50}, "all 50 labels are a; two classes at least"),
        ({"labels": np.arange(50)}, "the 25 held-out rows are of 25 classes"),
        ({"labels": [0] * 49 + [1], "seed": 1}, "the 25 held-out rows are of 1 classes"),
        ({"n_clusters": 1}, "one cluster is not apart from anything"),
        ({"X": np.ones((20, 2))}, "the 10 fitted rows are all equal, and nothing can be apart"),
    ],
)
def test_where_nothing_can_be_apart_there_is_no_advice(change, message):
    arguments = {"X": X, **change}
    with pytest.raises((InvalidInputError, ConfigError), match=message):
        select_gamma(arguments.pop("X"), 2, criterion="silhouette", **arguments)
    if "held-out" not in message and "X" not in change:
        with pytest.raises((InvalidInputError, ConfigError), match=message):
            compare_with_pca(X, 2, **change)


def test_clusters_of_few_distinct_rows_are_as_many_as_there_are():
    # warnings are errors here; scores of equal rows differ in their last digit
    repeated = np.repeat(X[:3], 30, axis=0)
    choice = select_gamma(repeated, 2, criterion="silhouette", n_clusters=8)
    assert max(row.score for row in choice.table) > 0.99
    assert all(side.separation > 0.99 for side in compare_with_pca(repeated, 2, n_clusters=8).sides)


def test_a_sigmoid_kernel_is_refused_with_a_remedy_that_works():
    arguments = {"kernel": "sigmoid", "coef0": -1.0}
    for helper, more in ((select_gamma, {}), (compare_with_pca, {"gamma": 1.0})):
        with pytest.raises(InvalidInputError, match='set indefinite="clip" to drop the negative part'):
            helper(X, 2, **arguments, **more)
        helper(X, 2, **arguments, **more, indefinite="clip")
        with pytest.raises(ConfigError, match="indefinite='drop' is not known"):
            helper(X, 2, indefinite="drop")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(({"n_components": k}, f"n_components={k!r}; an integer ≥ 1") for k in (0.9, 0, -1, "a", None, True)),
        *(({"sample": size}, f"sample={size!r}; an integer ≥ 1") for size in (0, 2.5, "a", None)),
        *(({"seed": seed}, f"seed={seed!r}; an integer ≥ 0") for seed in (-1, 0.5, "a", None)),
        *(({"alpha": alpha}, f"alpha={alpha!r}; a finite number ≥ 0") for alpha in (-1, np.inf, "a", None)),
        *(({"n_clusters": k}, f"n_clusters={k!r}; an integer ≥ 1") for k in (0, 2.5, "a")),
        ({"labels": [None, 1] * 25}, "labels are of different kinds"),
        ({"labels": [np.nan, 1] * 25}, "25 labels are NaN or infinite"),
        ({"labels": "abc"}, r"labels have shape \(\)"),
        ({"X": [[1, 2], [3]]}, "X is no matrix"),
        ({"X": None}, "a matrix of numbers is needed"),
        ({"X": np.zeros((50, 0))}, "a matrix of numbers is needed"),
        ({"X": 1e200 * X}, r"as large as 2\.\de\+200, and squares of such are beyond float64"),
        ({"X": 1e-200 * X}, r"e-200 of their mean, and squares of such vanish"),
    ],
)
def test_odd_arguments_are_named_before_anything_fails(change, message):
    for helper in (compare_with_pca, select_gamma):
        with pytest.raises((InvalidInputError, ConfigError), match=message):
            helper(**{"X": X, "n_components": 2, **change})


@pytest.mark.parametrize("scale", [1e145, 1e-135])
def test_rows_that_are_not_refused_for_their_size_raise_no_warning(scale):
    expected = compare_with_pca(X, 2).sides
    for found, side in zip(compare_with_pca(scale * X, 2).sides, expected, strict=True):
        assert abs(found.reconstruction_error - side.reconstruction_error) <= 1e-9
    np.testing.assert_allclose(
        [row.score for row in select_gamma(scale * X, 2).table],
        [row.score for row in select_gamma(X, 2).table],
        atol=1e-9,
    )


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "no candidates"),
        (np.array([]), "no candidates"),
        ([0], r"gamma=0 is among the candidates \(1 of 1 such\)"),
        ([1.0, np.nan, -2], r"gamma=nan is among the candidates \(2 of 3 such\)"),
        ([np.inf], "gamma=inf"),
        ("median", "a sequence of numbers > 0"),
        (5, "a sequence of numbers > 0"),
        ([None], "a sequence of numbers > 0"),
        ([[1.0]], "a sequence of numbers > 0"),
    ],
)
def test_candidates_that_are_no_gammas_are_refused(candidates, message):
    with pytest.raises((InvalidInputError, ConfigError), match=message):
        select_gamma(X, 2, candidates=candidates)


def test_requests_that_fit_no_sample_are_refused():
    with pytest.raises(InvalidInputError, match="n_components=26, and 25 rows are fitted"):
        select_gamma(X, 26)
    for held_out in ("a", None, True, 0):
        with pytest.raises(InvalidInputError, match=f"held_out={held_out!r}; a share"):
            compare_with_pca(X, 2, held_out=held_out)
