"""Landmarks: the first pass checks and samples the same rows in any order, and each method has the law it should."""

import datetime
import decimal
import tracemalloc

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca.engine import ClusterSettings, open_engine
from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.kernels import RBF, Cosine, Linear, Polynomial, Sigmoid, kernel_block
from scalable_kpca.landmarks import LANDMARK_METHODS, choose_landmarks, fetch_rows, look, sample_size
from scalable_kpca.landmarks.priorities import row_priorities
from scalable_kpca.landmarks.residuals import Step, update_and_draw
from scalable_kpca.landmarks.rpcholesky import choose_pivots
from scalable_kpca.source import ArrayRows, Batch, open_source, read_rows, row_spans
from scalable_kpca.streaming import block_spans
from tests.support import EPS, store_rows

SCHEDULERS = [("synchronous", 1), ("threads", 2), ("threads", 5)]


def read_only(X):
    X.setflags(write=False)
    return X


def spans_of(X, span_rows=64):
    return row_spans(ArrayRows(X), span_rows)


def looked(spans, *, n_features, size, seed=0, batch_rows=50, engine=None, **more):
    options = {"n_features": n_features, "sample_size": size, "seed": seed, "batch_rows": batch_rows, **more}
    if engine is not None:
        return look(engine, spans, **options)
    with open_engine("synchronous") as own:
        return look(own, spans, **options)


def chosen(X, method, m, kernel=None, *, seed=0, engine=None, spans=None, batch_rows=50, **more):
    """Landmarks of rows in memory, the look included."""
    if engine is None:
        with open_engine("synchronous") as own:
            return chosen(X, method, m, kernel, seed=seed, engine=own, spans=spans, batch_rows=batch_rows, **more)
    spans = spans_of(X) if spans is None else spans
    found = looked(spans, n_features=X.shape[1], size=sample_size(method, m), engine=engine)
    kernel = RBF(0.5) if kernel is None else kernel
    return choose_landmarks(
        method, found, engine, spans, kernel, n_landmarks=m, seed=seed, batch_rows=batch_rows, **more
    )


def pivots_of(X, kernel, m, *, seed=0, block=32, dtype="float64", span_rows=64, batch_rows=50, **more):
    options = {"n_pivots": m, "seed": seed, "dtype": dtype, "batch_rows": batch_rows, "block": block, **more}
    with open_engine("synchronous") as engine:
        return choose_pivots(engine, spans_of(X, span_rows), kernel, **options)


def gram(kernel, X):
    return kernel_block(kernel, X, X, diagonal=True)


def share_left(K, numbers):
    """tr(K − C W⁺ Cᵀ) / tr K in float64; eigenvalues of W within m·eps of the largest count as zero."""
    omega, u = np.linalg.eigh(K[np.ix_(numbers, numbers)])
    keep = omega > len(numbers) * EPS * omega[-1]
    features = K[:, numbers] @ (u[:, keep] / np.sqrt(omega[keep]))
    return 1 - np.square(features).sum() / np.trace(K)


def plain_pivots(K, m, seed):
    """Randomly pivoted Cholesky as it is defined: one pivot after another."""
    generator, residual, factor, pivots = np.random.default_rng(seed), np.diag(K).copy(), np.zeros((len(K), m)), []
    for done in range(m):
        pivot = generator.choice(len(K), p=residual / residual.sum())
        column = (K[:, pivot] - factor[:, :done] @ factor[pivot, :done]) / np.sqrt(residual[pivot])
        factor[:, done] = column
        residual = np.maximum(residual - column**2, 0)
        residual[pivot] = 0
        pivots.append(pivot)
    return pivots


class TableSpan:
    """Span with ids of its own, as one of a Parquet file has them."""

    def __init__(self, rows, ids, part, start):
        self.rows, self.ids, self.part, self.start, self.n_rows = rows, ids, part, start, len(rows)

    def batches(self, batch_rows, labels="none"):
        for first in range(0, self.n_rows, batch_rows):
            piece = slice(first, first + batch_rows)
            table = None if labels == "none" else self.ids.slice(first, batch_rows)
            yield Batch(self.part, self.rows[piece], table, self.start + first)


# ---------------------------------------------------------------- priorities


def priorities(values, kind=None, seed=0):
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)
    return row_priorities(pa.table({"id": column}), seed)


TEXTS = ["", "a", "12345678", "123456789", "\0", "äöü" * 7, "x" * 600, "x" * 601, "end"]


@pytest.mark.parametrize(
    "encoded",
    [
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array([text.encode() for text in TEXTS]),
        pa.array(["before", *TEXTS, "after"]).slice(1, len(TEXTS)),
        pa.chunked_array([TEXTS[:4], TEXTS[4:5], [], TEXTS[5:]]),
    ],
    ids=["large", "dictionary", "bytes", "slice", "chunks"],
)
def test_text_has_one_priority_however_it_is_stored(encoded):
    expected = priorities(TEXTS)
    np.testing.assert_array_equal(priorities(encoded), expected)
    assert len(set(expected.tolist())) == len(TEXTS)


def test_equal_numbers_have_equal_priorities():
    np.testing.assert_array_equal(priorities([0.0, np.nan, 1.5]), priorities([-0.0, -np.nan, 1.5]))
    np.testing.assert_array_equal(priorities([1.5, 2.0], pa.float32()), priorities([1.5, 2.0], pa.float64()))
    np.testing.assert_array_equal(priorities([-1, 5], pa.int8()), priorities([-1, 5], pa.int64()))
    np.testing.assert_array_equal(priorities([1, 5], pa.uint64()), priorities([1, 5], pa.int64()))
    np.testing.assert_array_equal(priorities([3, None, 4])[[0, 2]], priorities([3, 4]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False, None]),
        pa.array([datetime.datetime(2024, 5, 1, 3), datetime.datetime(1960, 1, 1), None]),
        pa.array([datetime.date(2024, 5, 1), datetime.date(1960, 1, 1), None]),
        pa.array([decimal.Decimal("1.25"), decimal.Decimal("-7.00"), None]),
        pa.array([b"abc", b"abd", None], pa.binary(3)),
        pa.array([2**64 - 1, 0, None], pa.uint64()),
    ],
    ids=lambda column: str(column.type),
)
def test_ids_of_each_kind_are_told_apart(column):
    whole = priorities(column)
    assert len(set(whole.tolist())) == 3
    np.testing.assert_array_equal(whole[1:], priorities(column.slice(1)))


def test_every_id_column_counts_and_so_does_the_seed():
    a, b = pa.array([1, 1, 2, 2]), pa.array(["x", "y", "x", None])
    both = row_priorities(pa.table({"a": a, "b": b}), 0)
    assert len(set(both.tolist())) == 4
    assert not np.any(both == row_priorities(pa.table({"a": b, "b": a}), 0))
    assert not np.any(both == row_priorities(pa.table({"a": a, "b": b}), 1))
    nulls = row_priorities(pa.table({"a": pa.nulls(2)}), 0)
    assert nulls[0] == nulls[1]
    assert len(row_priorities(pa.table({"a": pa.array([], pa.string())}), 0)) == 0


def test_ids_that_are_lists_are_refused():
    with pytest.raises(InvalidInputError, match=r'id column "id" is of type list<.*name such a column in source\.id'):
        priorities([[1], [2]])


@pytest.mark.parametrize(
    "ids",
    [np.arange(200), np.arange(200) / 8, [f"row-{i:06d}" for i in range(200)], np.arange(200) << 40],
    ids=["integers", "floats", "texts", "high bits"],
)
def test_every_row_is_sampled_as_often_as_any_other(ids):
    # counts over seeds of the 20 smallest of 200: each deviates from 40 with variance 36, so that the sum of squares
    # over the variance has mean 200 and standard deviation √400; six of them either way
    n, size, n_seeds = 200, 20, 400
    table = pa.table({"id": ids})
    counts = np.zeros(n)
    for seed in range(n_seeds):
        counts[np.argsort(row_priorities(table, seed))[:size]] += 1
    share = size / n
    statistic = np.square(counts - n_seeds * share).sum() / (n_seeds * share * (1 - share))
    assert abs(statistic - n) < 6 * np.sqrt(2 * n)


def test_priorities_of_two_seeds_have_nothing_to_do_with_each_other():
    n = 4000
    ranks = [np.argsort(np.argsort(priorities(np.arange(n), seed=seed))) for seed in (0, 1, 2**40)]
    correlation = np.corrcoef([*ranks, np.arange(n)])
    assert np.abs(correlation - np.eye(4)).max() < 5 / np.sqrt(n)


# ---------------------------------------------------------------- the first pass


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "size"), [(1, 5), (130, 7), (130, 130), (130, 500), (130, 0)])
def test_look_learns_the_variance_and_samples_rows_once(n, size, dtype):
    X = read_only((np.random.default_rng(0).standard_normal((n, 3)) + 5).astype(dtype))
    found = looked(spans_of(X), n_features=3, size=size)
    assert (found.summary.n_samples, found.summary.n_features) == (n, 3)
    # sums of n·d float64 numbers
    assert found.summary.variance == pytest.approx(np.var(X.astype(np.float64)), rel=10 * X.size * EPS, abs=EPS)
    assert len(found.sample) == len(set(found.numbers.tolist())) == min(n, size)
    np.testing.assert_array_equal(found.sample, X[found.numbers])
    assert found.sample.dtype == (dtype if size else "float64")


def test_smaller_sample_is_the_beginning_of_the_larger_one():
    X = np.random.default_rng(0).standard_normal((300, 2))
    few, many = (looked(spans_of(X), n_features=2, size=size).numbers for size in (20, 90))
    np.testing.assert_array_equal(few, many[:20])


def test_sample_of_no_rows_is_empty():
    found = looked([], n_features=4, size=3)
    assert found.summary.n_samples == 0
    assert found.sample.shape == (0, 4)


@pytest.mark.parametrize("ids", ["integers", "texts"])
def test_sample_does_not_depend_on_the_order_of_rows_parts_spans_and_batches(ids):
    generator = np.random.default_rng(0)
    n = 500
    X, numbers = generator.standard_normal((n, 2)), np.arange(n)
    expected = None
    for length, batch_rows in [(n, n), (100, 30), (7, 3), (64, 64)]:
        order = numbers if expected is None else generator.permutation(n)
        spans = []
        for start in range(0, n, length):
            rows = order[start : start + length]
            column = rows if ids == "integers" else [f"{row:x}" * (1 + row % 3) for row in rows]
            spans.append(TableSpan(X[rows], pa.table({"id": column}), len(spans), start))
        found = looked(spans, n_features=2, size=40, batch_rows=batch_rows)
        np.testing.assert_array_equal(found.sample, X[order[found.numbers]])
        expected = found.sample if expected is None else expected
        np.testing.assert_array_equal(found.sample, expected)


def test_rows_of_one_id_are_sampled_by_their_numbers():
    X = np.arange(40.0).reshape(20, 2)
    spans = [TableSpan(X[s : s + 5], pa.table({"id": np.zeros(5, int)}), 0, s) for s in (0, 5, 10, 15)]
    found = looked(spans, n_features=2, size=7, batch_rows=2).numbers
    np.testing.assert_array_equal(found, looked(row_spans(ArrayRows(X), 5), n_features=2, size=7).numbers)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("names", [(), ("length", "width", "height")])
def test_entries_that_are_not_finite_are_named_as_everywhere(value, names):
    X = np.random.default_rng(0).standard_normal((300, 3))
    X[[137, 138, 290], [1, 2, 0]] = value
    X[295, 0] = np.nan
    with pytest.raises(InvalidInputError) as expected:
        read_rows(iter([X]), 3, 64, names)
    assert "row 137" in str(expected.value)
    assert "1 of 4 such rows" in str(expected.value)
    for span_rows, batch_rows in [(300, 300), (64, 20), (7, 2)]:
        with pytest.raises(InvalidInputError) as found:
            looked(spans_of(X, span_rows), n_features=3, size=5, batch_rows=batch_rows, names=names)
        assert str(found.value) == str(expected.value)


# ---------------------------------------------------------------- every method


@pytest.mark.parametrize("method", LANDMARK_METHODS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 9), (5, 5), (40, 40), (40, 200), (150, 10)])
def test_landmarks_are_different_rows_as_many_as_there_can_be(method, n, m):
    X = read_only(np.random.default_rng(1).standard_normal((n, 4)))
    found = chosen(X, method, m, RBF(3.0))  # no two rows are alike to it
    assert len(found.numbers) == min(n, m)
    assert len(set(found.numbers.tolist())) == len(found.numbers)
    np.testing.assert_array_equal(found.rows, X[found.numbers])
    assert (found.method, found.rows.dtype) == (method, np.float64)
    assert (found.n_passes == 0) == (method != "rpcholesky")
    assert (f"n_landmarks={m}, and there are {n} rows" in found.note) == (m > n)


@pytest.mark.parametrize("method", LANDMARK_METHODS)
@pytest.mark.parametrize("scheduler", SCHEDULERS[1:], ids=str)
def test_landmarks_are_the_same_on_threads(method, scheduler):
    X = np.random.default_rng(2).standard_normal((400, 5)).astype(np.float32)
    reference = chosen(X, method, 60, RBF(0.1), dtype="float32")
    with open_engine(scheduler[0], n_threads=scheduler[1]) as engine:
        found = chosen(X, method, 60, RBF(0.1), dtype="float32", engine=engine)
    np.testing.assert_array_equal(found.numbers, reference.numbers)
    np.testing.assert_array_equal(found.rows, reference.rows)
    assert found.n_passes == reference.n_passes


@pytest.mark.slow
def test_landmarks_are_the_same_on_worker_processes(tmp_path):
    X = np.random.default_rng(2).standard_normal((400, 5))
    spans = row_spans(store_rows(X, tmp_path / "rows.zarr", 64), 64)
    with open_engine(ClusterSettings("local", n_workers=2), n_threads=1) as engine:
        for method in LANDMARK_METHODS:
            reference = chosen(X, method, 60, RBF(0.1))
            found = chosen(X, method, 60, RBF(0.1), engine=engine, spans=spans)
            np.testing.assert_array_equal(found.numbers, reference.numbers)
            np.testing.assert_array_equal(found.rows, reference.rows)
        found = chosen(X, "given", 0, given=[399, 3, 3], engine=engine, spans=spans)
        np.testing.assert_array_equal(found.rows, X[[399, 3, 3]])


@pytest.mark.parametrize("method", LANDMARK_METHODS)
def test_blocks_of_a_dask_array_have_the_landmarks_of_the_rows(method):
    X = np.random.default_rng(2).standard_normal((200, 5))
    spans = block_spans(da.from_array(X, chunks=(64, 2)))
    found = chosen(X, method, 20, spans=spans)
    np.testing.assert_array_equal(found.numbers, chosen(X, method, 20).numbers)


@pytest.mark.parametrize("method", ["kmeans++", "rpcholesky"])
@pytest.mark.parametrize("seed", range(5))
def test_small_clusters_get_landmarks_too(method, seed):
    generator = np.random.default_rng(seed)
    cluster = generator.permutation(np.repeat(np.arange(5), [880, 30, 30, 30, 30]))
    X = 0.05 * generator.standard_normal((1000, 5)) + 10 * np.eye(5)[cluster]
    found = chosen(X, method, 20, RBF(0.5), seed=seed)
    assert set(cluster[found.numbers]) == set(range(5))


@pytest.mark.parametrize("method", LANDMARK_METHODS)
def test_one_row_repeated_is_one_landmark_or_many(method):
    X = np.full((100, 3), 0.1)
    found = chosen(X, method, 10)
    assert len(found.numbers) == (10 if method == "uniform" else 1)
    assert (found.note == "") == (method == "uniform")


def test_methods_and_samples_that_do_not_fit_are_refused():
    X = np.random.default_rng(0).standard_normal((50, 2))
    with pytest.raises(ConfigError, match="'best' is not known; choose one of uniform, kmeans"):
        chosen(X, "best", 5)
    with pytest.raises(ConfigError, match="n_landmarks=0; at least one"):
        chosen(X, "uniform", 0)
    with pytest.raises(ConfigError, match="without an array"):
        chosen(X, "given", 5)
    with pytest.raises(ConfigError, match="with an array"):
        chosen(X, "uniform", 5, given=[1, 2])
    with pytest.raises(InvalidInputError, match="there are no rows"):
        chosen(X[:0], "uniform", 5)
    found = looked(spans_of(X), n_features=2, size=2)
    with open_engine("synchronous") as engine, pytest.raises(ConfigError, match="look for sample_size=100"):
        choose_landmarks("kmeans++", found, engine, spans_of(X), RBF(1.0), n_landmarks=5, seed=0)


# ---------------------------------------------------------------- k-means++


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_kmeans_sees_clusters_at_any_scale_and_offset(scale, offset):
    cluster = np.arange(60) % 4
    X = (np.eye(4)[cluster] + offset) * scale
    found = chosen(X, "kmeans++", 4)
    assert set(cluster[found.numbers]) == set(range(4))


def test_kmeans_has_no_more_landmarks_than_different_rows():
    X = np.repeat(np.eye(3), 20, axis=0)
    found = chosen(X, "kmeans++", 10)
    assert len(np.unique(found.rows, axis=0)) == len(found.rows) == 3
    assert found.note == "3 landmarks: no more of the rows sampled differ"


# ---------------------------------------------------------------- given


def test_given_rows_and_row_numbers_are_taken_as_they_are():
    X = read_only(np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32))
    numbers = [150, 3, 199, 3, 0]
    found = chosen(X, "given", 7, given=numbers)
    np.testing.assert_array_equal(found.rows, X[numbers])
    np.testing.assert_array_equal(found.numbers, numbers)
    assert (found.n_passes, found.rows.dtype) == (1, np.float32)
    rows = read_only(X[:4] + 1)
    found = chosen(X, "given", 7, given=rows)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.numbers, [-1, -1, -1, -1])
    assert (found.n_passes, found.rows.dtype) == (0, np.float32)
    assert chosen(X, "given", 7, given=[[1, 2, 3]]).rows.dtype == np.float64


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([3, 200], r"landmark 1 is row number 200 \(1 of 1 such landmarks\); rows are numbered from 0 to 199"),
        ([-1], "row number -1"),
        (np.array([2**63], np.uint64), "row number 9223372036854775808"),
        ([], "dtype float64"),
        (np.empty((0, 3)), "no landmarks are given"),
        (np.empty(0, int), "no landmarks are given"),
        ([[1.0, 2.0]], "have 2 features and the source has 3"),
        ([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]], "landmark 1, column 1 is nan"),
        ([0.5, 1.5], "row numbers, integers"),
        ([True, False], "dtype bool"),
        (["a"], "dtype <U1"),
        ([[1, 2, 3], [1, 2]], "are no array"),
        (3, r"shape \(\)"),
    ],
)
def test_given_landmarks_that_make_no_sense_are_named(given, message):
    with pytest.raises(InvalidInputError, match=message):
        chosen(np.zeros((200, 3)), "given", 5, given=given)


def test_only_spans_with_wanted_rows_are_read():
    X = np.random.default_rng(0).standard_normal((256, 3))
    spans = spans_of(X)

    class Unreadable:
        part, start, n_rows = 0, 64, 64

        def batches(self, batch_rows, labels="none"):
            raise AssertionError((batch_rows, labels))

    with open_engine("synchronous") as engine:
        rows = fetch_rows(engine, [spans[0], Unreadable(), spans[3]], np.array([200, 5, 255]), batch_rows=10)
    np.testing.assert_array_equal(rows, X[[200, 5, 255]])


# ---------------------------------------------------------------- randomly pivoted Cholesky


def test_pivots_have_the_law_of_one_by_one_draws():
    # ordered pairs of 4 rows; counts over N runs of 12 cells: chi² with 11 degrees of freedom, five deviations above
    X = np.array([[0.2, 0.9], [0.9, 0.6], [1.5, 0.0], [1.0, 1.2]])
    K = gram(Linear(), X) + 0.3 * np.exp(-np.square(X[:, None] - X).sum(axis=2))

    class Table(Linear):
        """The kernel of those rows, looked up by their numbers."""

        def diagonal(self, rows):
            return np.diag(K)[rows[:, 0].astype(int)]

        def evaluate(self, left, right, out):
            out[...] = K[left[:, 0].astype(int)[:, None], right[0].astype(int)]

    law = np.zeros((4, 4))
    for i in range(4):
        residual = np.diag(K) - K[:, i] ** 2 / K[i, i]
        residual[i] = 0
        law[i] = K[i, i] / np.trace(K) * residual / residual.sum()
    n_runs, numbers = 400, np.arange(4.0)[:, None]
    counts = np.zeros((4, 4))
    for seed in range(n_runs):
        found = pivots_of(numbers, Table(), 2, seed=seed, block=5, span_rows=3, batch_rows=2)
        counts[tuple(found.numbers)] += 1
    cells = law > 0
    assert n_runs * law[cells].min() > 5
    statistic = np.sum((counts[cells] - n_runs * law[cells]) ** 2 / (n_runs * law[cells]))
    assert counts[~cells].sum() == 0
    assert statistic < 11 + 5 * np.sqrt(2 * 11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pivots_leave_as_much_as_those_drawn_one_by_one(dtype):
    # means over 20 seeds of what is left differ by less than four times their standard error
    X = np.random.default_rng(0).standard_normal((300, 2))
    kernel = RBF(0.5)
    K = gram(kernel, X)
    ours = [share_left(K, pivots_of(X, kernel, 25, seed=seed, block=12, dtype=dtype).numbers) for seed in range(20)]
    plain = [share_left(K, plain_pivots(K, 25, seed)) for seed in range(100, 120)]
    error = np.sqrt((np.var(ours, ddof=1) + np.var(plain, ddof=1)) / 20)
    assert abs(np.mean(ours) - np.mean(plain)) < 4 * error


def test_pivots_are_far_better_than_uniform_where_the_spectrum_decays():
    X = np.random.default_rng(0).standard_t(2, (600, 2))
    kernel = RBF(0.05)
    K = gram(kernel, X)
    left = {
        method: np.mean([share_left(K, chosen(X, method, 50, kernel, seed=seed).numbers) for seed in range(3)])
        for method in ("uniform", "rpcholesky")
    }
    assert left["rpcholesky"] < left["uniform"] / 10


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("kernel", "rank"),
    [(Linear(), 5), (Polynomial(gamma=0.2, degree=2, coef0=1.0), 21), (Cosine(), 5)],
    ids=lambda value: getattr(value, "name", value),
)
def test_low_rank_ends_the_search_early(kernel, rank, dtype):
    X = read_only(np.random.default_rng(0).standard_normal((400, 5)) + 1)
    K = gram(kernel, X)
    found = chosen(X, "rpcholesky", 100, kernel, dtype=dtype)
    # a row or two that rounding hides in the first block may come on top
    assert rank <= len(found.numbers) <= rank + 2
    assert abs(share_left(K, found.numbers)) < 400 * EPS
    assert found.note == f"{len(found.numbers)} landmarks of 100 are enough: what they leave is within {dtype} rounding"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_search_ends_where_only_rounding_is_left(dtype):
    X = np.random.default_rng(0).uniform(size=(500, 1))
    kernel = RBF(2.0)
    found = chosen(X, "rpcholesky", 100, kernel, dtype=dtype)
    assert len(found.numbers) < 20
    # what is called rounding: a few times the error of the kernel, 4·eps of the dtype and at least 64 of float64
    assert share_left(gram(kernel, X), found.numbers) < 4 * max(4 * np.finfo(dtype).eps, 64 * EPS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_repeated_rows_are_chosen_once(dtype):
    different = np.random.default_rng(0).standard_normal((30, 3))
    X = np.tile(different, (7, 1))
    found = chosen(X, "rpcholesky", 100, RBF(1.0), dtype=dtype)
    assert len(np.unique(found.numbers % 30)) == len(found.numbers) == 30


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e30, 1e100])
def test_size_of_the_kernel_does_not_matter(scale, dtype):
    X = np.random.default_rng(0).standard_normal((300, 4))
    found = chosen(X * scale, "rpcholesky", 50, Linear(), dtype=dtype)
    assert len(np.unique(found.numbers)) == 4
    assert abs(share_left(gram(Linear(), X), found.numbers)) < 300 * EPS


def test_rows_beyond_float32_are_evaluated_in_float64():
    X = np.random.default_rng(0).standard_normal((300, 4))
    X[7] *= 1e39
    cube = Polynomial(gamma=1.0, degree=3, coef0=1.0)
    pivots = X[:7]
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(kernel_block(cube, X, pivots, dtype="float32")[7]).any()
    step = Step(pivots, np.linalg.inv(np.linalg.cholesky(gram(cube, pivots))).T, np.arange(7), "float32")
    diagonal = cube.diagonal(X)
    found = update_and_draw(spans_of(X, 300)[0], diagonal, step, cube, 5, 0, 1, 300)
    assert np.isfinite(found.residual).all()
    explained = kernel_block(cube, X[7:8], pivots) @ step.multiplier
    assert found.residual[7] == pytest.approx(diagonal[7] - np.square(explained).sum())
    np.testing.assert_array_equal(found.residual[:7], 0)
    np.testing.assert_array_equal(found.proposals.numbers, 7)


def test_values_beyond_float64_are_named():
    X = np.ones((300, 2))
    X[123] = 1e200
    with pytest.raises(InvalidInputError, match=r"the kernel of row 123 is beyond float64 .*scale the features down"):
        chosen(X, "rpcholesky", 5, Linear())


def test_rows_that_are_all_zero_have_one_landmark():
    found = chosen(np.zeros((100, 3)), "rpcholesky", 5, Linear())
    np.testing.assert_array_equal(found.numbers, [0])
    assert "every k(x, x) is 0" in found.note


def test_indefinite_kernel_is_refused_with_another_method_named():
    with pytest.raises(ConfigError, match=r"'sigmoid' with these parameters is not known to be one; .*uniform"):
        chosen(np.ones((10, 2)), "rpcholesky", 5, Sigmoid(gamma=1.0, coef0=0.0))


def test_last_pass_fills_up_what_is_missing():
    X = np.random.default_rng(0).standard_normal((400, 2))
    kernel = RBF(0.5)
    free, capped = (pivots_of(X, kernel, 40, block=8, max_passes=limit) for limit in (24, 3))
    assert free.n_unthinned == 0
    assert free.n_passes > 3
    assert (capped.n_passes, len(np.unique(capped.numbers))) == (3, 40)
    assert 0 < capped.n_unthinned < 40


def test_larger_blocks_need_fewer_passes_and_passes_are_what_is_counted():
    X = np.random.default_rng(0).standard_normal((400, 3))
    events = []
    few = pivots_of(X, RBF(0.5), 60, block=60)
    with open_engine("synchronous", listener=events.append) as engine:
        many = choose_pivots(
            engine, spans_of(X), RBF(0.5), n_pivots=60, seed=0, dtype="float64", batch_rows=50, block=8
        )
    assert few.n_passes < many.n_passes
    assert sum(event.stage == "landmarks" and event.done == event.total for event in events) == many.n_passes


def test_no_array_of_rows_by_landmarks_is_made():
    n, m = 20_000, 400
    X = np.random.default_rng(0).standard_normal((n, 4))
    with open_engine("synchronous") as engine:
        tracemalloc.start()
        found = choose_pivots(
            engine, spans_of(X, 4096), RBF(1.0), n_pivots=m, seed=0, dtype="float64", batch_rows=2048, block=m // 2
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(found.numbers) == m
    assert peak < n * m * 8 / 4


def test_repeated_ids_do_not_draw_rows_together(tmp_path, caplog):
    n, few = 2000, 5
    rows = np.random.default_rng(0).standard_normal((n, 3))
    ids = np.repeat(np.arange(few), n // few)
    columns = {"id": ids} | {f"x{column}": rows[:, column] for column in range(3)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    source = open_source("rows.parquet", tmp_path, id_columns=["id"])
    with open_engine("synchronous") as engine:
        found = look(engine, source.spans(300), n_features=3, sample_size=200, seed=0)
    assert "not unique" in caplog.text
    # each id has 40 of 200 on average, with a deviation of 5.4
    assert np.bincount(ids[found.numbers], minlength=few).min() > 40 - 5 * 5.4
