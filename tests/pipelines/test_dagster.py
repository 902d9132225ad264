"""The assets of Dagster do what skpca does: days in any order, checks of drift, retries of what may succeed later."""

import base64
import datetime
import json
import math
import shutil

import pytest

from tests.pipelines.daily import FAR, N_ROWS, PIPELINES, daily_job, exits_with, load, require, write_rows

require("dagster")

SHIFTED = "2026-01-07"  # a day of which one column has moved by 1.7 standard deviations, within the landmarks' reach


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dagster")


@pytest.fixture(scope="module")
def definitions(folder):
    write_rows(folder / "days" / f"{SHIFTED}.parquet", 7, shift=(0.0, 1.7, 0.0))
    with daily_job(folder):
        yield load("dagster_definitions")


@pytest.fixture(scope="module")
def instance(definitions):
    """An instance of Dagster in which the base is materialized."""
    from dagster import DagsterInstance, materialize

    with DagsterInstance.ephemeral() as instance:
        assert materialize([definitions.base], instance=instance).success
        yield instance


def materialize_day(definitions, instance, day):
    """A result, with the metadata of what was materialized and the check, each None where there is none."""
    from dagster import materialize

    assets = [definitions.base, definitions.embedding]
    result = materialize(assets, selection=[assets[1]], partition_key=day, instance=instance, raise_on_error=False)
    made = result.asset_materializations_for_node("embedding")
    metadata = {name: entry.value for name, entry in made[0].metadata.items()} if made else None
    checks = result.get_asset_check_evaluations()
    return result, metadata, checks[0] if checks else None


def count_of(result, kind):
    return sum(event.event_type_value == kind for event in result.all_events)


def days_of(folder):
    """Names of the files that are in the model beside those of the base."""
    run = json.loads((folder / "out" / "daily" / "latest.json").read_text())["run"]
    ledger = json.loads((folder / "out" / "daily" / "runs" / run / "ledger.json").read_text())
    return [part["path"].rpartition("/")[2] for part in ledger["partitions"] if part["own"]]


def test_the_definitions_can_be_loaded(definitions):
    from dagster import Definitions

    Definitions.validate_loadable(definitions.definitions)


def test_a_base_that_is_there_is_found(folder, definitions, instance):
    from dagster import materialize

    result = materialize([definitions.base], instance=instance)
    metadata = result.asset_materializations_for_node("base")[0].metadata
    assert (metadata["status"].value, metadata["dagster/row_count"].value) == ("unchanged", N_ROWS)
    assert metadata["run"].value.startswith(str(folder / "out" / "daily" / "runs"))


def test_a_day_is_materialized_with_its_numbers_and_a_plot(definitions, instance):
    result, metadata, check = materialize_day(definitions, instance, "2026-01-01")
    assert result.success
    assert (metadata["status"], metadata["dagster/row_count"]) == ("done", N_ROWS)
    assert metadata["rows in the model"] >= 2 * N_ROWS
    assert 0 < metadata["explained variance"] < 1
    assert metadata["seconds"] > 0
    assert (check.check_name, check.passed) == ("drift", True)
    assert next(iter(check.metadata.values())).value == metadata["drift"] > 0
    pytest.importorskip("matplotlib")
    head, _, image = metadata["scree"].rstrip(")").partition("base64,")
    assert head == "![eigenvalues](data:image/png;"
    assert base64.b64decode(image).startswith(b"\x89PNG")


def test_days_are_filled_in_any_order_and_a_second_time_nothing_is_done(folder, definitions, instance):
    days = ["2026-01-04", "2026-01-02", "2026-01-03"]
    first = [materialize_day(definitions, instance, day) for day in days]
    assert [metadata["status"] for _, metadata, _ in first] == ["done"] * 3
    assert [name for name in days_of(folder) if name[:10] in days] == [f"{day}.parquet" for day in days]
    assert set(days) <= instance.get_materialized_partitions(definitions.embedding.key)
    _, again, check = materialize_day(definitions, instance, days[0])
    assert (again["status"], again["dagster/row_count"], again["drift"]) == ("unchanged", N_ROWS, first[0][1]["drift"])
    assert check.passed


def test_a_day_above_the_warning_fails_its_check_and_is_there(definitions, instance, monkeypatch):
    from dagster import AssetCheckSeverity

    monkeypatch.setenv("SKPCA_DRIFT__WARN", "0.5")
    result, metadata, check = materialize_day(definitions, instance, "2026-01-05")
    assert (result.success, check.passed, check.severity) == (True, False, AssetCheckSeverity.WARN)
    said = f"landmarks is {metadata['drift']:.3g} in 2026-01-05.parquet, and drift.warn is 0.5"
    assert check.description == f"1 of 1 files are above a limit; {said}"
    assert (check.metadata["measure"].value, check.metadata["value"].value) == ("landmarks", metadata["drift"])
    assert metadata["drift"] > 0.5


def test_a_day_whose_column_has_moved_is_refused_above_its_limit_to_fail_at(folder, definitions, instance, monkeypatch):
    from dagster import AssetCheckSeverity

    monkeypatch.setenv("SKPCA_DRIFT__MEAN__FAIL", "1.1")
    before = days_of(folder)
    result, metadata, check = materialize_day(definitions, instance, SHIFTED)
    assert (result.success, metadata, days_of(folder)) == (False, None, before)
    assert (check.passed, check.severity) == (False, AssetCheckSeverity.ERROR)
    assert '"x1"' in check.description
    assert "drift.mean.fail is 1.1" in check.description
    assert count_of(result, "STEP_UP_FOR_RETRY") == 0


def test_a_day_whose_column_has_moved_fails_its_check_whatever_the_landmarks_reach(folder, definitions, instance):
    from dagster import AssetCheckSeverity

    result, metadata, check = materialize_day(definitions, instance, SHIFTED)
    assert (result.success, check.passed, check.severity) == (True, False, AssetCheckSeverity.WARN)
    run = json.loads((folder / "out" / "daily" / "latest.json").read_text())["run"]
    described, metrics = (
        json.loads((folder / "out" / "daily" / "runs" / run / name).read_text())
        for name in ("run.json", "metrics.json")
    )
    limits, (health,) = described["config"]["drift"], metrics["health"].values()
    assert metadata["drift"] < limits["warn"]
    assert (health["mean"]["where"], health["mean"]["value"] > limits["mean"]["warn"]) == ("x1", True)
    found = {name: entry.value for name, entry in check.metadata.items()}
    shares = {name: entry["value"] / limits[name]["warn"] for name, entry in health.items() if limits[name]["warn"]}
    worst = max(shares, key=shares.get)
    entry = health[worst]
    assert (found["measure"], found["column"], found["value"]) == (worst, entry["where"], entry["value"])
    limit = f"drift.{worst}.warn is {limits[worst]['warn']:g}"
    assert found["worst"] == f"{worst} of {entry['where']} is {entry['value']:.3g} in {SHIFTED}.parquet, and {limit}"
    assert check.description == f"1 of 1 files are above a limit; {found['worst']}"


def test_a_day_that_was_added_earlier_is_judged_by_what_was_found_then(definitions, instance):
    _, first, _ = materialize_day(definitions, instance, SHIFTED)
    materialize_day(definitions, instance, "2026-01-06")
    _, again, check = materialize_day(definitions, instance, SHIFTED)
    assert (first["status"], again["status"]) == ("unchanged", "unchanged")
    assert (check.passed, check.metadata["column"].value) == (False, "x1")
    _, _, check = materialize_day(definitions, instance, "2026-01-06")
    assert (check.passed, check.description) == (True, "0 of 1 files are above a limit")


def test_infinity_is_a_word_in_metadata_where_it_is_no_number(definitions):
    assert [definitions._number(value).value for value in (1.5, math.inf)] == [1.5, "infinite"]


def test_of_what_is_above_a_limit_the_worst_is_what_would_be_refused_then_what_is_furthest_beyond(definitions):
    limits = {
        "mean": {"warn": 1.0, "fail": 2.0},
        "psi": {"warn": 0.0, "fail": None},
        "spread": {"warn": None, "fail": 9},
    }
    values = {"mean": (0.5, 1.0, 1.5, 2.5), "psi": (0.0, 0.1), "spread": (8.0, math.inf)}
    found = [
        finding
        for measure, several in values.items()
        for value in several
        for finding in definitions._above("a.parquet", measure, "x", value, limits[measure])
    ]
    listed = [(finding.measure, finding.value) for finding in sorted(found, key=lambda finding: finding.rank)]
    assert listed == [("mean", 1.5), ("psi", 0.1), ("mean", 2.5), ("spread", math.inf)]


def test_a_day_that_is_too_far_away_is_refused_by_an_error_and_not_tried_again(folder, definitions, instance):
    from dagster import AssetCheckSeverity

    before = days_of(folder)
    result, metadata, check = materialize_day(definitions, instance, FAR)
    assert (result.success, metadata, days_of(folder)) == (False, None, before)
    assert (check.passed, check.severity) == (False, AssetCheckSeverity.ERROR)
    assert "drift.fail is 10" in check.description
    assert (count_of(result, "STEP_FAILURE"), count_of(result, "STEP_UP_FOR_RETRY")) == (1, 0)


def test_a_day_without_files_fails_and_has_no_check(definitions, instance):
    result, metadata, check = materialize_day(definitions, instance, "2026-01-31")
    assert (result.success, metadata, check, count_of(result, "STEP_UP_FOR_RETRY")) == (False, None, None, 0)


def test_what_may_succeed_later_is_tried_again(folder, definitions, instance, monkeypatch):
    monkeypatch.setattr(definitions, "COMMAND", exits_with([75, 69, 65], folder))
    result, _, _ = materialize_day(definitions, instance, "2026-01-06")
    assert (count_of(result, "STEP_UP_FOR_RETRY"), count_of(result, "STEP_FAILURE")) == (2, 1)
    assert (folder / "tries").read_text() == "3"


# dagster's own schedules call what dagster says not to call
@pytest.mark.filterwarnings("ignore:Function `JobDefinition.run_request_for_partition`:DeprecationWarning")
def test_the_schedule_adds_the_day_before(definitions):
    from dagster import build_schedule_context

    repository = definitions.definitions.get_repository_def()
    (schedule,) = repository.schedule_defs
    assert schedule.cron_schedule == "0 3 * * *"
    now = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
    with build_schedule_context(scheduled_execution_time=now, repository_def=repository) as context:
        (request,) = schedule.evaluate_tick(context).run_requests
    assert request.partition_key == "2026-01-01"
    assert repository.get_job("daily").asset_layer.executable_asset_keys == {definitions.embedding.key}


def test_dagster_yaml_reports_nothing_and_runs_one_command_at_a_time(definitions, tmp_path):
    from dagster import DagsterInstance

    assert {asset.op.pool for asset in (definitions.base, definitions.embedding)} == {"skpca"}
    shutil.copy(PIPELINES / "dagster" / "dagster.yaml", tmp_path)
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        pools = instance.get_concurrency_config().pool_config
        assert (pools.default_pool_limit, pools.pool_granularity.value) == (1, "run")
        assert not instance.telemetry_enabled
