"""What a source offers to a model that has seen other partitions: which of them are new, and which ones it may lose."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from scalable_kpca.errors import StorageError
from scalable_kpca.source import PreparedSource, Published, Source
from scalable_kpca.workflow.layout import Output, RunDirectory
from scalable_kpca.workflow.ledger import Ledger, Partition
from scalable_kpca.workflow.versions import REMEDY, earlier_versions

__all__ = ["new_partitions", "not_offered", "partitions_of", "published_labels"]

logger = logging.getLogger(__name__)


def published_labels(output: Output, run: RunDirectory) -> Published | None:
    """What the scores of the base run hold, or of the last version where that is gone: others go on with it."""
    import pyarrow.parquet as pq

    versions = [run, *earlier_versions(output, run)]
    parts = [part for version in versions for part in sorted((version.path / "embedding").glob("*.parquet"))]
    if not parts:
        return None
    try:
        return Published(pq.read_schema(parts[-1]), parts[-1])
    except (OSError, ValueError) as error:
        raise StorageError(f"{parts[-1]} is damaged: {error}; {REMEDY}.") from error


def partitions_of(source: Source) -> list[Partition]:
    """Each part of a source as a ledger has it; reads their contents once for their digests.

    Rows of parts that are prepared are not counted for it: those that will be left out are among them.
    """
    parts = source.raw.parts if isinstance(source, PreparedSource) else source.parts
    return [
        Partition(part.uri, fingerprint, part.n_rows, own=f"contributions/{fingerprint}.npz")
        for part, fingerprint in zip(parts, source.part_fingerprints(), strict=True)
    ]


def not_offered(named: Sequence[Partition], offered: Sequence[Partition]) -> tuple[Partition, ...]:
    """Partitions to be withdrawn, but those whose contents are to be added by the same command: these stay."""
    there = {part.fingerprint for part in offered}
    for part in named:
        if part.fingerprint in there:
            text = f"{part.path} is to be withdrawn, and the source has it with the same contents: it stays"
            logger.warning("%s", f"{text}; withdraw it without a source that has it")
    return tuple(part for part in named if part.fingerprint not in there)


def new_partitions(offered: Sequence[Partition], ledger: Ledger) -> dict[int, Partition]:
    """Offered partitions that are not in the ledger, by their index, each content once."""
    fresh: dict[int, Partition] = {}
    seen: set[str] = set()
    for index, part in enumerate(offered):
        if part.rows and part.fingerprint not in seen and ledger.check_new(part.path, part.fingerprint):
            fresh[index] = part
            seen.add(part.fingerprint)
    return fresh
