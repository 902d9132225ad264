"""The DAG of Airflow means the day that is over, skips what is done, fails at once what would fail again."""

import datetime
import json
import subprocess
import sys

import pytest

from tests.pipelines.daily import FAR, N_ROWS, PIPELINES, daily_job, exits_with, require

require("airflow")


def at(day):
    return datetime.datetime(2026, 1, day, 3, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def bag(folder):
    """What a scheduler reads."""
    with daily_job(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(folder / "home"))
        patch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        patch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(PIPELINES))
        patch.setenv("AIRFLOW__USAGE_DATA_COLLECTION__ENABLED", "False")
        patch.setenv("DO_NOT_TRACK", "1")
        from airflow.dag_processing.dagbag import DagBag

        yield DagBag(dag_folder=str(PIPELINES / "airflow_dag.py"))


@pytest.fixture(scope="module")
def tasks(bag):
    """The functions of the tasks."""
    dag = bag.dags["skpca_daily"]
    return {name: dag.get_task(name).python_callable for name in ("base", "embedding")}


@pytest.fixture
def module(tasks):
    """The module that the functions are of."""
    return sys.modules[tasks["base"].__module__]


def test_the_dag_is_parsed_without_an_error(bag):
    assert bag.import_errors == {}
    assert list(bag.dags) == ["skpca_daily"]
    dag = bag.dags["skpca_daily"]
    assert dag.task_dict["embedding"].upstream_task_ids == {"base"}
    assert (dag.max_active_runs, dag.catchup) == (1, True)
    for task in dag.tasks:
        assert (task.retries, task.max_active_tis_per_dag) == (5, 1)


def test_a_run_is_of_the_day_that_is_over_and_the_first_one_of_the_first_day(bag):
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import TimeRestriction

    dag = DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["skpca_daily"]))
    first = dag.timetable.next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(dag.start_date, None, catchup=True)
    )
    assert (first.data_interval.start, first.run_after) == (at(1), at(2))


def test_the_base_is_made_and_skipped_when_it_is_there_and_so_are_days(tasks):
    from airflow.sdk.exceptions import AirflowSkipException

    assert tasks["base"]()["status"] == "done"
    with pytest.raises(AirflowSkipException, match="nothing to do"):
        tasks["base"]()
    answer = tasks["embedding"](params={"date": None}, data_interval_start=at(1))
    assert (answer["status"], answer["rows"]) == ("done", N_ROWS)
    with pytest.raises(AirflowSkipException, match="nothing to do"):
        tasks["embedding"](params={"date": "2026-01-01"}, data_interval_start=None)


def test_a_day_that_is_refused_fails_without_another_try(tasks):
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match=r"drift\.fail is 10"):
        tasks["embedding"](params={"date": FAR}, data_interval_start=at(1))


def test_a_run_by_hand_needs_a_day(tasks):
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="needs the parameter date"):
        tasks["embedding"](params={"date": None}, data_interval_start=None)


@pytest.mark.parametrize("code", [2, 65, 70, 78])
def test_what_would_fail_again_is_not_tried_again(tasks, module, tmp_path, monkeypatch, code):
    from airflow.sdk.exceptions import AirflowFailException

    monkeypatch.setattr(module, "COMMAND", exits_with([code], tmp_path))
    with pytest.raises(AirflowFailException):
        tasks["base"]()


@pytest.mark.parametrize("code", [69, 74, 75])
def test_what_may_succeed_later_is_left_to_the_retries(tasks, module, tmp_path, monkeypatch, code):
    from scalable_kpca.errors import RetryableError

    monkeypatch.setattr(module, "COMMAND", exits_with([code], tmp_path))
    with pytest.raises(RetryableError):
        tasks["base"]()


@pytest.mark.slow
# a test client of starlette, which airflow imports
@pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`:UserWarning")
def test_airflow_itself_runs_a_day_after_a_base_that_was_skipped(bag, tasks, folder):
    if not (folder / "out" / "daily" / "latest.json").exists():
        tasks["base"]()
    command = [sys.executable, "-m", "airflow"]
    subprocess.run([*command, "db", "migrate"], check=True, capture_output=True)
    run = bag.dags["skpca_daily"].test(run_conf={"date": "2026-01-02"})
    assert {own.task_id: str(own.state) for own in run.get_task_instances()} == {
        "base": "skipped",
        "embedding": "success",
    }
    assert str(run.state) == "success"
    latest = json.loads((folder / "out" / "daily" / "latest.json").read_text())["run"]
    assert "2026-01-02" in (folder / "out" / "daily" / "runs" / latest / "ledger.json").read_text()
