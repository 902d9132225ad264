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
import math
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
    check_specs=[dg.AssetCheckSpec(DRIFT, asset="embedding", description="Whether that day is like the base.")],
    kinds={"parquet"},
)
def embedding(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """The model with one day more, and the scores of that day."""
    source = DAYS.format(date=context.partition_key)
    try:
        result = _start(context, "update", OUTPUT, "--source", source)
    except dg.Failure as failure:
        # such as drift.mean.fail: the day is refused, and the version before stays in force
        if re.search(r"\bdrift\.(\w+\.)?fail is", str(failure.description)):
            yield dg.AssetCheckResult(check_name=DRIFT, passed=False, description=failure.description)
        raise
    # what a ledger says of a day is there when nothing is to do, too
    ledger = result.read("ledger.json")
    name = Path(source).name
    parts = [part for part in ledger["partitions"] if part["own"] and fnmatch.fnmatch(Path(part["path"]).name, name)]
    drift = {part["path"]: _ratio(part["residual"], ledger["residual"]) for part in parts}
    metadata = _described(result, sum(part["rows"] for part in parts))
    if drift:
        metadata["drift"] = _number(max(drift.values()))
    yield dg.MaterializeResult(metadata=metadata, check_results=[_judged(result, drift)])


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


class Finding(NamedTuple):
    """A file that is further from the base than a limit of daily.yaml allows; `skpca schema` prints what they mean."""

    path: str
    measure: str  # landmarks, or missing, outside, mean, spread, unknown, psi, novelty
    column: str  # or component; empty where it is of all rows
    value: float
    level: str  # warn or fail
    limit: float

    @property
    def rank(self) -> tuple[bool, float]:
        """Larger for worse."""
        return self.level == "fail", self.value / max(self.limit, 1e-12)

    def __str__(self) -> str:
        measure = f"{self.measure} of {self.column}" if self.column else self.measure
        key = f"drift.{self.level}" if self.measure == "landmarks" else f"drift.{self.measure}.{self.level}"
        return f"{measure} is {self.value:.3g} in {Path(self.path).name}, and {key} is {self.limit:g}"


def _number(value: float) -> dg.MetadataValue[Any]:
    """As the page of an asset can show it, where infinity is no number."""
    return dg.MetadataValue.float(value) if math.isfinite(value) else dg.MetadataValue.text("infinite")


def _judged(result: CommandResult, drift: dict[str, float]) -> dg.AssetCheckResult:
    """Whether no file of a day is above a limit; one above a limit to fail at was refused, unless that came later."""
    limits = result.read("run.json")["config"]["drift"]
    above = [found for path, ratio in drift.items() for found in _above(path, "landmarks", "", ratio, limits)]
    for path, measures in _health(result, set(drift)).items():
        for measure, entry in measures.items():
            value = math.inf if entry["value"] is None else entry["value"]
            above += _above(path, measure, entry["where"], value, limits[measure])
    description = f"{len({found.path for found in above})} of {len(drift)} files are above a limit"
    metadata: dict[str, Any] = {path: _number(ratio) for path, ratio in drift.items()}
    worst = max(above, key=lambda found: found.rank, default=None)
    if worst is not None:
        description += f"; {worst}"
        metadata |= {
            "worst": str(worst),
            "measure": worst.measure,
            "column": worst.column,
            "value": _number(worst.value),
        }
    return dg.AssetCheckResult(
        check_name=DRIFT,
        passed=worst is None,
        severity=dg.AssetCheckSeverity.ERROR if worst and worst.level == "fail" else dg.AssetCheckSeverity.WARN,
        description=description,
        metadata=metadata,
    )


def _above(path: str, measure: str, column: str, value: float, limits: dict[str, Any]) -> list[Finding]:
    """The highest limit that a value is above, if any."""
    levels = [level for level in ("fail", "warn") if limits[level] is not None and value > limits[level]]
    return [Finding(path, measure, column, value, level, limits[level]) for level in levels[:1]]


def _health(result: CommandResult, paths: set[str]) -> dict[str, dict[str, Any]]:
    """How the rows of files differ from those of the base, as the run has said that added them: this or one before."""
    found: dict[str, dict[str, Any]] = {}
    while result.run is not None and paths - set(found):
        health = result.read("metrics.json").get("health", {})
        found |= {path: health[path] for path in (paths - set(found)) & set(health)}
        previous = result.read("run.json").get("previous")
        result = replace(result, run=result.run.with_name(previous) if previous else None)
    return found


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
