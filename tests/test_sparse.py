"""Sparse rows give what the same rows give dense, and are never held dense where they are large."""

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from scalable_kpca import KernelPCA, load_model
from scalable_kpca.engine import ClusterSettings, open_engine
from scalable_kpca.errors import InvalidInputError, ModelFormatError, StorageError
from scalable_kpca.kernels import KERNELS, RBF, CallableKernel, TileStrips, kernel_block, resolve_kernel
from scalable_kpca.landmarks import fetch_rows
from scalable_kpca.landmarks.given import given_rows
from scalable_kpca.landmarks.spread import spread_out
from scalable_kpca.model import in_memory
from scalable_kpca.source import (
    ArrayRows,
    FiniteCheck,
    RowSummary,
    SparseRows,
    StoredRows,
    StoredSparseRows,
    alike,
    as_csr,
    digest_rows,
    is_sparse,
    read_rows,
    row_spans,
    row_width,
    stack,
    write_sparse_rows,
)
from scalable_kpca.source.checks import Moments
from scalable_kpca.source.rows import aligned_blocks
from scalable_kpca.staging import stage_rows
from scalable_kpca.transform import project
from tests.support import EPS, describe_model, fit, score_tolerance

N, D = 120, 600
SPARSE_KERNELS = sorted(name for name, kernel in KERNELS.items() if kernel.takes_sparse)


def rows_at_random(n=N, d=D, density=0.03, seed=0, dtype=np.float64):
    """CSR rows with an empty one, a repeated one, and read-only parts."""
    made = sp.random_array((n, d), density=density, rng=np.random.default_rng(seed), dtype=dtype, format="lil")
    made[3] = 0
    made[7] = made[11]
    rows = as_csr(made)
    for part in (rows.data, rows.indices, rows.indptr):
        part.setflags(write=False)
    return rows


X = rows_at_random()
DENSE = X.toarray()
DENSE.setflags(write=False)


def sums_of(kernel, dense):
    """Scale of the kernel's entries on these rows."""
    return float(np.abs(kernel.diagonal(np.array(dense))).max()) or 1.0


# ---------------------------------------------------------------- what a CSR array of ours is


FORMATS = ["csr", "csc", "coo", "dok", "lil", "bsr"]


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_becomes_the_same_canonical_rows(make, form):
    found = as_csr(make(X).asformat(form))
    assert isinstance(found, sp.csr_array)
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), DENSE)
    assert digest_rows(SparseRows(found), 50) == digest_rows(SparseRows(X), 7)


def test_canonical_rows_are_the_callers_own_memory():
    assert np.shares_memory(as_csr(X).data, X.data)
    assert np.shares_memory(as_csr(sp.csr_matrix(X)).data, X.data)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_duplicates_are_added_and_order_and_stored_zeros_do_not_matter_and_the_caller_keeps_his(kind):
    data, indices = np.array([1.0, 2.0, 4.0, 0.0, 8.0]), np.array([2, 0, 2, 1, 1], kind)
    caller = sp.csr_array((data, indices, np.array([0, 4, 5], kind)), shape=(2, 3))
    found = as_csr(caller)
    np.testing.assert_array_equal(found.toarray(), [[2, 0, 5], [0, 8, 0]])
    assert (found.nnz, caller.nnz) == (3, 5)
    np.testing.assert_array_equal(caller.data, [1, 2, 4, 0, 8])
    np.testing.assert_array_equal(caller.indices, [2, 0, 2, 1, 1])


def test_duplicates_of_small_integers_are_added_as_numbers():
    made = sp.coo_array((np.array([100, 100], np.int8), ([0, 0], [1, 1])), shape=(1, 2))
    assert as_csr(made).toarray().tolist() == [[0.0, 200.0]]


@pytest.mark.parametrize(
    ("dtype", "becomes"),
    [("float32", "float32"), ("float64", "float64"), ("int8", "float64"), ("uint16", "float64"), ("bool", "float64")],
)
def test_numbers_become_the_float_that_holds_them(dtype, becomes):
    found = as_csr((X > 0.5).astype(dtype))
    assert found.dtype == becomes
    np.testing.assert_array_equal(found.toarray(), DENSE > 0.5)


@pytest.mark.parametrize("made", [X.astype(complex), sp.coo_array(np.ones(3))])
def test_what_is_no_matrix_of_real_numbers_is_refused(made):
    with pytest.raises(InvalidInputError, match="real numbers"):
        as_csr(made)


def test_indices_outside_the_shape_are_refused():
    made = X.copy()
    made.indices[5] = D + 1
    with pytest.raises(InvalidInputError, match="damaged"):
        as_csr(made)


def test_only_scipy_sparse_is_sparse():
    assert [is_sparse(made) for made in (X, sp.csc_matrix(X), sp.coo_array(X))] == [True] * 3
    assert [is_sparse(made) for made in (DENSE, [[1.0]], "X", None)] == [False] * 4


# ---------------------------------------------------------------- blocks


def test_blocks_are_stacked_in_their_own_kind():
    np.testing.assert_array_equal(stack([DENSE[:3], DENSE[3:9]]), DENSE[:9])
    for blocks in ([X[:3], X[3:9]], [X[:3], DENSE[3:9]]):
        found = stack(blocks)
        assert is_sparse(found)
        assert found.has_canonical_format
        np.testing.assert_array_equal(found.toarray(), DENSE[:9])


def test_sides_of_a_tile_become_dense_where_that_is_small_else_sparse(monkeypatch):
    assert [is_sparse(side) for side in alike(X[:5], DENSE[:9])] == [False, False]
    assert [is_sparse(side) for side in alike(X[:5], X[:9])] == [True, True]
    monkeypatch.setattr("scalable_kpca.source.sparse.DENSE_BYTES", 5 * D * 8 - 1)
    for sides in (alike(X[:5], DENSE[:9]), alike(DENSE[:9], X[:5])):
        assert [is_sparse(side) for side in sides] == [True, True]
        assert [side.shape[0] for side in sides] == [5, 9] if sides[0].shape[0] == 5 else [9, 5]


@pytest.mark.parametrize("batches", [[1, 5, 114], [120], [50, 50, 20]])
def test_aligned_blocks_are_the_rows_in_tiles(batches):
    ends = np.cumsum([0, *batches])
    pieces = [X[a:b] for a, b in pairwise(ends)]
    blocks = list(aligned_blocks(iter(pieces), 32))
    assert [block.shape[0] for block in blocks] == [32, 32, 32, 24]
    np.testing.assert_array_equal(stack(blocks).toarray(), DENSE)


def test_slices_are_read_as_csr_arrays():
    block = SparseRows(X).read(slice(10, 30))
    assert block.has_canonical_format
    assert block.indices.dtype == np.int32
    np.testing.assert_array_equal(block.toarray(), DENSE[10:30])
    assert SparseRows(X).read(slice(5, 5)).shape == (0, D)


def test_long_indices_are_read_as_short_ones():
    wide = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
    assert as_csr(wide).indices.dtype == np.int64
    assert SparseRows(as_csr(wide)).read(slice(0, 20)).indices.dtype == np.int32


@pytest.mark.parametrize(("density", "d"), [(0.2, 600), (0.5, 2000), (0.01, 16)])
def test_rows_with_many_entries_or_few_features_are_held_dense_and_planned_so(density, d):
    rows = rows_at_random(300, d, density)
    assert row_width(rows) == row_width(sp.csc_matrix(rows)) == d
    block = SparseRows(rows).read(slice(10, 20))
    assert isinstance(block, np.ndarray)
    np.testing.assert_array_equal(block, rows.toarray()[10:20])


def test_width_of_sparse_rows_is_that_of_the_densest_run():
    thin, thick = rows_at_random(2000, 100_000, 1e-4), rows_at_random(300, 100_000, 3e-3)
    assert 15 < row_width(thin) < 100 < 1.5 * 300 < row_width(thick) < 1.5 * 330 + 64
    assert row_width(stack([thin, thick, thin])) >= 0.99 * 256 / 300 * row_width(thick)


# ---------------------------------------------------------------- what is learned of rows


def test_moments_are_those_of_all_entries_zeros_included():
    moments = Moments()
    for start in range(0, N, 32):
        moments.add(X[start : start + 32])
    assert moments.count == N * D
    np.testing.assert_allclose(moments.mean, DENSE.mean(), rtol=N * EPS)
    np.testing.assert_allclose(moments.variance(), DENSE.var(), rtol=N * EPS)
    both = Moments()
    both.add(as_csr(sp.csr_array((5, D))))
    both.add(DENSE[:30])
    np.testing.assert_allclose(both.variance(), np.concatenate([np.zeros((5, D)), DENSE[:30]]).var(), rtol=N * EPS)


@pytest.mark.parametrize(("value", "said"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "-infinity")])
def test_first_entry_that_is_not_finite_is_named_and_rows_are_counted(value, said):
    made = X.copy().tolil()
    made[40, [7, 90]] = value
    made[77, 2] = value
    bad = as_csr(made)
    with pytest.raises(InvalidInputError, match=rf"row 40, column 7 is {said} \(1 of 2 such rows\)"):
        read_rows(iter([bad[:32], bad[32:]]), D, 16)
    check = FiniteCheck(tuple(f"word{j}" for j in range(D)))
    check.add(bad)
    with pytest.raises(InvalidInputError, match='column "word7"'):
        check.raise_if_any()


# ---------------------------------------------------------------- staging and storage


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stored", [False, True])
def test_staged_rows_are_the_rows_and_their_summary_that_of_dense_ones(dtype, stored, tmp_path):
    rows = X.astype(dtype)
    with open_engine("synchronous") as engine:
        staged, summary = stage_rows(rows, engine, tmp_path if stored else None, tile_rows=32, names=())
        again, _ = stage_rows(rows.tocoo(), engine, tmp_path if stored else None, tile_rows=32, names=())
    assert isinstance(staged, StoredSparseRows if stored else SparseRows)
    assert (staged.n_samples, staged.n_features, staged.dtype) == (N, D, dtype)
    dense = rows.toarray()
    np.testing.assert_allclose(summary.variance, dense.var(dtype=np.float64), rtol=N * EPS)
    for part in (slice(0, N), slice(3, 4), slice(30, 70), slice(119, 120)):
        np.testing.assert_array_equal(staged.read(part).toarray(), dense[part])
    assert digest_rows(staged, 9) == digest_rows(SparseRows(rows), 32) == digest_rows(again, 32)
    assert digest_rows(staged, 9) != digest_rows(SparseRows(as_csr(rows * 2)), 9)
    if stored:
        assert again == staged
        assert len(list(tmp_path.iterdir())) == 1


def test_rows_that_are_rather_dense_are_stored_dense(tmp_path):
    rows = rows_at_random(density=0.4)
    with open_engine("synchronous") as engine:
        staged, _ = stage_rows(rows, engine, tmp_path, tile_rows=32, names=())
    assert isinstance(staged, StoredRows)
    np.testing.assert_array_equal(staged.read(slice(0, N)), rows.toarray())


def test_rows_without_any_entry_are_stored(tmp_path):
    stored = write_sparse_rows(SparseRows(as_csr(sp.csr_array((9, 1000)))), tmp_path / "rows", batch_rows=4)
    assert stored.read(slice(2, 8)).toarray().tolist() == np.zeros((6, 1000)).tolist()


@pytest.mark.parametrize("array", ["data", "indices", "ends"])
@pytest.mark.parametrize("damage", ["gone", "flipped"])
def test_damaged_stored_rows_are_refused_never_read(array, damage, tmp_path):
    stored = write_sparse_rows(SparseRows(X), tmp_path / "rows", batch_rows=32)
    chunk = next(file for file in (tmp_path / "rows" / array / "c").rglob("*") if file.is_file())
    if damage == "gone":
        chunk.unlink()
    else:
        content = bytearray(chunk.read_bytes())
        content[20] ^= 1
        chunk.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        stored.read(slice(0, 20))


# ---------------------------------------------------------------- kernels


@pytest.mark.parametrize("name", SPARSE_KERNELS)
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_strips_of_sparse_rows_are_those_of_dense_ones_within_both_errors(name, diagonal, scale):
    """Every kernel, and rows so large that distances made of products would lose their digits."""
    kernel = resolve_kernel(name, gamma=0.1, n_features=D)
    left, right = (X, X) if diagonal else (X[:70], X[20:])
    sides = as_csr(left * scale), as_csr(right * scale)
    strips = TileStrips(kernel, *sides, diagonal=diagonal, strip_rows=32)
    dense = tuple(side.toarray() for side in sides)
    reference = TileStrips(kernel, *dense, diagonal=diagonal, strip_rows=32)
    allowed = 4 * (strips.error + reference.error) * sums_of(kernel, dense[0])
    assert strips.error <= 1e-12 * max(1, 1e3 * (name == "sigmoid"))
    for (first, strip), (same, expected) in zip(strips, reference, strict=True):
        assert first == same
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(strip, expected, rtol=0, atol=allowed)


@pytest.mark.parametrize("name", SPARSE_KERNELS)
def test_a_sparse_block_is_exact_on_the_diagonal_and_symmetric(name):
    kernel = resolve_kernel(name, gamma=0.1, n_features=D)
    K = kernel_block(kernel, X, X, diagonal=True)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), kernel.diagonal(X))
    np.testing.assert_allclose(kernel.diagonal(X), kernel.diagonal(np.array(DENSE)), rtol=D * EPS)


@pytest.mark.parametrize("name", ["rbf", "laplacian", "matern12", "matern32", "matern52"])
def test_equal_sparse_rows_have_distance_zero(name):
    rows = as_csr(X[[7, 11]] * 1e3)
    K = kernel_block(resolve_kernel(name, gamma=0.3, n_features=D), rows, as_csr(rows[[1, 0]]))
    np.testing.assert_array_equal(K, np.ones((2, 2)))


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern52"])
def test_close_rows_far_from_the_origin_keep_their_digits(name):
    """Distances of 1e-3 between rows of norm 1e4: made of inner products in float64, they would be 0 or 100 % off."""
    far = X[[20] * 40].tolil()
    far[:, 5] = 1e4
    far[:, 9] = 1e-3 * np.arange(40)[:, None]
    rows = as_csr(far)
    kernel = resolve_kernel(name, gamma=1e4, n_features=D)
    squares = (1e-3 * (np.arange(40)[:, None] - np.arange(40))) ** 2
    expected = {
        "rbf": np.exp(-1e4 * squares),
        "matern12": np.exp(-np.sqrt(2e4 * squares)),
        "matern52": (lambda u: (1 + u + u * u / 3) * np.exp(-u))(np.sqrt(10e4 * squares)),
    }[name]
    # 1e-3·j is rounded once in a row, and differences of such numbers to 40·eps of the smallest
    np.testing.assert_allclose(kernel_block(kernel, rows, rows), expected, rtol=0, atol=1e-12)


def test_pairs_of_close_rows_are_cut_into_pieces(monkeypatch):
    rows = as_csr(X[[20] * 50] * 1e4)
    monkeypatch.setattr("scalable_kpca.kernels.sparse.PAIR_ENTRIES", 100)
    np.testing.assert_array_equal(kernel_block(RBF(0.5), rows, rows), np.ones((50, 50)))


@pytest.mark.parametrize("sides", [(X[:40], DENSE), (DENSE[:40], X)])
@pytest.mark.parametrize("name", SPARSE_KERNELS)
@pytest.mark.parametrize("dense_bytes", [0, 2**26])
def test_one_side_may_be_sparse_and_the_other_dense(sides, name, dense_bytes, monkeypatch):
    monkeypatch.setattr("scalable_kpca.source.sparse.DENSE_BYTES", dense_bytes)
    kernel = resolve_kernel(name, gamma=0.1, n_features=D)
    expected = kernel_block(kernel, DENSE[:40], DENSE)
    np.testing.assert_allclose(kernel_block(kernel, *sides), expected, rtol=0, atol=1e-11 * sums_of(kernel, DENSE))


def test_float32_strips_of_sparse_rows_are_float64_ones_rounded():
    wide = kernel_block(RBF(0.3), X, X)
    np.testing.assert_array_equal(kernel_block(RBF(0.3), X, X, dtype="float32"), wide.astype(np.float32))


def test_kernels_that_take_no_sparse_rows_say_so():
    with pytest.raises(InvalidInputError, match=r"'callable' takes no sparse rows.*toarray"):
        kernel_block(CallableKernel(np.dot), X, X)


# ---------------------------------------------------------------- fits


@pytest.mark.parametrize("name", SPARSE_KERNELS)
@pytest.mark.parametrize(("gram", "solver"), [("memory", "dense"), ("recompute", "block_krylov")])
def test_exact_fit_of_sparse_rows_is_that_of_dense_ones(name, gram, solver):
    settings = {"gram": gram, "solver": solver, "tile_rows": 50, "n_components": 3, "indefinite": "clip"}
    if name != "linear" and name != "cosine":
        settings["gamma"] = 0.1
    found, expected = fit(SparseRows(X), name, **settings).model, fit(np.array(DENSE), name, **settings).model
    # entries of K differ by rounding, 1e-12 of the largest at most, and solvers stop at 1e-9·λ₁
    error = N * 1e-12 * sums_of(expected.kernel, DENSE) + 2e-9 * (solver != "dense") * expected.eigenvalues[0]
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=0, atol=error)
    new = rows_at_random(30, seed=5)
    scores = project(expected, new.toarray())
    spectrum = fit(np.array(DENSE), name, **{**settings, "n_components": 5}).model.eigenvalues
    turned = score_tolerance(spectrum, 3, error)
    # scores are inner products with √λ-long vectors that are turned; of new rows no longer than twice those of old
    size = 2 * np.sqrt(N * sums_of(expected.kernel, DENSE))
    for rows in (new, new.toarray()):
        assert (np.abs(project(found, rows) - scores).max(axis=0) <= turned * size).all()
    np.testing.assert_allclose(project(expected, new), scores, rtol=0, atol=1e-11 * size)


def test_tiles_of_staged_sparse_rows_are_found_again(tmp_path):
    options = {"kernel": "rbf", "gamma": 0.2, "gram": "zarr", "workdir": tmp_path, "tile_rows": 50}
    first, again = KernelPCA(3, **options).fit(X), KernelPCA(2, **options).fit(X.tocsc())
    np.testing.assert_allclose(again.eigenvalues_, first.eigenvalues_[:2], rtol=1e-12)
    KernelPCA(2, **options).fit(as_csr(X * 2))
    assert len(list(tmp_path.glob("gram-*.zarr"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_worker_processes_read_stored_sparse_rows(method, tmp_path):
    stored = write_sparse_rows(SparseRows(X), tmp_path / "rows", batch_rows=32)
    if method == "exact":
        settings = {"gamma": 0.2, "n_components": 3, "gram": "recompute", "solver": "block_krylov", "tile_rows": 50}
        found = fit(stored, "rbf", scheduler="local", n_workers=2, n_threads=1, **settings).model.eigenvalues
        expected = fit(SparseRows(X), "rbf", **settings).model.eigenvalues
    else:
        numbers = np.array([5, 100, 7])
        with open_engine(ClusterSettings("local", n_workers=2), n_threads=1) as engine:
            found = fetch_rows(engine, row_spans(stored, 32), numbers, batch_rows=10).toarray()
        expected = DENSE[numbers]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("options", [{}, {"method": "nystroem", "n_landmarks": 40}], ids=["exact", "nystroem"])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian"])
def test_estimator_takes_sparse_rows_and_saves_them(options, kernel, tmp_path):
    gamma = None if kernel == "linear" else 0.2
    sparse = KernelPCA(3, kernel=kernel, gamma=gamma, **options).fit(X)
    dense = KernelPCA(3, kernel=kernel, gamma=gamma, **options).fit(DENSE)
    np.testing.assert_allclose(sparse.eigenvalues_, dense.eigenvalues_, rtol=1e-10)
    new = rows_at_random(50, seed=6)
    scores = sparse.transform(new)
    np.testing.assert_allclose(scores, dense.transform(new.toarray()), rtol=0, atol=1e-9 * np.abs(scores).max())
    np.testing.assert_allclose(scores, sparse.transform(new.toarray()), rtol=0, atol=1e-11 * np.abs(scores).max())
    np.testing.assert_allclose(scores, dense.transform(new.tocsc()), rtol=0, atol=1e-9 * np.abs(scores).max())
    sparse.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(project(loaded, new), project(sparse.model_, new))
    if not options:
        assert isinstance(loaded.rows, StoredSparseRows)
        np.testing.assert_array_equal(in_memory(loaded).rows.read(slice(0, N)).toarray(), DENSE)
    else:
        assert is_sparse(loaded.basis.landmarks)
        assert loaded.basis.digest == sparse.model_.basis.digest


def test_saved_sparse_rows_that_contradict_the_description_are_refused(tmp_path):
    KernelPCA(2).fit(X).save(tmp_path / "model")
    fields = json.loads((tmp_path / "model" / "model.json").read_text())
    assert fields["rows"] == "csr"
    for changes in ({"n_samples": N + 1}, {"rows_dtype": "float32"}, {"rows": "dense"}):
        describe_model(tmp_path / "model", **{**fields, **changes})
        with pytest.raises(ModelFormatError):
            load_model(tmp_path / "model")


def test_rows_join_a_nystroem_fit_of_sparse_rows():
    whole = KernelPCA(3, kernel="rbf", gamma=0.2, method="nystroem", landmarks=X[:40]).fit(X)
    parts = KernelPCA(3, kernel="rbf", gamma=0.2, method="nystroem", landmarks=X[:40])
    parts.partial_fit(X[:70]).partial_fit(X[70:])
    np.testing.assert_allclose(parts.eigenvalues_, whole.eigenvalues_, rtol=1e-9)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++"])
def test_landmarks_of_sparse_rows_are_the_same_rows_as_of_dense_ones(landmarks):
    options = {"kernel": "rbf", "gamma": 0.2, "method": "nystroem", "n_landmarks": 25, "landmarks": landmarks}
    found, expected = KernelPCA(3, **options).fit(X), KernelPCA(3, **options).fit(DENSE)
    assert is_sparse(found.landmarks_)
    np.testing.assert_array_equal(found.landmarks_.toarray(), expected.landmarks_)


def test_pivots_of_sparse_rows_reach_what_those_of_dense_rows_reach():
    options = {"kernel": "rbf", "gamma": 0.01, "method": "nystroem", "n_landmarks": 90, "landmarks": "rpcholesky"}
    found, expected = KernelPCA(3, **options).fit(X), KernelPCA(3, **options).fit(DENSE)
    assert is_sparse(found.landmarks_)
    # another draw of the same law: 90 of 119 different rows leave the least of a flat spectrum
    assert found.certificate_.relative_residual < 1.2 * expected.certificate_.relative_residual + 1e-12


def test_rows_that_are_equal_are_chosen_once():
    few = as_csr(X[[1, 2, 1, 2, 1, 3, 3]])
    chosen = spread_out(few, 7, seed=0)
    assert chosen.shape == (3,)  # row 3 is empty
    assert len(np.unique(few[chosen].toarray(), axis=0)) == 3


def test_rows_are_fetched_by_their_numbers():
    numbers = np.array([100, 3, 3, 57, 0])
    with open_engine("threads", n_threads=2) as engine:
        found = fetch_rows(engine, row_spans(SparseRows(X), 32), numbers, batch_rows=10)
    assert is_sparse(found)
    np.testing.assert_array_equal(found.toarray(), DENSE[numbers])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (sp.csr_array((0, D)), "no landmarks are given"),
        (sp.csr_array((3, D - 1)), f"have {D - 1} features and the source has {D}"),
        (sp.csr_array(([np.nan], ([2], [4])), shape=(3, D)), "landmark 2, column 4 is nan"),
    ],
)
def test_sparse_landmarks_that_cannot_be_any_are_refused(given, said):
    with open_engine("synchronous") as engine, pytest.raises(InvalidInputError, match=said):
        given_rows(given, RowSummary(N, D, 1.0), engine, row_spans(SparseRows(X), 32), 32)


@pytest.mark.parametrize("options", [{}, {"method": "nystroem", "n_landmarks": 40}], ids=["exact", "nystroem"])
def test_new_sparse_rows_are_refused_as_dense_ones_are(options):
    model = KernelPCA(2, **options).fit(X).model_
    with pytest.raises(InvalidInputError, match=f"X has {D + 1} features"):
        project(model, sp.csr_array((3, D + 1)))
    bad = X[:5].tolil()
    bad[4, 17] = np.nan
    with pytest.raises(InvalidInputError, match=r"row 4, column 17 is NaN"):
        project(model, bad)


@pytest.mark.parametrize("options", [{}, {"method": "nystroem", "n_landmarks": 40}], ids=["exact", "nystroem"])
def test_an_unsorted_row_with_duplicates_scores_as_its_sum(options):
    model = KernelPCA(2, kernel="rbf", gamma=0.3, **options).fit(X).model_
    made = sp.csr_array(([1.0, 2.0, 3.0, 0.0], [9, 4, 9, 1], [0, 0, 4]), shape=(2, D))
    expected = project(model, made.toarray())
    np.testing.assert_allclose(project(model, made), expected, rtol=0, atol=1e-12)


def test_rows_without_entries_are_rows():
    fitted = KernelPCA(2, kernel="cosine").fit(X)
    assert np.isfinite(fitted.transform(sp.csr_array((4, D)))).all()
    empty = KernelPCA(1, kernel="rbf").fit(sp.csr_array((20, 300)))
    assert empty.eigenvalues_.tolist() == [0.0]


def test_dense_rows_go_the_way_they_went():
    """Of dense rows nothing becomes sparse: the same array, read as a view."""
    block = ArrayRows(DENSE).read(slice(5, 9))
    assert np.shares_memory(block, DENSE)
    assert alike(block, DENSE)[1] is DENSE


# ---------------------------------------------------------------- memory

SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
import scipy.sparse as sp
from scalable_kpca import KernelPCA

n, d, per_row = 20_000, 100_000, 50
rng = np.random.default_rng(0)
# a few words are frequent, most are rare
columns = np.minimum((d * rng.random(n * per_row) ** 3).astype(np.int32), d - 1)
rows = sp.csr_array((rng.random(n * per_row), columns, np.arange(0, n * per_row + 1, per_row)), shape=(n, d))
fit = KernelPCA(5, kernel="cosine", n_jobs=2, **json.loads(sys.argv[1])).fit(rows)
scores = fit.transform(rows[:500])
print(json.dumps({
    "peak": int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024,
    "planned": fit.plan_.peak_memory,
    "finite": bool(np.isfinite(scores).all()),
}))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "settings",
    [
        {"gram": "recompute", "tile_rows": 4000},
        {"method": "nystroem", "n_landmarks": 500},
        {"method": "nystroem", "n_landmarks": 300, "landmarks": "rpcholesky"},
        {"method": "nystroem", "n_landmarks": 100, "landmarks": "kmeans++"},
    ],
    ids=["exact", "uniform", "rpcholesky", "kmeans++"],
)
def test_fit_of_20000_rows_of_100000_features_keeps_to_a_plan_that_holds_no_dense_block(settings):
    asked = [sys.executable, "-c", SCRIPT, json.dumps({"memory_limit": "1GiB", **settings})]
    finished = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found["finite"]
    # a dense block of one tile, 4000 × 100 000, has 3.2 GB; 500 dense landmarks have 400 MB
    assert found["peak"] <= found["planned"] <= 2**30


def test_a_copy_of_sparse_rows_stays_sparse_where_blocks_are_read_dense():
    few = sp.csr_array(np.eye(30, 3))
    ours = KernelPCA(2).fit(few)
    assert is_sparse(ours.X_fit_)
    assert not np.shares_memory(ours.X_fit_.data, few.data)
    np.testing.assert_array_equal(ours.X_fit_.toarray(), few.toarray())
