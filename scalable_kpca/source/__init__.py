"""Rows: where they come from (`tables`), how tasks read them (`rows`, `spans`), what is checked (`checks`)."""

from scalable_kpca.source.arrays import ArraySource, ArraySpan
from scalable_kpca.source.checks import FiniteCheck, RowSummary, check_width
from scalable_kpca.source.decoding import ParquetSpan
from scalable_kpca.source.parquet import ParquetSource
from scalable_kpca.source.precomputed import GramColumns, check_landmark_block, gram_columns
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
from scalable_kpca.source.spans import Batch, RowsSpan, Span, row_spans
from scalable_kpca.source.tables import Source, open_source

__all__ = [
    "ArrayRows",
    "ArraySource",
    "ArraySpan",
    "Batch",
    "FiniteCheck",
    "GramColumns",
    "ParquetSource",
    "ParquetSpan",
    "RowSummary",
    "Rows",
    "RowsSpan",
    "Source",
    "Span",
    "StoredRows",
    "check_landmark_block",
    "check_width",
    "checked_codecs",
    "digest_rows",
    "gram_columns",
    "open_rows",
    "open_source",
    "read_rows",
    "row_spans",
    "write_rows",
]
