"""A model that grows by a file a day, as a DAG of Airflow 3: `skpca run` makes or finds the base, an update adds a day.

Copy this file to the folder of DAGs and set the variables below in Airflow's environment, which needs this package too:
`pip install --no-deps scalable-kpca` is enough where skpca itself lives in an environment of its own (KPCA_COMMAND).
`airflow backfill create --dag-id skpca_daily --from-date 2026-01-01 --to-date 2026-01-31` adds earlier days.

Exit codes: 0 is success, 99 (nothing to do) a skip; 69, 74, 75 and a kill are tried again; anything else fails at once.
One run at a time, and one instance of a task in backfills too; 75, another writes there, is tried again later.
Some versions of Airflow 3 report usage; AIRFLOW__USAGE_DATA_COLLECTION__ENABLED=False tells them not to.
"""

import datetime
import logging
import os
import shlex
from pathlib import Path
from typing import Any

from airflow.sdk import CronDataIntervalTimetable, Param, TriggerRule, dag, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from scalable_kpca.commands import run_skpca
from scalable_kpca.errors import CommandError

# not SKPCA_…: such variables override keys of daily.yaml, here as everywhere
CONFIG = Path(os.environ.get("KPCA_CONFIG", "/etc/skpca/daily.yaml"))
FOLDER = CONFIG.parent
OUTPUT = FOLDER / os.environ.get("KPCA_OUTPUT", "out/daily")  # output.path of CONFIG
DAYS = os.environ.get("KPCA_DAYS", "days/{date}*.parquet")  # files of one day, below FOLDER or absolute
START = datetime.datetime.fromisoformat(os.environ.get("KPCA_START", "2026-01-01")).replace(tzinfo=datetime.UTC)
COMMAND = shlex.split(os.environ.get("KPCA_COMMAND", ""))  # of skpca in another environment than Airflow's
RETRY_SECONDS = float(os.environ.get("KPCA_RETRY_SECONDS", "60"))


@dag(
    dag_id="skpca_daily",
    # every night at 03:00 for the day before. A plain cron expression would mean the day that has just begun, unless
    # scheduler.create_cron_data_intervals is set
    schedule=CronDataIntervalTimetable("0 3 * * *", timezone="UTC"),
    start_date=START,
    catchup=True,  # a day is not left out because Airflow was not there that night
    max_active_runs=1,
    params={"date": Param(None, type=["null", "string"], format="date", description="Day of a run by hand.")},
    default_args={
        "retries": 5,
        "retry_delay": datetime.timedelta(seconds=RETRY_SECONDS),
        "retry_exponential_backoff": True,
        "max_active_tis_per_dag": 1,
    },
)
def skpca_daily() -> None:
    """The base, then a day."""

    @task
    def base() -> dict[str, Any]:
        """Landmarks and a first model, from what source.uri finds."""
        return _start("run", CONFIG)

    @task(trigger_rule=TriggerRule.NONE_FAILED)  # a base that is there already has been skipped
    def embedding(params: Any = None, data_interval_start: Any = None) -> dict[str, Any]:
        """The model with one day more, and the scores of that day."""
        day = params["date"] or (data_interval_start and data_interval_start.date())
        if not day:
            raise AirflowFailException("a run by hand without a logical date needs the parameter date.")
        return _start("update", OUTPUT, "--source", DAYS.format(date=day))

    base() >> embedding()


def _start(*arguments: str | Path) -> dict[str, Any]:
    """One command: its answer; RetryableError is left to Airflow's retries."""
    try:
        result = run_skpca(*arguments, command=COMMAND, cwd=FOLDER, listener=logging.getLogger(__name__).info)
    except CommandError as error:
        raise AirflowFailException(str(error)) from error
    if result.status == "unchanged":
        raise AirflowSkipException(f"nothing to do: {result.run}")
    return result.answer


skpca_daily()
