"""What a fitted `KernelPCA` is used for: rows from scores, and how unlike rows are; the wiring, not the numbers."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.decomposition import KernelPCA as Reference
from sklearn.exceptions import NotFittedError

from scalable_kpca import KernelPCA
from scalable_kpca.errors import ConfigError, InvalidInputError, MemoryLimitError
from scalable_kpca.preimage import ridge_bytes

N, D, K = 120, 4, 6


def rows(n=N, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, D))
    X -= X.mean(axis=0)
    X.setflags(write=False)
    return X


def fitted(**settings):
    return KernelPCA(K, **{"kernel": "rbf", "gamma": 0.3, "alpha": 0.1, "fit_inverse_transform": True, **settings})


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_the_ridge_map_is_scikit_learns_where_the_mean_is_zero(kernel):
    X, new = rows(), rows(7, seed=1)
    ours = fitted(kernel=kernel).fit(X)
    theirs = Reference(K, kernel=kernel, gamma=0.3, alpha=0.1, fit_inverse_transform=True, eigen_solver="dense").fit(X)
    expected = theirs.inverse_transform(theirs.transform(new))
    # of a linear kernel the last two components are zero in exact arithmetic, and rounding there
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(new)), expected, atol=1e-7)
    assert ours.X_transformed_fit_.shape == theirs.X_transformed_fit_.shape
    assert ours.dual_coef_.shape == theirs.dual_coef_.shape


def test_the_mean_is_not_lost():
    X = rows() + 100.0
    ours = fitted(kernel="linear", alpha=1e-6).fit(X)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), X, atol=1e-5)


def test_many_rows_teach_the_map_by_two_thousand_of_them():
    ours = fitted(n_landmarks=50).fit(rows(2100))
    assert ours.X_transformed_fit_.shape == (2000, K)
    assert fitted(n_landmarks=2050).fit(rows(2100)).X_transformed_fit_.shape == (2050, K)
    assert fitted(n_landmarks=50, method="nystroem").fit(rows(2100)).X_transformed_fit_.shape == (50, K)


@pytest.mark.parametrize("way", [True, "ridge", "fixed_point"])
def test_a_dask_array_of_scores_goes_back_lazily(way):
    ours = fitted(fit_inverse_transform=way).fit(rows())
    scores = ours.transform(rows(30, seed=1))
    found = ours.inverse_transform(da.from_array(scores, chunks=(7, 2)))
    assert isinstance(found, da.Array)
    assert found.shape == (30, D)
    np.testing.assert_allclose(found.compute(), ours.inverse_transform(scores), atol=1e-10)


def test_fixed_points_report_on_each_row():
    ours = fitted(fit_inverse_transform="fixed_point").fit(rows())
    scores = ours.transform(rows(9, seed=1))
    found = ours.preimages(scores)
    assert found.converged.all()
    np.testing.assert_array_equal(found.rows, ours.inverse_transform(scores))
    hasty = ours.preimages(scores, max_iterations=1, start=rows(9, seed=1))
    assert not hasty.converged.all()
    assert (hasty.n_iterations == 1).all()


def test_a_fit_without_the_way_back_forgets_that_of_the_fit_before():
    ours = fitted().fit(rows())
    ours.set_params(fit_inverse_transform=False).fit(rows())
    assert not hasattr(ours, "dual_coef_")
    with pytest.raises(NotFittedError, match="set fit_inverse_transform=True"):
        ours.inverse_transform(np.zeros((1, K)))


def test_rows_that_are_added_change_the_way_back():
    ours = fitted(method="nystroem", n_landmarks=20).fit(rows()[:60])
    before = ours.dual_coef_
    ours.partial_fit(rows()[60:])
    assert not np.array_equal(ours.dual_coef_, before)
    assert ours.X_transformed_fit_.shape == (20, K)


def test_ways_back_that_cannot_be_are_refused_before_the_fit():
    with pytest.raises(ConfigError, match=r"'fixed_point' needs kernel='rbf', and it is 'poly'; use the ridge map"):
        fitted(kernel="poly", fit_inverse_transform="fixed_point").fit(rows())
    with pytest.raises(ConfigError, match="fit_inverse_transform='ridgde' is not known"):
        fitted(fit_inverse_transform="ridgde").fit(rows())
    with pytest.raises(InvalidInputError, match="alpha=-1"):
        fitted(alpha=-1).fit(rows())


def unreadable(n=50):
    """Rows that fail when they are read."""

    def read():
        raise AssertionError("the rows were read")

    return da.from_delayed(dask.delayed(read)(), (n, D), np.float64)


@pytest.mark.parametrize("kernel", ["chi2", "additive_chi2"])
def test_a_kernel_of_amounts_has_no_ridge_map_and_says_so_before_rows_are_read(kernel):
    with pytest.raises(InvalidInputError, match=rf"kernel='{kernel}' compares amounts.*choose another kernel"):
        fitted(kernel=kernel).fit(unreadable())
    fitted(kernel=kernel, fit_inverse_transform=False)._check_way_back_parameters()


@pytest.mark.parametrize("alpha", [-1, "a", None, np.nan, np.inf, True])
def test_a_ridge_that_is_no_number_is_refused_before_rows_are_read(alpha):
    with pytest.raises(InvalidInputError, match=f"alpha={alpha!r}; a finite number ≥ 0 is needed"):
        fitted(alpha=alpha).fit(unreadable())
    # which no other way back asks for
    fitted(alpha=alpha, fit_inverse_transform="fixed_point").fit(rows())


def test_sparse_rows_have_no_ridge_map_and_say_so_before_the_fit():
    wide = scipy.sparse.random_array((50, 300), density=0.02, rng=np.random.default_rng(0)).tocsr()
    with pytest.raises(InvalidInputError, match="the training rows are sparse"):
        fitted().fit(wide * np.nan)  # which is not looked at yet
    # those that are no smaller than dense ones are held as such
    X = np.maximum(rows(), 0.0)
    back = fitted().fit(scipy.sparse.csr_array(X)).inverse_transform(np.zeros((1, K)))
    np.testing.assert_allclose(back, fitted().fit(X).inverse_transform(np.zeros((1, K))), atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_components": None},
        {"n_components": 0.9},
        {"n_components": 3, "eigen_solver": "block_krylov"},
        {"n_components": None, "method": "nystroem", "n_landmarks": 400},
        {"n_components": 30, "method": "nystroem", "n_landmarks": 200, "max_passes": 1},
    ],
)
@pytest.mark.parametrize("limit", [1, "245MiB"])
def test_the_limit_that_a_fit_with_a_ridge_map_names_is_accepted_and_no_smaller_one(settings, limit):
    X = rows(900)
    ours = fitted(n_jobs=2, memory_limit=limit).set_params(**settings)
    with pytest.raises(MemoryLimitError, match="raise memory_limit to") as refused:
        ours.fit(X)
    needed = refused.value.needed
    with pytest.raises(MemoryLimitError) as still:
        ours.set_params(memory_limit=needed - 1).fit(X)
    assert still.value.needed == needed
    ours.set_params(memory_limit=needed).fit(X)
    # what was planned for is no less than what is there
    there = (ours.X_transformed_fit_, ours.dual_coef_, X)
    assert needed >= 240 * 2**20 + ridge_bytes(*ours.X_transformed_fit_.shape, D) + sum(array.nbytes for array in there)


def test_rows_that_are_added_need_the_pairs_of_the_model_not_theirs():
    ours = fitted(method="nystroem", n_landmarks=100).fit(rows())
    scores = ours.transform(rows())
    with pytest.raises(MemoryLimitError) as refused:
        ours.set_params(memory_limit=1).partial_fit(rows(2, seed=1))
    assert refused.value.needed >= 240 * 2**20 + ridge_bytes(100, K, D)
    np.testing.assert_array_equal(ours.transform(rows()), scores)
    ours.set_params(memory_limit=refused.value.needed).partial_fit(rows(2, seed=1))
    assert ours.X_transformed_fit_.shape == (100, K)


def test_the_check_of_the_way_back_draws_nothing_from_a_generator():
    found = [
        fitted(method="nystroem", n_landmarks=20, random_state=np.random.default_rng(3), fit_inverse_transform=way)
        .fit(rows())
        .landmarks_
        for way in (False, True)
    ]
    np.testing.assert_array_equal(*found)


def test_novelty_is_above_the_threshold_for_the_share_that_was_asked_for():
    ours = fitted().fit(rows())
    scores = ours.novelty(rows())
    assert scores.shape == (N,)
    above = scores > ours.novelty_threshold(0.9)
    assert above.sum() - (N // 10) in (0, 1)  # the row that is the threshold may be above it by its rounding
    np.testing.assert_array_equal(ours.score_samples(rows()), -scores)
    # zero is no sign
    plane = KernelPCA(2).fit(rows()[:, :2])
    assert (plane.score_samples(rows()[:, :2]) == 0).all()
    assert not np.signbit(plane.score_samples(rows()[:, :2])).any()
    # an outlier is as far from the components as any row can be
    assert ours.novelty(np.full((1, D), 50.0)) > ours.novelty_threshold(1.0)


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_novelty_of_a_dask_array_is_lazy_and_the_same(method):
    ours = fitted(method=method, n_landmarks=30).fit(rows())
    lazy = ours.novelty(da.from_array(np.array(rows()), chunks=(50, 3)))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), ours.novelty(rows()), atol=1e-12)


def test_a_nystroem_fit_asks_for_rows_to_take_its_threshold_from():
    ours = fitted(method="nystroem", n_landmarks=30).fit(rows())
    with pytest.raises(InvalidInputError, match="give them, or rows like them: X="):
        ours.novelty_threshold()
    assert ours.novelty_threshold(0.9, rows()) > 0


def test_a_fit_that_fails_in_the_end_leaves_the_one_before_as_it_was():
    X = rows()
    ours = KernelPCA(3, kernel="rbf", fit_inverse_transform=True).fit(X)
    scores, back = ours.transform(X), ours.inverse_transform(ours.transform(X))

    def only_of_rows(A, B):
        if A.shape[1] != X.shape[1]:
            raise ValueError("these are no rows")
        return A @ B.T

    with pytest.raises(InvalidInputError, match="does not take them"):
        ours.set_params(kernel=only_of_rows).fit(X)
    np.testing.assert_array_equal(ours.transform(X), scores)
    np.testing.assert_array_equal(ours.inverse_transform(scores), back)


def test_the_way_back_is_that_of_the_fit_whatever_is_set_later():
    X = rows()
    ours = KernelPCA(3, kernel="rbf", fit_inverse_transform="ridge").fit(X)
    scores = ours.transform(X)
    back = ours.inverse_transform(scores)
    np.testing.assert_array_equal(ours.set_params(fit_inverse_transform="fixed_point").inverse_transform(scores), back)
    without = KernelPCA(3, kernel="rbf").fit(X).set_params(fit_inverse_transform="fixed_point")
    with pytest.raises(NotFittedError, match="was not fitted"):
        without.inverse_transform(scores)


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_a_fit_of_other_columns_that_fails_leaves_those_of_the_one_before(method):
    frame = pd.DataFrame(rows(), columns=list("abcd"))
    ours = KernelPCA(3, kernel="rbf", method=method).fit(frame)
    scores = ours.transform(frame)
    wide = pd.DataFrame(np.hstack([rows(), rows()]), columns=list("stuvwxyz"))
    for settings, X in (({}, wide.where(wide < 2)), ({"memory_limit": 1}, wide), ({}, np.array(wide.where(wide < 2)))):
        ours.set_params(**settings)
        with pytest.raises((InvalidInputError, MemoryLimitError)):
            ours.fit(X)
        ours.set_params(memory_limit=None)
        np.testing.assert_array_equal(ours.transform(frame), scores)
    fresh = KernelPCA(3, kernel="rbf", method="nystroem")
    with pytest.raises(InvalidInputError):
        fresh.partial_fit(wide.where(wide < 2))
    assert not hasattr(fresh, "n_features_in_")
    assert not hasattr(fresh, "feature_names_in_")


@pytest.mark.parametrize("n_components", [None, 0.5, 3])
def test_any_number_of_components_is_refined_by_passes(n_components):
    settings = {"kernel": "rbf", "gamma": 0.3, "n_landmarks": 20, "max_passes": 2, "dtype": "float64"}
    ours = KernelPCA(n_components, method="nystroem", **settings).fit(rows())
    first = KernelPCA(n_components, method="nystroem", **{**settings, "max_passes": None}).fit(rows())
    exact = KernelPCA(len(first.eigenvalues_), kernel="rbf", gamma=0.3).fit(rows())
    assert ours.eigenvalues_.shape == first.eigenvalues_.shape
    # Ritz values after passes are nearer than those of the landmarks, from below
    nearer = np.abs(ours.eigenvalues_ - exact.eigenvalues_) <= np.abs(first.eigenvalues_ - exact.eigenvalues_) + 1e-12
    assert nearer.all()
    assert (ours.eigenvalues_ <= exact.eigenvalues_ * (1 + 1e-12)).all()


@pytest.mark.parametrize("n_components", [None, 3])
def test_constant_rows_have_nothing_to_refine(n_components):
    ours = KernelPCA(n_components, kernel="rbf", method="nystroem", n_landmarks=20, max_passes=2)
    assert not ours.fit(np.ones((30, 2))).eigenvalues_.any()


def test_sparse_rows_that_have_no_fixed_points_are_refused_before_the_fit():
    wide = scipy.sparse.random_array((50, 300), density=0.02, rng=np.random.default_rng(0)).tocsr()
    with pytest.raises(InvalidInputError, match="the training rows are sparse"):
        fitted(fit_inverse_transform="fixed_point").fit(wide * np.nan)
