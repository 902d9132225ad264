"""Seconds are arithmetic: what is twice as much takes twice as long, whatever the machine."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable_kpca.kernels import KERNELS
from scalable_kpca.tiling import GRAM_HOMES, SOLVERS
from scalable_kpca.tiling.costs import (
    expected_passes,
    fit_seconds,
    pass_seconds,
    solver_seconds,
    staging_seconds,
    start_seconds,
)
from scalable_kpca.tiling.rates import MachineRates, ProductRate, nominal_rates
from scalable_kpca.tiling.sizes import Job
from scalable_kpca.tiling.tiles import Tiling

HOMES = st.sampled_from(GRAM_HOMES)

# everything free; a test switches on what it counts
FREE = MachineRates(
    entry=0,
    feature=0,
    fold=0,
    keep=0,
    single=ProductRate(0, 0, 0),
    double=ProductRate(0, 0, 0),
    gemm=0,
    lapack=0,
    orthogonalise=0,
    write=float("inf"),
    flush=float("inf"),
    read=float("inf"),
    reread=float("inf"),
    cache_bytes=2**40,
    stage=0,
    task=0,
)


def job(n_samples=40_000, n_features=64, n_components=10, dtype="float32", solver="block_krylov", n_threads=1):
    return Job(n_samples, n_features, n_components, dtype, solver, n_threads)


def one_pass(rates, home="recompute", first=False, columns=23, tile_rows=4000, **shape):
    return pass_seconds(job(**shape), home, tile_rows, rates, columns=columns, first=first)


@pytest.mark.parametrize("home", GRAM_HOMES)
@pytest.mark.parametrize("first", [True, False])
def test_an_entry_is_evaluated_when_it_is_made_and_multiplied_whenever_it_is_seen(home, first):
    half = 40_000**2 / 2
    evaluated = replace(FREE, entry=1e-9, feature=1e-10)
    expected = half * (1e-9 + 64e-10) if first or home == "recompute" else 0
    assert one_pass(evaluated, home, first) == pytest.approx(expected)
    multiplied = replace(FREE, single=ProductRate(entry=1e-9, column=1e-10, measure=0))
    assert one_pass(multiplied, home, first) == pytest.approx(half * (1e-9 + 23e-10))
    measured = replace(FREE, single=ProductRate(entry=0, column=0, measure=1e-9))
    assert one_pass(measured, home, first) == pytest.approx(half * 1e-9 if first else 0)
    kept = replace(FREE, keep=1e-9)
    assert one_pass(kept, home, first) == pytest.approx(half * 4e-9 if first and home == "memory" else 0)


def test_products_in_float64_have_their_own_rate():
    rates = replace(FREE, double=ProductRate(entry=1e-9, column=0, measure=0))
    assert one_pass(rates, solver="block_krylov") == 0
    assert one_pass(rates, solver="arpack") == pytest.approx(40_000**2 / 2 * 1e-9)
    assert one_pass(rates, dtype="float64") == pytest.approx(40_000**2 / 2 * 1e-9)


def test_threads_share_the_work_up_to_the_last_task():
    rates = replace(FREE, entry=1e-9)
    alone, two, many = (one_pass(rates, n_threads=n_threads) for n_threads in (1, 2, 64))
    # one thread may work on the last of at least eight tasks a thread while the others are done
    assert alone / 2 < two <= alone / 2 * (1 + 1 / 16)
    assert many < two / 10


def test_each_side_of_each_tile_is_prepared_again():
    rates = replace(FREE, fold=1e-9)
    large, small = (one_pass(rates, tile_rows=t, n_samples=40_000) for t in (4000, 2000))
    sides = {t: 2 * Tiling(40_000, t).n_tiles * t * 64 * 1e-9 for t in (4000, 2000)}
    assert large == pytest.approx(sides[4000])
    assert small == pytest.approx(sides[2000])


def test_stored_tiles_are_read_from_memory_or_from_the_disk_when_they_are_more():
    rates = replace(FREE, read=1e9, reread=1e10)
    stored = 55 * 4000**2 * 4
    assert one_pass(rates, "zarr") == pytest.approx(stored / 1e10)
    assert one_pass(replace(rates, cache_bytes=stored), "zarr") == pytest.approx(stored / 1e10)
    assert one_pass(replace(rates, cache_bytes=stored - 1), "zarr") == pytest.approx(stored / 1e9)
    assert one_pass(rates, "memory") == one_pass(rates, "recompute") == 0


def test_a_writer_waits_for_the_disk_when_a_quarter_of_the_cache_is_full():
    rates = replace(FREE, write=1e9, flush=1e8)
    stored = 55 * 4000**2 * 4
    assert one_pass(rates, "zarr", first=True) == pytest.approx(stored / 1e9)
    assert one_pass(replace(rates, cache_bytes=0), "zarr", first=True) == pytest.approx(stored / 1e8)
    between = one_pass(replace(rates, cache_bytes=2 * stored), "zarr", first=True)
    assert between == pytest.approx(stored / 2 / 1e9 + stored / 2 / 1e8)


def test_tasks_have_a_price():
    assert one_pass(replace(FREE, task=1), tile_rows=4000) == Tiling(40_000, 4000).n_tasks(1) == 55


@given(
    st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 2000), HOMES, st.sampled_from(SOLVERS), st.booleans()
)
def test_more_rows_never_take_less_time(n, more, d, home, solver, is_run):
    rates = nominal_rates("rbf", "float32")
    # one tile size: another one would prepare fewer sides
    small, large = (
        fit_seconds(job(n_samples, d, 1, solver=solver), home, min(n, 4000), rates, is_run=is_run)
        for n_samples in (n, n + more)
    )
    assert 0 < small < large


@given(st.integers(1000, 10**6), st.integers(1, 1000), HOMES)
def test_more_features_take_more_time_and_dearer_kernels_too(n, d, home):
    def seconds(kernel, d):
        return fit_seconds(job(n, d), home, min(n, 4000), nominal_rates(kernel, "float32"))

    assert seconds("rbf", d) < seconds("rbf", d + 1)
    assert seconds("linear", d) < seconds("rbf", d) < seconds("laplacian", d)


def test_more_passes_take_more_time_by_their_width():
    rates = replace(FREE, double=ProductRate(1e-9, 1e-10, 0))
    few, many = (fit_seconds(job(n_components=k, solver="arpack"), "memory", 4000, rates) for k in (10, 20))
    # k = 10: 50 passes of one vector, k = 20: 70; eight of k + 12 to look for what was missed, and a certifying one;
    # the column of ones in all
    assert [expected_passes(job(n_components=k, solver="arpack")) for k in (10, 20)] == [59, 79]
    half = 40_000**2 / 2
    assert few == pytest.approx(half * (50 * 1.2e-9 + 9 * (1e-9 + 23e-10)))
    assert many == pytest.approx(half * (70 * 1.2e-9 + 9 * (1e-9 + 33e-10)))


@pytest.mark.parametrize(
    ("shape", "passes"),
    [
        ({}, 5),
        ({"dtype": "float64"}, 7),
        ({"solver": "power"}, 15),
        ({"solver": "arpack", "n_components": 1}, 41),
        ({"solver": "arpack", "n_components": 100}, 240),
        ({"solver": "dense"}, 2),  # few pairs of a matrix that is formed: their residuals are known from it
        ({"solver": "dense", "n_samples": 399}, 3),
        ({"solver": "dense", "n_components": 0, "n_samples": 640}, 12),
    ],
)
def test_expected_passes_of_each_solver(shape, passes):
    assert expected_passes(job(**shape)) == passes


def test_solvers_take_time_beside_their_passes():
    lapack = replace(FREE, lapack=1e-9)
    whole, part = (solver_seconds(job(1000, 64, k, solver="dense"), lapack) for k in (0, 10))
    assert whole == pytest.approx(1)
    assert part == pytest.approx(0.1)
    assert solver_seconds(job(1000, 64, 26, solver="dense"), lapack) == pytest.approx(0.4156)  # LAPACK again
    steps = replace(FREE, orthogonalise=1e-9)
    # five steps, whose bases have one to five blocks of 22 columns
    assert solver_seconds(job(), steps) == pytest.approx(40_000 * 22 * 22 * 15 * 1e-9)
    assert solver_seconds(job(solver="arpack"), steps) > 0
    assert solver_seconds(job(), lapack) == 0


def test_the_start_block_is_for_solvers_that_begin_with_one():
    rates = replace(FREE, entry=1e-9, gemm=1e-12, lapack=1e-9)
    values, products, algebra = 2 * 40_000 * 600 * 1e-9, 2 * 40_000 * 600**2 * 1e-12, 2 * 600**3 * 1e-9
    assert start_seconds(job(), rates) == pytest.approx(values + products + algebra)
    assert start_seconds(job(n_threads=2), rates) == pytest.approx((values + products) / 2 + algebra)
    assert start_seconds(job(solver="arpack"), rates) == start_seconds(job(solver="dense"), rates) == 0
    assert start_seconds(job(n_samples=100), rates) < start_seconds(job(n_samples=600), rates)


def test_a_run_starts_a_process_and_copies_its_rows():
    rates = replace(FREE, stage=1e-9)
    assert staging_seconds(job(), rates, is_run=False) == pytest.approx(40_000 * 64e-9)
    assert staging_seconds(job(), rates, is_run=True) == pytest.approx(1.5 + 40_000 * 64e-9)
    slow = replace(FREE, read=1e6, flush=1e6)
    assert staging_seconds(job(), slow, is_run=True) == pytest.approx(1.5 + 4 * 40_000 * 64 * 8 / 1e6)


@pytest.mark.parametrize("kernel", [*KERNELS, "a kernel that is not known"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_kernel_has_nominal_rates_that_say_that_they_are(kernel, dtype):
    rates = nominal_rates(kernel, dtype)
    assert not rates.is_measured
    assert rates.entry > 0
    assert rates.feature > 0
    if kernel in KERNELS:
        assert rates.entry != nominal_rates("?", dtype).entry or kernel == "rbf"


def test_nominal_rates_are_those_that_they_claim():
    entries = 100_000**2 / 2
    # per core: one thread, no scheduler
    seconds = one_pass(replace(nominal_rates("rbf", "float32"), task=0), n_samples=100_000, columns=23)
    assert entries / seconds == pytest.approx(0.15e9, rel=0.1)
