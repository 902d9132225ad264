"""Spans of a source give its rows and labels bit by bit, whoever reads them, and refuse files that have changed."""

import hashlib
import pickle
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from scalable_kpca.errors import InvalidInputError, StorageError
from scalable_kpca.source import ArrayRows, open_source, row_spans
from scalable_kpca.source.parquet import pieces

N, D = 60, 19  # 19 columns are more than one cache line of either type
ANYTHING = 2**50  # bytes that side by side reading is said to hold: columns are then read in groups


def matrix(dtype="float32", n=N):
    X = np.random.default_rng(0).standard_normal((n, D)).astype(dtype)
    X.setflags(write=False)
    return X


def features(X):
    return {f"x{c}": X[:, c] for c in range(X.shape[1])}


def npy(folder):
    np.save(folder / "x.npy", matrix())
    return open_source("x.npy", folder), matrix()


def fortran_integers(folder):
    X = np.asfortranarray((1000 * matrix()).astype("int16"))
    np.save(folder / "x.npy", X)
    return open_source("x.npy", folder), X


def small_chunks(folder):
    zarr.create_array(str(folder / "x.zarr"), shape=(N, D), chunks=(7, 4), dtype="float64")[...] = matrix("float64")
    return open_source("x.zarr", folder), matrix("float64")


def one_chunk(folder):
    zarr.create_array(str(folder / "x.zarr"), shape=(N, D), chunks=(N, D), dtype="float32")[...] = matrix()
    return open_source("x.zarr", folder), matrix()


def one_row_group(folder):
    pq.write_table(pa.table({"id": np.arange(N) * 3} | features(matrix())), folder / "a.parquet")
    return open_source("a.parquet", folder, id_columns=["id"]), matrix()


def many_row_groups(folder):
    columns = {"id": [f"row {i}" for i in range(N)], "day": [f"d{i % 3}" for i in range(N)]}
    table = pa.table(columns | features(matrix("float64")))
    table = table.set_column(1, "day", table["day"].dictionary_encode())
    pq.write_table(table, folder / "a.parquet", row_group_size=8)
    return open_source("a.parquet", folder, id_columns=["id"], passthrough=["day"]), matrix("float64")


def several_files(folder):
    """Row groups of very different sizes, two files without rows, one of them with a row group of none."""
    table = pa.table({"z": np.arange(N), "y": np.arange(N) % 5} | features(matrix()))
    with pq.ParquetWriter(folder / "1.parquet", table.schema) as writer:
        for start, stop in ((0, 1), (1, 24), (24, 26)):
            writer.write_table(table.slice(start, stop - start))
    pq.write_table(table.slice(0, 0), folder / "2.parquet")
    pq.ParquetWriter(folder / "3.parquet", table.schema).close()
    pq.write_table(table.slice(26, 1), folder / "4.parquet")
    pq.write_table(table.slice(27), folder / "5.parquet", row_group_size=20)
    return open_source("*.parquet", folder, id_columns=["z", "y"]), matrix()


def numbered(folder):
    for number, rows in enumerate(np.split(matrix(), [13])):
        pq.write_table(pa.table(features(rows) | {"tag": np.arange(len(rows))}), folder / f"{number}.parquet")
    return open_source("*.parquet", folder, passthrough=["tag"]), matrix()


def bare(folder):
    pq.write_table(pa.table(features(matrix())), folder / "a.parquet", row_group_size=11)
    return open_source("a.parquet", folder), matrix()


def mixed(folder):
    """Every type a feature can have, with nulls; integers beyond 2⁵³ are rounded to float64."""
    absent = np.arange(N) % 4 == 1
    kinds = [pa.float32(), pa.float16(), pa.float64(), pa.int64(), pa.uint8(), pa.bool_()]
    values = [np.arange(N) % 2 if kind == pa.bool_() else np.arange(N) for kind in kinds]
    values[3] = values[3] + 2**53
    columns = {f"x{c}": pa.array(values[c].astype(kinds[c].to_pandas_dtype()), mask=absent) for c in range(len(kinds))}
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=32)
    expected = np.array(values, "float64").T
    expected[absent] = np.nan
    return open_source("a.parquet", folder), expected


def halves(folder):
    X = matrix().astype("float16")
    pq.write_table(pa.table(features(X)), folder / "a.parquet")
    return open_source("a.parquet", folder), X.astype("float32")


SOURCES = [
    npy,
    fortran_integers,
    small_chunks,
    one_chunk,
    one_row_group,
    many_row_groups,
    several_files,
    numbered,
    bare,
    mixed,
    halves,
]
TABLES = SOURCES[4:]
every_source = pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
# arrays have no columns that could be read in groups
every_way = pytest.mark.parametrize(
    ("make", "in_groups"),
    [*((make, False) for make in SOURCES), *((make, True) for make in TABLES)],
    ids=[*(make.__name__ for make in SOURCES), *(f"{make.__name__}-in_groups" for make in TABLES)],
)


def spans_of(source, span_rows, in_groups):
    spans = source.spans(span_rows)
    return [replace(span, cursor_bytes=ANYTHING) if in_groups else span for span in spans]


def read(batches):
    """Rows, labels and the number of the part of each row."""
    batches = list(batches)
    labels = None if batches[0].labels is None else pa.concat_tables([batch.labels for batch in batches])
    parts = np.repeat([batch.part for batch in batches], [len(batch.rows) for batch in batches])
    return np.concatenate([batch.rows for batch in batches]), labels, parts


# ---------------------------------------------------------------- the contract of all sources


@every_source
def test_batches_are_the_rows_that_were_written_numbered_from_zero(tmp_path, make):
    source, X = make(tmp_path)
    rows, labels, _ = read(source.batches())
    assert rows.dtype == np.dtype(source.dtype)
    np.testing.assert_array_equal(rows, X)
    assert tuple(labels.column_names) == source.label_names
    starts = [(batch.start, len(batch.rows), batch.labels.num_rows) for batch in source.batches()]
    assert [start for start, _, _ in starts] == np.cumsum([0, *(n for _, n, _ in starts)])[:-1].tolist()
    assert all(n == labels for _, n, labels in starts)


@every_way
@pytest.mark.parametrize("span_rows", [1, 7, 1000, 10**9])
def test_spans_together_are_the_batches_bit_by_bit(tmp_path, make, span_rows, in_groups):
    source, _ = make(tmp_path)
    expected, table, parts = read(source.batches())
    for batch_rows in (1, 5, 1000) if span_rows > 1 else (5,):
        spans = spans_of(source, span_rows, in_groups)
        assert [span.start for span in spans] == np.cumsum([0, *(span.n_rows for span in spans)])[:-1].tolist()
        assert all(0 < span.n_rows <= span_rows for span in spans)
        batches = [batch for span in spans for batch in span.batches(batch_rows, "all")]
        rows, labels, owners = read(batches)
        assert rows.dtype == expected.dtype
        assert rows.tobytes() == expected.tobytes()
        assert labels.schema.equals(table.schema)
        # equal values: which dictionary a batch has of a column depends on where it was read from
        assert labels.to_pylist() == table.to_pylist()
        assert owners.tolist() == parts.tolist()
        assert all(len(batch.rows) <= batch_rows for batch in batches)
        assert all(batch.rows.flags.c_contiguous for batch in batches)
        assert [batch.start for batch in batches] == np.cumsum([0, *(len(b.rows) for b in batches)])[:-1].tolist()


@every_way
def test_spans_give_as_many_labels_as_are_asked_for(tmp_path, make, in_groups):
    source, X = make(tmp_path)
    _, table, _ = read(source.batches())
    n_ids = {many_row_groups: 1, several_files: 2}.get(make, 1)
    spans = spans_of(source, 9, in_groups)
    without, nothing, _ = read(batch for span in spans for batch in span.batches(4))
    rows, ids, _ = read(batch for span in spans for batch in span.batches(4, "ids"))
    assert nothing is None
    np.testing.assert_array_equal(without, X)
    np.testing.assert_array_equal(rows, X)
    assert ids.to_pylist() == table.select(list(source.label_names[:n_ids])).to_pylist()


@every_source
def test_spans_are_small_and_read_the_same_after_a_journey(tmp_path, make):
    source, _ = make(tmp_path)
    spans = source.spans(10)
    sent = pickle.dumps(spans)
    assert len(pickle.dumps(spans[0])) < 2000
    arrived = pickle.loads(sent)
    assert arrived == spans
    found = [read(span.batches(1000, "all")) for span in (*spans, *arrived)]
    for (rows, labels, _), (again, others, _) in zip(found[: len(spans)], found[len(spans) :], strict=True):
        assert rows.tobytes() == again.tobytes()
        assert labels.equals(others)


@every_source
def test_rows_that_a_task_was_given_are_its_own(tmp_path, make):
    source, X = make(tmp_path)
    for span in source.spans(20):
        for batch in span.batches(6):
            batch.rows[...] = -1
    np.testing.assert_array_equal(read(source.batches())[0], X)


@pytest.mark.parametrize("in_groups", [False, True], ids=["side_by_side", "in_groups"])
def test_slices_of_a_row_group_begin_where_they_should_when_they_are_decoded_in_pieces(
    tmp_path, in_groups, monkeypatch
):
    monkeypatch.setattr("scalable_kpca.source.decoding.PIECE_BYTES", 1)  # 512 rows, the least
    X = matrix(n=3000)
    pq.write_table(pa.table({"id": np.arange(3000)} | features(X)), tmp_path / "a.parquet")
    source = open_source("a.parquet", tmp_path, id_columns=["id"])
    for span_rows in (512, 700, 1024, 2999):
        spans = spans_of(source, span_rows, in_groups)
        rows, labels, _ = read(batch for span in spans for batch in span.batches(300, "ids"))
        np.testing.assert_array_equal(rows, X)
        assert labels["id"].to_pylist() == list(range(3000))


@pytest.mark.parametrize("labels", ["none", "ids", "all"])
def test_spans_of_rows_in_memory_are_numbered(labels):
    X = matrix()
    batches = [batch for span in row_spans(ArrayRows(X), 25) for batch in span.batches(10, labels)]
    rows, table, _ = read(batches)
    np.testing.assert_array_equal(rows, X)
    assert table is None if labels == "none" else table["row"].to_pylist() == list(range(N))
    assert [len(batch.rows) for batch in batches] == [10, 10, 5, 10, 10, 5, 10]


# ---------------------------------------------------------------- which rows are a span


@pytest.mark.parametrize(
    ("sizes", "span_rows", "expected"),
    [
        ([], 5, []),
        ([0, 0], 5, []),
        ([3], 5, [((0, 1), 0, 3)]),
        ([5], 5, [((0, 1), 0, 5)]),
        ([2, 3, 1], 5, [((0, 2), 0, 5), ((2, 3), 0, 1)]),
        ([2, 4, 1], 5, [((0, 1), 0, 2), ((1, 3), 0, 5)]),
        ([11], 5, [((0, 1), 0, 3), ((0, 1), 3, 4), ((0, 1), 7, 4)]),
        ([2, 6, 2, 3], 5, [((0, 1), 0, 2), ((1, 2), 0, 3), ((1, 2), 3, 3), ((2, 4), 0, 5)]),
        ([0, 6, 0, 1], 5, [((1, 2), 0, 3), ((1, 2), 3, 3), ((2, 4), 0, 1)]),
    ],
)
def test_row_groups_stay_whole_unless_they_are_larger_than_a_span(sizes, span_rows, expected):
    assert list(pieces(sizes, span_rows)) == expected


def test_a_chunk_of_a_zarr_array_is_not_divided_without_need(tmp_path):
    source, _ = small_chunks(tmp_path)  # 7 rows a chunk, 60 rows
    assert [span.n_rows for span in source.spans(20)] == [14, 14, 14, 14, 4]
    assert [span.n_rows for span in source.spans(5)] == [5, 2] * 8 + [4]


def test_each_chunk_of_a_zarr_array_is_decoded_once_however_small_the_batches(tmp_path, monkeypatch):
    source, X = small_chunks(tmp_path)
    read_rows = []
    original = zarr.Array.__getitem__
    monkeypatch.setattr(zarr.Array, "__getitem__", lambda array, key: read_rows.append(key) or original(array, key))
    rows, _, _ = read(source.spans(1000)[0].batches(2))
    np.testing.assert_array_equal(rows, X)
    assert read_rows == [slice(start, min(start + 7, N)) for start in range(0, N, 7)]


def test_columns_are_read_in_groups_only_where_that_holds_less(tmp_path):
    span = one_row_group(tmp_path)[0].spans(N)[0]
    group = pq.read_metadata(tmp_path / "a.parquet").row_group(0)
    sizes = [group.column(index).total_uncompressed_size for index in range(group.num_columns)]
    # both the page and what is decoded of it, as long as they are less than 1 MiB
    assert span.cursor_bytes == 2 * sum(sizes) < 2**20
    assert span.held_bytes == 2 * 2**20 + span.cursor_bytes
    # 1 GiB side by side; in groups 16 of 19 columns, and the whole span
    large = replace(span, cursor_bytes=2**30)
    assert large.held_bytes == 2 * 2**20 + N * D * 4 + 2**30 * 16 // 19
    # a span that is larger than what all the columns hold is not decoded at once
    assert replace(large, n_rows=2**24).held_bytes == 2 * 2**20 + 2**30


@pytest.mark.parametrize("in_groups", [False, True], ids=["side_by_side", "in_groups"])
def test_columns_that_are_not_asked_for_are_not_decoded(tmp_path, in_groups):
    file = tmp_path / "a.parquet"
    source, X = many_row_groups(tmp_path)
    content = bytearray(file.read_bytes())
    metadata = pq.read_metadata(file)
    spoilt = {"id": 0, "day": 1}
    chunks = {
        name: [metadata.row_group(group).column(spoilt[name]) for group in range(metadata.num_row_groups)]
        for name in spoilt
    }

    def spoil(name):
        for chunk in chunks[name]:
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
        file.write_bytes(content)

    span = spans_of(source, N, in_groups)[0]
    spoil("day")
    assert read(span.batches(10, "ids"))[1]["id"].to_pylist() == [f"row {i}" for i in range(N)]
    with pytest.raises(InvalidInputError, match=re.escape(str(file))):
        read(span.batches(10, "all"))
    spoil("id")
    np.testing.assert_array_equal(read(span.batches(10, "none"))[0], X)
    with pytest.raises(InvalidInputError, match=re.escape(str(file))):
        read(span.batches(10, "ids"))


# ---------------------------------------------------------------- files that change


def table_of(n=N, dtype="float32", **more):
    return pa.table({"id": np.arange(n)} | features(matrix(dtype, n)) | more)


CHANGES = {
    "more rows": (table_of(N + 1), {}, r"it had 60 rows and has 61"),
    "no rows": (table_of(0), {}, r"it had 60 rows and has 0"),
    "smaller row groups": (table_of(), {"row_group_size": 20}, r"its 60 rows are in other row groups"),
    "larger row groups": (table_of(), {"row_group_size": 60}, r"its 60 rows are in other row groups"),
    "type": (table_of(dtype="float64"), {"row_group_size": 30}, r"its features were float32 and are double"),
    "text": (table_of(x3=["a"] * N), {"row_group_size": 30}, r"its features were float32 and are float, string"),
    "column": (table_of().drop_columns(["x3"]), {"row_group_size": 30}, r"x3"),
    "id": (table_of().drop_columns(["id"]), {"row_group_size": 30}, r"id"),
}


@pytest.mark.parametrize("in_groups", [False, True], ids=["side_by_side", "in_groups"])
@pytest.mark.parametrize("change", CHANGES)
def test_table_that_changed_since_the_source_was_opened_is_named(tmp_path, change, in_groups):
    file = tmp_path / "a.parquet"
    pq.write_table(table_of(), file, row_group_size=30)
    source = open_source("a.parquet", tmp_path, id_columns=["id"])
    table, options, reason = CHANGES[change]
    pq.write_table(table, file, **options)
    start = re.escape(f"{file} cannot be read as it was when the source was opened")
    message = rf"{start} \(.*{reason}.*\); it is damaged or has changed: put it right and run again"
    # the second span: the rows before it count too
    for reader in (source.batches(), spans_of(source, 30, in_groups)[1].batches(10, "ids")):
        with pytest.raises(InvalidInputError, match=message):
            read(reader)


def test_text_is_not_taken_for_the_numbers_that_were_there(tmp_path):
    pq.write_table(table_of(dtype="float64"), tmp_path / "a.parquet")
    source = open_source("a.parquet", tmp_path, id_columns=["id"])
    pq.write_table(table_of(dtype="float64", x3=["1.5"] * N), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"its features were float64 and are double, string"):
        read(source.spans(N)[0].batches(10))


def test_file_without_rows_that_has_some_now_is_named(tmp_path):
    source, _ = several_files(tmp_path)
    pq.write_table(pq.read_table(tmp_path / "1.parquet"), tmp_path / "2.parquet")
    with pytest.raises(InvalidInputError, match=r"2\.parquet .*\(it had 0 rows and has 26\)"):
        read(source.batches())


def test_table_that_is_gone_is_a_storage_error_that_names_it(tmp_path):
    source, _ = one_row_group(tmp_path)
    (tmp_path / "a.parquet").unlink()
    for reader in (source.batches(), source.spans(10)[1].batches(10)):
        with pytest.raises(StorageError, match=r"reading .*a\.parquet failed: .*No such file") as caught:
            read(reader)
        assert not isinstance(caught.value, InvalidInputError)


def test_table_that_is_cut_off_is_named(tmp_path):
    source, _ = one_row_group(tmp_path)
    file = tmp_path / "a.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match=r"a\.parquet cannot be read as it was"):
        read(source.spans(10)[1].batches(10))


@pytest.mark.parametrize("in_groups", [False, True], ids=["side_by_side", "in_groups"])
def test_damaged_page_is_named_and_not_blamed_on_the_disk(tmp_path, in_groups):
    source, _ = one_row_group(tmp_path)
    file = tmp_path / "a.parquet"
    content, chunk = bytearray(file.read_bytes()), pq.read_metadata(file).row_group(0).column(5)
    content[chunk.dictionary_page_offset : chunk.dictionary_page_offset + 40] = b"\xff" * 40
    file.write_bytes(content)
    with pytest.raises(
        InvalidInputError, match=r"a\.parquet cannot be read as .* it is damaged or has changed"
    ) as caught:
        read(spans_of(source, 10, in_groups)[1].batches(10))
    assert str(caught.value).isprintable()  # though pyarrow quotes what it found


def test_memory_that_runs_out_is_not_blamed_on_the_file(tmp_path, monkeypatch):
    source, _ = one_row_group(tmp_path)

    def full(*_args, **_options):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr("scalable_kpca.source.decoding._fill", full)
    with pytest.raises(MemoryError, match="malloc"):
        read(source.spans(10)[0].batches(10))


@pytest.mark.parametrize("kind", ["npy", "zarr"])
@pytest.mark.parametrize(("n", "dtype"), [(N + 1, "float32"), (N, "float64")])
def test_array_that_changed_since_the_source_was_opened_is_named(tmp_path, kind, n, dtype):
    source, _ = (npy if kind == "npy" else one_chunk)(tmp_path)
    if kind == "npy":
        np.save(tmp_path / "x.npy", matrix(dtype, n))
    else:
        array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(n, D), chunks=(n, D), dtype=dtype, overwrite=True)
        array[...] = matrix(dtype, n)
    message = rf"x\.{kind} cannot be read as it was .* \(it had shape \(60, 19\) and dtype <f4, and has \({n}, 19\)"
    with pytest.raises(InvalidInputError, match=message):
        read(source.spans(10)[0].batches(10))


def test_array_that_is_cut_off_or_gone_is_named(tmp_path):
    source, _ = npy(tmp_path)
    file = tmp_path / "x.npy"
    file.write_bytes(file.read_bytes()[:-8])
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"x\.npy is not an array that can be read"):
            read(source.spans(10)[0].batches(10))
        file.unlink(missing_ok=True)


def test_chunk_that_does_not_decode_is_named(tmp_path):
    source, _ = one_chunk(tmp_path)
    chunk = tmp_path / "x.zarr" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:100])
    with pytest.raises(InvalidInputError, match=r"x\.zarr cannot be read as it was .* damaged or has changed"):
        read(source.spans(10)[0].batches(10))


# ---------------------------------------------------------------- fingerprints of parts


def days(folder, names, values):
    folder.mkdir()
    for name, value in zip(names, values, strict=True):
        table = pa.table({"id": [1, 2], "x": [value, 2.0], "y": [0.0, 1.0]})
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def prints(folder, **options):
    return open_source("*.parquet", folder, **{"id_columns": ["id"]} | options).part_fingerprints()


def test_parts_are_known_by_their_content_not_by_name_or_position(tmp_path):
    first = prints(days(tmp_path / "1", ["a", "b", "c"], [1.0, 2.0, 3.0]))
    second = prints(days(tmp_path / "2", ["10", "9", "c"], [2.0, 3.0, 4.0]))
    assert len(set(first)) == 3
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in first)
    assert second == (first[2], first[1], second[2])
    assert second[2] not in first


def test_parts_are_known_by_their_columns_and_roles(tmp_path):
    folder = days(tmp_path / "1", ["a", "b"], [1.0, 2.0])
    found = [
        prints(folder),
        prints(folder, features=["x"]),
        prints(folder, features=["y", "x"]),
        prints(folder, features=["x"], passthrough=["y"]),
        prints(folder, features=["x"], id_columns=["id", "y"]),
        prints(folder, features=["x", "y"], id_columns=[]),
    ]
    assert len({digest for pair in found for digest in pair}) == 2 * len(found)
    assert prints(folder, features=["x", "y"]) == found[0]


def test_the_only_part_of_an_array_has_the_fingerprint_of_the_source(tmp_path):
    for make in (npy, small_chunks):
        source, _ = make(tmp_path)
        assert source.part_fingerprints() == (source.fingerprint(),)


def test_each_file_is_hashed_once_a_call(tmp_path, monkeypatch):
    source = open_source("*.parquet", days(tmp_path / "1", ["a", "b"], [1.0, 2.0]))
    hashed, original = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, kind: hashed.append(file.name) or original(file, kind))
    source.part_fingerprints()
    assert hashed == [part.path for part in source.parts]
