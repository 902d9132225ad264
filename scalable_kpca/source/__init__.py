"""Rows: where they come from (`tables`), how tasks read them (`rows`, `spans`), what is checked (`checks`).

`write_table` is for everybody: it makes a source for jobs of any stream of Arrow record batches.
"""

from scalable_kpca.source.arrays import ArraySource, ArraySpan
from scalable_kpca.source.checks import FiniteCheck, RowSummary, check_width
from scalable_kpca.source.column_statistics import ColumnStatistics, RowSample
from scalable_kpca.source.copies import CopiedSource, Copies
from scalable_kpca.source.copy_files import remove_copies
from scalable_kpca.source.decoding import ParquetSpan
from scalable_kpca.source.label_types import Published
from scalable_kpca.source.parquet import ParquetSource
from scalable_kpca.source.precomputed import (
    ASYMMETRY,
    GramColumns,
    MatrixEntries,
    NoRows,
    RowNumbers,
    check_landmark_block,
    gram_columns,
    refuse_asymmetric,
    write_matrix,
)
from scalable_kpca.source.preparation import Nulls, Preparation, Recipe, Unknown, Vocabulary
from scalable_kpca.source.prepared import PreparedSource, PreparedSpan, prepare_columns, sample_columns, survey_parts
from scalable_kpca.source.readers import CsvOptions
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
from scalable_kpca.source.sampled import SampledSource
from scalable_kpca.source.score_store import ScoreStore, rows_of_chunk
from scalable_kpca.source.spans import Batch, RowsSpan, Span, row_spans
from scalable_kpca.source.sparse import (
    RowBlock,
    SparseRows,
    alike,
    as_csr,
    is_sparse,
    row_width,
    squared_norms_of,
    stack,
)
from scalable_kpca.source.sparse_store import StoredSparseRows, write_sparse_rows
from scalable_kpca.source.stored_arrays import (
    ROW_DTYPES,
    ArrayDescription,
    array_description,
    check_group,
    group_attributes,
    open_stored,
)
from scalable_kpca.source.survey import RawSource, Survey, survey
from scalable_kpca.source.tables import Source, open_source
from scalable_kpca.source.undoing import original_columns
from scalable_kpca.source.written import write_table

__all__ = [
    "ASYMMETRY",
    "ROW_DTYPES",
    "ArrayDescription",
    "ArrayRows",
    "ArraySource",
    "ArraySpan",
    "Batch",
    "ColumnStatistics",
    "CopiedSource",
    "Copies",
    "CsvOptions",
    "FiniteCheck",
    "GramColumns",
    "MatrixEntries",
    "NoRows",
    "Nulls",
    "ParquetSource",
    "ParquetSpan",
    "Preparation",
    "PreparedSource",
    "PreparedSpan",
    "Published",
    "RawSource",
    "Recipe",
    "RowBlock",
    "RowNumbers",
    "RowSample",
    "RowSummary",
    "Rows",
    "RowsSpan",
    "SampledSource",
    "ScoreStore",
    "Source",
    "Span",
    "SparseRows",
    "StoredRows",
    "StoredSparseRows",
    "Survey",
    "Unknown",
    "Vocabulary",
    "alike",
    "array_description",
    "as_csr",
    "check_group",
    "check_landmark_block",
    "check_width",
    "checked_codecs",
    "digest_rows",
    "gram_columns",
    "group_attributes",
    "is_sparse",
    "open_rows",
    "open_source",
    "open_stored",
    "original_columns",
    "prepare_columns",
    "read_rows",
    "refuse_asymmetric",
    "remove_copies",
    "row_spans",
    "row_width",
    "rows_of_chunk",
    "sample_columns",
    "squared_norms_of",
    "stack",
    "survey",
    "survey_parts",
    "write_matrix",
    "write_rows",
    "write_sparse_rows",
    "write_table",
]
