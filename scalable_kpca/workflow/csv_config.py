"""The section of a configuration that says how CSV files are read."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from scalable_kpca.source import CsvOptions
from scalable_kpca.workflow.kernel_config import Section

__all__ = ["CsvConfig"]

Kind = Literal["string", "bool", "int64", "float32", "float64", "date32", "timestamp[us]"]


class CsvConfig(Section):
    """How CSV files are read, all in the same way."""

    delimiter: Annotated[str, StringConstraints(pattern=r"^[\t !#-~]$")] | None = Field(
        default=None, description="One letter between fields; by default a comma, of .tsv files a tab."
    )
    header: bool = Field(default=True, description="Whether the first row names the columns.")
    names: list[str] = Field(
        default=[], description="Of the columns, where there is no header; by default f0, f1 and so on."
    )
    null_values: list[str] | None = Field(
        default=None,
        description="Texts that are no value, quoted or not, in columns of text too; by default empty, NA, NaN, null, "
        "… but in columns of text, where every text is a value.",
    )
    types: dict[str, Kind] = Field(
        default={},
        description="Of columns, in place of what their first rows look like: id: string keeps leading zeros.",
    )

    @model_validator(mode="after")
    def _one_kind_of_names(self) -> Self:
        if self.header and self.names:
            raise PydanticCustomError("names", "names are for files without a header: set header: false, or leave them")
        return self

    @property
    def options(self) -> CsvOptions:
        """The same, for a source."""
        nulls = None if self.null_values is None else tuple(self.null_values)
        return CsvOptions(self.delimiter, self.header, tuple(self.names), nulls, tuple(sorted(self.types.items())))
