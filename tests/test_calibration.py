"""A machine is measured once; what cannot be kept or read back costs time, never an error. No second is asserted."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from dask.utils import format_bytes

from scalable_kpca import plan
from scalable_kpca.cli import skpca
from scalable_kpca.planning import calibration, measurements, plans
from scalable_kpca.planning.calibration import cache_file, machine_rates
from scalable_kpca.planning.measurements import measure_algebra, measure_disk, measure_evaluation, measure_products
from scalable_kpca.report import plan_lines
from scalable_kpca.tiling.rates import nominal_rates
from scalable_kpca.workflow.loading import load_config
from scalable_kpca.workflow.stages import prepare

RATES = {
    "measure_evaluation": {"entry": 2e-9, "feature": 3e-11, "fold": 1e-9},
    "measure_products": {"entry": 4e-10, "column": 1e-10, "measure": 1e-9, "keep": 2e-10},
    "measure_algebra": {"gemm": 1e-11, "lapack": 2e-10, "orthogonalise": 1e-9},
    "measure_disk": {"write": 1e9, "flush": 5e8, "read": 1e9, "reread": 4e9},
}


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Names of the measurements that were made, in the place of measurements; an empty cache."""
    made = []

    def stand_in(name):
        def measure(*arguments):
            made.append((name, *[argument for argument in arguments if not isinstance(argument, Path)]))
            return dict(RATES[name])

        return measure

    for name in RATES:
        monkeypatch.setattr(calibration, name, stand_in(name))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def known(measured, **changes):
    """Rates and how many measurements they cost."""
    before = len(measured)
    arguments = {"kernel": "rbf", "dtype": "float32", "n_threads": 2, "measure": "missing"} | changes
    rates = machine_rates(**arguments)
    return rates, len(measured) - before


def test_a_machine_is_measured_once(measured, tmp_path):
    nominal, cost = known(measured, measure="nothing")
    assert (nominal.is_measured, cost) == (False, 0)
    assert replace(nominal, cache_bytes=0) == replace(nominal_rates("rbf", "float32"), cache_bytes=0)
    first, cost = known(measured, directory=tmp_path)
    assert (first.is_measured, cost) == (True, 5)
    assert (first.entry, first.single.column, first.double.column, first.reread) == (2e-9, 1e-10, 1e-10, 4e9)
    assert known(measured, directory=tmp_path) == (first, 0)
    assert known(measured, directory=tmp_path, measure="nothing") == (first, 0)
    assert known(measured, directory=tmp_path, measure="everything") == (first, 5)


def test_only_what_differs_is_measured_again(measured, tmp_path):
    known(measured)
    assert known(measured, directory=tmp_path)[1] == 1  # the disk
    assert known(measured, directory=tmp_path / "not yet" / "there")[1] == 0  # the same device
    assert known(measured, kernel="poly")[1] == 1  # values of another kernel
    assert known(measured, dtype="float64")[1] == 2  # values and products
    assert known(measured, n_threads=3)[1] == 4  # threads share the memory's bandwidth
    assert known(measured)[1] == 0
    assert {arguments[-1] for arguments in measured} == {2, 3}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda _: "[]",
        lambda _: "\x00",
        lambda text: json.dumps({"identity": json.loads(text)["identity"]}),
        lambda text: json.dumps({"identity": json.loads(text)["identity"], "rates": 3}),
        lambda text: text.replace('"format": 1', '"format": 0'),
        lambda text: text.replace('"numpy": "', '"numpy": "0.'),
        lambda text: text.replace("2e-09", "NaN").replace("1e-10", "-1").replace("1e-11", "Infinity"),
        lambda text: text.replace('"entry"', '"other"').replace('"gemm"', '"other"'),
        lambda text: text.replace("2e-09", '"fast"'),
    ],
)
def test_a_cache_that_is_damaged_or_of_other_libraries_is_measured_over(measured, damage):
    rates, cost = known(measured)
    text = cache_file().read_text()
    assert damage(text) != text
    cache_file().write_text(damage(text))
    assert not known(measured, measure="nothing")[0].is_measured
    assert known(measured) == (rates, cost)
    assert known(measured) == (rates, 0)


def test_a_disk_rate_of_zero_is_not_divided_by(measured, tmp_path):
    known(measured, directory=tmp_path)
    cache_file().write_text(cache_file().read_text().replace("4000000000.0", "0.0"))
    assert known(measured, directory=tmp_path)[1] == 1


def test_rates_without_a_place_to_keep_them_are_measured_each_time(measured, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        rates, cost = known(measured)
        assert (rates.is_measured, cost) == (True, 4)
    assert (tmp_path / "file").read_text() == ""


def test_a_user_without_a_home_has_no_cache(measured, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_file() is None
    assert known(measured)[1] == known(measured)[1] == 4


def test_a_cache_is_replaced_whole_and_keeps_what_others_measured(measured):
    known(measured)
    known(measured, kernel="poly")
    assert list(cache_file().parent.iterdir()) == [cache_file()]
    known(measured, kernel="rbf", measure="everything")
    assert known(measured, kernel="poly")[1] == 0


def test_a_disk_that_cannot_be_measured_leaves_its_nominal_rates(measured, monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "measure_disk", lambda *_: {})
    rates, _ = known(measured, directory=tmp_path)
    assert not rates.is_measured
    assert (rates.reread, rates.entry) == (nominal_rates("rbf", "float32").reread, 2e-9)


@pytest.fixture
def small(monkeypatch):
    """Measurements that take no time and mean nothing."""
    for name, value in {
        "TILE": (48, 64), "FINISHED_BYTES": 2**16, "FRESH_BYTES": 2**16,
        "FEATURES": (2, 4), "COLUMNS": (2, 3), "KRYLOV": (300, 3, 4), "LANDMARKS": 20, "SHORTEST": 0,
        "STORED_TILE": 256, "STORED_BLOCKS": 2,
    }.items():  # fmt: skip
        monkeypatch.setattr(measurements, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_measured_are_rates_by_the_names_that_costs_use(dtype, tmp_path):
    found = {
        "evaluation": measure_evaluation("laplacian", dtype, 2),
        "double": measure_products(dtype, "float64", 2),
        "algebra": measure_algebra(2),
        "disk": measure_disk(tmp_path, 2),
    }
    for role, rates in found.items():
        assert rates.keys() == calibration.NAMES[role]
        assert all(math.isfinite(rate) and rate >= 0 for rate in rates.values()), rates
    assert min(found["disk"].values()) > 0
    assert min(found["algebra"].values()) > 0
    assert list(tmp_path.iterdir()) == []  # nothing stays


@pytest.mark.usefixtures("small")
def test_a_disk_without_room_or_rights_has_no_rates(monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "STORED_ROOM", 2**80)
    assert measure_disk(tmp_path, 1) == {}
    assert list(tmp_path.iterdir()) == []
    assert measure_disk(tmp_path / "absent", 1) == {}


LARGE = {"n_samples": 100_000, "n_features": 64, "memory_limit": "1GiB", "n_jobs": 2}


def test_only_large_fits_are_worth_a_measurement(measured):
    assert plans.GUESS in plan(300, 4, calibrate="large").reasons
    assert plans.GUESS in plan(**LARGE).reasons
    assert measured == []
    large = plan(**LARGE, calibrate="large")
    assert plans.GUESS not in large.reasons
    assert len(measured) == 4
    assert plan(**LARGE) == plan(**LARGE, calibrate="large") == large
    assert len(measured) == 4
    plan(**LARGE, calibrate="always")
    assert len(measured) == 8


@pytest.mark.usefixtures("measured")
def test_a_calibration_changes_seconds_and_perhaps_the_home_and_nothing_else(monkeypatch):
    before = plan(**LARGE)
    monkeypatch.setitem(RATES, "measure_evaluation", {"entry": 1e-6, "feature": 0, "fold": 0})
    monkeypatch.setitem(RATES, "measure_disk", {"write": 1e12, "flush": 1e12, "read": 1e12, "reread": 1e12})
    after = plan(**LARGE, directory=Path.cwd(), calibrate="large")
    assert (before.gram, after.gram) == ("recompute", "zarr")
    assert after.seconds > before.seconds
    by_rates = {"gram", "seconds", "gram_bytes", "disk_bytes", "peak_memory", "alternatives", "reasons"}
    old, new = before.to_json(), after.to_json()
    assert {name for name in old if old[name] != new[name]} <= by_rates


def test_an_impossible_fit_is_refused_before_anything_is_measured(measured):
    with pytest.raises(MemoryError, match="raise memory_limit to"):
        plan(100_000, 64, memory_limit=1, calibrate="always")
    assert measured == []


def write_job(folder):
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(50, 3)))
    (folder / "job.yaml").write_text("source: {uri: rows.npy}\noutput: {path: out}\nkernel: {name: rbf}\n")
    return str(folder / "job.yaml")


def test_plan_measures_a_small_job_only_when_it_is_told_to(measured, tmp_path):
    job = write_job(tmp_path)
    name = prepare(load_config(Path(job)), tmp_path).fingerprint
    plain = CliRunner().invoke(skpca, ["plan", job, "--json"])
    assert plain.exit_code == 0, plain.output
    assert measured == []
    told = CliRunner().invoke(skpca, ["plan", job, "--json", "--calibrate"])
    assert told.exit_code == 0, told.output
    assert {name for name, *_ in measured} == set(RATES)
    assert prepare(load_config(Path(job)), tmp_path).fingerprint == name  # what was measured changes no run's name
    before, after = (json.loads(run.stdout.splitlines()[-1]) for run in (plain, told))
    assert plans.GUESS in before["plan"]["reasons"]
    assert plans.GUESS not in after["plan"]["reasons"]
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("measured")
def test_plan_refuses_a_disk_budget_with_the_smallest_that_works(tmp_path):
    job = write_job(tmp_path)
    refused = CliRunner().invoke(skpca, ["plan", job, "--set", "gram=zarr", "--set", "budget.disk=1kiB"])
    assert refused.exit_code == 78
    named = refused.output.split("raise it to ")[1].rstrip(".\n")
    for budget, code in ((int(named), 0), (int(named) - 1, 78)):
        found = CliRunner().invoke(skpca, ["plan", job, "--set", "gram=zarr", "--set", f"budget.disk={budget}"])
        assert found.exit_code == code, found.output


@pytest.mark.usefixtures("measured")
def test_the_table_of_a_plan_shows_the_plans_numbers():
    chosen = plan(**LARGE)
    lines = plan_lines(chosen)
    table = [line.split("  ") for line in lines[lines.index("") + 1 :]]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in table]
    assert rows[0] == ["home", "solver", "bytes", "passes", "tasks", "time", "memory"]
    for way, row in zip(chosen.alternatives, rows[1:], strict=True):
        home, solver, n_bytes, passes, tasks, time, memory, verdict = row
        assert (home, solver, verdict) == (way.gram, way.solver, way.verdict)
        assert (n_bytes, memory) == (format_bytes(way.n_bytes), format_bytes(way.peak_memory))
        assert (int(passes), int(tasks)) == (way.passes, chosen.n_tasks)
        amount, unit = time.split()
        shown = float(amount) * {"s": 1, "min": 60, "h": 3600}[unit]
        assert shown == pytest.approx(way.seconds, rel=0.15)
    assert rows[1][-1] == "chosen"


@pytest.mark.usefixtures("measured")
def test_a_plan_without_rates_has_a_table_without_times():
    chosen = plan(**LARGE)
    unknown = replace(
        chosen, seconds=None, alternatives=tuple(replace(way, seconds=None) for way in chosen.alternatives)
    )
    lines = plan_lines(unknown)
    assert sum("unknown" in line for line in lines) == 1 + len(chosen.alternatives)
