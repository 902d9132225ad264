"""Plans are integers that keep their promises: every tile once, every byte counted, every number in a message true."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable_kpca.errors import ConfigError, MemoryLimitError
from scalable_kpca.tiling import DENSE_LIMIT, SOLVERS, Alternative, Plan, Tiling, arpack_vectors, plan_exact
from scalable_kpca.tiling.rates import nominal_rates
from scalable_kpca.tiling.sizes import (
    CERTIFIED_COLUMNS,
    FEWEST_THREADS,
    MOST_TASKS,
    PROCESS_BYTES,
    RUN_ROWS,
    SCHEDULED_ENTRIES,
    TASKS_A_THREAD,
    run_width,
)

GIB = 2**30
SLOW_DISK = replace(nominal_rates("rbf", "float32"), write=1e5, flush=1e5, read=1e5, reread=1e5, is_measured=True)
FAST_DISK = replace(SLOW_DISK, write=1e12, flush=1e12, read=1e12, reread=1e12)

sizes = st.tuples(st.integers(1, 400), st.integers(1, 500))


@given(sizes)
def test_blocks_partition_the_rows(size):
    n, t = size
    tiling = Tiling(n, t)
    rows = [row for i in range(tiling.n_blocks) for row in range(n)[tiling.block(i)]]
    assert rows == list(range(n))
    lengths = [tiling.length(i) for i in range(tiling.n_blocks)]
    assert lengths == [tiling.block(i).stop - tiling.block(i).start for i in range(tiling.n_blocks)]
    assert set(lengths[:-1]) <= {t}
    assert 1 <= lengths[-1] <= t


@given(sizes)
def test_tiles_cover_each_unordered_pair_of_rows_once(size):
    n, t = size
    tiling = Tiling(n, t)
    tiles = list(tiling.tiles())
    assert all(i <= j for i, j in tiles)
    assert len(tiles) == tiling.n_tiles
    blocks = [(min(a // t, b // t), max(a // t, b // t)) for a in range(0, n, t) for b in range(a, n, t)]
    assert sorted(tiles) == sorted(blocks)
    assert tiles == sorted(tiles)  # block row by block row


@given(sizes)
def test_number_of_entries_is_that_of_the_tiles(size):
    n, t = size
    tiling = Tiling(n, t)
    assert tiling.n_entries == sum(tiling.length(i) * tiling.length(j) for i, j in tiling.tiles())


@given(sizes, st.integers(1, 9))
def test_runs_cover_each_block_row_in_order(size, width):
    tiling = Tiling(*size)
    for i in range(tiling.n_blocks):
        runs = list(tiling.runs(i, width))
        assert [j for run in runs for j in run] == list(range(i, tiling.n_blocks))
        assert all(1 <= len(run) <= width for run in runs)
    assert tiling.n_tasks(width) == sum(len(list(tiling.runs(i, width))) for i in range(tiling.n_blocks))


@given(st.integers(1, 3_000_000), st.integers(1, 4096), st.integers(1, 64))
def test_tasks_are_few_enough_to_schedule_and_enough_for_every_thread(n_samples, tile_rows, n_threads):
    tiling, width = Tiling(n_samples, tile_rows), run_width(n_samples, tile_rows, n_threads)
    assert 1 <= width <= max(1, tiling.n_blocks)
    tasks = tiling.n_tasks(width)
    assert tasks <= max(MOST_TASKS, tiling.n_blocks)  # a run never spans block rows
    enough = TASKS_A_THREAD * max(n_threads, FEWEST_THREADS)
    # fewer only where single tiles are fewer, or a scheduler could not hold more
    assert tasks >= enough or width == 1 or tiling.n_tasks(width - 1) > MOST_TASKS
    # and runs are not shorter than they may be
    if (width + 1) * tile_rows <= RUN_ROWS and width < tiling.n_blocks:
        assert tiling.n_tasks(width + 1) < enough


@given(st.integers(1, 3_000_000), st.integers(1, 4096))
def test_one_to_four_threads_run_the_same_tasks(n_samples, tile_rows):
    assert len({run_width(n_samples, tile_rows, n_threads) for n_threads in (1, 2, 3, 4)}) == 1


@given(st.integers(1, 10_000_000), st.sampled_from([512, 1024, 4096]), st.integers(1, 8), st.integers(1, 1000))
def test_processes_get_no_narrower_runs_for_tasks_that_their_scheduler_cannot_give_out(n, t, threads, workers):
    tiling, width = Tiling(n, t), run_width(n, t, threads, workers)
    alone, parallel = run_width(n, t, threads * workers), threads * workers
    if parallel <= FEWEST_THREADS or workers == 1:
        assert width == alone
    if width == alone:
        return
    # wider than threads of one process would have them, up to the usual width, and only for that reason
    assert alone < width <= max(1, RUN_ROWS // t)
    assert tiling.n_tasks(alone) * SCHEDULED_ENTRIES > n**2 // 2 / parallel
    assert tiling.n_tasks(width) >= min(TASKS_A_THREAD * FEWEST_THREADS, tiling.n_tiles)


def test_a_task_of_the_largest_tiles_is_half_a_second_of_work():
    plan = plan_exact(1_000_000, 64, n_components=10, memory_limit=16 * GIB, n_threads=2)
    entries = plan.tiles_per_task * plan.tile_rows**2
    # measured on the machine of the design: 0.15 to 0.25 G entries a second and core
    assert 0.5 <= entries / 0.25e9 <= entries / 0.15e9 <= 1
    assert (plan.n_tiles, plan.n_tasks) == (30_135, 3875)


def plans(**fixed):
    """Arguments of `plan_exact`, without a memory limit."""
    return st.fixed_dictionaries(
        {
            "n_samples": st.one_of(st.integers(1, 3000), st.integers(1, 2_000_000)),
            "n_features": st.integers(1, 2000),
            "n_components": st.integers(1, 30),
            "dtype": st.sampled_from(["auto", "float32", "float64"]),
            "solver": st.sampled_from(["auto", *SOLVERS]),
            "gram": st.sampled_from(["auto", "zarr", "memory", "recompute"]),
            "n_threads": st.integers(1, 16),
            "resident_bytes": st.sampled_from([0, 10**8]),
        }
        | {name: st.just(value) for name, value in fixed.items()}
    )


def named_bytes(error):
    return int(re.search(r"raise memory_limit to (\d+) bytes", str(error)).group(1))


def smallest_limit(arguments):
    with pytest.raises(MemoryLimitError) as caught:
        plan_exact(**arguments, memory_limit=0)
    return named_bytes(caught.value)


def assert_is_smallest(arguments):
    smallest = smallest_limit(arguments)
    plan = plan_exact(**arguments, memory_limit=smallest)
    assert plan.peak_memory <= smallest
    with pytest.raises(MemoryLimitError) as caught:
        plan_exact(**arguments, memory_limit=smallest - 1)
    assert named_bytes(caught.value) == smallest


@given(plans())
def test_smallest_memory_limit_that_is_named_is_accepted_and_one_byte_less_is_not(arguments):
    assert_is_smallest(arguments)


# the home that needs least is not the same for a small matrix on many threads as for a large one
@pytest.mark.parametrize("n_threads", [1, 4, 64])
@pytest.mark.parametrize("n_samples", [1, 2, 256, 257, 2000, 2001, 60_000, 1_000_000])
@pytest.mark.parametrize("gram", ["auto", "zarr", "memory"])
@pytest.mark.parametrize("has_disk", [True, False])
def test_smallest_memory_limit_is_named_for_every_home(n_samples, gram, has_disk, n_threads):
    if gram == "zarr" and not has_disk:
        with pytest.raises(ConfigError, match="set workdir"):
            plan_exact(n_samples, 64, gram=gram, has_disk=has_disk, memory_limit=GIB, n_threads=1)
        return
    assert_is_smallest(
        {"n_samples": n_samples, "n_features": 64, "n_components": 10, "gram": gram, "has_disk": has_disk}
        | {"n_threads": n_threads}
    )


@given(plans(tile_rows=300))
def test_smallest_memory_limit_is_named_for_a_given_tile(arguments):
    assert_is_smallest(arguments)


@given(plans(), st.integers(2**28, 2**42))
def test_planned_peak_never_exceeds_the_limit(arguments, memory_limit):
    if memory_limit < smallest_limit(arguments):
        with pytest.raises(MemoryLimitError):
            plan_exact(**arguments, memory_limit=memory_limit)
        return
    plan = plan_exact(**arguments, memory_limit=memory_limit)
    assert plan.peak_memory <= memory_limit == plan.memory_limit
    assert (plan.n_samples, plan.n_features) == (arguments["n_samples"], arguments["n_features"])
    assert plan.n_tiles == plan.tiling.n_tiles
    # what stays for the whole fit is part of the peak
    kept = plan.gram_bytes if plan.gram == "memory" else 0
    assert plan.peak_memory > kept + arguments["resident_bytes"]


@given(plans(), st.integers(0, 2**38), st.integers(0, 2**38))
def test_a_larger_limit_is_never_refused_when_a_smaller_one_is_accepted(arguments, limit, more):
    smallest = smallest_limit(arguments)
    assert plan_exact(**arguments, memory_limit=smallest + limit).peak_memory <= smallest + limit
    assert plan_exact(**arguments, memory_limit=smallest + limit + more).peak_memory <= smallest + limit + more


@given(plans(), st.integers(1, 10**9))
def test_rows_that_stay_in_memory_are_counted_byte_by_byte(arguments, more):
    smallest = smallest_limit(arguments)
    with_rows = smallest_limit(arguments | {"resident_bytes": arguments["resident_bytes"] + more})
    assert with_rows == smallest + more


@given(st.one_of(st.just(60_000), st.integers(10_001, 3_000_000)), st.sampled_from(["float32", "float64"]))
def test_last_tile_is_nearly_full_so_that_padding_wastes_less_than_a_tenth(n_samples, dtype):
    plan = plan_exact(n_samples, 64, n_components=10, dtype=dtype, gram="zarr", memory_limit=64 * GIB, n_threads=2)
    itemsize = 4 if dtype == "float32" else 8
    assert plan.gram_bytes == plan.n_tiles * plan.tile_rows**2 * itemsize
    assert plan.gram_bytes <= 1.1 * plan.tiling.n_entries * itemsize
    assert 1024 <= plan.tile_rows <= 8192


@given(plans(gram="zarr"), st.one_of(st.none(), st.integers(1, 20_000)))
def test_peak_holds_a_stored_tile_as_it_is_padded(arguments, tile_rows):
    plan = plan_exact(**arguments, tile_rows=tile_rows, memory_limit=2**50)
    itemsize = 4 if plan.dtype == "float32" else 8
    # on disk every tile is tile_rows × tile_rows; each running task holds at least one such while it is encoded
    assert plan.peak_memory >= plan.n_threads * plan.tile_rows**2 * itemsize + arguments["resident_bytes"]


def test_tiles_shrink_before_a_plan_is_refused():
    arguments = {"n_samples": 30_000, "n_features": 64, "n_components": 10, "gram": "zarr", "n_threads": 2}
    roomy = plan_exact(**arguments, memory_limit=8 * GIB)
    tight = plan_exact(**arguments, memory_limit=smallest_limit(arguments))
    assert tight.tile_rows < roomy.tile_rows
    assert tight.n_tiles > roomy.n_tiles


def test_auto_keeps_tiles_in_memory_only_when_half_of_what_is_left_holds_them():
    arguments = {"n_samples": 20_000, "n_features": 64, "n_components": 10, "n_threads": 2}
    triangle = 20_000 * 20_000 // 2 * 4
    assert plan_exact(**arguments, memory_limit=triangle + GIB).gram == "recompute"
    assert plan_exact(**arguments, memory_limit=3 * triangle + GIB).gram == "memory"
    assert plan_exact(**arguments, memory_limit=triangle + GIB, has_disk=False).gram == "recompute"


def test_auto_stores_tiles_when_entries_are_dear_or_passes_many():
    arguments = {"n_samples": 20_000, "n_components": 10, "n_threads": 2, "memory_limit": 2 * GIB}
    assert plan_exact(n_features=64, **arguments).gram == "recompute"
    assert plan_exact(n_features=1000, **arguments).gram == "zarr"
    assert plan_exact(n_features=64, solver="arpack", **arguments).gram == "zarr"


def test_auto_takes_the_fastest_home_by_the_rates_that_are_given():
    arguments = {"n_samples": 60_000, "n_features": 64, "n_components": 10, "n_threads": 2, "memory_limit": 2 * GIB}
    assert plan_exact(**arguments, rates=SLOW_DISK).gram == "recompute"
    assert plan_exact(**arguments, rates=FAST_DISK).gram == "zarr"
    assert plan_exact(**arguments, rates=FAST_DISK, has_disk=False).gram == "recompute"
    assert plan_exact(**arguments, rates=FAST_DISK, disk_limit=10**9).gram == "recompute"


@given(plans(), st.integers(0, 2**36), st.one_of(st.none(), st.integers(0, 2**40)))
def test_what_names_a_run_does_not_depend_on_a_calibration_or_the_room_on_a_disk(arguments, more, disk_limit):
    """The identity of a run holds solver, dtype, tiles and tasks: a rerun has to find that there is nothing to do."""
    if arguments["gram"] == "zarr":
        disk_limit = None
    limit = smallest_limit(arguments) + more
    plain = plan_exact(**arguments, memory_limit=limit)
    for rates in (SLOW_DISK, FAST_DISK):
        measured = plan_exact(**arguments, memory_limit=limit, rates=rates, disk_limit=disk_limit)
        for field in ("solver", "dtype", "tile_rows", "tiles_per_task", "product_dtype", "block_columns", "max_basis"):
            assert getattr(measured, field) == getattr(plain, field)


@pytest.mark.parametrize("solver", ["block_krylov", "arpack", "power"])
def test_a_small_limit_gets_a_basis_of_fewer_blocks_down_to_four(solver):
    arguments = {"n_samples": 1_000_000, "n_features": 64, "n_components": 10, "n_threads": 2, "solver": solver}
    wide = plan_exact(**arguments, memory_limit=64 * GIB)
    assert wide.max_basis == 8 * wide.block_columns
    narrow = plan_exact(**arguments, memory_limit=smallest_limit(arguments | {"gram": "auto"}))
    assert narrow.max_basis == 4 * narrow.block_columns
    assert narrow.peak_memory <= narrow.memory_limit
    assert any(reason.startswith("basis of 4 blocks") for reason in narrow.reasons)
    # a basis that fits is not made smaller, whatever the tiles have to be
    enough = plan_exact(**arguments, memory_limit=wide.peak_memory)
    assert enough.max_basis == wide.max_basis
    assert not any(reason.startswith("basis") for reason in enough.reasons)


def test_dense_fits_have_no_basis_to_make_smaller():
    arguments = {"n_samples": 3000, "n_features": 64, "n_components": None, "n_threads": 2, "solver": "dense"}
    plan = plan_exact(**arguments, memory_limit=smallest_limit(arguments | {"gram": "auto"}))
    assert plan.max_basis == 0
    assert not any(reason.startswith("basis") for reason in plan.reasons)


def test_auto_stores_no_tiles_that_are_too_small_for_a_file():
    """A limit that stored tiles fit into only when they are small leaves large ones to be evaluated."""
    arguments = {"n_samples": 200_000, "n_features": 64, "n_components": 10, "n_threads": 32}
    stored = plan_exact(**arguments, memory_limit=smallest_limit(arguments | {"gram": "zarr"}), gram="zarr")
    assert stored.tile_rows < 1024
    plan = plan_exact(**arguments, memory_limit=stored.memory_limit, rates=FAST_DISK)
    assert plan.gram == "recompute"
    assert plan.tile_rows > stored.tile_rows


def test_smallest_disk_that_is_named_is_accepted_and_one_byte_less_is_not():
    arguments = {"n_samples": 20_000, "n_features": 64, "n_components": 10, "n_threads": 2, "memory_limit": GIB}
    with pytest.raises(ConfigError, match=r"disk_limit=1\.00 kiB cannot hold .* set gram to 'recompute'\.") as caught:
        plan_exact(**arguments, gram="zarr", disk_limit=1024)
    named = int(re.search(r"raise it to (\d+) bytes", str(caught.value)).group(1))
    plan = plan_exact(**arguments, gram="zarr", disk_limit=named)
    assert plan.disk_bytes == plan.gram_bytes == named
    with pytest.raises(ConfigError, match=str(named)):
        plan_exact(**arguments, gram="zarr", disk_limit=named - 1)
    assert plan_exact(**arguments, gram="recompute", disk_limit=0).disk_bytes == 0


def verdicts(plan):
    return {(way.gram, way.solver): way.verdict for way in plan.alternatives}


def test_a_plan_lists_what_it_rejected_and_why():
    plan = plan_exact(
        60_000,
        64,
        n_components=10,
        memory_limit=2 * GIB,
        n_threads=2,
        rates=nominal_rates("rbf", "float32"),
        disk_limit=10**9,
    )
    chosen, *others = plan.alternatives
    assert chosen == Alternative(
        plan.gram,
        plan.solver,
        plan.tile_rows,
        plan.gram_bytes,
        plan.expected_passes,
        plan.seconds,
        plan.peak_memory,
        "chosen",
    )
    assert "chosen" not in {way.verdict for way in others}
    found = verdicts(plan)
    assert len(found) == 5
    assert re.fullmatch(r"needs .* GiB of memory", found["memory", "block_krylov"])
    assert re.fullmatch(r"needs .* GiB of disk", found["zarr", "block_krylov"])
    assert re.fullmatch(r"needs .* GiB of memory", found["recompute", "dense"])
    slower = next(way for way in others if way.solver == "arpack")
    ratio = float(re.fullmatch(r"×([\d.]+) the time", slower.verdict).group(1))
    assert ratio == pytest.approx(slower.seconds / plan.seconds, rel=0.05)


def test_a_home_or_solver_that_was_asked_for_says_what_it_costs():
    arguments = {"n_samples": 20_000, "n_features": 64, "n_components": 10, "n_threads": 2, "memory_limit": 8 * GIB}
    found = verdicts(plan_exact(**arguments, gram="recompute", solver="arpack"))
    assert re.fullmatch(r"×0\.\d+ the time, but gram=recompute was asked for", found["memory", "arpack"]), found
    assert re.fullmatch(r"×0\.\d+ the time, but solver=arpack was asked for", found["memory", "block_krylov"]), found
    roomy = verdicts(plan_exact(**arguments, has_disk=False))
    assert roomy["zarr", "block_krylov"] == "no directory for tiles"
    half = verdicts(plan_exact(**arguments | {"memory_limit": 3 * GIB // 2}))
    assert half["memory", "block_krylov"] == "tiles take more than half of the memory that is left"


def test_a_disk_is_not_filled_for_a_few_percent():
    arguments = {"n_samples": 60_000, "n_features": 64, "n_components": 10, "n_threads": 2, "memory_limit": 2 * GIB}
    rates = nominal_rates("rbf", "float32")

    def with_disk(speed):
        plan = plan_exact(**arguments, rates=replace(rates, write=speed, flush=speed, read=speed, reread=speed))
        seconds = {way.gram: way.seconds for way in plan.alternatives if way.solver == "block_krylov"}
        return plan, seconds["recompute"] / seconds["zarr"]

    plans = [with_disk(1e9 * 1.02**step) for step in range(150)]
    gains = [gain for _, gain in plans]
    assert min(gains) < 1 < 1.2 < max(gains)
    assert all((plan.gram == "zarr") == (gain > 1.15) for plan, gain in plans)
    close = next(plan for plan, gain in plans if 1 < gain < 1.15)
    assert re.fullmatch(r"×0\.\d+ the time, but not enough to fill a disk", verdicts(close)["zarr", "block_krylov"])


def test_seconds_are_known_only_with_rates():
    arguments = {"n_samples": 20_000, "n_features": 64, "n_components": 10, "n_threads": 2, "memory_limit": 8 * GIB}
    unknown = plan_exact(**arguments)
    assert unknown.seconds is None
    assert {way.seconds for way in unknown.alternatives} == {None}
    known = plan_exact(**arguments, rates=nominal_rates("rbf", "float32"))
    assert known.seconds > 0
    assert replace(known, seconds=None, alternatives=()) == replace(unknown, alternatives=())


def test_a_runs_process_and_copies_of_rows_take_time_and_no_other_plan():
    arguments = {"n_samples": 20_000, "n_features": 64, "n_components": 10, "n_threads": 2, "memory_limit": 8 * GIB}
    rates = nominal_rates("rbf", "float32")
    fit, run = (plan_exact(**arguments, rates=rates, is_run=is_run) for is_run in (False, True))
    assert run.seconds > fit.seconds
    assert replace(run, seconds=0, alternatives=()) == replace(fit, seconds=0, alternatives=())


def test_numbers_that_are_planned_with_are_those_that_are_used():
    from scalable_kpca import certificate, solving

    used = {"CERTIFIED_COLUMNS": CERTIFIED_COLUMNS}
    for name, value in used.items():
        homes = [module for module in (certificate, solving) if hasattr(module, name)]
        assert homes, f"{name} has moved: plan with the number that is used"
        assert {getattr(module, name) for module in homes} == {value}


@pytest.mark.parametrize(
    ("n_samples", "n_components", "solver", "chosen"),
    [
        (DENSE_LIMIT, 5, "auto", "dense"),
        (DENSE_LIMIT + 1, 5, "auto", "block_krylov"),
        (DENSE_LIMIT + 1, None, "auto", "dense"),
        (DENSE_LIMIT + 1, 500, "auto", "block_krylov"),
        (DENSE_LIMIT + 1, 501, "auto", "dense"),
        (DENSE_LIMIT + 1, 0.95, "auto", "block_krylov"),
        (5, 4, "arpack", "arpack"),
        (5, 5, "arpack", "dense"),
        (5, None, "arpack", "dense"),
        (5, None, "block_krylov", "dense"),
        (5, 9, "arpack", "dense"),
        (1, 1, "arpack", "dense"),
        (5000, 5, "dense", "dense"),
    ],
)
def test_solver_is_chosen_by_size_and_request(n_samples, n_components, solver, chosen):
    plan = plan_exact(n_samples, 8, n_components=n_components, solver=solver, memory_limit=64 * GIB, n_threads=2)
    assert plan.solver == chosen
    assert plan.n_components == (n_components if isinstance(n_components, int) else 0)


@pytest.mark.parametrize(
    ("n_samples", "dtype", "chosen"),
    [
        (DENSE_LIMIT, "auto", "float64"),
        (DENSE_LIMIT + 1, "auto", "float32"),
        (DENSE_LIMIT + 1, "float64", "float64"),
        (10, "float32", "float32"),
    ],
)
def test_dtype_is_chosen_by_size(n_samples, dtype, chosen):
    plan = plan_exact(n_samples, 8, n_components=3, dtype=dtype, memory_limit=8 * GIB, n_threads=1)
    assert plan.dtype == chosen


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, r"dtype='float16' is not known; choose one of auto, float64, float32\."),
        ({"solver": "lanczos"}, r"eigen_solver='lanczos' is not known; choose one of auto, .*dense"),
        ({"gram": "disk"}, r"gram='disk' is not known; choose one of auto, zarr, memory"),
        ({"solver": "arpack", "n_components": 0.9}, r"n_components=0\.9 .*set n_components to an integer"),
        ({"gram": "zarr", "has_disk": False}, r"set workdir to a directory with room"),
        ({"tile_rows": 0}, r"tile_rows=0; an integer ≥ 1"),
        ({"tile_rows": -5}, r"tile_rows=-5; an integer ≥ 1"),
    ],
)
def test_options_that_cannot_be_carried_out_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        plan_exact(100, 4, **{"n_components": 3, "memory_limit": GIB, "n_threads": 1} | options)


@pytest.mark.parametrize("n_samples", [100, 50_000])
def test_every_choice_that_was_left_open_has_a_reason(n_samples):
    plan = plan_exact(n_samples, 64, n_components=10, memory_limit=4 * GIB, n_threads=2)
    for field in ("solver", "dtype", "gram"):
        choice = f"{field}={getattr(plan, field)}: "
        assert sum(reason.startswith(choice) for reason in plan.reasons) == 1, f"{choice} not among {plan.reasons}"
    assert all(len(reason) > len("solver=dense: ") for reason in plan.reasons)


def test_solver_that_is_replaced_says_why():
    plan = plan_exact(5, 2, n_components=5, solver="arpack", memory_limit=GIB, n_threads=1)
    assert any(
        re.search(r"solver=dense: iterative solvers find at most n_samples − 1 = 4", reason) for reason in plan.reasons
    )


@given(plans())
def test_a_plan_survives_json(arguments):
    plan = plan_exact(**arguments, memory_limit=2**50)
    fields = json.loads(json.dumps(plan.to_json()))
    assert fields.pop("method") == "exact"
    ways = tuple(Alternative(**way) for way in fields["alternatives"])
    assert Plan(**fields | {"reasons": tuple(fields["reasons"]), "alternatives": ways}) == plan
    assert plan == plan_exact(**arguments, memory_limit=2**50)


@given(st.integers(1, 10**6), st.integers(1, 100))
def test_arpack_keeps_more_vectors_than_components_and_no_more_than_rows(n_samples, n_components):
    vectors = arpack_vectors(n_samples, n_components)
    assert vectors <= n_samples
    # eigsh demands k < ncv ≤ n
    assert vectors > n_components or vectors == n_samples


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_start_block_of_wide_rows_has_the_landmarks_that_the_memory_of_a_pass_can_hold(n_threads):
    arguments = {"n_samples": 20_000, "n_components": 5, "memory_limit": 64 * GIB, "gram": "recompute"}
    narrow = plan_exact(n_features=64, n_threads=n_threads, **arguments)
    assert narrow.start_landmarks == 600
    wide = plan_exact(n_features=50_000, n_threads=n_threads, tile_rows=256, **arguments)
    assert 100 < wide.start_landmarks < 256
    row = 8 * 50_000
    started = wide.start_landmarks * row * (2 + 3 * n_threads / 2) + 3 * 256 * row * n_threads
    assert started <= wide.peak_memory - PROCESS_BYTES + 16 * 2**20


def test_start_block_is_the_same_for_one_to_four_threads():
    for n_features in (4, 900, 3000, 30_000):
        arguments = {"n_features": n_features, "n_components": 5, "tile_rows": 300, "memory_limit": 64 * GIB}
        plans = [plan_exact(n_samples=20_000, n_threads=n_threads, **arguments) for n_threads in (1, 2, 3, 4)]
        assert len({plan.start_landmarks for plan in plans}) == 1


def test_a_copy_of_the_rows_in_the_end_needs_no_more_than_is_planned():
    arguments = {"n_samples": 3000, "n_features": 20_000, "n_components": 5, "n_threads": 2, "gram": "recompute"}
    rows = 8 * 3000 * 20_000
    without = plan_exact(memory_limit=64 * GIB, resident_bytes=rows, tile_rows=64, **arguments)
    copied = plan_exact(memory_limit=64 * GIB, resident_bytes=rows, tile_rows=64, copied_bytes=rows, **arguments)
    assert copied.peak_memory >= PROCESS_BYTES + 2 * rows > without.peak_memory
    with pytest.raises(MemoryLimitError) as refused:
        plan_exact(memory_limit=without.peak_memory, resident_bytes=rows, copied_bytes=rows, **arguments)
    needed = refused.value.needed
    assert plan_exact(memory_limit=needed, resident_bytes=rows, copied_bytes=rows, **arguments).peak_memory <= needed
