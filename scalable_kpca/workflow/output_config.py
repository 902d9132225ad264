"""What a configuration may say of places, of where results go, and of the way back from scores."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from scalable_kpca.workflow.kernel_config import Section

__all__ = ["InverseConfig", "NonEmpty", "OutputConfig", "Place"]


def _without_secrets(value: str) -> str:
    """Refuse a URI with a password in it: configurations are published with every run."""
    place = urlsplit(value).netloc if "://" in value else ""
    port = place.rpartition(":")[2] if ":" in place.rpartition("]")[2] else ""  # an address of IPv6 has brackets
    if "@" in place or not (port.isdigit() or port in ("", "*")):  # a secret may have a slash in it
        text = "a name or password is in the URI, and configurations are published with every run; give it by the"
        raise PydanticCustomError("secret", "{message}", {"message": f"{text} environment or a credentials file"})
    return value


NonEmpty = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
Place = Annotated[NonEmpty, AfterValidator(_without_secrets)]


class OutputConfig(Section):
    """Where results go."""

    path: Place = Field(description="Directory, relative to the configuration file, or s3://BUCKET/PREFIX.")
    work: NonEmpty | None = Field(
        default=None,
        description="For results on S3: the directory, relative to the configuration file, in which rows, tiles and "
        "journals are, and from which results are published; by default one below the user's cache directory.",
    )
    format: Literal["parquet", "zarr"] = Field(
        default="parquet",
        description="Whether scores stand beside the ids in Parquet, or in the zarr group embedding.zarr beside that.",
    )


class InverseConfig(Section):
    """The map from scores back to rows, learned by ridge regression on training rows."""

    alpha: float = Field(default=1.0, ge=0, description="Ridge: the larger, the smoother the map; 0 interpolates.")
