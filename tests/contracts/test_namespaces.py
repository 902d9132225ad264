"""Rows of another array library are evaluated by it, where they are, and give the values that numpy gives."""

import array_api_strict
import numpy as np
import pytest

from scalable_kpca.gram.products import multiply_tile, strips_of_tile
from scalable_kpca.kernels import KERNELS, RBF, Matern12, Polynomial, TileStrips, kernel_block, resolve_kernel
from scalable_kpca.kernels.namespace import to_numpy
from scalable_kpca.tiling import Tiling
from tests.support import EPS

# another device than the default one: whatever is made elsewhere cannot be combined with it
DEVICE = array_api_strict.Device("device1")
NAMED = {name: resolve_kernel(name, n_features=5) for name in KERNELS}
CASES = {**NAMED, **{f"poly {degree}": Polynomial(0.2, degree, 1.0) for degree in (1, 2, 4, 5)}}

X = np.random.default_rng(1).standard_normal((37, 5))
Y = np.random.default_rng(2).standard_normal((21, 5))
X[5], Y[3] = 0, X[7]  # cosine has no direction here, Matérn a kink
for shared in (X, Y):
    shared.flags.writeable = False


def strict(values):
    return array_api_strict.asarray(values, copy=True, device=DEVICE)


def back(values):
    assert values.device == DEVICE
    return np.from_dlpack(values.to_device(array_api_strict.Device("CPU_DEVICE")))


class _Rows:
    """Rows that hand out arrays of one library."""

    n_samples, n_features, dtype = 37, 5, "float64"

    def __init__(self, convert):
        self._convert = convert

    def read(self, rows):
        return self._convert(X[rows])


def largest(kernel):
    """Largest |k| among these rows."""
    return max(np.abs(kernel_block(kernel, np.vstack([X, Y]), np.vstack([X, Y]))).max(), 1.0)


every_kernel = pytest.mark.parametrize("kernel", CASES.values(), ids=CASES)
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def test_every_kernel_is_tried():
    assert {kernel.name for kernel in CASES.values()} == set(KERNELS)


@every_kernel
@every_dtype
@pytest.mark.parametrize("diagonal", [False, True])
def test_block_of_another_library_has_numpys_values(kernel, dtype, diagonal):
    columns = X if diagonal else Y
    left = strict(X)
    right = left if diagonal else strict(Y)
    block = kernel_block(kernel, left, right, diagonal=diagonal, dtype=dtype)
    assert block.dtype == getattr(array_api_strict, dtype)
    # the same arithmetic in another order: each is within its stated error of the kernel itself
    error = TileStrips(kernel, X, columns, dtype=dtype).error
    expected = kernel_block(kernel, X, columns, diagonal=diagonal, dtype=dtype)
    np.testing.assert_allclose(back(block), expected, rtol=0, atol=2 * error * largest(kernel))
    np.testing.assert_array_equal(back(left), X)
    if diagonal:
        np.testing.assert_allclose(np.diag(back(block)), kernel.diagonal(X), rtol=8 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(back(block), back(block).T)


@every_kernel
@every_dtype
def test_strips_of_another_library_state_numpys_error(kernel, dtype):
    strips = TileStrips(kernel, strict(X), strict(Y), strip_rows=8, dtype=dtype)
    assert strips.error == pytest.approx(TileStrips(kernel, X, Y, dtype=dtype).error, rel=1e-6)
    assert [(start, strip.shape) for start, strip in strips] == [
        (start, (min(8, 37 - start), 21)) for start in range(0, 37, 8)
    ]


@pytest.mark.parametrize("kernel", [RBF(0.2), *(NAMED[name] for name in KERNELS if name.startswith("matern"))])
@every_dtype
def test_far_rows_of_another_library_are_evaluated_from_differences_too(kernel, dtype):
    far = X.copy()
    far[4, 0] = 1e9
    block = kernel_block(kernel, strict(far), strict(far), dtype=dtype)
    expected = kernel_block(kernel, far, far, dtype=dtype)
    error = TileStrips(kernel, far, far, dtype=dtype).error
    np.testing.assert_allclose(back(block), expected, rtol=0, atol=2 * error)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_block_without_rows_of_another_library_is_empty(shape):
    block = kernel_block(RBF(1.0), strict(X[: shape[0]]), strict(Y[: shape[1]]), dtype="float32")
    assert block.shape == shape
    assert back(block).dtype == np.float32


@pytest.mark.parametrize("kernel", [NAMED["rbf"], Matern12(0.1), NAMED["laplacian"]])
@every_dtype
@pytest.mark.parametrize("vectors", ["float64", "float32"])
@pytest.mark.parametrize(("i", "j"), [(0, 0), (0, 1), (1, 1)])
def test_products_of_tiles_of_another_library_come_back_to_numpy(kernel, dtype, vectors, i, j):
    tiling = Tiling(37, 20)
    W = np.random.default_rng(3).standard_normal((37, 4)).astype(vectors)
    W[:, -1] = 1
    W.flags.writeable = False
    both = [
        multiply_tile(
            strips_of_tile(kernel, _Rows(convert), tiling, i, j, dtype),
            W[tiling.block(i)],
            W[tiling.block(j)],
            diagonal=i == j,
        )
        for convert in (strict, np.array)
    ]
    theirs, ours = both
    # a sum of 20 terms |k w| ≤ max |w|, each rounded to the coarser dtype, entries twice within their error
    coarser = float(max(np.finfo(dtype).eps, np.finfo(vectors).eps))
    error = TileStrips(kernel, X, X, dtype=dtype).error
    allowed = 20 * np.abs(W).max() * (2 * error + 20 * coarser)
    assert type(theirs.row_part) is np.ndarray
    assert theirs.row_part.dtype == np.float64
    np.testing.assert_allclose(theirs.row_part, ours.row_part, rtol=0, atol=allowed)
    assert theirs.squared_norm == pytest.approx(ours.squared_norm, rel=2 * (2 * error + 64 * coarser))
    assert (theirs.column_part is None) == (ours.column_part is None) == (i == j)
    if i != j:
        np.testing.assert_allclose(theirs.column_part, ours.column_part, rtol=0, atol=allowed)
    if vectors == "float32":
        # sums of the ones column are float64 whatever the vectors are
        np.testing.assert_allclose(theirs.row_sums, ours.row_sums, rtol=0, atol=20 * (2 * error + 20 * EPS))


@every_dtype
def test_cupy_rows_stay_on_their_device_and_give_numpys_values(dtype):
    cupy = pytest.importorskip("cupy")  # in no extra: it needs a GPU
    for kernel in CASES.values():
        block = kernel_block(kernel, cupy.asarray(X), cupy.asarray(Y), dtype=dtype)
        assert isinstance(block, cupy.ndarray)
        error = TileStrips(kernel, X, Y, dtype=dtype).error
        expected = kernel_block(kernel, X, Y, dtype=dtype)
        np.testing.assert_allclose(to_numpy(block), expected, rtol=0, atol=2 * error * largest(kernel))
    W = np.ones((37, 3))
    theirs, ours = (
        multiply_tile(strips_of_tile(RBF(0.2), _Rows(convert), Tiling(37, 37), 0, 0, dtype), W, W, diagonal=True)
        for convert in (cupy.asarray, np.array)
    )
    np.testing.assert_allclose(theirs.row_part, ours.row_part, rtol=0, atol=37 * 1e-5)
