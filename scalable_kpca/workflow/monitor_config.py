"""What a configuration may say of monitoring."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from scalable_kpca.workflow.kernel_config import Section

__all__ = ["MonitorConfig"]


def _ends_in(value: str, *, endings: tuple[str, ...]) -> str:
    """Refuse other names: what an output says is written to on an update must be no file of another kind."""
    if "\0" in value or "://" in value or Path(value).suffix not in endings:
        text = f"must be a file of this machine that is called *{' or *'.join(endings)}"
        raise PydanticCustomError("file", "{message}", {"message": text})
    return value


LocalFile = Annotated[str, AfterValidator(os.path.expanduser)]
Metrics = Annotated[LocalFile, AfterValidator(partial(_ends_in, endings=(".prom",)))]
Events = Annotated[LocalFile, AfterValidator(partial(_ends_in, endings=(".jsonl", ".ndjson")))]
Page = Annotated[LocalFile, AfterValidator(partial(_ends_in, endings=(".html",)))]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class MonitorConfig(Section):
    """Files in which run, update and transform say how they ended, also when they failed; needs extra `monitoring`."""

    prometheus: Metrics | None = Field(
        default=None,
        description="File *.prom, relative to the configuration file, in a directory that exists: metrics for "
        "node_exporter's textfile collector, replaced as a whole at the end of a command.",
    )
    openlineage: Events | None = Field(
        default=None,
        description="File *.jsonl or *.ndjson, relative to the configuration file, in a directory that exists: events "
        "of OpenLineage are appended, one a line.",
    )
    performance_report: Page | None = Field(
        default=None,
        description="File *.html, relative to the configuration file, in a directory that exists: dask's performance "
        "report of the tasks of run or update, replaced as a whole when there were some. It takes a Dask scheduler, "
        "any cluster.kind but threads and synchronous, and bokeh there; a run with it is slower, of kind local by a "
        "tenth. An earlier run's is not gone on with: each command is asked anew.",
    )
    job: Name | None = Field(default=None, description="Name of the job; by default that of the output directory.")
    namespace: Name = Field(default="skpca", description="Of the job in OpenLineage.")
