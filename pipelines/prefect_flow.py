"""A model that grows by a file a day, as a flow of Prefect: `skpca run` makes or finds the base, an update adds a day.

Copy this file and daily.yaml; set the variables below in the environment; then, to run it every night for yesterday::

    pip install scalable-kpca prefect
    python prefect_flow.py

Another day: `embed("2026-01-31")`, or a run of the deployment with the parameter `date`.

Exit codes: 0 is a result; 99 is Completed, "nothing to do"; 69, 74, 75 and a kill are tried again; anything else fails
at once. One flow runs at a time; where another writes to the same output all the same, 75 is tried again later.
"""

import datetime
import os
import shlex
from pathlib import Path
from typing import Any

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")

from prefect import flow, get_run_logger, task
from prefect.states import Completed, State

from scalable_kpca.commands import run_skpca
from scalable_kpca.errors import RetryableError

# not SKPCA_…: such variables override keys of daily.yaml, here as everywhere
CONFIG = Path(os.environ.get("KPCA_CONFIG", Path(__file__).with_name("daily.yaml"))).resolve()
FOLDER = CONFIG.parent
OUTPUT = FOLDER / os.environ.get("KPCA_OUTPUT", "out/daily")  # output.path of CONFIG
DAYS = os.environ.get("KPCA_DAYS", "days/{date}*.parquet")  # files of one day, below FOLDER or absolute
COMMAND = shlex.split(os.environ.get("KPCA_COMMAND", ""))  # of skpca in another environment than Prefect's
RETRY_SECONDS = [float(os.environ.get("KPCA_RETRY_SECONDS", "60")) * 2**n for n in range(5)]


def may_succeed_later(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Whether a task that failed is tried again."""
    return isinstance(state.result(raise_on_failure=False), RetryableError)


@task(
    retries=len(RETRY_SECONDS),
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=may_succeed_later,
    persist_result=False,
)
def skpca(*arguments: str) -> Any:
    """One command: its answer, a JSON object."""
    result = run_skpca(*arguments, command=COMMAND, cwd=FOLDER, listener=get_run_logger().info)
    if result.status == "unchanged":
        return Completed(message="nothing to do", data=result.answer)
    return result.answer


@flow
def embed(date: str | None = None) -> Any:
    """The model with the files of one day, of yesterday (UTC) by default; what the update says of itself."""
    day = date or str(datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1))
    skpca.with_options(name="run")("run", str(CONFIG))
    source = DAYS.format(date=day)
    done = skpca.with_options(name="update")("update", str(OUTPUT), "--source", source)
    # a task that ends in a state of its own making gives that, and no answer
    return Completed(message=done.message, data=done.result()) if isinstance(done, State) else done


if __name__ == "__main__":
    embed.serve(name="skpca-daily", cron="0 3 * * *", limit=1)
