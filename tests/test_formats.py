"""CSV and Arrow files give the rows that they hold, or an error that names file, row and column."""

import datetime
import decimal
import gzip
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from scalable_kpca.errors import InvalidInputError, StorageError
from scalable_kpca.source import Copies, CsvOptions, Recipe, SampledSource, open_source, prepare_columns
from scalable_kpca.source.readers import BLOCK_BYTES, reading_identity


def opened(folder, uri="*", *, csv=None, **options):
    copies = Copies(folder.parent / f"{folder.name}-tables", csv or CsvOptions())
    return open_source(uri, folder, copies=copies, **{"id_columns": ["id"]} | options)


def rows_of(source):
    return np.concatenate([batch.rows for batch in source.batches()])


def labels_of(source, name="id"):
    return [value for batch in source.batches() for value in batch.labels[name].to_pylist()]


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "rows"
    place.mkdir()
    return place


def write_arrow(path, table, *, stream=False, compression=None):
    options = ipc.IpcWriteOptions(compression=compression)
    new = ipc.new_stream if stream else ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=3)


TABLE = pa.table({"id": ["a", "b", "c", "d"], "x": [0.5, 1.5, -2.0, 4.0], "y": [1, 2, 3, 4]})
EXPECTED = [[0.5, 1], [1.5, 2], [-2, 3], [4, 4]]
TEXT = "id,x,y\na,0.5,1\nb,1.5,2\nc,-2,3\nd,4,4\n"


# ---------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", TEXT.encode()),
        ("A.CSV", TEXT.encode()),
        ("a.csv.gz", gzip.compress(TEXT.encode(), mtime=0)),
        ("a.csv.gz", gzip.compress(TEXT[:20].encode(), mtime=0) + gzip.compress(TEXT[20:].encode(), mtime=0)),
        ("a.tsv", TEXT.replace(",", "\t").encode()),
        ("a.tsv.gz", gzip.compress(TEXT.replace(",", "\t").encode(), mtime=0)),
        ("bom.csv", b"\xef\xbb\xbf" + TEXT.encode()),
        ("crlf.csv", TEXT.replace("\n", "\r\n").encode()),
        ("quoted.csv", TEXT.replace("a,", '"a",').encode()),
        ("blank lines.csv", TEXT.replace("\nb", "\n\nb").encode()),
        ("no last line break.csv", TEXT[:-1].encode()),
    ],
)
def test_text_gives_the_rows_that_it_holds(folder, name, content):
    (folder / name).write_bytes(content)
    source = opened(folder, name)
    assert rows_of(source).tolist() == EXPECTED
    assert labels_of(source) == list("abcd")
    assert source.feature_names == ("x", "y")
    assert [part.path for part in source.parts] == [str(folder / name)]


@pytest.mark.parametrize("name", ["a.arrow", "a.feather", "a.ipc"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow_gives_the_rows_that_it_holds(folder, name, stream, compression):
    write_arrow(folder / name, TABLE, stream=stream, compression=compression)
    source = opened(folder, name)
    assert rows_of(source).tolist() == EXPECTED
    assert labels_of(source) == list("abcd")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("uri", ["rows", "rows/*", "rows/part-?*.*"])
def test_ten_files_arrive_in_natural_order_with_their_labels(folder, kind, uri):
    for number in range(2, 12):
        table = pa.table({"id": [100 * number, 100 * number + 1], "x": [number + 0.25, number + 0.5]})
        if kind == "csv":
            text = "".join(f"{row['id']},{row['x']}\n" for row in table.to_pylist())
            (folder / f"part-{number}.csv").write_text(f"id,x\n{text}")
        else:
            pq.write_table(table, folder / f"part-{number}.parquet")
    source = open_source(uri, folder.parent, id_columns=["id"], copies=Copies(folder.parent / "tables"))
    assert [part.path.rsplit("-", 1)[1] for part in source.parts] == [f"{n}.{kind}" for n in range(2, 12)]
    ids = [number for n in range(2, 12) for number in (100 * n, 100 * n + 1)]
    assert labels_of(source) == ids
    assert rows_of(source)[:, 0].tolist() == [i // 100 + (0.25 if i % 100 == 0 else 0.5) for i in ids]


def test_files_of_a_directory_are_of_one_kind(folder):
    (folder / "a.csv").write_text(TEXT)
    write_arrow(folder / "b.arrow", TABLE)
    with pytest.raises(InvalidInputError, match=r"rows holds 1 CSV and 1 Arrow files, .* such as .*rows/\*\.csv\."):
        opened(folder, str(folder))
    (folder / "b.arrow").rename(folder / "_b.arrow")
    for name in ("notes.txt", "about.json", "README.md", "a.csv.crc", "_SUCCESS"):
        (folder / name).write_text("left out")
    assert rows_of(opened(folder, str(folder))).tolist() == EXPECTED
    (folder / "day=1").mkdir()
    pq.write_table(TABLE.slice(1), folder / "day=1" / "c.PARQUET")
    with pytest.raises(InvalidInputError, match=r"1 Parquet and 1 CSV files, .* such as rows/\*\*/\*\.parquet\."):
        opened(folder.parent, "rows")
    (folder / "d.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    (folder / "e.tsv").write_text("id\tx\n")
    with pytest.raises(InvalidInputError, match=r"1 Parquet, 2 CSV and 1 TSV files"):
        opened(folder, str(folder))


def test_endings_are_compared_without_regard_to_case(folder):
    for number, name in enumerate(("1.parquet", "2.PARQUET", "3.Parquet")):
        pq.write_table(TABLE.slice(number, 1), folder / name)
    assert rows_of(opened(folder, str(folder))).tolist() == EXPECTED[:3]
    assert rows_of(opened(folder)).tolist() == EXPECTED[:3]
    assert rows_of(opened(folder, "2.PARQUET")).tolist() == EXPECTED[1:2]


@pytest.mark.parametrize("uri", ["rows", "rows/*"])
@pytest.mark.parametrize("name", ["b.csv", "b.CSV.gz"])
def test_link_to_a_table_that_is_not_there_is_named(folder, uri, name):
    (folder / "a.csv").write_text(TEXT)
    (folder / name).symlink_to("gone.csv")
    with pytest.raises((InvalidInputError, StorageError), match=re.escape(f"rows/{name}")):
        opened(folder.parent, uri)
    (folder / name).rename(folder / "_b.csv")
    (folder / "notes.txt").symlink_to("gone.txt")
    assert rows_of(opened(folder.parent, "rows")).tolist() == EXPECTED


# ---------------------------------------------------------------- how CSV is read


@pytest.mark.parametrize(
    ("text", "csv", "names", "rows"),
    [
        ("id;x\na;1\n", CsvOptions(delimiter=";"), ("x",), [[1]]),
        ("id|x\na|1\n", CsvOptions(delimiter="|"), ("x",), [[1]]),
        ("a,1\nb,2\n", CsvOptions(header=False, names=("id", "x")), ("x",), [[1], [2]]),
        ("id,x\na,-\nb,2\n", CsvOptions(null_values=("-",)), ("x",), [[np.nan], [2]]),
        ("id,x\na,NA\nb,2\n", CsvOptions(), ("x",), [[np.nan], [2]]),
        ("id,x\na,1\n", CsvOptions(types=(("x", "float32"),)), ("x",), [[1]]),
        ("id,x\na,1\nb,inf\n", CsvOptions(), ("x",), [[1], [np.inf]]),
    ],
)
def test_options_say_how_text_is_read(folder, text, csv, names, rows):
    (folder / "a.csv").write_text(text)
    source = opened(folder, csv=csv)
    assert source.feature_names == names
    assert np.array_equal(rows_of(source), rows, equal_nan=True)
    assert source.dtype == ("float32" if csv.types else "float64")


@pytest.mark.parametrize(
    ("nulls", "tags", "numbers"),
    [
        (None, ["", "", "NA", "NA", "u"], [1, np.nan, np.nan, np.nan, 2]),
        (("NA", ""), [None, None, None, None, "u"], [1, np.nan, np.nan, np.nan, 2]),
        (("u", "", "NA"), [None, None, None, None, None], [1, np.nan, np.nan, np.nan, 2]),
    ],
)
def test_null_values_that_are_given_count_in_columns_of_text_too(folder, nulls, tags, numbers):
    (folder / "a.csv").write_text('id,tag,x\na,,1\nb,"",NA\nc,NA,""\nd,"NA",\ne,u,2\n')
    source = opened(folder, csv=CsvOptions(null_values=nulls), passthrough=["tag"], features=["x"])
    assert labels_of(source, "tag") == tags
    assert np.array_equal(rows_of(source)[:, 0], numbers, equal_nan=True)


def test_copies_of_the_time_when_text_had_no_nulls_are_no_copies_now(folder):
    assert reading_identity(folder / "a.csv", CsvOptions()) == ["csv", ",", True, [], None, []]
    for nulls in ((), ("-",)):
        then = ["csv", ",", True, [], list(nulls), []]
        assert reading_identity(folder / "a.csv", CsvOptions(null_values=nulls)) != then


@pytest.mark.parametrize(("nulls", "null"), [(None, False), (("",), True), (("NA",), False)])
def test_empty_text_is_a_category_unless_null_values_name_it(folder, nulls, null):
    (folder / "a.csv").write_text("tag,x\n,1\nu,2\n")
    csv = CsvOptions(null_values=nulls)
    prepared = prepare_columns(opened(folder, csv=csv, id_columns=[], categorical=["tag"]), Recipe("impute:mean"))
    assert prepared.feature_names == (("x", "tag=u", "tag is null") if null else ("x", "tag=", "tag=u"))


def test_columns_without_names_are_numbered(folder):
    (folder / "a.csv").write_text("1,2\n3,4\n")
    source = opened(folder, csv=CsvOptions(header=False), id_columns=[])
    assert source.feature_names == ("f0", "f1")
    assert rows_of(source).tolist() == [[1, 2], [3, 4]]


def test_a_type_keeps_what_only_looks_like_a_number(folder):
    (folder / "a.csv").write_text("id,x\n007,1\n")
    assert labels_of(opened(folder)) == [7]
    assert labels_of(opened(folder, csv=CsvOptions(types=(("id", "string"),)))) == ["007"]


def test_type_of_a_column_that_no_file_has_is_named(folder):
    (folder / "a.csv").write_text(TEXT)
    with pytest.raises(InvalidInputError, match=r'types: "z" is no column of .*a\.csv, which has id, x, y'):
        opened(folder, csv=CsvOptions(types=(("z", "string"),)))


def test_quoted_line_breaks_are_part_of_a_text(folder):
    (folder / "a.csv").write_text('id,x,note\n"a\nb",1,"say ""no""\n"\nc,2,end\n')
    source = opened(folder, passthrough=["note"])
    assert labels_of(source) == ["a\nb", "c"]
    assert labels_of(source, "note") == ['say "no"\n', "end"]


# ---------------------------------------------------------------- what is wrong, and where

MANY = "a,1\n" * 2000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is empty"),
        (b"id,x", r"no line that ends"),
        (b"id,x\na,1\nb,2,3\n", r"row 3 of the file, from 1, has 3 fields, and 2 are needed"),
        (f"id,x\n{MANY}b\n".encode(), r"row 2002 of the file, from 1, has 1 fields, and 2 are needed"),
        ("id,x\na,1\nb,é\n".encode("latin-1"), r'column "x" holds text that is not UTF-8'),
        ("é,x\na,1\n".encode("latin-1"), r"column names that are not UTF-8"),
        (b'id,x,note\na,1,"open\nb,2,c\n', r'a quote in column "note" is never closed'),
        (b"id,x\na,1\nb,2\n", None),
    ],
)
def test_damaged_text_is_named_with_its_row(folder, content, message):
    (folder / "a.csv").write_bytes(content)
    if message is None:
        assert len(rows_of(opened(folder))) == 2
        return
    with pytest.raises(InvalidInputError, match=rf"rows/a\.csv.*{message}"):
        opened(folder)
    assert list((folder.parent / "rows-tables").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"id_columns": []},
            r"no numeric column to use as a feature; it has id;x;y \(string\) alone \(source\.csv\.delim",
        ),
        (
            {"features": ["x"]},
            r'"x" matches no free column of .*, which has id;x;y alone \(source\.csv\.delimiter says',
        ),
    ],
)
def test_text_that_is_read_as_one_column_is_told_of_the_delimiter(folder, options, message):
    (folder / "a.csv").write_text(TEXT.replace(",", ";"))
    with pytest.raises(InvalidInputError, match=message):
        opened(folder, **options)
    assert rows_of(opened(folder, csv=CsvOptions(delimiter=";"))).tolist() == EXPECTED
    (folder / "0.csv").write_text(TEXT)
    with pytest.raises(InvalidInputError, match=r'a\.csv has no column "id"; it has id;x;y alone \(source\.csv\.delim'):
        opened(folder)


def test_columns_that_are_no_numbers_are_named_with_their_types_as_far_as_there_are_few(folder):
    names = [f"c{number}" for number in range(10)]
    (folder / "a.csv").write_text(",".join(names) + "\n" + ",".join(["a"] * 10) + "\n")
    with pytest.raises(InvalidInputError, match=r"it has c0 \(string\), .*c7 \(string\) and 2 more: name columns in"):
        opened(folder, id_columns=[])


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_text_that_is_utf16_says_so(folder, name, encoding):
    content = f"\ufeff{TEXT}".encode(encoding)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(InvalidInputError, match=r"rows/a\.csv.* is UTF-16.*iconv -f UTF-16 -t UTF-8"):
        opened(folder)
    with pytest.raises(InvalidInputError, match="iconv -f UTF-16"):
        SampledSource([folder / name], CsvOptions(), ["id"], None, [])
    content = f"\ufeff{TEXT}".encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert rows_of(opened(folder)).tolist() == EXPECTED


def test_number_that_becomes_text_is_named_with_its_row_and_what_helps(folder):
    n = BLOCK_BYTES // 4
    (folder / "a.csv").write_text("id,x\n" + "1,1\n" * n + "2,x\n")
    with pytest.raises(InvalidInputError) as caught:
        opened(folder)
    said = str(caught.value)
    assert f'a.csv: row {n + 2} of the file, from 1, column "x":' in said
    assert "invalid value 'x'" in said
    assert "{x: string}" in said
    assert "tables" not in said
    (folder / "b.csv").write_text("id,x\n" + "1,1\n" * n + "2,2.5\n")
    with pytest.raises(InvalidInputError, match=r"\{x: float64\}"):
        opened(folder, "b.csv")
    assert rows_of(opened(folder, "b.csv", csv=CsvOptions(types=(("x", "float64"),))))[-1] == [2.5]
    (folder / "b.csv").unlink()
    csv = CsvOptions(types=(("x", "string"),))
    assert labels_of(opened(folder, csv=csv, id_columns=["x"], features=["id"]), "x")[-1] == "x"


@pytest.mark.parametrize(
    ("name", "text", "csv", "column"),
    [
        ("a.csv", "id,x\na,1\nb,1.5\n", CsvOptions(), "x"),
        ("a.csv.gz", "id,x\na,1\nb,1.5\n", CsvOptions(), "x"),
        ("a.tsv", '\nid\t"a, ""b"""\na\t1\nb\t1.5\n', CsvOptions(), 'a, "b"'),
        ("a.csv", "\ufeffx;id\n1;a\n1.5;b\n", CsvOptions(delimiter=";"), "x"),
        ("a.csv", "a,1\nb,1.5\n", CsvOptions(header=False), "f1"),
        ("a.csv", "a,1\nb,1.5\n", CsvOptions(header=False, names=("id", "x")), "x"),
    ],
)
def test_value_that_is_not_of_the_type_that_was_asked_for_is_named_with_its_column(folder, name, text, csv, column):
    content = text.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(InvalidInputError) as caught:
        opened(folder, csv=replace(csv, types=((column, "int64"),)), id_columns=[])
    said = str(caught.value)
    assert f"column \"{column}\": invalid value '1.5'; source.csv.types says that it is int64: correct" in said
    assert f"{{{column}: float64}}" in said
    assert "rows before" not in said


def test_type_that_was_asked_for_is_named_far_into_a_file_too(folder):
    n = BLOCK_BYTES // 4
    (folder / "a.csv").write_text("id,x\n" + "1,1\n" * n + "2,x\n")
    with pytest.raises(InvalidInputError, match=rf'row {n + 2} .*"x": .*types says that it is int64.*{{x: string}}'):
        opened(folder, csv=CsvOptions(types=(("x", "int64"),)))


def test_a_row_longer_than_a_block_is_refused(folder):
    (folder / "a.csv").write_text("id,x\na,1\n" + "b" * (2 * BLOCK_BYTES) + ",1\n")
    with pytest.raises(InvalidInputError, match=r"a\.csv has a row of more than 2097152 bytes, or a quote"):
        opened(folder)


@pytest.mark.parametrize("spoil", [lambda data: data[:-6], lambda data: data[:-6] + b"\0" + data[-5:], lambda _: b"x"])
def test_damaged_compression_is_named(folder, spoil):
    (folder / "a.csv.gz").write_bytes(spoil(gzip.compress(TEXT.encode())))
    with pytest.raises(InvalidInputError, match=r"a\.csv\.gz cannot be read"):
        opened(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.arrow", b"", "is empty"),
        ("a.arrow", b"ARROW1 and no more", "cannot be read"),
        ("a.arrow", b"no Arrow at all", "cannot be read"),
        ("a.feather", b"FEA1 and so on", "Feather of version 1; write it in version 2"),
    ],
)
def test_damaged_arrow_is_named(folder, name, content, message):
    (folder / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=rf"{re.escape(name)} .*{message}"):
        opened(folder)


def test_text_in_arrow_that_is_not_utf8_is_named(folder):
    column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], "i4")), pa.py_buffer(b"\xe9")])
    write_arrow(folder / "a.arrow", pa.table({"id": column, "x": [1.0]}))
    with pytest.raises(InvalidInputError, match=r"a\.arrow cannot be read: .*UTF8"):
        opened(folder)


def test_column_that_parquet_has_no_type_for_is_named(folder):
    table = pa.table({"id": [1], "x": [1.0], "odd": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    write_arrow(folder / "a.arrow", table)
    with pytest.raises(InvalidInputError, match=r'a\.arrow: column "odd" is month_day_nano_interval, which Parquet'):
        opened(folder)


# ---------------------------------------------------------------- files that differ


def write_all(folder, kind, *tables):
    for number, table in enumerate(tables):
        if kind == "parquet":
            pq.write_table(table, folder / f"{number}.parquet")
        else:
            write_arrow(folder / f"{number}.arrow", table)


both = pytest.mark.parametrize("kind", ["parquet", "arrow"])


@both
def test_file_without_rows_may_be_anywhere(folder, kind):
    empty = pa.table({"id": pa.array([], pa.null()), "x": pa.array([], pa.null())})
    write_all(folder, kind, empty, pa.table({"id": [1], "x": [0.5]}), empty)
    source = opened(folder)
    assert [part.n_rows for part in source.parts] == [0, 1, 0]
    assert rows_of(source).tolist() == [[0.5]]
    assert labels_of(source) == [1]


def test_csv_of_a_header_only_has_no_rows(folder):
    (folder / "1.csv").write_text("id,x\n")
    assert opened(folder).n_samples == 0
    (folder / "2.csv").write_text("id,x\na,1\n")
    source = opened(folder)
    assert [part.n_rows for part in source.parts] == [0, 1]
    assert rows_of(source).tolist() == [[1]]


@both
def test_column_of_one_file_only_is_ignored_unless_it_is_in_use(folder, kind):
    write_all(folder, kind, pa.table({"id": [1], "x": [1.0]}), pa.table({"id": [2], "x": [2.0], "z": [3.0]}))
    assert rows_of(opened(folder)).tolist() == [[1], [2]]
    with pytest.raises(InvalidInputError, match=rf'0\.{kind} has no column "z"; it has id, x'):
        opened(folder, passthrough=["z"])
    write_all(folder, kind, pa.table({"id": [1], "x": [1.0], "z": [0.0]}), pa.table({"id": [2], "x": [2.0]}))
    with pytest.raises(InvalidInputError, match=rf'1\.{kind} has no column "z"; it has id, x'):
        opened(folder)


@both
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.array([3]), pa.array([0.5]), [3, 0.5]),
        (pa.array([3]), pa.array([None], pa.float64()), [3, np.nan]),
        (pa.array([3], pa.int8()), pa.array([None], pa.int32()), [3, np.nan]),
        (pa.array([3]), pa.array([None], pa.null()), [3, np.nan]),
        (pa.array([3]), pa.array([decimal.Decimal("2.25")]), [3, 2.25]),
        (pa.array([True]), pa.array([0.5], pa.float16()), [1, 0.5]),
    ],
)
def test_numbers_of_other_types_are_the_same_column(folder, kind, one, other, expected):
    write_all(folder, kind, pa.table({"id": [1], "x": one}), pa.table({"id": [2], "x": other}))
    source = opened(folder)
    assert source.dtype == "float64"
    assert np.array_equal(rows_of(source)[:, 0], expected, equal_nan=True)


@both
def test_text_in_a_dictionary_in_one_file_and_plain_in_another_is_the_same_text(folder, kind):
    plain = pa.table({"id": ["a", "b"], "x": [1.0, 2.0], "tag": ["u", "v"]})
    coded = pa.table({name: column.dictionary_encode() if name != "x" else column for name, column in
                      zip(plain.column_names, plain.columns, strict=True)})  # fmt: skip
    write_all(folder, kind, coded, plain)
    source = opened(folder, passthrough=["tag"])
    assert labels_of(source) == ["a", "b"] * 2
    assert labels_of(source, "tag") == ["u", "v"] * 2
    assert source.feature_names == ("x",)


TAG = pa.array(["u"]).dictionary_encode()


@both
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.array([3]), pa.array([None], pa.null()), pa.int64()),
        (TAG, pa.array([None], pa.null()), TAG.type),
        (pa.array([[3]]), pa.array([None], pa.null()), pa.list_(pa.int64())),
        (pa.array([[3]], pa.list_(pa.int8())), pa.array([[2**40, None]]), pa.list_(pa.int64())),
        (pa.array([[None]], pa.list_(pa.null())), pa.array([["u"]]), pa.list_(pa.string())),
        (
            pa.array([[3]], pa.list_(pa.field("n", pa.int8(), False))),
            pa.array([[None]], pa.list_(pa.int8())),
            pa.list_(pa.int8()),
        ),
        (pa.array([3], pa.int8()), pa.array([2**40]), pa.int64()),
        (pa.array([3], pa.uint16()), pa.array([4], pa.uint8()), pa.uint16()),
        (pa.array([0.1], pa.float32()), pa.array([0.1]), pa.float64()),
        (pa.array(["u"]), pa.array(["v"], pa.large_string()), pa.large_string()),
        (TAG, pa.array(["v"], pa.large_string()), pa.large_string()),
        (TAG, TAG.cast(pa.dictionary(pa.int8(), pa.string())), pa.string()),
        (pa.array([1], pa.timestamp("ms", "UTC")), pa.array([1], pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC")),
        (pa.array([decimal.Decimal("12.5")]), pa.array([decimal.Decimal("0.125")]), pa.decimal128(5, 3)),
    ],
)
def test_labels_have_one_type_in_all_files_where_it_takes_every_value(folder, kind, one, other, expected):
    files = [pa.table({"id": column, "x": [1.0]}) for column in (one, other, one)]
    write_all(folder, kind, *files)
    source = opened(folder, features=["x"], id_columns=[], passthrough=["id"])
    values = [*one.to_pylist(), *other.to_pylist(), *one.to_pylist()]
    assert all(batch.labels.schema.field("id").type == expected for batch in source.batches())
    assert labels_of(source) == values
    of_spans = [batch.labels["id"] for span in source.spans(1) for batch in span.batches(1, "all")]
    assert all(column.type == expected for column in of_spans)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([3]), pa.array(["x3"])),
        (pa.array([3]), pa.array([0.5])),
        (pa.array([3]), pa.array([3], pa.uint64())),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC"))),
        (pa.array([decimal.Decimal(10**37)]), pa.array([decimal.Decimal("0.125")])),
        (pa.array([True]), pa.array([1])),
    ],
)
@both
def test_labels_of_types_that_nothing_takes_are_refused(folder, kind, one, other):
    nulls = pa.table({"id": pa.array([None], pa.null()), "x": [1.0]})
    write_all(folder, kind, nulls, pa.table({"id": one, "x": [1.0]}), pa.table({"id": other, "x": [1.0]}))
    said = rf'column "id" is {re.escape(str(one.type))} in .*1\.{kind} and {re.escape(str(other.type))} in .*2\.{kind}'
    with pytest.raises(InvalidInputError, match=rf"{said}.*; write the files with one type"):
        opened(folder)


def test_ids_that_are_numbers_in_one_text_only_are_refused_with_what_helps(folder):
    (folder / "1.csv").write_text("id,x\n0,1\n1,2\n")
    (folder / "2.csv").write_text("id,x\nx0,1\nx1,2\n")
    with pytest.raises(InvalidInputError, match=r'"id" is int64 in .*1\.csv and string in .*2\.csv.*\{id: string\}'):
        opened(folder)
    assert labels_of(opened(folder, csv=CsvOptions(types=(("id", "string"),)))) == ["0", "1", "x0", "x1"]


def test_label_that_is_a_category_keeps_the_text_of_its_numbers(folder):
    for number, kind in enumerate((pa.float32(), pa.float64())):
        table = pa.table({"x": [1.0], "size": pa.array([0.1], kind)})
        pq.write_table(table, folder / f"{number}.parquet")
    with pytest.raises(InvalidInputError, match=r'"size" is float in .*0\.parquet and double in .*1\.parquet'):
        opened(folder, id_columns=["size"], categorical=["size"])
    assert labels_of(opened(folder, id_columns=["size"]), "size") == [np.float32(0.1), 0.1]


@both
def test_timestamp_travels_and_is_no_feature(folder, kind):
    when = datetime.datetime(2026, 2, 3, 4, 5, 6, 7)
    write_all(folder, kind, pa.table({"id": [1], "x": [1.0], "when": [when]}))
    assert labels_of(opened(folder, passthrough=["when"]), "when") == [when]
    assert opened(folder).feature_names == ("x",)
    with pytest.raises(InvalidInputError, match=rf'0\.{kind}: column "when" is of type timestamp\[us\]; features are'):
        opened(folder, features=["x", "when"])


def test_timestamp_in_text_travels(folder):
    (folder / "a.csv").write_text("id,x,when\n1,2,2026-02-03 04:05:06\n")
    assert labels_of(opened(folder, passthrough=["when"]), "when") == [datetime.datetime(2026, 2, 3, 4, 5, 6)]


def test_column_in_use_that_the_header_has_twice_is_named(folder):
    (folder / "a.csv").write_text("id,x,x,y,y\n1,2,3,4,5\n")
    with pytest.raises(InvalidInputError, match=r'a\.csv has 2 columns named "x"'):
        opened(folder)
    (folder / "a.csv").write_text("id,x,n,n\n1,2,c,d\n")
    assert rows_of(opened(folder)).tolist() == [[2]]


def test_row_that_is_not_finite_is_named_by_its_own_file(folder):
    from scalable_kpca.source import FiniteCheck
    from scalable_kpca.source.parts import naming_files

    (folder / "1.csv").write_text("id,x\na,1\n")
    (folder / "2.csv").write_text("id,x\nb,1\nc,\n")
    source = opened(folder)
    check = FiniteCheck(source.feature_names)
    check.add(rows_of(source))
    with (
        pytest.raises(InvalidInputError, match=r'row 1 of .*rows/2\.csv, column "x" is NaN'),
        naming_files(source.parts),
    ):
        check.raise_if_any()


# ---------------------------------------------------------------- samples for plans


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_sample_says_about_how_many_rows_there_are(folder, name):
    n = 300_000
    content = "id,x\n" + "".join(f"r{number:07d},{number / 7:.6f}\n" for number in range(n))
    (folder / name).write_bytes(gzip.compress(content.encode(), 1) if name.endswith("gz") else content.encode())
    source = SampledSource([folder / name], CsvOptions(), ["id"], None, [])
    assert abs(source.n_samples - n) <= (0.15 if name.endswith("gz") else 0.05) * n  # it is read ahead
    assert "about" in source.note
    assert 0 < sum(span.n_rows for span in source.spans(1000)) < n
    assert abs(source.copied_bytes - opened(folder, name).copied_bytes) <= 0.5 * opened(folder, name).copied_bytes


def test_sample_of_a_short_file_is_all_of_it(folder):
    (folder / "a.csv").write_text(TEXT)
    write_arrow(folder / "b.arrow", TABLE)
    for name in ("a.csv", "b.arrow"):
        source = SampledSource([folder / name], CsvOptions(), ["id"], None, [])
        assert source.n_samples == 4
        assert (source.note == "") == (name == "a.csv")
