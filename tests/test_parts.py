"""Parts of the output: what is added arrives in them, in row groups that are good to read."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca.source.written import HELD_BYTES, ROW_GROUP_ROWS
from scalable_kpca.workflow.parts import PartWriter, part_name


def table(start, stop):
    numbers = np.arange(start, stop)
    # a dictionary of its own in each table, as tables read from different row groups have
    days = pa.array([f"day {number // 1000}" for number in numbers]).dictionary_encode()
    return pa.table({"id": numbers, "day": days, "score": numbers / 7})


def write(folder, sizes, *, step):
    with PartWriter(folder, sizes) as parts:
        for index, size in enumerate(sizes):
            for start in range(0, size, step):
                parts.add(index, table(start, min(start + step, size)))


def group_rows(file):
    metadata = pq.read_metadata(file)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


@pytest.mark.parametrize("step", [999, ROW_GROUP_ROWS, 150_000])
def test_parts_hold_what_was_added_in_order_whatever_its_sizes(tmp_path, step):
    sizes = [200_000, 0, 1, 70_000]
    write(tmp_path, sizes, step=step)
    for index, size in enumerate(sizes):
        found = pq.read_table(tmp_path / part_name(index))
        assert found["id"].to_pylist() == list(range(size))
        assert found["score"].to_pylist() == (np.arange(size) / 7).tolist()
        assert found["day"].to_pylist() == [f"day {number // 1000}" for number in range(size)]
        assert found.schema.equals(table(0, 1).schema)


def test_row_groups_are_large_though_tables_are_small(tmp_path):
    write(tmp_path, [200_000, 10], step=500)
    assert group_rows(tmp_path / part_name(0)) == [65_536 - 65_536 % 500 + 500] * 3 + [200_000 - 3 * 66_000]
    assert group_rows(tmp_path / part_name(1)) == [10]


def test_wide_tables_do_not_wait_for_a_full_row_group(tmp_path):
    wide = pa.table({f"pc_{column:03d}": np.zeros(1000) for column in range(1000)})
    with PartWriter(tmp_path, [10_000]) as parts:
        for _ in range(10):
            parts.add(0, wide)
    assert wide.nbytes == 8 * 10**6
    each = -(-HELD_BYTES // wide.nbytes) * 1000
    assert group_rows(tmp_path / part_name(0)) == [each, 10_000 - each]


def test_error_of_the_source_is_not_hidden_by_what_was_held(tmp_path):
    def tables():
        yield table(0, 10)
        raise RuntimeError("the source")

    def fill():
        with PartWriter(tmp_path, [100]) as parts:
            for piece in tables():
                parts.add(0, piece)

    with pytest.raises(RuntimeError, match="the source"):
        fill()
    assert pq.read_table(tmp_path / part_name(0)).num_rows == 0
