"""Outputs that arguments mean, here or on S3."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scalable_kpca.errors import KernelPCAError

if TYPE_CHECKING:
    from scalable_kpca.workflow.layout import Output, RunDirectory

__all__ = ["brought", "place_of", "published"]


def place_of(output: str, work: str | None) -> Output:
    """The output that an argument means, as it is on this machine."""
    from scalable_kpca.workflow.loading import check_place
    from scalable_kpca.workflow.mirror import output_at

    check_place("OUTPUT", output)
    return output_at(output, Path(), work)


def brought(output: str, work: str | None) -> tuple[Output, KernelPCAError | None]:
    """The same with the run that is in force on S3, which is brought to this machine, and why that failed."""
    from scalable_kpca.workflow.mirror import refresh

    place = place_of(output, work)
    try:
        refresh(place)
    except KernelPCAError as error:  # is for whoever watches, too
        return place, error
    return place, None


def published(output: Output, run: RunDirectory) -> dict[str, str]:
    """Where on S3 a run is, for an answer: nothing for one that is on this machine only."""
    from scalable_kpca.workflow.mirror import published_uri

    uri = published_uri(output, run)
    return {} if uri is None else {"published": uri}
