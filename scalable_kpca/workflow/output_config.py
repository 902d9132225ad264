"""What a configuration may say of places, of where results go, and of the way back from scores."""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.objects import StoredObject, is_object
from scalable_kpca.workflow.kernel_config import Section

__all__ = ["Address", "InverseConfig", "LocalPath", "OutputConfig", "Place"]


def _without_secrets(value: str) -> str:
    """Refuse a URI with a password in it: configurations are published with every run."""
    place = urlsplit(value).netloc if "://" in value else ""
    port = place.rpartition(":")[2] if ":" in place.rpartition("]")[2] else ""  # an address of IPv6 has brackets
    if "@" in place or not (port.isdigit() or port in ("", "*")):  # a secret may have a slash in it
        text = "a name or password is in the URI, and configurations are published with every run; give it by the"
        raise PydanticCustomError("secret", "{message}", {"message": f"{text} environment or a credentials file"})
    return value


def _of_a_known_scheme(value: str) -> str:
    """Refuse what looks like a URI and is none that is read: as a path it would be a directory called ``gs:``."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", value)
    if scheme is not None and not is_object(value):
        message = f"{scheme[0]} is no place that is known; give a path, or s3://BUCKET/KEY"
        raise PydanticCustomError("place", "{message}", {"message": message})
    return value


def _on_s3(value: str) -> str:
    """Refuse what is no bucket and prefix of S3: on a disk, tiles have a place of their own."""
    message = f"{value!r} is no s3://BUCKET/PREFIX; name one, or leave it out for tiles in the output's own directory"
    try:
        if is_object(value):
            StoredObject.of(value)
            return value
    except InvalidInputError as error:
        message = str(error)
    raise PydanticCustomError("tiles", "{message}", {"message": message})


NonEmpty = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
LocalPath = Annotated[NonEmpty, AfterValidator(os.path.expanduser), AfterValidator(_of_a_known_scheme)]
Address = Annotated[NonEmpty, AfterValidator(_without_secrets)]
Place = Annotated[LocalPath, AfterValidator(_without_secrets)]


class OutputConfig(Section):
    """Where results go."""

    path: Place = Field(description="Directory, relative to the configuration file, or s3://BUCKET/PREFIX.")
    work: LocalPath | None = Field(
        default=None,
        description="For results on S3: the directory, relative to the configuration file, in which rows, tiles and "
        "journals are, and from which results are published; by default one below the user's cache directory.",
    )
    format: Literal["parquet", "zarr"] = Field(
        default="parquet",
        description="Whether scores stand beside the ids in Parquet, or in the zarr group embedding.zarr beside that.",
    )

    tiles: Annotated[Place, AfterValidator(_on_s3)] | None = Field(
        default=None,
        description="s3://BUCKET/PREFIX for the stored tiles of an exact job with gram: zarr, in place of the output's "
        "own directory: by their contents, so that any run of the same rows and kernel goes on with them. With another "
        "`keep` than all they are removed when the run has been published.",
    )


class InverseConfig(Section):
    """The map from scores back to rows, learned by ridge regression on training rows."""

    alpha: float = Field(default=1.0, ge=0, description="Ridge: the larger, the smoother the map; 0 interpolates.")
