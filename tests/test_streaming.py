"""Passes over spans: everything once, in order, a wave at a time, the same bits on every scheduler."""

import dask.array as da
import numpy as np
import pytest

from scalable_kpca.engine import open_engine
from scalable_kpca.kernels import RBF
from scalable_kpca.nystroem import Accumulators, accumulate, build_basis
from scalable_kpca.source import ArrayRows, row_spans
from scalable_kpca.streaming import block_spans, map_spans, reduce_spans

N, D = 230, 4
X = np.random.default_rng(0).standard_normal((N, D))
X.setflags(write=False)


def numbers(span, batch_rows=7):
    return [(batch.start, len(batch.rows)) for batch in span.batches(batch_rows)]


def rows_of(span, own=None):
    del own
    return np.concatenate([batch.rows for batch in span.batches(5)])


@pytest.mark.parametrize("kind", ["synchronous", "threads"])
@pytest.mark.parametrize("span_rows", [1, 50, 230, 1000])
def test_every_row_comes_back_once_and_in_order(kind, span_rows):
    with open_engine(kind, n_threads=3) as engine:
        found = map_spans(engine, row_spans(ArrayRows(X), span_rows), rows_of, stage="x", wave=3)
        assert np.array_equal(np.concatenate(list(found)), X)


def test_each_span_gets_its_own_argument_and_all_get_the_shared_ones():
    spans = row_spans(ArrayRows(X), 100)
    with open_engine("threads", n_threads=2) as engine:
        found = list(
            map_spans(
                engine, spans, lambda span, own, a, b: (span.start, own, a, b), [1, 2], "b", each=[7, 8, 9], stage="x"
            )
        )
    assert found == [(0, 7, [1, 2], "b"), (100, 8, [1, 2], "b"), (200, 9, [1, 2], "b")]


@pytest.mark.parametrize("chunks", [(100, 130), (1, 229), (230,), (0, 100, 0, 130)])
def test_blocks_of_a_dask_array_are_read_by_the_tasks(chunks):
    read = []

    def block(part):
        read.append(len(part))
        return part

    array = da.from_array(X, chunks=(chunks, 2)).rechunk((chunks, D)).map_blocks(block, dtype=X.dtype, meta=X[:0])
    with open_engine("threads", n_threads=2) as engine:
        spans = block_spans(array)
        assert [span.n_rows for span in spans] == [length for length in chunks if length]
        assert read == []
        assert np.array_equal(np.concatenate(list(map_spans(engine, spans, rows_of, stage="x"))), X)
        starts = [start for found in map_spans(engine, spans, numbers, stage="x") for start, _ in found]
    assert starts == sorted(starts)
    assert sorted(read) == sorted([length for length in chunks if length] * 2)


def test_spans_that_are_done_are_not_read_again():
    spans = row_spans(ArrayRows(X), 10)
    with open_engine("synchronous") as engine:
        waves = list(reduce_spans(engine, spans, numbers, add=list.__add__, stage="x", wave=4, first=8))
    assert [done for done, _ in waves] == [12, 16, 20, 23]
    assert waves[0][1][0] == (80, 7)


def test_progress_counts_rows_of_the_whole_stage():
    events = []
    with open_engine("threads", n_threads=2, listener=events.append) as engine:
        list(map_spans(engine, row_spans(ArrayRows(X), 10), rows_of, stage="look", wave=4))
        list(reduce_spans(engine, row_spans(ArrayRows(X), 10), numbers, add=list.__add__, stage="sum", wave=4))
    for stage in ("look", "sum"):
        found = [(event.done, event.total) for event in events if event.stage == stage]
        assert {total for _, total in found} == {N}
        assert [done for done, _ in found] == [*range(10, N, 10), N]


def test_no_more_than_a_wave_is_given_out_at_a_time():
    held = []

    def mark(span):
        held.append(span.start // 10)
        return span.start // 10

    with open_engine("threads", n_threads=2) as engine:
        for position, _ in enumerate(map_spans(engine, row_spans(ArrayRows(X), 10), mark, stage="x", wave=4)):
            assert max(held) < 4 * (position // 4 + 1)


def sums_on(kind, n_threads, dtype, wave=4):
    basis = build_basis(RBF(0.2), X[::5], dtype)
    with open_engine(kind, n_threads=n_threads) as engine:
        total = Accumulators.zero(basis)
        for _, part in reduce_spans(
            engine, row_spans(ArrayRows(X), 20), accumulate, basis, 9, add=Accumulators.__add__, stage="x", wave=wave
        ):
            total += part
    return total


def assert_same_bits(one, two):
    for name in ("n_samples", "diagonal_sum", "max_diagonal", "entry_error"):
        assert getattr(one, name) == getattr(two, name)
    assert np.array_equal(one.gram, two.gram)
    assert np.array_equal(one.sums, two.sums)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_sums_have_the_same_bits_on_any_number_of_threads(n_threads, dtype):
    assert_same_bits(sums_on("threads", n_threads, dtype), sums_on("synchronous", 1, dtype))


@pytest.mark.parametrize("wave", [3, 6, 9, 30])
def test_sums_have_the_same_bits_however_many_are_given_out_together(wave):
    basis = build_basis(RBF(0.2), X[::5], "float32")
    found = []
    with open_engine("threads", n_threads=2) as engine:
        spans = row_spans(ArrayRows(X), 10)
        for together, first in ((3, 0), (wave, 0), (wave, 6)):
            start = Accumulators.zero(basis) if first == 0 else found[0][1]  # after two groups, as a checkpoint has it
            options = {"add": Accumulators.__add__, "stage": "x", "start": start, "group": 3, "first": first}
            waves = list(reduce_spans(engine, spans, accumulate, basis, 9, wave=together, **options))
            found.append((waves[-1][1], dict(waves).get(6)))
            assert [done for done, _ in waves] == [*range(first + together, len(spans), together), len(spans)]
    for total, _ in found[1:]:
        assert_same_bits(total, found[0][0])
    parts = Accumulators.zero(basis)
    with open_engine("synchronous") as engine:
        for _, part in reduce_spans(engine, spans, accumulate, basis, 9, add=Accumulators.__add__, stage="x", wave=3):
            parts += part
    assert_same_bits(parts, found[0][0])


@pytest.mark.slow
def test_sums_have_the_same_bits_in_worker_processes():
    assert_same_bits(sums_on("local", 1, "float32"), sums_on("synchronous", 1, "float32"))
