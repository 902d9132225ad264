"""Commands of an output: look at it, read it again, draw it, free it."""

from __future__ import annotations

from pathlib import Path

import click

from scalable_kpca.cli.answers import NOTHING_TO_DO, say_answer, say_lines, show
from scalable_kpca.cli.options import json_option, output_argument, work_option
from scalable_kpca.cli.places import brought, place_of
from scalable_kpca.errors import StorageError

__all__ = ["report", "status", "unlock", "verify"]


@click.command()
@output_argument
@work_option
@json_option
def verify(output: str, work: str | None, as_json: bool) -> None:
    """Read everything in OUTPUT again and compare it with what was committed; of S3, all that is published there."""
    from scalable_kpca.workflow.inspect import verify_output
    from scalable_kpca.workflow.mirror import fetched

    with fetched(place_of(output, work)) as place:
        report = verify_output(place)
    show(report, as_json, StorageError.exit_code)


@click.command()
@output_argument
@work_option
@json_option
def status(output: str, work: str | None, as_json: bool) -> None:
    """Say what is in OUTPUT: the run in force, runs in progress, who holds the lock."""
    from scalable_kpca.workflow.inspect import inspect_output

    show(inspect_output(place_of(output, work)), as_json, StorageError.exit_code)


@click.command()
@output_argument
@work_option
@click.option(
    "--to",
    "destination",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the page, ending in .html; report.html in OUTPUT by default.",
)
@click.option("--colour", metavar="COLUMN", help="Column beside the scores that colours them.")
@json_option
def report(output: str, work: str | None, destination: Path | None, colour: str | None, as_json: bool) -> None:
    """Write a page of HTML about the run in force in OUTPUT: numbers, certificate and pictures in one file."""
    from scalable_kpca.workflow.page import write_page

    place, refusal = brought(output, work)
    if refusal is not None:
        raise refusal
    page = write_page(place, destination, colour=colour)
    say_lines([f"the page is {page.path}, {page.n_bytes} bytes"], as_json)
    answer = {"status": "done", "page": str(page.path), "run": str(page.run.path)}
    say_answer(answer | {"bytes": page.n_bytes, "colour": page.colour}, as_json)


@click.command()
@output_argument
@work_option
@click.option("--force", is_flag=True, help="Also when the owner may be alive: you have seen that it is not.")
@json_option
def unlock(output: str, work: str | None, force: bool, as_json: bool) -> None:
    """Remove the lock of OUTPUT when its owner is dead; a run does that by itself on the owner's host."""
    from scalable_kpca.workflow.mirror import unlock_output

    owner = unlock_output(place_of(output, work), force=force)
    if owner is None:
        say_lines([f"{output} is not locked"], as_json)
    else:
        say_lines(
            [f"{output} was locked by process {owner.get('pid', '?')} on {owner.get('host', '?')}; it is free"], as_json
        )
    say_answer({"status": "unchanged" if owner is None else "done", "owner": owner}, as_json)
    if owner is None:
        raise SystemExit(NOTHING_TO_DO)
