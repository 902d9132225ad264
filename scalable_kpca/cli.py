"""The command line: parsing, output, signals, exit codes. Everything else is in `workflow`."""

from __future__ import annotations

import contextlib
import json
import math
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalable_kpca.address_space import check_addresses, spare_addresses
from scalable_kpca.console import open_standard_streams, say, warn
from scalable_kpca.errors import ClusterError, KernelPCAError, StorageError, storage_errors
from scalable_kpca.faults import classify, lacks_memory
from scalable_kpca.stopping import INTERRUPTED, leaving_when_told, terminable

if TYPE_CHECKING:
    from scalable_kpca.workflow.inspect import Report
    from scalable_kpca.workflow.layout import Output, RunDirectory

__all__ = ["main", "skpca"]

NOTHING_TO_DO = 99
BUG = 70
TOO_LITTLE_MEMORY = 78
AS_JSON = "scalable_kpca.as_json"

# heavy imports wait until a command needs them: `--help` answers at once


class _Failure(click.ClickException):
    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Print the error where that is possible."""
        with contextlib.suppress(OSError):
            super().show(file)


class _NamedErrors(click.Group):
    """Commands whose errors become one line on stderr and an exit code, also below another program's group."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            spare_addresses()
            check_addresses("this command")
            with terminable():
                return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise  # click's own, and a reader of our output that has seen enough
        except (Exception, KeyboardInterrupt) as error:
            message, code = _named(error)
            if code == BUG:
                with contextlib.suppress(OSError):
                    traceback.print_exc()
        with contextlib.suppress(OSError):
            _answer({"status": "failed", "exit_code": code, "error": message}, ctx.meta.get(AS_JSON, False))
        raise _Failure(message, code)


def _named(error: BaseException) -> tuple[str, int]:
    """An error in words, and its exit code."""
    if isinstance(error, KernelPCAError):
        return str(error), _exit_code(error)
    if isinstance(error, KeyboardInterrupt):
        return "stopped; the same command resumes.", INTERRUPTED
    if lacks_memory(error):
        return _out_of_memory(error), TOO_LITTLE_MEMORY
    if isinstance(error, OSError) and error.errno is not None:
        named = _refused(error)
        return str(named), _exit_code(named)
    return _bug_report(error), BUG


def _exit_code(error: KernelPCAError) -> int:
    """The error's own, or that of what the system said: that it would pass, or that there is no memory."""
    if lacks_memory(error):
        return TOO_LITTLE_MEMORY
    return INTERRUPTED if classify(error) == "transient" else error.exit_code


def _refused(error: OSError) -> StorageError:
    """What the operating system refused, in words."""
    try:
        with storage_errors("this command"):
            raise error
    except StorageError as named:
        return named


def _out_of_memory(error: BaseException) -> str:
    return (
        f"the system gave no more memory ({str(error) or 'no size named'}), less than budget.memory allows for; set "
        "budget.memory lower, or let the process have more (ulimit -v and -u, the control group), and run the same "
        "command again: nothing finished is done twice."
    )


def _bug_report(error: BaseException) -> str:
    return (
        f"{type(error).__name__} was not foreseen: this is a bug in skpca, not in your configuration. Please report "
        "it to the developers with the lines above, the command, and what `skpca doctor --json` prints."
    )


class _Place(click.Path):
    """A path, or ``s3://…``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if str(value).startswith("s3://") else super().convert(value, param, ctx)


@click.group(cls=_NamedErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="scalable-kpca")
def skpca() -> None:
    """Exact, certified, resumable kernel PCA for data whose Gram matrix fits nowhere."""


def _remember(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Whether an error, too, is an answer that a program reads."""
    del param
    ctx.meta[AS_JSON] = value
    return value


_config = click.argument("config", type=click.Path(path_type=Path, dir_okay=False))
_output = click.argument("output", type=_Place(path_type=str, file_okay=False))
_work = click.option(
    "--work",
    type=click.Path(path_type=str, file_okay=False),
    help="Working directory of an OUTPUT on S3; by default one below the user's cache directory.",
)
_set = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, such as kernel.gamma=0.1."
)
_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    callback=_remember,
    help="Last line on stdout is one JSON object; text goes to stderr.",
)


@skpca.command()
@_config
@_set
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask scheduler, such as tcp://host:8786.")
@_json
def run(config: Path, overrides: tuple[str, ...], scheduler: str | None, as_json: bool) -> None:
    """Run the job CONFIG, finish or repair it, or find that it is done (exit code 99)."""
    from scalable_kpca.report import plan_lines, summary_lines
    from scalable_kpca.workflow.engines import part_of_job
    from scalable_kpca.workflow.loading import read_draft
    from scalable_kpca.workflow.monitoring import watch_job, watching
    from scalable_kpca.workflow.progress import progress
    from scalable_kpca.workflow.stages import execute, prepare

    if scheduler is not None:
        overrides = (*overrides, "cluster.kind=address", f"cluster.address={scheduler}")
    draft = read_draft(config, overrides)
    with part_of_job(draft), watching(watch_job(draft), _named) as watch:
        prepared = prepare(draft.config(), config.resolve().parent)
        watch.start(prepared.fingerprint, prepared.source.paths)
        _say(plan_lines(prepared.plan), as_json)
        with progress(warn) as listener:
            outcome = execute(prepared, listener)
        answer = watch.answer
        answer |= {
            "status": outcome.status,
            "run": str(outcome.run.path),
            "embedding": str(outcome.run.path / "embedding"),
            "seconds": round(outcome.seconds, 3),
        }
        answer |= _published(prepared.output, outcome.run)
        if outcome.fit is not None:
            lines = summary_lines(outcome.fit, outcome.seconds)
            _say(["", *lines, f"scores, model and metrics are in {outcome.run.path}"], as_json)
            model, certificate = outcome.fit.model, outcome.fit.model.certificate
            answer["n_components"] = model.n_components
            answer["explained_variance"] = float(certificate.explained_variance_ratio.sum())
            answer |= {"complete": certificate.complete, "missed_bound": certificate.missed_bound}
            answer["method"] = outcome.fit.model.solver if outcome.fit.model.n_passes == 0 else "exact"
        elif outcome.added or outcome.withdrawn:
            later = f"with {_partitions(outcome.added)} added by updates and {outcome.withdrawn} withdrawn"
            _say([f"nothing to do: this input and configuration, {later}, gave {outcome.run.path}"], as_json)
        elif outcome.status == "restored":
            _say([f"restored: this input and configuration gave {outcome.run.path}, which is in force again"], as_json)
        else:
            _say([f"nothing to do: this input and configuration gave {outcome.run.path}"], as_json)
        _answer(answer, as_json)
        if outcome.status == "unchanged":
            raise SystemExit(NOTHING_TO_DO)


@skpca.command()
@_config
@_set
@click.option("--calibrate", is_flag=True, help="Measure this machine again; by default once, and for large jobs only.")
@_json
def plan(config: Path, overrides: tuple[str, ...], calibrate: bool, as_json: bool) -> None:
    """Say what the job CONFIG would do and what it would take, without doing it."""
    from scalable_kpca.report import plan_lines
    from scalable_kpca.workflow.advising import advise
    from scalable_kpca.workflow.checks import check_budget
    from scalable_kpca.workflow.loading import load_config
    from scalable_kpca.workflow.stages import outline

    job = outline(load_config(config, overrides), config.resolve().parent, calibrate=calibrate)
    check_budget(job.config, job.plan, job.source)
    _say(plan_lines(job.plan), as_json)
    answer = {"plan": job.plan.to_json()}
    if job.plan.method == "nystroem":
        advice = advise(job)
        _say(["", *advice.lines()], as_json)
        answer["advice"] = advice.to_json()
    _answer(answer, as_json)


@skpca.command()
@_output
@_work
@click.option("--source", metavar="URI", help="New partitions; those that are in the model already are left out.")
@click.option("--withdraw", multiple=True, metavar="NAME", help="Partition to take away: its path or file name.")
@_set
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask scheduler, such as tcp://host:8786.")
@_json
def update(
    output: str,
    work: str | None,
    source: str | None,
    withdraw: tuple[str, ...],
    overrides: tuple[str, ...],
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Add new partitions to the Nyström model in OUTPUT; old ones are not fitted again; exit code 99: nothing new."""
    from scalable_kpca.workflow.engines import part_of_job
    from scalable_kpca.workflow.health import worst
    from scalable_kpca.workflow.loading import draft_of
    from scalable_kpca.workflow.monitoring import watch_output, watching
    from scalable_kpca.workflow.progress import progress
    from scalable_kpca.workflow.update import update_output

    if source is None and not withdraw:
        raise click.UsageError("give --source, --withdraw or both.")
    if scheduler is not None:
        overrides = (*overrides, "cluster.kind=address", f"cluster.address={scheduler}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(part_of_job(draft_of("cluster", {}, overrides)))
        place, refusal = _brought(output, work)
        watch = stack.enter_context(watching(watch_output("update", place, source, overrides), _named))
        if refusal is not None:
            raise refusal
        with progress(warn) as listener:
            done = update_output(place, source, Path.cwd(), withdraw=withdraw, overrides=overrides, listener=listener)
        rows = sum(part.rows for part in done.added)
        _say(
            [
                f"{done.status}: {_partitions(len(done.added))} of {rows} rows added, {len(done.withdrawn)} withdrawn",
                *(f"drift {ratio:.3g}  {path}" for path, ratio in done.drift.items()),
                f"in force: {done.run.path}",
            ],
            as_json,
        )
        watch.answer.update(
            {
                "status": done.status,
                "run": str(done.run.path),
                "added": [part.path for part in done.added],
                "withdrawn": [part.path for part in done.withdrawn],
                "rows": rows,
                "drift": {path: ratio if math.isfinite(ratio) else None for path, ratio in done.drift.items()},
                "health": worst(done.health),
                "seconds": round(done.seconds, 3),
            }
            | _published(place, done.run)
        )
        _answer(watch.answer, as_json)
        if done.status == "unchanged":
            raise SystemExit(NOTHING_TO_DO)


@skpca.command()
@_output
@_work
@click.option("--source", required=True, metavar="URI", help="Rows with the columns that the model was fitted on.")
@click.option(
    "--to",
    "destination",
    required=True,
    type=_Place(path_type=str),
    help="New directory for the scores, or s3://BUCKET/PREFIX.",
)
@click.option("--reconstruct", is_flag=True, help="Write the rows that the scores are mapped back to, not the scores.")
@_set
@_json
def transform(
    output: str,
    work: str | None,
    source: str,
    destination: str,
    reconstruct: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Score new rows with the latest model in OUTPUT; --set may change `drift` and `monitor`."""
    from scalable_kpca.workflow.destination import transform_to
    from scalable_kpca.workflow.health import worst
    from scalable_kpca.workflow.monitoring import watch_output, watching

    place, refusal = _brought(output, work)
    with watching(watch_output("transform", place, source, overrides), _named) as watch:
        if refusal is not None:
            raise refusal
        n_rows, health = transform_to(place, source, Path.cwd(), destination, overrides, reconstruct=reconstruct)
        _say([f"{n_rows} rows {'reconstructed' if reconstruct else 'scored'} into {destination}"], as_json)
        answer = {"status": "done", "rows": n_rows, "embedding": destination, "health": worst(health)}
        watch.answer |= answer
        _answer(answer, as_json)


@skpca.command()
@_output
@_work
@_json
def verify(output: str, work: str | None, as_json: bool) -> None:
    """Read everything in OUTPUT again and compare it with what was committed; of S3, all that is published there."""
    from scalable_kpca.workflow.inspect import verify_output
    from scalable_kpca.workflow.mirror import fetched

    with fetched(_place_of(output, work)) as place:
        report = verify_output(place)
    _show(report, as_json, StorageError.exit_code)


@skpca.command()
@_output
@_work
@_json
def status(output: str, work: str | None, as_json: bool) -> None:
    """Say what is in OUTPUT: the run in force, runs in progress, who holds the lock."""
    from scalable_kpca.workflow.inspect import inspect_output

    _show(inspect_output(_place_of(output, work)), as_json, StorageError.exit_code)


@skpca.command()
@_output
@_work
@click.option(
    "--to",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the page, ending in .html; report.html in OUTPUT by default.",
)
@click.option("--colour", metavar="COLUMN", help="Column beside the scores that colours them.")
@_json
def report(output: str, work: str | None, destination: Path | None, colour: str | None, as_json: bool) -> None:
    """Write a page of HTML about the run in force in OUTPUT: numbers, certificate and pictures in one file."""
    from scalable_kpca.workflow.page import write_page

    place, refusal = _brought(output, work)
    if refusal is not None:
        raise refusal
    page = write_page(place, destination, colour=colour)
    _say([f"the page is {page.path}, {page.n_bytes} bytes"], as_json)
    answer = {"status": "done", "page": str(page.path), "run": str(page.run.path)}
    _answer(answer | {"bytes": page.n_bytes, "colour": page.colour}, as_json)


@skpca.command()
@_output
@_work
@click.option("--force", is_flag=True, help="Also when the owner may be alive: you have seen that it is not.")
@_json
def unlock(output: str, work: str | None, force: bool, as_json: bool) -> None:
    """Remove the lock of OUTPUT when its owner is dead; a run does that by itself on the owner's host."""
    from scalable_kpca.workflow.mirror import unlock_output

    owner = unlock_output(_place_of(output, work), force=force)
    if owner is None:
        _say([f"{output} is not locked"], as_json)
    else:
        _say(
            [f"{output} was locked by process {owner.get('pid', '?')} on {owner.get('host', '?')}; it is free"], as_json
        )
    _answer({"status": "unchanged" if owner is None else "done", "owner": owner}, as_json)
    if owner is None:
        raise SystemExit(NOTHING_TO_DO)


@skpca.command()
def schema() -> None:
    """Print the JSON Schema of a configuration."""
    from scalable_kpca.workflow.config import Config

    say(json.dumps(Config.model_json_schema(), indent=1))


@skpca.command()
@click.option(
    "--cluster",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="CONFIG",
    help="Look at the cluster of this job instead: versions, memory, threads, encryption and shared storage.",
)
@_set
@_json
def doctor(cluster: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say what this machine offers, and whether a small fit gives the right numbers."""
    from scalable_kpca.workflow.doctor import examine_job_cluster, examine_machine
    from scalable_kpca.workflow.engines import part_of_job
    from scalable_kpca.workflow.loading import read_draft

    if cluster is None:
        _show(examine_machine(), as_json, BUG)
        return
    draft = read_draft(cluster, overrides)
    with part_of_job(draft):
        _show(examine_job_cluster(draft.config(), draft.base), as_json, ClusterError.exit_code)


def main() -> None:
    """Run the command line, in a process of its own."""
    open_standard_streams()
    with leaving_when_told():
        skpca()


def _place_of(output: str, work: str | None) -> Output:
    """The output that an argument means, as it is on this machine."""
    from scalable_kpca.workflow.loading import check_place
    from scalable_kpca.workflow.mirror import output_at

    check_place("OUTPUT", output)
    return output_at(output, Path(), work)


def _brought(output: str, work: str | None) -> tuple[Output, KernelPCAError | None]:
    """The same with the run that is in force on S3, which is brought to this machine, and why that failed."""
    from scalable_kpca.workflow.mirror import refresh

    place = _place_of(output, work)
    try:
        refresh(place)
    except KernelPCAError as error:  # is for whoever watches, too
        return place, error
    return place, None


def _published(output: Output, run: RunDirectory) -> dict[str, str]:
    """Where on S3 a run is, for an answer: nothing for one that is on this machine only."""
    from scalable_kpca.workflow.mirror import published_uri

    uri = published_uri(output, run)
    return {} if uri is None else {"published": uri}


def _partitions(count: int) -> str:
    return f"{count} partition" + ("" if count == 1 else "s")


def _say(lines: list[str], as_json: bool) -> None:
    for line in lines:
        (warn if as_json else say)(line)


def _show(report: Report, as_json: bool, code: int) -> None:
    """Print a report; the exit code of one with problems."""
    _say(report.lines(), as_json)
    _answer(report.to_json(), as_json)
    if report.problems:
        raise SystemExit(code)


def _answer(value: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say(json.dumps(value))


if __name__ == "__main__":
    main()
