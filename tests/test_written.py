"""A stream of record batches becomes a directory of Parquet files, whole or not at all."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca import KernelPCA
from scalable_kpca.errors import ConfigError, InvalidInputError, StorageError
from scalable_kpca.source import open_source, write_table
from scalable_kpca.source.written import HELD_BYTES, ROW_GROUP_ROWS

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.float64(), "tag": pa.string()})


def batch(start, stop):
    numbers = np.arange(start, stop)
    return pa.record_batch([numbers, numbers / 8, [f"t{number}" for number in numbers]], schema=SCHEMA)


def stream(*bounds):
    batches = (batch(a, b) for a, b in pairwise(bounds))
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def sizes(folder):
    return [pq.read_metadata(file).num_rows for file in sorted(folder.iterdir())]


@pytest.mark.parametrize("part_rows", [1, 7, 10, 100])
def test_parts_hold_the_rows_in_order(tmp_path, part_rows):
    assert write_table(stream(0, 3, 3, 20, 25), tmp_path / "rows", part_rows=part_rows) == 25
    assert sizes(tmp_path / "rows") == [part_rows] * (25 // part_rows) + [25 % part_rows] * (25 % part_rows > 0)
    source = open_source("rows", tmp_path, id_columns=["id"], passthrough=["tag"])
    assert np.concatenate([b.rows for b in source.batches()])[:, 0].tolist() == [n / 8 for n in range(25)]
    assert [t for b in source.batches() for t in b.labels["tag"].to_pylist()] == [f"t{n}" for n in range(25)]


@pytest.mark.parametrize("bounds", [(0,), (0, 0, 0)])
def test_stream_without_rows_is_one_part_with_its_columns(tmp_path, bounds):
    assert write_table(stream(*bounds), tmp_path / "rows") == 0
    assert pq.read_schema(tmp_path / "rows" / "part-00000.parquet").equals(SCHEMA)


def test_row_groups_are_good_to_read_whatever_the_batches(tmp_path):
    write_table(stream(*range(0, 70_000, 5000), 200_000), tmp_path / "rows")
    metadata = pq.read_metadata(tmp_path / "rows" / "part-00000.parquet")
    groups = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    assert sum(groups) == 200_000
    assert all(ROW_GROUP_ROWS <= rows < 2 * ROW_GROUP_ROWS for rows in groups[:-1])
    wide = pa.record_batch([np.zeros(1000)] * 10_000, names=[str(column) for column in range(10_000)])
    write_table(pa.RecordBatchReader.from_batches(wide.schema, [wide]), tmp_path / "wide")
    metadata = pq.read_metadata(tmp_path / "wide" / "part-00000.parquet")
    assert metadata.row_group(0).num_rows <= 2 * HELD_BYTES // 80_000


def test_whatever_gives_an_arrow_stream_is_taken(tmp_path):
    class Given:
        def __arrow_c_stream__(self, requested_schema=None):
            return stream(0, 5).__arrow_c_stream__(requested_schema)

    assert write_table(Given(), tmp_path / "1") == 5
    assert write_table(stream(0, 5).read_all(), str(tmp_path / "deep" / "2")) == 5
    for wrong in (5, [batch(0, 2)], "rows"):
        with pytest.raises(InvalidInputError, match=rf"^{type(wrong).__name__} is no stream of record batches"):
            write_table(wrong, tmp_path / "3")
    with pytest.raises(ConfigError, match="part_rows=0"):
        write_table(stream(0, 5), tmp_path / "3", part_rows=0)


def test_what_has_the_name_is_not_written_over(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("rows", "link"):
        with pytest.raises(StorageError, match=rf"{name} exists; name a new directory"):
            write_table(stream(0, 5), tmp_path / name)


def test_error_of_the_stream_passes_and_leaves_nothing(tmp_path):
    def batches():
        yield batch(0, 5)
        raise KeyError("the database")

    with pytest.raises(KeyError, match="the database"):
        write_table(pa.RecordBatchReader.from_batches(SCHEMA, batches()), tmp_path / "rows", part_rows=2)
    assert list(tmp_path.iterdir()) == []


def test_an_estimator_says_what_to_do_with_a_stream():
    with pytest.raises(InvalidInputError, match=r"^RecordBatchReader can be read only once.*read_all\(\).*write_table"):
        KernelPCA(1).fit(stream(0, 5))
