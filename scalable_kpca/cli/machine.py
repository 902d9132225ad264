"""Commands that need no job: keys of a configuration, what this machine offers."""

from __future__ import annotations

import json
from pathlib import Path

import click

from scalable_kpca.cli.answers import show
from scalable_kpca.cli.failures import BUG
from scalable_kpca.cli.options import json_option, set_option
from scalable_kpca.console import say
from scalable_kpca.errors import ClusterError

__all__ = ["doctor", "schema"]


@click.command()
def schema() -> None:
    """Print the JSON Schema of a configuration."""
    from scalable_kpca.workflow.config import Config

    say(json.dumps(Config.model_json_schema(), indent=1))


@click.command()
@click.option(
    "--cluster",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="CONFIG",
    help="Look at the cluster of this job instead: versions, memory, threads, encryption and shared storage.",
)
@set_option
@json_option
def doctor(cluster: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say what this machine offers, and whether a small fit gives the right numbers."""
    from scalable_kpca.workflow.doctor import examine_job_cluster, examine_machine
    from scalable_kpca.workflow.engines import part_of_job
    from scalable_kpca.workflow.loading import read_draft

    if cluster is None:
        show(examine_machine(), as_json, BUG)
        return
    draft = read_draft(cluster, overrides)
    with part_of_job(draft):
        show(examine_job_cluster(draft.config(), draft.base), as_json, ClusterError.exit_code)
