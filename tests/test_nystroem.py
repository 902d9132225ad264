"""A solve begins with landmarks whatever the kernel's values are: beyond float32 or float64, zero, or no numbers."""

import warnings

import numpy as np
import pytest

from scalable_kpca import KernelPCA
from scalable_kpca.engine import open_engine
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import Linear, Polynomial, Sigmoid, kernel_block
from scalable_kpca.nystroem import nystroem_block
from scalable_kpca.source import ArrayRows
from scalable_kpca.tiling import Tiling

N, D, LANDMARKS = 200, 5, 60
CUBE = Polynomial(gamma=1 / D, degree=3, coef0=1.0)


def rows_of(n=N, d=D):
    X = np.random.default_rng(3).standard_normal((n, d)) * [3, 2, 1, 1, 1][:d]
    X.setflags(write=False)
    return X


def block_of(X, kernel, *, n_columns=6):
    with open_engine("synchronous") as engine:
        return nystroem_block(
            ArrayRows(X), kernel, Tiling(len(X), 64), engine, n_columns=n_columns, n_landmarks=LANDMARKS, seed=0
        )


def units(block):
    return block / np.linalg.norm(block, axis=0)


def is_landmark(row):
    return row in np.random.default_rng(0).choice(N, LANDMARKS, replace=False)


@pytest.mark.parametrize("size", [2.0**-30, 2.0**40, 2.0**59])
def test_size_of_the_values_changes_no_bit_of_the_start_block(size):
    # a power of two: every value is scaled exactly, here up to 2e37, whose squares no float32 holds
    X = rows_of()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(units(block_of(X * size, Linear())), units(block_of(X, Linear())))


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_rows_far_from_the_origin_have_a_start_block(offset):
    block = block_of(rows_of() + offset, CUBE)
    assert block.shape[1] > 0
    assert np.isfinite(block).all()


@pytest.mark.parametrize("size", [1e6, 1e12, 1e15])
def test_one_row_larger_than_all_landmarks_is_the_first_direction(size):
    X, row = rows_of().copy(), next(row for row in range(N) if not is_landmark(row))
    X[row] = size  # cubed: up to 1e90 with itself, 1e45 with a landmark, squared in CᵀC
    block = units(block_of(X, CUBE))
    K = kernel_block(CUBE, X, X, diagonal=True)
    exact = K[row] - K[row].mean()
    # all of C's rows are small beside this one's: the leading direction is that row, centred
    assert abs(block[:, 0] @ exact) / np.linalg.norm(exact) > 0.99


@pytest.mark.parametrize("size", [1e60, 1e200])
def test_values_beyond_float64_give_no_columns_and_no_error(size):
    assert block_of(rows_of() * size, CUBE).shape == (N, 0)
    X = rows_of().copy()
    X[next(row for row in range(N) if not is_landmark(row))] *= size
    assert block_of(X, CUBE).shape == (N, 0)


def test_values_that_are_no_numbers_give_no_columns_and_no_error():
    # roots of negative numbers: the building pass names two rows
    assert block_of(rows_of(), Polynomial(gamma=1.0, degree=1.5, coef0=0.0)).shape == (N, 0)


@pytest.mark.parametrize("kernel", [Sigmoid(gamma=1.0, coef0=0.0), Polynomial(gamma=0.0, degree=1, coef0=-2.0)])
def test_landmarks_without_a_positive_eigenvalue_give_no_columns(kernel):
    X = np.zeros((N, D))
    assert block_of(X, kernel).shape[1] <= (0 if isinstance(kernel, Sigmoid) else N)
    assert np.isfinite(block_of(X, kernel)).all()


# ---------------------------------------------------------------- whole fits, in float32 and by block Krylov


def fit(X, **changes):
    settings = {"kernel": "poly", "degree": 3, "n_jobs": 1, "memory_limit": "1GiB", "on_failure": "return", **changes}
    pca = KernelPCA(3, eigen_solver="block_krylov", dtype="float32", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few digits
        return pca.fit(X)


@pytest.mark.parametrize("offset", [1e4, 1e6])
def test_polynomial_far_from_the_origin_is_fitted(offset):
    assert np.isfinite(fit(rows_of(300) + offset).eigenvalues_).all()


def test_polynomial_of_one_far_row_is_fitted():
    X = rows_of(300).copy()
    X[123] *= 1e6
    K = kernel_block(CUBE, X, X, diagonal=True)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    assert fit(X).eigenvalues_[0] == pytest.approx(np.linalg.eigvalsh(K)[-1], rel=1e-5)


@pytest.mark.parametrize(
    ("X", "changes"),
    [(np.full((300, D), 1e13), {}), (rows_of(300), {"degree": 1.5, "coef0": 0.0}), (rows_of(300) * 1e40, {})],
)
def test_values_that_no_tile_can_hold_name_two_rows(X, changes):
    with pytest.raises(InvalidInputError, match=r"the kernel of rows \d+ and \d+ is (inf|nan)"):
        fit(X, **changes)


@pytest.mark.parametrize("n", [300, 1100])
@pytest.mark.parametrize("coef0", [0.0, 1.0])
@pytest.mark.parametrize("value", [0.0, 0.3])
def test_constant_rows_are_not_called_indefinite(n, value, coef0):
    # K̃ is zero: the search for a negative eigenvalue would find rounding, or stop ARPACK with −9
    found = fit(np.full((n, D), value), kernel="sigmoid", gamma=0.1, coef0=coef0)
    # |k| ≤ 1, so that ‖K‖_F ≤ n; float32 sums over at most n rows of a tile round like √n
    assert found.eigenvalues_.max() <= np.sqrt(n) * np.finfo(np.float32).eps * n


@pytest.mark.parametrize("solver", ["block_krylov", "arpack"])
def test_indefinite_kernel_is_still_refused_in_float32(solver):
    X = rows_of(300)
    with pytest.raises(InvalidInputError, match="not positive semi-definite"):
        KernelPCA(3, kernel="sigmoid", gamma=0.5, eigen_solver=solver, dtype="float32", n_jobs=1).fit(X)
