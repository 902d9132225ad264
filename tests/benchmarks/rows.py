"""The rows: one command each, with the size and repeats that their targets are meant for."""

from __future__ import annotations

from tests.benchmarks import rows_of_fits as fits
from tests.benchmarks import rows_of_landmarks as landmarks
from tests.benchmarks import rows_of_passes as passes
from tests.benchmarks import rows_of_small as small
from tests.benchmarks.findings import Row

__all__ = ["ROWS"]

# in the order in which --all runs them: a new row is a function in one of the four modules and a line here
ROWS = {
    "small": Row("small data beside scikit-learn, and what imports take", 2000, 7, small.small),
    "strip-throughput": Row("recompute throughput beside one strip in the cache", 40_000, 3, passes.strip_throughput),
    "schedulers": Row("one pass by Dask threads, a bare pool and worker processes", 40_000, 3, passes.schedulers),
    "many-tasks": Row("ten thousand tasks in one pass on two worker processes", 10_000, 1, passes.many_tasks),
    "exact-20k": Row("exact fit beside scikit-learn", 20_000, 3, fits.exact_20k),
    "naive-dask": Row("exact fit beside a naive Dask program", 20_000, 3, fits.naive_dask),
    "plan": Row("the plan beside what happened", 20_000, 3, fits.plan),
    "nystroem-200k": Row("fit with landmarks beside scikit-learn", 200_000, 3, landmarks.nystroem_200k),
    "landmarks": Row("what landmarks leave out, and what choosing them takes", 10_000, 1, landmarks.landmarks),
    "stored-pass": Row("a cold pass over stored tiles beside the disk's own rate", 60_000, 3, passes.stored_pass),
    "exact-100k": Row("exact fit of 100 000 rows beside bare threads", 100_000, 1, fits.exact_100k),
    "growth": Row("growth of time and memory with n", 160_000, 1, fits.growth),
    "nystroem-stream": Row("ten million rows from Parquet to Parquet", 10_000_000, 1, landmarks.nystroem_stream),
    "million": Row("exact fit of a million rows", 1_000_000, 1, fits.million, in_all=False),
}
