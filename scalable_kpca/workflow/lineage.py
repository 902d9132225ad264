"""What a command reads and writes as events of OpenLineage, each one line of JSON."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scalable_kpca.machine import installed_version
from scalable_kpca.objects import SourceFile, StoredObject, is_object

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset

__all__ = ["MAX_INPUTS", "Attempt", "Written", "clean", "event_line", "named_inputs", "producer", "read_written"]

MAX_INPUTS = 100

PACKAGE = "pkg:pypi/scalable-kpca"


def producer() -> str:
    """Name of this package and its version, a package URL."""
    return f"{PACKAGE}@{installed_version('scalable-kpca')}"


@dataclass(frozen=True)
class Attempt:
    """One command, as all its events call it.

    Attributes
    ----------
    namespace, job, command : str
    fingerprint : str
        Of the run that is made or gone on with; empty where that did not become known.
    started : int
        Unix time, nanoseconds.
    """

    namespace: str
    job: str
    command: str
    fingerprint: str
    started: int

    @property
    def run_id(self) -> str:
        """UUID of version 5: another attempt at the same run has another one."""
        space = uuid.uuid5(uuid.NAMESPACE_URL, PACKAGE)
        text = f"{self.namespace} {self.job} {self.command} {self.fingerprint} {self.started}"
        return str(uuid.uuid5(space, text))


@dataclass(frozen=True)
class Written:
    """A directory of Parquet parts.

    Attributes
    ----------
    path : Path or StoredObject
        Absolute.
    columns : sequence of (str, str)
        Name and type; none where there is no part.
    sizes : (int, int, int) or None
        Rows, bytes and files, None where nothing was written this time.
    """

    path: SourceFile
    columns: Sequence[tuple[str, str]]
    sizes: tuple[int, int, int] | None


def read_written(directory: Path, *, is_new: bool) -> Written:
    """What is in a directory of scores; reads the footer of each part."""
    import pyarrow.parquet as pq

    parts = sorted(directory.glob("*.parquet"))
    schema = pq.read_schema(parts[0]) if parts else ()
    columns = [(column.name, str(column.type)) for column in schema]
    if not is_new:
        return Written(directory.resolve(), columns, None)
    rows = sum(pq.read_metadata(part).num_rows for part in parts)
    return Written(directory.resolve(), columns, (rows, sum(part.stat().st_size for part in parts), len(parts)))


def named_inputs(files: Sequence[str | SourceFile]) -> list[SourceFile]:
    """Absolute paths of files, or objects; of more than `MAX_INPUTS`, the directory that they have in common."""
    names = [str(file) for file in files]
    if any(map(is_object, names)):  # all of them, of one bucket
        objects = [StoredObject.of(name) for name in names]
        common = os.path.commonpath([found.key for found in objects])
        return [*objects] if len(objects) <= MAX_INPUTS else [StoredObject(objects[0].bucket, common)]
    paths = [Path(name).resolve() for name in names]
    return [*paths] if len(paths) <= MAX_INPUTS else [Path(os.path.commonpath(paths))]


def event_line(
    kind: Literal["START", "COMPLETE", "FAIL", "ABORT"],
    attempt: Attempt,
    when: int,
    inputs: Sequence[SourceFile],
    output: Written | None = None,
    message: str = "",
) -> str:
    """An event as JSON without a line break.

    Parameters
    ----------
    when : int
        Unix time, nanoseconds.
    message : str
        What went wrong, as stderr says it; empty where nothing did.
    """
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run
    from openlineage.client.serde import Serde

    facets: dict[str, Any] = {}
    if message:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(clean(message), "PYTHON", producer=producer())
    event = RunEvent(
        eventType=RunState[kind],
        eventTime=datetime.fromtimestamp(when / 1e9, UTC).isoformat(timespec="milliseconds"),
        run=Run(attempt.run_id, facets),
        job=Job(attempt.namespace, f"{attempt.job}.{attempt.command}"),
        inputs=[_input(place) for place in inputs],
        outputs=[] if output is None else [_output(output)],
        producer=producer(),
    )
    return Serde.to_json(event)


def _dataset(place: SourceFile) -> tuple[str, str]:
    """Namespace and name of a data set, as OpenLineage calls files and objects."""
    return (f"s3://{place.bucket}", place.key) if isinstance(place, StoredObject) else ("file", str(place))


def _input(place: SourceFile) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    namespace, name = _dataset(place)
    return InputDataset(clean(namespace), clean(name), facets=_source_of(place))


def _source_of(place: SourceFile) -> dict[str, Any]:
    from openlineage.client.facet_v2 import datasource_dataset

    uri = clean(str(place)) if isinstance(place, StoredObject) else place.as_uri()
    return {"dataSource": datasource_dataset.DatasourceDatasetFacet(_dataset(place)[0], uri, producer=producer())}


def _output(written: Written) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset, schema_dataset

    facets = _source_of(written.path)
    of_output: dict[str, Any] = {}
    if written.columns:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name=clean(name), type=kind) for name, kind in written.columns
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields, producer=producer())
    if written.sizes is not None:
        rows, size, files = written.sizes
        of_output["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=rows, size=size, fileCount=files, producer=producer()
        )
    namespace, name = _dataset(written.path)
    return OutputDataset(clean(namespace), clean(name), facets=facets, outputFacets=of_output)


def clean(text: str) -> str:
    """Text that UTF-8 can hold: names of files may be any bytes."""
    return text.encode("utf-8", "replace").decode()
