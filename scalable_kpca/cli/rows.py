"""Commands of new rows: add them to a model, score them with it."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import click

from scalable_kpca.cli.answers import NOTHING_TO_DO, count_partitions, say_answer, say_lines
from scalable_kpca.cli.failures import named
from scalable_kpca.cli.options import (
    Place,
    json_option,
    on_scheduler,
    output_argument,
    scheduler_option,
    set_option,
    work_option,
)
from scalable_kpca.cli.places import brought, published
from scalable_kpca.console import warn

__all__ = ["transform", "update"]


@click.command()
@output_argument
@work_option
@click.option("--source", metavar="URI", help="New partitions; those that are in the model already are left out.")
@click.option("--withdraw", multiple=True, metavar="NAME", help="Partition to take away: its path or file name.")
@set_option
@scheduler_option
@json_option
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
    overrides = on_scheduler(scheduler, overrides)
    with contextlib.ExitStack() as stack:
        stack.enter_context(part_of_job(draft_of("cluster", {}, overrides)))
        place, refusal = brought(output, work)
        watch = stack.enter_context(watching(watch_output("update", place, source, overrides), named))
        if refusal is not None:
            raise refusal
        with progress(warn) as listener:
            done = update_output(place, source, Path.cwd(), withdraw=withdraw, overrides=overrides, listener=listener)
        rows = sum(part.rows for part in done.added)
        say_lines(
            [
                f"{done.status}: {count_partitions(len(done.added))} of {rows} rows added, "
                f"{len(done.withdrawn)} withdrawn",
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
            | published(place, done.run)
        )
        say_answer(watch.answer, as_json)
        if done.status == "unchanged":
            raise SystemExit(NOTHING_TO_DO)


@click.command()
@output_argument
@work_option
@click.option("--source", required=True, metavar="URI", help="Rows with the columns that the model was fitted on.")
@click.option(
    "--to",
    "destination",
    required=True,
    type=Place(path_type=str),
    help="New directory for the scores, or s3://BUCKET/PREFIX.",
)
@click.option("--reconstruct", is_flag=True, help="Write the rows that the scores are mapped back to, not the scores.")
@set_option
@json_option
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

    place, refusal = brought(output, work)
    with watching(watch_output("transform", place, source, overrides), named) as watch:
        if refusal is not None:
            raise refusal
        n_rows, health = transform_to(place, source, Path.cwd(), destination, overrides, reconstruct=reconstruct)
        say_lines([f"{n_rows} rows {'reconstructed' if reconstruct else 'scored'} into {destination}"], as_json)
        answer = {"status": "done", "rows": n_rows, "embedding": destination, "health": worst(health)}
        watch.answer |= answer
        say_answer(answer, as_json)
