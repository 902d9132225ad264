"""A model that grows by a file a day, as assets of Dagster: `base` by `skpca run`, a day of `embedding` by an update.

Copy this file, daily.yaml, and dagster/dagster.yaml to $DAGSTER_HOME; set the variables below; then::

    pip install scalable-kpca dagster dagster-webserver matplotlib
    dagster dev -f dagster_definitions.py

Materialize `base` once. The schedule adds yesterday every night; days may be materialized and backfilled in any order.

Exit codes: 0 and 99 (nothing to do) are materializations; 69, 74, 75 and a kill are tried again; anything else fails at
once. Updates of one output must not run at the same time: dagster.yaml limits the pool `skpca` to one run. Without that
the second one exits with 75 and is tried again later.
"""

import base64
import fnmatch
import io
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")

import dagster as dg

from scalable_kpca.commands import CommandResult, run_skpca
from scalable_kpca.errors import CommandError

# not SKPCA_…: such variables override keys of daily.yaml, here as everywhere
CONFIG = Path(os.environ.get("KPCA_CONFIG", Path(__file__).with_name("daily.yaml"))).resolve()
FOLDER = CONFIG.parent
OUTPUT = FOLDER / os.environ.get("KPCA_OUTPUT", "out/daily")  # output.path of CONFIG
DAYS = os.environ.get("KPCA_DAYS", "days/{date}*.parquet")  # files of one day, below FOLDER or absolute
START = os.environ.get("KPCA_START", "2026-01-01")
COMMAND = shlex.split(os.environ.get("KPCA_COMMAND", ""))  # of skpca in another environment than Dagster's
RETRY = dg.RetryPolicy(
    max_retries=5,
    delay=float(os.environ.get("KPCA_RETRY_SECONDS", "60")),
    backoff=dg.Backoff.EXPONENTIAL,
    jitter=dg.Jitter.PLUS_MINUS,
)
DRIFT = "drift"


@dg.asset(pool="skpca", retry_policy=RETRY, kinds={"parquet"})
def base(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Landmarks and a first model, from what source.uri finds. Another base has to get all days again: a backfill."""
    result = _start(context, "run", CONFIG)
    return dg.MaterializeResult(metadata=_described(result, result.read("metrics.json")["n_samples"]))


@dg.asset(
    deps=[base],
    partitions_def=dg.DailyPartitionsDefinition(START),
    pool="skpca",
    retry_policy=RETRY,
    check_specs=[dg.AssetCheckSpec(DRIFT, asset="embedding", description="Whether the landmarks reach that day.")],
    kinds={"parquet"},
)
def embedding(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """The model with one day more, and the scores of that day."""
    source = DAYS.format(date=context.partition_key)
    try:
        result = _start(context, "update", OUTPUT, "--source", source)
    except dg.Failure as failure:
        if "drift.fail" in str(failure.description):  # the day is refused, and the version before stays in force
            yield dg.AssetCheckResult(check_name=DRIFT, passed=False, description=failure.description)
        raise
    # what a ledger says of a day is there when nothing is to do, too
    ledger = result.read("ledger.json")
    name = Path(source).name
    parts = [part for part in ledger["partitions"] if part["own"] and fnmatch.fnmatch(Path(part["path"]).name, name)]
    drift = {part["path"]: _ratio(part["residual"], ledger["residual"]) for part in parts}
    metadata = _described(result, sum(part["rows"] for part in parts))
    if drift:
        metadata["drift"] = max(drift.values())
    yield dg.MaterializeResult(metadata=metadata, check_results=[_judged(drift, result)])


daily = dg.define_asset_job("daily", selection=[embedding])
definitions = dg.Definitions(
    assets=[base, embedding],
    jobs=[daily],
    schedules=[dg.build_schedule_from_partitioned_job(daily, hour_of_day=3)],  # of the day before
)


def _start(context: dg.AssetExecutionContext, *arguments: str | Path) -> CommandResult:
    """One command; RetryableError is left to the policy."""
    try:
        return run_skpca(*arguments, command=COMMAND, cwd=FOLDER, listener=context.log.info)
    except CommandError as error:
        raise dg.Failure(str(error), allow_retries=False) from error


def _ratio(residual: float, of_base: float) -> float:
    """What the landmarks leave out of a day, over what they left out of the base."""
    if of_base > 0:
        return residual / of_base
    return float("inf") if residual > 0 else 1.0


def _judged(drift: dict[str, float], result: CommandResult) -> dg.AssetCheckResult:
    """Whether no file of a day is above drift.warn; one above drift.fail never gets here."""
    warn = result.read("run.json")["config"]["drift"]["warn"]
    above = {path: ratio for path, ratio in drift.items() if warn is not None and ratio > warn}
    return dg.AssetCheckResult(
        check_name=DRIFT,
        passed=not above,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(above)} of {len(drift)} files are above drift.warn, {warn}",
        metadata={path: dg.FloatMetadataValue(ratio) for path, ratio in drift.items()},
    )


def _described(result: CommandResult, n_rows: int) -> dict[str, Any]:
    metrics = result.read("metrics.json")
    described = {
        "status": result.status,
        "run": dg.MetadataValue.path(str(result.run)),
        "dagster/row_count": n_rows,
        "rows in the model": metrics["n_samples"],
        "seconds": result.answer["seconds"],
        "explained variance": metrics["explained_variance"],
    }
    plot = _scree(metrics["eigenvalues"])
    return described | ({"scree": dg.MetadataValue.md(f"![eigenvalues]({plot})")} if plot else {})


def _scree(eigenvalues: list[float]) -> str | None:
    """Eigenvalues as an image in a URI; none where matplotlib is not there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(4, 2.5), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(1, len(eigenvalues) + 1), eigenvalues)
    axes.set(xlabel="component", ylabel="eigenvalue")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=80)
    return "data:image/png;base64," + base64.b64encode(image.getvalue()).decode()
