"""Rows of a database as a source for a job: a query, read in batches, becomes a directory of Parquet files.

    python from_sql.py orders.sqlite rows && skpca run job.yaml      # with source: {uri: rows, id: id}

Copy this file and change SCHEMA and QUERY; any database with a Python driver is read in the same way. What gives Arrow
itself needs none of this, as `write_table` takes its stream: of DuckDB and of ADBC cursors ``fetch_record_batch()``, of
Delta Lake ``DeltaTable(…).to_pyarrow_dataset().scanner().to_reader()``, of Iceberg
``table.scan(…).to_arrow_batch_reader()``.
"""

import sqlite3
import sys
from contextlib import closing

import pyarrow as pa

from scalable_kpca.source import write_table

# types are said once: a batch in which a column has no value yet would guess others
SCHEMA = pa.schema({"id": pa.int64(), "amount": pa.float64(), "weight": pa.float64(), "distance": pa.float64()})
QUERY = "SELECT id, amount, weight, distance FROM orders WHERE amount IS NOT NULL ORDER BY id"
BATCH_ROWS = 10_000


def batches(cursor):
    """Record batches of what a cursor has still to give."""
    while rows := cursor.fetchmany(BATCH_ROWS):
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
        yield pa.record_batch(columns, schema=SCHEMA)


def main(database, directory):
    """Write the rows of the query to a new directory."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(connection.execute(QUERY)))
        return write_table(reader, directory)


if __name__ == "__main__":
    sys.stdout.write(f"{main(*sys.argv[1:])} rows\n")
