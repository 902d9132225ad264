"""Rows: where they come from (`tables`), and how the tasks of a fit read them (`rows`)."""

from scalable_kpca.source.rows import (
    ArrayRows,
    FiniteCheck,
    Rows,
    RowSummary,
    StoredRows,
    check_width,
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
    "digest_rows",
    "open_rows",
    "open_source",
    "read_rows",
    "write_rows",
]
