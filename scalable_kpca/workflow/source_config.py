"""The section of a configuration that says where rows come from, and what is made of their columns."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from scalable_kpca.source import Nulls, Recipe, Unknown
from scalable_kpca.workflow.csv_config import CsvConfig
from scalable_kpca.workflow.kernel_config import Section
from scalable_kpca.workflow.output_config import Place

__all__ = ["SourceConfig"]


class SourceConfig(Section):
    """Where the rows come from."""

    uri: Place = Field(
        description="Parquet, CSV or Arrow files (path, directory or glob), one .npy file, zarr array or HDF5 file; "
        "relative to the configuration file; #NAME after a zarr group or an HDF5 file says which array of it. "
        "s3://BUCKET/KEY, prefix or glob: Parquet."
    )
    id: list[str] = Field(default=[], description="Columns that identify a row; they travel to the output.")
    features: list[str] | None = Field(
        default=None,
        description="Numeric columns: names, globs, or types such as dtype:numeric, dtype:integer, dtype:floating, "
        "dtype:boolean, dtype:decimal or dtype:double; by default every numeric column left.",
    )
    passthrough: list[str] = Field(default=[], description="More columns that travel to the output.")
    partition: list[str] = Field(
        default=[], description="Keys of directories key=value above the files; they travel to the output as text."
    )
    categorical: list[str] = Field(
        default=[],
        description="Names or globs of columns that become a feature for each of their values, 0 or 1 (one-hot); the "
        "values are those of the fit.",
    )
    unknown: Unknown = Field(
        default="error", description="A category that the fit has not seen is an error, or none of the known ones."
    )
    max_categories: int = Field(default=256, ge=1, description="Of one column; more are an error.")
    csv: CsvConfig = CsvConfig()
    nulls: Nulls = Field(
        default="error",
        description="A row with a null or NaN among its features is an error, is left out, or has the column's mean, "
        "its median, or `fill` there; nulls of a categorical column are then a category. Infinity is an error.",
    )
    fill: float = Field(default=0.0, allow_inf_nan=False, description="What impute:constant puts in.")
    standardize: bool = Field(
        default=False, description="Whether numeric columns get mean 0 and variance 1, those of the fit's rows."
    )

    @field_validator("id", "features", "passthrough", "partition", "categorical", mode="before")
    @classmethod
    def _one_name_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _constant_is_used(self) -> SourceConfig:
        if self.fill and self.nulls != "impute:constant":
            message = f"fill is for nulls: impute:constant, and nulls is {self.nulls}; leave one of them out"
            raise PydanticCustomError("fill", "{message}", {"message": message})
        return self

    @model_validator(mode="after")
    def _one_role_each(self) -> SourceConfig:
        roles = [(name, key) for key in ("id", "passthrough", "partition") for name in getattr(self, key)]
        for index, (name, key) in enumerate(roles):
            other = next((before for known, before in roles[:index] if known == name), None)
            if other is not None:
                where = f"twice in source.{key}" if other == key else f"in source.{other} and in source.{key}"
                message = f'column "{name}" is named {where}, and stands beside the scores once: leave one of them out'
                raise PydanticCustomError("roles", "{message}", {"message": message})
        return self

    @property
    def recipe(self) -> Recipe | None:
        """How columns are to be prepared, None when they are taken as they are."""
        if self.nulls == "error" and not self.categorical and not self.standardize:
            return None
        return Recipe(self.nulls, self.fill, self.unknown, self.max_categories, self.standardize)
