"""Rows arrive whole, in order, with the labels of the same read, and a stored copy is used only when it is finished."""

import datetime
import decimal
import os
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scalable_kpca.errors import InvalidInputError, NotFiniteError, StorageError
from scalable_kpca.source import (
    ArrayRows,
    ArraySource,
    FiniteCheck,
    ParquetSource,
    StoredRows,
    check_width,
    open_rows,
    open_source,
    read_rows,
    write_rows,
)
from scalable_kpca.source.location import find_files, natural_key
from scalable_kpca.source.parts import naming_files
from scalable_kpca.source.rows import aligned_blocks

# tmp_path is shared by the examples of a property: each makes a directory of its own in it
in_one_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)


def write_part(path, ids, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())} | columns), path)


def all_rows(source):
    return np.concatenate([batch.rows for batch in source.batches()])


def all_labels(source, name):
    return [value for batch in source.batches() for value in batch.labels[name].to_pylist()]


# ---------------------------------------------------------------- Parquet


def test_ids_and_features_come_from_the_same_read_in_natural_order_of_the_files(tmp_path):
    numbers = [2, 10, 1, 11, 3]
    for number in numbers:  # written in an order that is neither natural nor lexical
        ids = [100 * number, 100 * number + 1]
        write_part(tmp_path / f"part-{number}.parquet", ids, {"x": [float(i) for i in ids], "y": [0.5, 1.5]})
    source = open_source("*.parquet", tmp_path, id_columns=["id"])
    assert [part.path.rsplit("-", 1)[1] for part in source.parts] == [f"{n}.parquet" for n in (1, 2, 3, 10, 11)]
    assert source.n_samples == 10
    ids = all_labels(source, "id")
    assert ids == [100, 101, 200, 201, 300, 301, 1000, 1001, 1100, 1101]
    assert np.array_equal(all_rows(source)[:, 0], ids)
    assert source.feature_names == ("x", "y")


def test_every_batch_says_which_file_it_is_from(tmp_path):
    for number, n in ((1, 3), (2, 0), (3, 2)):
        write_part(tmp_path / f"{number}.parquet", range(n), {"x": np.full(n, float(number))})
    source = open_source("*.parquet", tmp_path, id_columns=["id"])
    assert [part.n_rows for part in source.parts] == [3, 0, 2]
    for batch in source.batches():
        assert np.all(batch.rows == batch.part + 1)
        assert len(batch.rows) == batch.labels.num_rows
    assert all_rows(source).shape == (5, 1)


def test_source_of_empty_files_only_has_no_rows(tmp_path):
    write_part(tmp_path / "1.parquet", [], {"x": pa.array([], pa.float64())})
    source = open_source("1.parquet", tmp_path, id_columns=["id"])
    assert source.n_samples == 0
    assert sum(len(batch.rows) for batch in source.batches()) == 0


def test_files_of_a_directory_are_read_without_hidden_ones(tmp_path):
    write_part(tmp_path / "day=2" / "a.parquet", [2], {"x": [2.0]})
    write_part(tmp_path / "day=10" / "a.parquet", [10], {"x": [10.0]})
    for hidden in ("_metadata.parquet", ".a.parquet", "_tmp/day=3/a.parquet", "day=2/.staging/b.parquet"):
        (tmp_path / hidden).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / hidden).write_bytes(b"")
    (tmp_path / "notes.txt").write_text("not data")
    source = open_source(str(tmp_path), tmp_path / "elsewhere", id_columns=["id"])
    assert all_labels(source, "id") == [2, 10]


VISIBLE = ["m/1.parquet", "m/day=2/2.parquet", "m/day=2/hour=3/3.parquet"]
HIDDEN = ["m/.6.parquet", "m/_7.parquet", "m/_temporary/0/5.parquet", "m/day=2/.staging/8.parquet"]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("m/*.parquet", VISIBLE[:1]),
        ("m/**.parquet", VISIBLE[:1]),
        ("m/[._1]*.parquet", VISIBLE[:1]),
        ("m/*/*.parquet", VISIBLE[1:2]),
        ("m/**/*.parquet", VISIBLE),
        ("**/*.parquet", VISIBLE),
        ("m/**/[1-3].parquet", VISIBLE),
        ("m/.*.parquet", HIDDEN[:1]),
        ("m/_*.parquet", HIDDEN[1:2]),
        ("m/_t*/**/*.parquet", HIDDEN[2:3]),
        ("m/_temporary/*/*.parquet", HIDDEN[2:3]),
        ("m/**/.staging/*.parquet", HIDDEN[3:]),
    ],
)
def test_globs_mean_hidden_files_only_where_they_say_so(tmp_path, glob, expected):
    for number, name in enumerate([*VISIBLE, *HIDDEN]):
        write_part(tmp_path / name, [number], {"x": [1.0]})
    assert [file.relative_to(tmp_path).as_posix() for file in find_files(glob, tmp_path)] == expected


def test_path_before_a_glob_may_be_hidden(tmp_path):
    write_part(tmp_path / "_work" / ".rows" / "a.parquet", [1], {"x": [1.0]})
    assert all_labels(open_source("_work/.rows/*.parquet", tmp_path, id_columns=["id"]), "id") == [1]
    (tmp_path / "here").mkdir()
    assert all_labels(open_source("../_work/.rows/*.parquet", tmp_path / "here", id_columns=["id"]), "id") == [1]


def test_large_file_arrives_in_several_batches_with_its_labels(tmp_path):
    n = 200_000
    x = np.random.default_rng(0).standard_normal((n, 14))
    write_part(tmp_path / "a.parquet", range(n), {f"x{c}": x[:, c] for c in range(14)})
    source = open_source("a.parquet", tmp_path, id_columns=["id"])
    batches = list(source.batches())
    assert len(batches) > 1
    assert np.array_equal(np.concatenate([batch.rows for batch in batches]), x)
    assert np.array_equal(np.concatenate([batch.labels["id"].to_numpy() for batch in batches]), np.arange(n))


@pytest.mark.parametrize(
    ("features", "chosen"),
    [
        (None, ("px0", "px1", "px10", "size")),
        (["px*"], ("px0", "px1", "px10")),
        (["px1*", "size"], ("px1", "px10", "size")),
        (["size", "px*"], ("size", "px0", "px1", "px10")),
        (["px10", "px*"], ("px10", "px0", "px1")),
        (["px?"], ("px0", "px1")),
    ],
)
def test_features_are_chosen_by_name_and_glob_in_the_order_asked_for(tmp_path, features, chosen):
    columns = {"px0": [1.0], "px1": [2.0], "px10": [3.0], "size": [4.0], "name": ["a"], "class": [5]}
    write_part(tmp_path / "a.parquet", [1], columns)
    source = open_source("a.parquet", tmp_path, id_columns=["id"], features=features, passthrough=["class", "name"])
    assert source.feature_names == chosen
    assert all_rows(source).tolist() == [[columns[name][0] for name in chosen]]
    batch = next(source.batches())
    assert batch.labels.column_names == ["id", "class", "name"]
    assert batch.labels.to_pylist() == [{"id": 1, "class": 5, "name": "a"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["z*"]}, r'source\.features: "z\*" matches no free column of .*, which has id, x, text'),
        ({"features": ["id"], "id_columns": ["id"]}, r'"id" matches no free column'),
        ({"features": ["text"]}, r'a\.parquet: column "text" is of type string; features are numbers'),
        ({"features": ["*"]}, r'column "text" is of type string'),
        ({"id_columns": ["key"]}, r'a\.parquet has no column "key"; it has id, x, text'),
        ({"passthrough": ["label"]}, r'a\.parquet has no column "label"'),
        ({"id_columns": ["id"], "passthrough": ["text", "id"]}, r'column "id" is named twice in source\.id, source'),
        ({"id_columns": ["id", "id"]}, r'column "id" is named twice'),
        ({"passthrough": ["row"]}, r'names a column "row", and rows without an id are numbered .* move it to source'),
        (
            {"passthrough": ["id", "x"]},
            r"no numeric column to use as a feature; it has id \(int64\), x \(double\), text \(string\): name columns",
        ),
    ],
)
def test_columns_that_cannot_be_used_are_named(tmp_path, options, message):
    write_part(tmp_path / "a.parquet", [1], {"x": [1.0], "text": ["a"]})
    with pytest.raises(InvalidInputError, match=message):
        open_source("a.parquet", tmp_path, **options)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": [1.0]}, r'2\.parquet has no column "y"'),
        ({"x": [1.0], "y": ["one"]}, r'2\.parquet: column "y" is of type string'),
        ({"x": [1.0], "y": [[1.0]]}, r'2\.parquet: column "y" is of type list'),
    ],
)
def test_file_whose_schema_differs_is_named(tmp_path, second, message):
    write_part(tmp_path / "1.parquet", [1], {"x": [1.0], "y": [2.0]})
    write_part(tmp_path / "2.parquet", [2], second)
    with pytest.raises(InvalidInputError, match=message):
        open_source("*.parquet", tmp_path, id_columns=["id"])


def test_columns_are_matched_by_name_whatever_their_order_and_number_type(tmp_path):
    write_part(tmp_path / "1.parquet", [1], {"x": pa.array([1.5], pa.float32()), "y": pa.array([2], pa.int8())})
    write_part(tmp_path / "2.parquet", [2], {"extra": ["a"], "y": pa.array([4.5]), "x": pa.array([3], pa.uint16())})
    source = open_source("*.parquet", tmp_path, id_columns=["id"])
    assert source.feature_names == ("x", "y")
    assert all_rows(source).tolist() == [[1.5, 2.0], [3.0, 4.5]]


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        ((pa.float32(), pa.float32()), "float32"),
        ((pa.float32(), pa.float16()), "float32"),
        ((pa.float32(), pa.float64()), "float64"),
        ((pa.float32(), pa.int8()), "float64"),
        ((pa.bool_(), pa.bool_()), "float64"),
    ],
)
def test_float32_stays_float32_only_when_every_feature_is(tmp_path, kinds, dtype):
    values = [np.array([0, 1, 1]).astype(kind.to_pandas_dtype()) for kind in kinds]
    write_part(tmp_path / "a.parquet", [1, 2, 3], {f"x{c}": pa.array(v, kinds[c]) for c, v in enumerate(values)})
    source = open_source("a.parquet", tmp_path, id_columns=["id"])
    assert source.dtype == dtype
    assert [batch.rows.dtype for batch in source.batches()] == [np.dtype(dtype)]
    assert all_rows(source).tolist() == [[0, 0], [1, 1], [1, 1]]


def test_missing_values_of_every_column_type_become_nan(tmp_path):
    columns = {
        "integer": pa.array([1, None, 3], pa.int32()),
        "boolean": pa.array([True, False, None], pa.bool_()),
        "real": pa.array([None, 0.5, 1.5], pa.float64()),
        "money": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-7.00"), None], pa.decimal128(9, 2)),
    }
    write_part(tmp_path / "a.parquet", [1, 2, 3], columns)
    found = all_rows(open_source("a.parquet", tmp_path, id_columns=["id"]))
    expected = [[1, 1, np.nan, 1.25], [np.nan, 0, 0.5, -7], [3, np.nan, 1.5, np.nan]]
    assert np.array_equal(found, expected, equal_nan=True)


def test_columns_that_are_no_numbers_are_left_out_or_refused_by_name(tmp_path):
    columns = {
        "x": [1.0],
        "when": pa.array([datetime.datetime(2026, 1, 1)]),
        "kind": pa.array(["a"]).dictionary_encode(),
        "tags": pa.array([["a", "b"]]),
    }
    write_part(tmp_path / "a.parquet", [1], columns)
    assert open_source("a.parquet", tmp_path, id_columns=["id"], passthrough=["tags"]).feature_names == ("x",)
    for name, kind in (("when", "timestamp"), ("kind", "dictionary"), ("tags", "list")):
        with pytest.raises(InvalidInputError, match=rf'a\.parquet: column "{name}" is of type {kind}.*numbers'):
            open_source("a.parquet", tmp_path, id_columns=["id"], features=["x", name])
    with pytest.raises(InvalidInputError, match=r'column "tags" of source\.id is of type list.*source\.passthrough'):
        open_source("a.parquet", tmp_path, id_columns=["tags"])


def test_file_that_is_not_parquet_is_named(tmp_path):
    for content in (b"", b"PAR1", b"x,y\n1,2\n", b"PAR1" + bytes(100) + b"PAR1"):
        (tmp_path / "a.parquet").write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"a\.parquet is not a Parquet file that can be read"):
            open_source("a.parquet", tmp_path)


def test_damaged_pages_of_a_parquet_file_are_named(tmp_path):
    file = tmp_path / "a.parquet"
    write_part(file, range(1000), {"x": np.random.default_rng(0).standard_normal(1000)})
    source = open_source("a.parquet", tmp_path, id_columns=["id"])
    data = bytearray(file.read_bytes())
    data[: len(data) // 2] = b"\xff" * (len(data) // 2)  # the footer, which is at the end, stays whole
    file.write_bytes(data)
    with pytest.raises((InvalidInputError, StorageError), match=re.escape(str(file))):
        all_rows(source)


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    ("kind", "dtype"), [("f4", "float32"), ("f8", "float64"), ("i2", "float64"), ("?", "float64"), (">f8", "float64")]
)
@pytest.mark.parametrize("store", ["npy", "zarr"])
def test_bare_matrix_is_read_with_numbered_rows(tmp_path, store, kind, dtype):
    if store == "zarr" and kind.startswith(">"):
        kind = "f8"
    X = np.random.default_rng(0).integers(0, 2, (7, 3)).astype(kind)
    path = tmp_path / f"x.{store}"
    if store == "npy":
        np.save(path, X)
    else:
        zarr.create_array(str(path), shape=X.shape, chunks=(2, 3), dtype=X.dtype)[...] = X
    source = open_source(path.name, tmp_path)
    assert isinstance(source, ArraySource)
    assert (source.n_samples, source.dtype, source.feature_names) == (7, dtype, ("x0", "x1", "x2"))
    found = all_rows(source)
    assert found.dtype == np.dtype(dtype)
    assert np.array_equal(found, X)
    assert all_labels(source, "row") == list(range(7))


def test_large_matrix_arrives_in_several_batches(tmp_path):
    X = np.random.default_rng(0).standard_normal((3, 1_500_000)).astype("float32")
    np.save(tmp_path / "x.npy", X)
    source = open_source("x.npy", tmp_path)
    assert [len(batch.rows) for batch in source.batches()] == [1, 1, 1]
    assert np.array_equal(all_rows(source), X)
    assert all_labels(source, "row") == [0, 1, 2]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), r"shape \(3,\) and dtype float64; a matrix of numbers is needed"),
        (np.zeros((3, 2, 1)), r"shape \(3, 2, 1\)"),
        (np.zeros((3, 2), complex), r"dtype complex128"),
        (np.zeros((3, 0)), r"shape \(3, 0\): no columns; at least one feature is needed"),
        (np.full((3, 2), "a"), r"dtype <U1"),
        (np.zeros((3, 2), "M8[s]"), r"dtype datetime64"),
        (np.array([[1, "a"]], object), r"x\.npy is not an array that can be read"),
    ],
)
def test_arrays_that_are_no_matrix_of_numbers_are_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(InvalidInputError, match=message):
        open_source("x.npy", tmp_path)


def test_file_that_is_no_array_is_named(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"not an array")
    with pytest.raises(InvalidInputError, match=r"x\.npy is not an array that can be read"):
        open_source("x.npy", tmp_path)
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / "zarr.json").write_text("{")
    with pytest.raises(InvalidInputError, match=r"x\.zarr is not an array that can be read"):
        open_source("x.zarr", tmp_path)


@pytest.mark.parametrize("uri", ["none.parquet", "none.npy", "*.parquet", "none/"])
def test_missing_file_is_named_with_the_place_where_it_was_sought(tmp_path, uri):
    with pytest.raises(InvalidInputError) as caught:
        open_source(uri, tmp_path)
    assert f"source.uri={uri!r}: no such file" in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_directory_without_tables_says_so(tmp_path):
    (tmp_path / "data" / "_hidden").mkdir(parents=True)
    write_part(tmp_path / "data" / "_hidden" / "a.parquet", [1], {"x": [1.0]})
    (tmp_path / "data" / "rows.txt").write_text("1")
    with pytest.raises(InvalidInputError, match=r"'data': no Parquet, CSV or Arrow file in or below .*data; correct"):
        open_source("data", tmp_path)


@pytest.mark.parametrize("features", [None, ["x*"], ["x"]])
def test_column_in_use_that_a_file_has_twice_is_named(tmp_path, features):
    pq.write_table(pa.table([[1], [1.0], [2.0]], names=["id", "x", "x"]), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r'a\.parquet has 2 columns named "x"'):
        open_source("a.parquet", tmp_path, id_columns=["id"], features=features)


def test_column_that_a_file_has_twice_and_nobody_uses_is_no_matter(tmp_path):
    table = pa.table([[1], [1.0], ["a"], ["b"]], names=["id", "x", "note", "note"])
    pq.write_table(table, tmp_path / "a.parquet")
    assert all_rows(open_source("a.parquet", tmp_path, id_columns=["id"])).tolist() == [[1.0]]


@pytest.mark.parametrize("uri", ["*.parquet", "day[12].parquet", "../[[]1] data/*.parquet"])
def test_glob_starts_in_a_directory_whose_own_name_is_no_glob(tmp_path, uri):
    folder = tmp_path / "[1] data"
    for day in (1, 2):
        write_part(folder / f"day{day}.parquet", [day], {"x": [float(day)]})
    assert all_labels(open_source(uri, folder, id_columns=["id"]), "id") == [1, 2]


def test_path_with_a_bracket_in_its_name_is_that_path(tmp_path):
    write_part(tmp_path / "day[1].parquet", [1], {"x": [1.0]})
    write_part(tmp_path / "day1.parquet", [2], {"x": [1.0]})
    assert all_labels(open_source("day[1].parquet", tmp_path, id_columns=["id"]), "id") == [1]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_array_may_have_any_name(tmp_path, zarr_format):
    path = tmp_path / "matrix"
    array = zarr.create_array(str(path), shape=(3, 2), chunks=(2, 2), dtype="float64", zarr_format=zarr_format)
    array[...] = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(all_rows(open_source("matrix", tmp_path)), np.arange(6.0).reshape(3, 2))


def test_file_that_lost_a_column_after_it_was_opened_is_named(tmp_path):
    write_part(tmp_path / "a.parquet", [1], {"x": [1.0], "y": [2.0]})
    source = open_source("a.parquet", tmp_path, id_columns=["id"])
    write_part(tmp_path / "a.parquet", [1], {"x": [1.0]})
    with pytest.raises(InvalidInputError, match=r"a\.parquet cannot be read as it was when the source was opened"):
        all_rows(source)


def test_kinds_of_file_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "x.txt").write_text("1,2")
    with pytest.raises(InvalidInputError, match=r"names a file of kind \.txt; files of one kind can be read, Parquet"):
        open_source("x.txt", tmp_path)
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match=r"names 2 files of kind \.npy"):
        open_source("*.npy", tmp_path)


@pytest.mark.parametrize("option", [{"id_columns": ["id"]}, {"features": ["x0"]}, {"passthrough": ["y"]}])
def test_bare_matrix_has_no_columns_to_choose(tmp_path, option):
    np.save(tmp_path / "x.npy", np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match="is a bare array"):
        open_source("x.npy", tmp_path, **option)


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=6, unique=True))
def test_natural_order_is_the_order_of_the_numbers(numbers):
    names = [f"/data/part-{number}.parquet" for number in numbers]
    assert sorted(names, key=natural_key) == [f"/data/part-{number}.parquet" for number in sorted(numbers)]


# ---------------------------------------------------------------- fingerprints


def parquet_pair(folder, *, last=4.0, names=("a", "b")):
    write_part(folder / f"{names[0]}.parquet", [1, 2], {"x": [1.0, 2.0], "y": [0.0, 0.0]})
    write_part(folder / f"{names[1]}.parquet", [3, 4], {"x": [3.0, last], "y": [0.0, 0.0]})
    return folder


def print_of(folder, **options):
    return open_source("*.parquet", folder, **{"id_columns": ["id"]} | options).fingerprint()


def test_fingerprint_changes_with_any_value(tmp_path):
    original = print_of(parquet_pair(tmp_path / "1"))
    assert re.fullmatch(r"[0-9a-f]{64}", original)
    assert print_of(parquet_pair(tmp_path / "2", last=np.nextafter(4.0, 5.0))) != original


@given(st.data())
@in_one_directory
def test_fingerprint_changes_with_any_byte(tmp_path, data):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(12.0).reshape(4, 3))
    original = open_source("x.npy", tmp_path).fingerprint()
    content = bytearray(path.read_bytes())
    header = len(content) - 4 * 3 * 8
    content[data.draw(st.integers(header, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    assert open_source("x.npy", tmp_path).fingerprint() != original


def test_fingerprint_of_a_zarr_array_changes_with_its_chunks_and_metadata(tmp_path):
    prints = set()
    for number, (value, chunks) in enumerate([(1.0, (2, 2)), (2.0, (2, 2)), (1.0, (1, 2))]):
        path = tmp_path / str(number) / "x.zarr"
        zarr.create_array(str(path), shape=(4, 2), chunks=chunks, dtype="float64")[...] = value
        prints.add(open_source(str(path), tmp_path).fingerprint())
    assert len(prints) == 3


def test_fingerprint_changes_with_the_choice_and_order_of_columns(tmp_path):
    folder = parquet_pair(tmp_path)
    prints = [
        print_of(folder),
        print_of(folder, features=["x"]),
        print_of(folder, features=["y", "x"]),
        print_of(folder, id_columns=[], features=["x", "y"]),
        print_of(folder, features=["x"], passthrough=["y"]),
    ]
    # the same columns in other roles give other outputs
    prints += [
        print_of(folder, id_columns=["id", "y"], features=["x"]),
        print_of(folder, id_columns=[], features=["x"], passthrough=["id", "y"]),
    ]
    assert len(set(prints)) == len(prints)
    assert print_of(folder, features=["x", "y"]) == prints[0]


def test_fingerprint_changes_with_the_order_of_the_files(tmp_path):
    parquet_pair(tmp_path / "1", names=("a", "b"))
    parquet_pair(tmp_path / "2", names=("b", "a"))
    assert print_of(tmp_path / "1") != print_of(tmp_path / "2")


def test_fingerprint_does_not_change_with_mtime_or_names_of_files(tmp_path):
    original = print_of(parquet_pair(tmp_path / "1"))
    renamed = parquet_pair(tmp_path / "2", names=("part-2", "part-10"))
    for file in renamed.iterdir():
        os.utime(file, (1, 1))
    assert print_of(renamed) == original

    for name in ("x.npy", "y.npy"):
        np.save(tmp_path / name, np.arange(6.0).reshape(3, 2))
    os.utime(tmp_path / "y.npy", (1, 1))
    assert open_source("x.npy", tmp_path).fingerprint() == open_source("y.npy", tmp_path).fingerprint()


# ---------------------------------------------------------------- the stored copy


def copy_of(X, path, *, sizes=None, tile_rows=4, fingerprint="f", n_samples=None, names=None, **options):
    batches = np.split(X, np.cumsum(sizes)) if sizes is not None else [X]
    return write_rows(
        iter(batches),
        path,
        n_samples=len(X) if n_samples is None else n_samples,
        n_features=X.shape[1],
        dtype=X.dtype.name,
        tile_rows=tile_rows,
        fingerprint=fingerprint,
        names=names,
        **options,
    )


def matrix(n=10, d=3, dtype="float64", seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)
    X.setflags(write=False)
    return X


def contents(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 15))
def test_aligned_blocks_hold_the_same_rows_in_whole_tiles(sizes, tile_rows):
    X = np.arange(float(sum(sizes)))[:, None]
    blocks = list(aligned_blocks(iter(np.split(X, np.cumsum(sizes)[:-1]) if sizes else []), tile_rows))
    assert all(len(block) == tile_rows for block in blocks[:-1])
    assert all(0 < len(block) <= tile_rows for block in blocks)
    assert np.array_equal(np.concatenate(blocks) if blocks else X[:0], X)


def test_aligned_blocks_survive_a_buffer_that_the_reader_uses_again():
    def reader():
        buffer = np.empty((3, 1))
        for start in range(0, 9, 3):
            buffer[:, 0] = np.arange(start, start + 3)
            yield buffer

    assert np.concatenate(list(aligned_blocks(reader(), 2)))[:, 0].tolist() == list(range(9))


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 30), st.sampled_from(["float32", "float64"]))
@in_one_directory
def test_batches_of_any_sizes_give_the_same_bytes(tmp_path, sizes, tile_rows, dtype):
    X = matrix(25, 3, dtype)
    _, summary = copy_of(X, tmp_path / "one.zarr", tile_rows=tile_rows)
    _, other_summary = copy_of(X, tmp_path / "other.zarr", sizes=sizes, tile_rows=tile_rows)
    assert contents(tmp_path / "one.zarr") == contents(tmp_path / "other.zarr")
    assert summary == other_summary


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "tile_rows"), [(1, 1), (1, 4), (2, 4), (7, 8), (8, 8), (9, 8), (25, 8)])
def test_finished_copy_is_opened_with_the_rows_and_the_summary(tmp_path, n, tile_rows, dtype):
    X = matrix(n, 3, dtype)
    seen = []
    rows, summary = copy_of(X, tmp_path / "rows.zarr", tile_rows=tile_rows, advance=seen.append)
    assert sum(seen) == n
    assert open_rows(tmp_path / "rows.zarr", "f") == (rows, summary)
    assert (rows.n_samples, rows.n_features, rows.dtype) == (n, 3, dtype)
    assert np.array_equal(rows.read(slice(0, n)), X)
    assert rows.read(slice(0, n)).dtype == np.dtype(dtype)
    assert np.array_equal(rows.read(slice(n // 2, n)), X[n // 2 :])
    assert len(list((tmp_path / "rows.zarr" / "c").rglob("0"))) == 1 + -(-n // tile_rows)  # chunk 0 is c/0/0


def test_zero_rows_of_numbers_zero_are_kept_as_data(tmp_path):
    rows, _ = copy_of(np.zeros((10, 3)), tmp_path / "rows.zarr")
    assert np.array_equal(rows.read(slice(0, 10)), np.zeros((10, 3)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0.0, 3.0, 1000.0])
@pytest.mark.parametrize("tile_rows", [50, 64, 1000])
def test_variance_is_that_of_all_entries(tmp_path, dtype, offset, tile_rows):
    X = (np.random.default_rng(3).standard_normal((501, 7)) + offset).astype(dtype)
    expected = np.var(X, dtype=np.float64)
    _, stored = copy_of(X, tmp_path / "rows.zarr", tile_rows=tile_rows)
    read = read_rows(iter([X]), 7, tile_rows)
    assert stored == read
    assert abs(read.variance - expected) <= 1e-12 * expected


@given(st.lists(st.lists(st.integers(-(2**20), 2**20), min_size=2, max_size=2), min_size=1, max_size=30))
def test_variance_equals_the_exact_rational_one(values):
    X = np.array(values, np.float64)
    entries = [Fraction(value) for row in values for value in row]
    mean = sum(entries) / len(entries)
    expected = float(sum((entry - mean) ** 2 for entry in entries) / len(entries))
    # deviations carry an error of eps·|mean| each, which counts when they are small beside the mean
    error = 1e-12 * expected + 8 * (np.finfo(np.float64).eps * 2**20) * np.sqrt(expected)
    assert abs(read_rows(iter(np.array_split(X, 3)), 2, 4).variance - expected) <= error


def test_variance_of_constant_rows_is_zero():
    assert read_rows(iter([np.full((9, 2), 0.1)]), 2, 4).variance <= (0.1 * np.finfo(np.float64).eps) ** 2 * 9


@pytest.mark.parametrize(
    ("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "-infinity")], ids=["nan", "inf", "-inf"]
)
@pytest.mark.parametrize("names", [None, ("height", "width", "depth")])
@pytest.mark.parametrize("sizes", [None, [3, 3]])
def test_entry_that_is_not_finite_is_named_with_the_number_of_such_rows(tmp_path, value, word, names, sizes):
    X = matrix().copy()
    X[[5, 8], [1, 0]] = value
    X[8, 2] = np.nan  # a second one in the same row does not count again
    column = 'column "width"' if names else "column 1"
    message = re.escape(f"row 5, {column} is {word} (1 of 2 such rows)")
    batches = np.split(X, np.cumsum(sizes)) if sizes else [X]
    with pytest.raises(InvalidInputError, match=message):
        read_rows(iter(batches), 3, 4, names)
    with pytest.raises(InvalidInputError, match=message):
        copy_of(X, tmp_path / "rows.zarr", sizes=sizes, names=names)
    assert open_rows(tmp_path / "rows.zarr", "f") is None


@pytest.mark.parametrize("n_samples", [9, 11])
def test_source_that_delivers_another_number_of_rows_is_refused(tmp_path, n_samples):
    with pytest.raises(InvalidInputError, match=rf"announced {n_samples} rows and delivered 10.* run again"):
        copy_of(matrix(), tmp_path / "rows.zarr", n_samples=n_samples)
    assert open_rows(tmp_path / "rows.zarr", "f") is None


def test_unfinished_copy_is_not_opened_and_is_made_again(tmp_path):
    X, path = matrix(), tmp_path / "rows.zarr"

    def interrupted():
        yield X[:8]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(interrupted(), path, n_samples=10, n_features=3, dtype="float64", tile_rows=4, fingerprint="f")
    assert (path / "zarr.json").exists()
    assert open_rows(path, "f") is None
    copy_of(X, path)
    assert np.array_equal(open_rows(path, "f")[0].read(slice(0, 10)), X)


def test_copy_of_other_contents_is_not_opened(tmp_path):
    copy_of(matrix(), tmp_path / "rows.zarr", fingerprint="f")
    assert open_rows(tmp_path / "rows.zarr", "f") is not None
    assert open_rows(tmp_path / "rows.zarr", "g") is None
    assert open_rows(tmp_path / "none.zarr", "f") is None


def test_copy_that_is_being_replaced_is_not_opened(tmp_path):
    path = tmp_path / "rows.zarr"
    copy_of(matrix(), path)
    bad = matrix().copy()
    bad[9, 0] = np.nan
    with pytest.raises(InvalidInputError):
        copy_of(bad, path, fingerprint="g")
    assert open_rows(path, "f") is None
    assert open_rows(path, "g") is None


# the handle of the first copy has been used in this process: what it learned about the file is stale
@pytest.mark.parametrize(
    ("n", "d", "dtype", "tile_rows"),
    [
        (10, 3, "float64", 4),
        (20, 3, "float64", 4),
        (5, 3, "float64", 4),
        (10, 5, "float64", 4),
        (10, 3, "float32", 4),
        (10, 3, "float64", 5),
    ],
)
def test_copy_that_replaced_another_is_read_as_it_is_now(tmp_path, n, d, dtype, tile_rows):
    path = tmp_path / "rows.zarr"
    first, _ = copy_of(matrix(), path)
    first.read(slice(0, 4))
    X = matrix(n, d, dtype, seed=1)
    second, _ = copy_of(X, path, fingerprint="g", tile_rows=tile_rows)
    assert np.array_equal(second.read(slice(0, n)), X)
    assert np.array_equal(open_rows(path, "g")[0].read(slice(0, n)), X)


def spoil_bit(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def spoil_length(file):
    file.write_bytes(file.read_bytes()[:-9])


def spoil_by_emptying(file):
    file.write_bytes(b"")


def spoil_by_removing(file):
    file.unlink()


def spoil_by_directory(file):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("spoil", [spoil_bit, spoil_length, spoil_by_emptying, spoil_by_removing, spoil_by_directory])
def test_damaged_copy_is_named_and_never_read_as_numbers(tmp_path, spoil):
    path = tmp_path / "rows.zarr"
    rows, _ = copy_of(matrix(), path)
    spoil(path / "c" / "1" / "0")
    if spoil is spoil_bit:  # else the array is not opened at all: its files do not add up to what it declares
        assert np.array_equal(rows.read(slice(0, 4)), matrix()[:4])  # the chunk before is whole
    with pytest.raises(StorageError, match=r"rows 4 to 8 of .* this copy is damaged: run or fit") as caught:
        rows.read(slice(4, 8))
    assert str(path) in str(caught.value)


def test_handle_on_rows_that_are_gone_names_the_place(tmp_path):
    rows = StoredRows(str(tmp_path / "none.zarr"), 10, 3, "float64")
    with pytest.raises(StorageError, match=re.escape(str(tmp_path / "none.zarr"))):
        rows.read(slice(0, 4))


def test_place_that_cannot_be_written_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"writing rows to .* failed: Not a directory .*; correct the path"):
        copy_of(matrix(), tmp_path / "file" / "rows.zarr")


# ---------------------------------------------------------------- rows in memory


def test_rows_of_an_array_are_views_that_are_never_written_to():
    X = matrix(dtype="float32")
    rows = ArrayRows(X)
    assert (rows.n_samples, rows.n_features, rows.dtype) == (10, 3, "float32")
    block = rows.read(slice(2, 5))
    assert np.shares_memory(block, X)
    assert np.array_equal(block, X[2:5])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([None, 1.0], 'column "x" is NaN or null (the only such row); kernel PCA needs finite numbers'),
        ([None, np.nan], 'column "x" is NaN or null (1 of 2 such rows); kernel PCA needs finite numbers'),
        ([np.inf, 1.0], 'column "x" is infinity (the only such row); kernel PCA needs finite numbers'),
    ],
)
def test_row_of_a_source_that_has_no_number_is_refused_with_what_the_source_can_do(tmp_path, values, said):
    write_part(tmp_path / "a.parquet", [1, 2], {"x": pa.array(values, pa.float64())})
    source = open_source("a.parquet", tmp_path, id_columns=["id"])
    check = FiniteCheck(source.feature_names)
    check.add(all_rows(source))
    with pytest.raises(NotFiniteError) as caught, naming_files(source.parts):
        check.raise_if_any()
    assert f"row 0 of {tmp_path}/a.parquet, {said}" in str(caught.value)
    assert ("set source.nulls to drop or impute:median, or remove" in str(caught.value)) == (values[0] is None)
    with pytest.raises(NotFiniteError, match=r"row 0, column .* such rows\); .*infinity: remove or fill these rows"):
        check.raise_if_any()


def test_wrong_width_says_both_widths():
    check_width(5, 5)
    with pytest.raises(InvalidInputError, match="X has 3 features, but this model was fitted on 5 features"):
        check_width(3, 5)


def test_parquet_source_feeds_the_stored_copy(tmp_path):
    X = matrix(50, 3)
    for part in range(3):
        rows = X[20 * part : 20 * part + 20]
        write_part(tmp_path / f"{part}.parquet", range(len(rows)), {f"x{c}": rows[:, c] for c in range(3)})
    source = open_source("*.parquet", tmp_path, id_columns=["id"])
    assert isinstance(source, ParquetSource)
    stored, summary = write_rows(
        (batch.rows for batch in source.batches()),
        tmp_path / "rows.zarr",
        n_samples=source.n_samples,
        n_features=3,
        dtype=source.dtype,
        tile_rows=16,
        fingerprint=source.fingerprint(),
        names=source.feature_names,
    )
    assert np.array_equal(stored.read(slice(0, 50)), X)
    assert abs(summary.variance - X.var()) <= 1e-12 * X.var()
