"""Rows: where they come from (`tables`), how the tasks of a fit read them (`rows`), what is checked (`checks`)."""

from scalable_kpca.source.checks import FiniteCheck, RowSummary, check_width
from scalable_kpca.source.rows import (
    ArrayRows,
    Rows,
    StoredRows,
    checked_codecs,
    digest_rows,
    open_rows,
    read_rows,
    write_rows,
)
from scalable_kpca.source.tables import ArraySource, Batch, ParquetSource, Source, open_source

__all__ = [
    "ArrayRows",
    "ArraySource",
    "Batch",
    "FiniteCheck",
    "ParquetSource",
    "RowSummary",
    "Rows",
    "Source",
    "StoredRows",
    "check_width",
    "checked_codecs",
    "digest_rows",
    "open_rows",
    "open_source",
    "read_rows",
    "write_rows",
]
