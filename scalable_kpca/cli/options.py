"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scalable_kpca.cli.answers import AS_JSON

__all__ = [
    "Place",
    "config_argument",
    "json_option",
    "on_scheduler",
    "output_argument",
    "scheduler_option",
    "set_option",
    "work_option",
]


class Place(click.Path):
    """A path, or ``s3://…``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What is on S3 as it is; anything else as a path."""
        return value if str(value).startswith("s3://") else super().convert(value, param, ctx)


def _remember(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Whether an error, too, is an answer that a program reads."""
    del param
    ctx.meta[AS_JSON] = value
    return value


config_argument = click.argument("config", type=click.Path(path_type=Path, dir_okay=False))
output_argument = click.argument("output", type=Place(path_type=str, file_okay=False))
work_option = click.option(
    "--work",
    type=click.Path(path_type=str, file_okay=False),
    help="Working directory of an OUTPUT on S3; by default one below the user's cache directory.",
)
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key, such as kernel.gamma=0.1."
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    callback=_remember,
    help="Last line on stdout is one JSON object; text goes to stderr.",
)
scheduler_option = click.option(
    "--scheduler", metavar="ADDRESS", help="Run on this Dask scheduler, such as tcp://host:8786."
)


def on_scheduler(address: str | None, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Overrides of a job that runs on the scheduler at an address, where one is given."""
    return overrides if address is None else (*overrides, "cluster.kind=address", f"cluster.address={address}")
