"""Models, stores and records from somebody else: nothing of them is executed, believed or changed before it is read."""

import gzip
import json
import os
import pickle
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from scalable_kpca import KernelPCA, load_model
from scalable_kpca.documents import MAX_JSON_BYTES, format_json, read_json
from scalable_kpca.errors import ModelFormatError, StorageError
from scalable_kpca.gram import PassResult, TileCounts, create_tiles, find_tiles
from scalable_kpca.journal import Journal
from scalable_kpca.records import digest_arrays, read_record, write_record
from scalable_kpca.source import SparseRows, StoredRows, StoredSparseRows, as_csr, open_rows, write_sparse_rows
from scalable_kpca.tiling import Tiling
from tests.security.hostile import Payload, out_of_reach, untouched
from tests.support import describe_model, store_rows

N, D, T = 40, 3, 16
HUGE = 2**40


def samples():
    return np.random.default_rng(0).standard_normal((N, D))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """One of each artefact; nothing in them is large."""
    place = tmp_path_factory.mktemp("saved")
    asked = {"kernel": "rbf", "gamma": 0.3, "fit_inverse_transform": True}
    KernelPCA(2, method="exact", **asked).fit(samples()).save(place / "exact")
    KernelPCA(2, method="nystroem", n_landmarks=8, **asked).fit(samples()).save(place / "nystroem")
    sparse = as_csr(sp.random_array((N, 300), density=0.02, rng=np.random.default_rng(1)))
    KernelPCA(2, kernel="linear", method="exact").fit(sparse).save(place / "sparse")
    write_sparse_rows(SparseRows(sparse), place / "sparse_rows", batch_rows=T)
    store_rows(samples(), place / "rows.zarr", T)
    tiles = create_tiles(place / "gram.zarr", Tiling(N, T), "float64", "f", {})
    for i, j in tiles.tiling.tiles():
        with tiles.writing(i, j) as chunk:
            chunk.append(np.ones((tiles.tiling.length(i), tiles.tiling.length(j))))
        tiles.commit(i, j, np.full(T, float(tiles.tiling.length(j))), np.full(T, float(tiles.tiling.length(i))))
    for opening in ARRAYS.values():
        opening(place)  # imports what is imported late
    return place


@pytest.fixture
def copy(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "saved"))


def load_gram(place):
    create_tiles(place / "gram.zarr", Tiling(N, T), "float64", "f", {})


def find_gram(place):
    assert find_tiles(place / "gram.zarr").missing() == ()


def load_rows(place):
    rows = StoredRows(str(place / "rows.zarr"), N, D, "float64")
    assert rows.read(slice(0, N)).shape == (N, D)


def load_sparse_rows(place):
    StoredSparseRows(str(place / "sparse_rows"), N, 300, "float64").read(slice(0, N))


ARRAYS = {
    "exact/arrays.zarr/row_means": lambda place: load_model(place / "exact"),
    "exact/arrays.zarr/eigenvectors": lambda place: load_model(place / "exact"),
    "exact/arrays.zarr/rows": lambda place: load_model(place / "exact"),
    "exact/arrays.zarr/ridge_mean": lambda place: load_model(place / "exact"),
    "nystroem/arrays.zarr/ridge_centres": lambda place: load_model(place / "nystroem"),
    "nystroem/arrays.zarr/landmarks": lambda place: load_model(place / "nystroem"),
    "nystroem/arrays.zarr/omega": lambda place: load_model(place / "nystroem"),
    "sparse/arrays.zarr/rows/data": lambda place: load_model(place / "sparse"),
    "sparse_rows/indices": load_sparse_rows,
    "sparse_rows/ends": load_sparse_rows,
    "rows.zarr": load_rows,
    "gram.zarr/tiles": load_gram,
    "gram.zarr/row_sums": find_gram,
}
every_array = pytest.mark.parametrize("array", ARRAYS)


def refused(place, array):
    """Loading is refused by a named error that names the place, and changes nothing."""
    with untouched(place / Path(array).parts[0]), pytest.raises((ModelFormatError, StorageError)) as caught:
        ARRAYS[array](place)
    assert str(place) in str(caught.value)
    return str(caught.value)


def refused_though_digests_fit(place, array):
    """The same, of a model that was changed by somebody who knows what it holds."""
    description = place / Path(array).parts[0] / "model.json"
    if not description.exists():
        return refused(place, array)
    text = description.read_text()
    describe_model(description.parent)
    message = refused(place, array)
    description.write_text(text)
    return message


@every_array
def test_what_this_version_wrote_is_opened_and_not_changed_by_that(copy, array):
    with untouched(copy):
        ARRAYS[array](copy)


# ---------------------------------------------------------------- pickles


def test_the_payload_of_these_tests_works(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()


def test_the_guards_of_these_tests_see_what_they_are_to_see(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "inside" / "file")
    with pytest.raises(AssertionError), out_of_reach(tmp_path / "inside"):
        (tmp_path / "link").read_text()
    with pytest.raises(AssertionError), untouched(tmp_path):
        (tmp_path / "link").write_text("other")
    with pytest.raises(AssertionError), untouched(tmp_path):
        np.empty(2**22)


def test_a_pickle_in_the_place_of_a_file_or_beside_it_is_never_executed(copy, tmp_path):
    payload = pickle.dumps(Payload(tmp_path / "marker"))
    for beside in ("exact/model.pkl", "exact/arrays.zarr/row_means.pkl", "exact/__reduce__", "exact/arrays.zarr/0"):
        (copy / beside).write_bytes(payload)
    load_model(copy / "exact").rows.read(slice(0, N))
    (copy / "exact" / "arrays.zarr" / "row_means" / "c" / "0").write_bytes(payload)
    refused(copy, "exact/arrays.zarr/row_means")
    (copy / "exact" / "model.json").write_bytes(payload)
    refused(copy, "exact/arrays.zarr/row_means")
    assert not (tmp_path / "marker").exists()


@every_array
def test_a_pickled_array_of_an_older_zarr_format_is_refused_and_never_executed(copy, tmp_path, array):
    objects = np.empty(1, object)
    objects[0] = Payload(tmp_path / "marker")
    older = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "compressor": None, "fill_value": None}
    (copy / array / ".zarray").write_text(json.dumps(older | {"order": "C", "filters": [{"id": "pickle"}]}))
    (copy / array / "0").write_bytes(pickle.dumps(objects))
    (copy / array / "zarr.json").unlink()
    refused_though_digests_fit(copy, array)
    assert not (tmp_path / "marker").exists()


def test_a_record_with_objects_is_damaged_and_never_executed(tmp_path):
    objects = np.empty(1, object)
    objects[0] = Payload(tmp_path / "marker")
    np.savez(tmp_path / "record.npz", values=objects, checksum=objects)
    assert read_record(tmp_path / "record.npz", ["values"]) is None
    (tmp_path / "record.npz").write_bytes(pickle.dumps(objects[0]))
    assert read_record(tmp_path / "record.npz", ["values"]) is None
    assert not (tmp_path / "marker").exists()


# ---------------------------------------------------------------- zarr

LITTLE_ENDIAN, CHECKSUM = {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}
SHARDS = {
    "name": "sharding_indexed",
    "configuration": {"chunk_shape": [1], "codecs": [LITTLE_ENDIAN], "index_codecs": [LITTLE_ENDIAN]},
}
REPLACED = {
    **{name: {"codecs": [LITTLE_ENDIAN, CHECKSUM, {"name": name}]} for name in ("gzip", "zstd", "blosc", "own.codec")},
    "numcodecs": {"codecs": [LITTLE_ENDIAN, {"name": "numcodecs.zlib", "configuration": {"level": 1}}]},
    "transpose": {"codecs": [{"name": "transpose", "configuration": {"order": [0]}}, LITTLE_ENDIAN, CHECKSUM]},
    "shards": {"codecs": [SHARDS]},
    "big endian": {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, CHECKSUM]},
    "no checksum": {"codecs": [LITTLE_ENDIAN]},
    "no codecs": {"codecs": []},
    "codecs of another kind": {"codecs": "bytes"},
    "text": {"data_type": "string", "fill_value": "", "codecs": [{"name": "vlen-utf8"}]},
    "bytes of any length": {"data_type": "variable_length_bytes", "fill_value": ""},
    "text of one length": {"data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": HUGE}}},
    "raw": {"data_type": "r8"},
    "complex": {"data_type": "complex128", "fill_value": ["NaN", "NaN"]},
    "object": {"data_type": "|O"},
    "other format": {"zarr_format": 2},
    "group": {"node_type": "group"},
    "transformers": {"storage_transformers": [{"name": "indirect"}]},
    "keys": {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "../"}}},
    "older keys": {"chunk_key_encoding": {"name": "v2"}},
    "grid": {"chunk_grid": {"name": "rectilinear", "configuration": {"chunk_shape": [1]}}},
    "fill value": {"fill_value": 0.5},
    "unknown": {"extension": {"must_understand": False}},
    "consolidated": {"consolidated_metadata": {"kind": "inline", "metadata": {}}},
    "attributes": {"attributes": []},
    "no shape": {"shape": None},
}


def describe(path, **changes):
    fields = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps(fields | changes))
    return fields


@every_array
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_description_that_asks_for_anything_that_is_not_ours_is_refused_though_digests_fit(copy, array, every):
    text = (copy / array / "zarr.json").read_text()
    for changes in list(REPLACED.values())[::every]:
        describe(copy / array, **changes)
        refused_though_digests_fit(copy, array)
        (copy / array / "zarr.json").write_text(text)
    ARRAYS[array](copy)


@pytest.mark.parametrize("group", ["exact/arrays.zarr", "nystroem/arrays.zarr", "sparse_rows", "gram.zarr"])
def test_a_group_with_consolidated_metadata_of_another_kind_or_format_is_refused_though_digests_fit(copy, group):
    array = next(name for name in ARRAYS if name.startswith(group))
    text = (copy / group / "zarr.json").read_text()
    for changes in (REPLACED["consolidated"], REPLACED["other format"], REPLACED["unknown"], {"node_type": "array"}):
        describe(copy / group, **changes)
        refused_though_digests_fit(copy, array)
        (copy / group / "zarr.json").write_text(text)


def shapes(shape, chunks):
    """Shapes and chunk shapes that an array does not have: too many rows, in large chunks or small, of other kinds."""
    rest, others = shape[1:], chunks[1:]
    return [
        ([HUGE, *rest], chunks),
        ([HUGE, *rest], [HUGE, *others]),
        ([HUGE, *rest], [1, *others]),
        ([2**62, *rest], [2**31, *others]),
        ([10**300, *rest], [1, *others]),
        (shape, [HUGE, *others]),
        (shape, [0, *others]),
        (shape, [-1, *others]),
        ([-1, *rest], chunks),
        ([float(shape[0]), *rest], chunks),
        ([str(shape[0]), *rest], chunks),
        ([*shape, 1], [*chunks, 1]),
        (rest, others),
        (shape, others),
        ([], []),
    ]


@every_array
def test_a_shape_that_its_files_do_not_have_is_refused_before_memory_is_taken(copy, array):
    fields = describe(copy / array)
    chunks = fields["chunk_grid"]["configuration"]["chunk_shape"]
    for shape, chunk_shape in shapes(fields["shape"], chunks):
        grid = {"name": "regular", "configuration": {"chunk_shape": chunk_shape}}
        describe(copy / array, shape=shape, chunk_grid=grid)
        refused_though_digests_fit(copy, array)


def test_a_model_that_says_everywhere_that_it_has_a_million_million_rows_is_refused_though_digests_fit(copy):
    model = copy / "exact"
    describe_model(model, n_samples=HUGE, tile_rows=HUGE)
    for name in ("row_means", "eigenvectors", "rows"):
        shape = [HUGE, *describe(model / "arrays.zarr" / name)["shape"][1:]]
        grid = {"name": "regular", "configuration": {"chunk_shape": shape}}
        describe(model / "arrays.zarr" / name, shape=shape, chunk_grid=grid)
        shutil.rmtree(model / "arrays.zarr" / name / "c")
        refused_though_digests_fit(copy, f"exact/arrays.zarr/{name}")


@pytest.mark.parametrize(("n", "t"), [(HUGE, 1), (HUGE, HUGE), (10**6, 1), ("many", 1), (4, 0), (4, -1), (True, True)])
def test_a_store_that_says_everywhere_that_it_has_any_number_of_tiles_is_not_looked_through(copy, n, t):
    path = copy / "gram.zarr"
    attributes = describe(path)["attributes"] | {"n_samples": n, "tile_rows": t}
    describe(path, attributes=attributes)
    if isinstance(n, int) and t > 0:
        blocks = -(-n // t)
        for name, shape, chunks in (("tiles", [n, n], [t, t]), ("row_sums", [blocks, blocks, t], [1, 1, t])):
            grid = {"name": "regular", "configuration": {"chunk_shape": chunks}}
            describe(path / name, shape=shape, chunk_grid=grid)
            shutil.rmtree(path / name / "c")
    refused(copy, "gram.zarr/row_sums")


def test_a_chunk_that_would_inflate_is_refused_by_its_size(copy):
    path = copy / "exact" / "arrays.zarr" / "row_means"
    grid = {"name": "regular", "configuration": {"chunk_shape": [2**28]}}
    describe(path, codecs=[LITTLE_ENDIAN, {"name": "gzip"}], shape=[2**28], chunk_grid=grid)
    (path / "c" / "0").write_bytes(gzip.compress(bytes(2**20)) * 2**11)
    assert "codecs" in refused_though_digests_fit(copy, "exact/arrays.zarr/row_means")


@pytest.mark.parametrize("changes", [{"indices": 300}, {"indices": 2**31 - 1}, {"ends": 10**6}, {"ends": -2}])
def test_sparse_rows_that_point_beyond_their_entries_are_refused(copy, changes):
    import zarr

    for name, value in changes.items():
        zarr.open_array(str(copy / "sparse_rows" / name), mode="r+")[3] = value
    refused(copy, "sparse_rows/ends")


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "object"},
        {"dtype": "V4294967296"},
        {"dtype": ["float64"]},
        {"feature_names": [["a"], {}]},
        {"feature_names": "abc"},
        {"n_passes": 10**300},
        {"tile_rows": True},
        {"n_samples": 40.0},
        {"ridge_pairs": 40.0},
        {"ridge_pairs": HUGE},
        {"method": ["exact"]},
        {"method": "__init__"},
        {"rows_dtype": "object"},
        {"kernel": {"name": "callable", "function": "os:system", "by_pairs": True, "parameters": {}}},
    ],
    ids=str,
)
def test_a_description_of_other_kinds_of_values_is_refused(copy, changes):
    describe_model(copy / "exact", **changes)
    if "kernel" in changes:
        with pytest.raises(ValueError, match="no code is loaded with a model"):
            load_model(copy / "exact")
    elif "n_passes" in changes:
        load_model(copy / "exact")  # it is a number, if an odd one
    else:
        refused(copy, "exact/arrays.zarr/rows")


# ---------------------------------------------------------------- links and pipes


@every_array
def test_a_link_in_an_artefact_is_refused_and_what_it_leads_to_is_not_opened(copy, tmp_path, array):
    (tmp_path / "outside").mkdir()
    for what in ("", "zarr.json", "c"):
        place, target = copy / array / what, tmp_path / "outside" / "target"
        place.rename(target)
        place.symlink_to(target)
        with out_of_reach(tmp_path / "outside"):
            refused(copy, array)
        place.unlink()
        target.rename(place)
    ARRAYS[array](copy)


@pytest.mark.parametrize("array", ["gram.zarr/tiles", "gram.zarr/row_sums", "exact/arrays.zarr/rows", "rows.zarr"])
def test_a_group_behind_a_link_is_refused_and_what_it_leads_to_is_not_opened(copy, tmp_path, array):
    place, target = copy / Path(array).parent, tmp_path / "outside" / "target"
    place = copy / array if place == copy else place
    target.parent.mkdir()
    place.rename(target)
    place.symlink_to(target)
    with out_of_reach(target.parent):
        refused(copy, array)


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "directory"])
@pytest.mark.parametrize("name", ["model.json", "arrays.zarr/zarr.json", "arrays.zarr/row_means/c/0"])
def test_what_is_no_plain_file_is_refused_and_not_waited_for(copy, kind, name):
    place = copy / "exact" / name
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero" if kind == "device" else "/etc/hostname")
    refused(copy, "exact/arrays.zarr/row_means")


# ---------------------------------------------------------------- records


def test_a_compressed_record_is_damaged_and_not_inflated(tmp_path):
    bomb = np.zeros(2**22)
    np.savez_compressed(tmp_path / "record.npz", values=bomb, checksum=bomb)
    del bomb
    with untouched(tmp_path):
        assert read_record(tmp_path / "record.npz", ["values"]) is None


def test_a_record_that_is_not_as_it_is_written_is_damaged_though_its_checksum_fits(tmp_path):
    values, place = np.random.default_rng(0).standard_normal(500), tmp_path / "record.npz"
    fields = {"values": values, "checksum": digest_arrays("", values)}
    np.savez(place, **fields)
    assert read_record(place, ["values"])["values"].tolist() == values.tolist()
    np.savez_compressed(place, **fields)
    assert read_record(place, ["values"]) is None
    for others in (np.array(["text"]), np.ones(2, [("a", "f8")]), np.ones(2, complex), np.array(["2026"], "M8[D]")):
        write_record(place, {"values": others})
        assert read_record(place, ["values"]) is None


def npy(shape, dtype="<f8", data=b"", version=b"\x01\x00"):
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + data


MEMBERS = {
    "longer than the member": npy((HUGE,), data=bytes(8)),
    "shorter than the member": npy((1,), data=bytes(16)),
    "negative": npy((-1, -1), data=bytes(8)),
    "of objects": npy((1,), "|O", bytes(8)),
    "of text": npy((1,), "<U2", bytes(8)),
    "of records": npy((1,), [("a", "<f8")], bytes(8)),
    "of nothing": npy((HUGE,), "|V0"),
    "of code": npy("__import__('os').abort()", data=bytes(8)),
    "of a later version": npy((1,), data=bytes(8), version=b"\x03\x00"),
    "not an array": b"not an array",
    "empty": b"",
}


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
def test_a_record_whose_member_is_not_what_it_declares_is_damaged_and_takes_no_memory(tmp_path, member):
    with zipfile.ZipFile(tmp_path / "record.npz", "w") as archive:
        archive.writestr("values.npy", member)
        archive.writestr("checksum.npy", npy((32,), "|u1", bytes(32)))
    with untouched(tmp_path):
        assert read_record(tmp_path / "record.npz", ["values"]) is None


def test_a_record_that_declares_more_bytes_than_it_has_is_damaged_and_takes_no_memory(tmp_path):
    place, length = tmp_path / "record.npz", 2**27
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("values.npy", npy((length,)))
        archive.writestr("checksum.npy", npy((32,), "|u1", bytes(32)))
    content = bytearray(place.read_bytes())
    sizes = content.index(b"PK\x01\x02") + 20  # compressed and not, in the directory at the end
    content[sizes : sizes + 8] = 2 * struct.pack("<I", len(npy((length,))) + 8 * length)
    place.write_bytes(content)
    with untouched(tmp_path):
        assert read_record(place, ["values"]) is None


def test_a_pass_whose_record_is_a_bomb_is_made_again(tmp_path):
    made = []

    def compute(block):
        made.append(len(block))
        return PassResult(2 * block, np.ones(len(block)), 1.0, 0.0, TileCounts(), [])

    block, place = np.ones((4, 1)), tmp_path / "journal" / "000001.npz"
    Journal(tmp_path / "journal", "f").obtain(block, compute)
    Journal(tmp_path / "journal", "f").obtain(block, compute)
    assert made == [4]
    bomb = np.zeros(2**16)
    np.savez_compressed(place, **dict.fromkeys(("key", "product", "row_sums", "facts", "counts", "checksum"), bomb))
    result = Journal(tmp_path / "journal", "f").obtain(block, compute)
    assert made == [4, 4]
    assert result.product.tolist() == (2 * block).tolist()
    assert read_record(place, ["product", "row_sums"]) is None  # the checksum is of all of them
    assert read_record(place, ["key", "product", "row_sums", "facts", "counts"]) is not None


def test_a_link_beside_or_in_the_place_of_a_record_is_replaced_never_followed(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "journal"
    outside.mkdir()
    folder.mkdir()
    write_record(outside / "record.npz", {"values": np.ones(2)})
    for name in ("a.npz", "a.partial"):
        (folder / name).symlink_to(outside / "record.npz")
    with out_of_reach(outside):
        assert read_record(folder / "a.npz", ["values"]) is None
        write_record(folder / "a.npz", {"values": np.zeros(3)})
    assert read_record(folder / "a.npz", ["values"])["values"].tolist() == [0, 0, 0]
    assert [place.name for place in folder.iterdir()] == ["a.npz"]


# ---------------------------------------------------------------- JSON

TEXTS = {
    "deep": b"[" * 10**6,
    "deep and closed": b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
    "NaN": b'{"a": NaN}',
    "infinite": b"[-Infinity]",
    "too large": b'{"a": 1e999}',
    "twice": b'{"run": "a", "run": "b"}',
    "digits": b'{"a": ' + b"1" * 5000 + b"}",
    "more digits": b"9" * 309,
    "not UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "two values": b"{} {}",
    "nothing": b"",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_json_that_is_not_plain_is_refused_by_a_named_error(copy, tmp_path, text):
    (tmp_path / "any.json").write_bytes(text)
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind
        read_json(tmp_path / "any.json")
    for array in ("exact/arrays.zarr/rows", "rows.zarr", "gram.zarr/tiles"):
        (copy / array / "zarr.json").write_bytes(text)
        refused(copy, array)
    (copy / "exact" / "model.json").write_bytes(text)
    refused(copy, "exact/arrays.zarr/rows")
    assert open_rows(copy / "rows.zarr", "") is None


@pytest.mark.timeout(30)
def test_json_with_many_keys_is_looked_through_once(tmp_path):
    keys = ", ".join(f'"{number}": 0' for number in range(300_000))
    (tmp_path / "any.json").write_text(f'{{{keys}, "299999": 1}}')
    with pytest.raises(ValueError, match="the key '299999' is there twice"):
        read_json(tmp_path / "any.json")


def test_json_of_hundreds_of_megabytes_is_refused_and_not_read(copy):
    for name in ("exact/model.json", "rows.zarr/zarr.json", "gram.zarr/zarr.json"):
        with (copy / name).open("r+b") as stream:
            stream.truncate(5 * MAX_JSON_BYTES)
    for array in ("exact/arrays.zarr/rows", "rows.zarr", "gram.zarr/tiles", "gram.zarr/row_sums"):
        assert f"at most {MAX_JSON_BYTES} are read" in refused(copy, array)


def test_what_is_written_as_json_is_read_as_the_same(tmp_path):
    value = {"a": [1, -2.5e-300, 2**62, None, True], "ψ": {"b": "\x00\ud800"}}
    (tmp_path / "any.json").write_text(format_json(value))
    assert read_json(tmp_path / "any.json") == value
    with pytest.raises(ValueError, match="JSON"):
        format_json([float("nan")])


def a_kernel(rows, columns, scale):
    return rows @ columns.T + 0 / scale


def test_a_model_that_could_not_be_loaded_again_is_not_saved(tmp_path):
    model = KernelPCA(2, kernel=a_kernel, kernel_params={"scale": float("inf")}, method="exact").fit(samples())
    with pytest.raises((StorageError, ValueError), match="kernel_params"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
