"""Matrices in HDF5 files and zarr groups are found by name, and nothing outside the file is read."""

import builtins

import h5py
import numpy as np
import pytest
import zarr

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.source import open_source

X = np.random.default_rng(0).standard_normal((50, 3))


@pytest.fixture
def file(tmp_path):
    """An HDF5 file with one matrix of numbers, and other things."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["deep/in/rows"] = X
        file["vector"] = np.arange(3.0)
        file["cube"] = np.zeros((2, 2, 2))
        file["text"] = np.array([[b"a", b"b"]])
    return tmp_path / "a.h5"


def rows_of(source):
    return np.concatenate([batch.rows for batch in source.batches()])


@pytest.mark.parametrize("uri", ["a.h5", "a.h5#deep/in/rows", "a.h5#/deep/in/rows", "*.h5"])
def test_matrix_of_an_hdf5_file_is_found_by_its_name_or_as_the_only_one(file, uri):
    source = open_source(uri, file.parent)
    assert (source.n_samples, source.dtype, source.feature_names) == (50, "float64", ("x0", "x1", "x2"))
    assert np.array_equal(rows_of(source), X)
    assert [(part.path, part.inner) for part in source.parts] == [(str(file), "deep/in/rows")]
    found = open_source(source.parts[0].uri, file.parent / "elsewhere")
    assert found.part_fingerprints() == source.part_fingerprints()


@pytest.mark.parametrize("chunks", [None, (7, 2), (50, 3), (1, 3), (100, 3)])
@pytest.mark.parametrize("span_rows", [1, 8, 1000])
@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8", "i2", "?"])
def test_spans_of_a_dataset_hold_its_rows_in_order(tmp_path, chunks, span_rows, dtype):
    stored = (X > 0).astype(dtype) if dtype == "?" else X.astype(dtype)
    options = {} if chunks is None else {"chunks": chunks, "compression": "gzip", "maxshape": (None, None)}
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("x", data=stored, **options)
    source = open_source("a.hdf5", tmp_path)
    blocks = [batch.rows for span in source.spans(span_rows) for batch in span.batches(5)]
    assert np.array_equal(np.concatenate(blocks), stored)
    assert {block.dtype for block in blocks} == {np.dtype("float32" if dtype == "f4" else "float64")}


def test_several_matrices_are_listed_and_one_is_taken_by_name(file):
    with h5py.File(file, "a") as opened:
        opened["more"] = X[:4].astype("f4")
    with pytest.raises(
        InvalidInputError, match=r"a\.h5 has 2 matrices of numbers, .*a\.h5#NAME, of deep/in/rows, more"
    ):
        open_source("a.h5", file.parent)
    assert rows_of(open_source("a.h5#more", file.parent)).dtype == np.float32
    prints = {open_source(f"a.h5#{name}", file.parent).fingerprint() for name in ("more", "deep/in/rows")}
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", r"a\.h5 has no dataset 'none'; it has deep/in/rows"),
        ("deep/none", r"has no dataset 'deep/none'"),
        ("vector/none", r"has no dataset 'vector/none'"),
        ("../a", r"has no dataset '\.\./a'"),
        ("deep", r"a\.h5#deep is a group; it has in/rows"),
        ("vector", r"a\.h5#vector has shape \(3,\) and dtype float64; a matrix of numbers"),
        ("cube", r"shape \(2, 2, 2\)"),
        ("text", r"dtype \|S1"),
    ],
)
def test_what_is_no_matrix_in_the_file_is_named(file, name, message):
    with pytest.raises(InvalidInputError, match=message):
        open_source(f"a.h5#{name}", file.parent)


def test_no_link_leads_out_of_the_file(file):
    with h5py.File(file.parent / "secret.h5", "w") as secret:
        secret["rows"] = X
    with h5py.File(file, "a") as opened:
        opened["outside"] = h5py.ExternalLink("secret.h5", "/rows")
        opened["soft"] = h5py.SoftLink("/deep/in/rows")
        layout = h5py.VirtualLayout(shape=X.shape, dtype="f8")
        layout[...] = h5py.VirtualSource("secret.h5", "rows", shape=X.shape)
        opened.create_virtual_dataset("virtual", layout)
        (file.parent / "raw").write_bytes(X.tobytes())
        opened.create_dataset("raw", X.shape, "f8", external=[("raw", 0, h5py.h5f.UNLIMITED)])
    for name, message in (
        ("outside", "is a link, which is not followed"),
        ("soft", "is a link"),
        ("virtual", "keeps its numbers in other files, which are not read"),
        ("raw", "keeps its numbers in other files"),
    ):
        with pytest.raises(InvalidInputError, match=rf"a\.h5#{name} {message}"):
            open_source(f"a.h5#{name}", file.parent)


def test_dataset_that_changed_is_named(file):
    source = open_source("a.h5", file.parent)
    before = source.fingerprint()
    with h5py.File(file, "a") as opened:
        opened["deep/in/rows"][3, 1] = 7
    assert source.fingerprint() != before
    with h5py.File(file, "w") as opened:
        opened["deep/in/rows"] = X[:4]
    with pytest.raises(InvalidInputError, match=r"a\.h5 cannot be read as it was when .* had shape \(50, 3\)"):
        rows_of(source)


def test_file_that_is_no_hdf5_is_named(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"not HDF5")
    with pytest.raises(InvalidInputError, match=r"a\.h5 is not an array that can be read"):
        open_source("a.h5", tmp_path)


def test_without_h5py_the_extra_is_named(file, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **options):
        if name == "h5py":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidInputError, match=r"h5py, which is not installed; pip install 'scalable-kpca\[hdf5\]'"):
        open_source("a.h5", file.parent)


# ---------------------------------------------------------------- zarr groups


@pytest.fixture(params=[2, 3])
def store(tmp_path, request):
    group = zarr.create_group(str(tmp_path / "store.zarr"), zarr_format=request.param)
    group.create_array("deep/rows", shape=X.shape, chunks=(8, 3), dtype="f8")[...] = X
    group.create_array("vector", shape=(3,), chunks=(3,), dtype="f8")
    return tmp_path / "store.zarr"


def test_array_of_a_zarr_group_is_found_by_its_name_or_as_the_only_one(store):
    prints = set()
    for uri in ("store.zarr", "store.zarr#deep/rows", "store.zarr/deep/rows"):
        source = open_source(uri, store.parent)
        assert np.array_equal(rows_of(source), X)
        assert source.parts[0].path == str(store / "deep" / "rows")
        prints |= {source.fingerprint(), *open_source(source.parts[0].uri, store.parent).part_fingerprints()}
    assert len(prints) == 1


def test_several_arrays_of_a_group_are_listed(store):
    zarr.open_group(str(store)).create_array("more", shape=(2, 2), chunks=(2, 2), dtype="i4")
    with pytest.raises(InvalidInputError, match=r"store\.zarr has 2 matrices of numbers, .* of deep/rows, more"):
        open_source("store.zarr", store.parent)
    assert rows_of(open_source("store.zarr#more", store.parent)).shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", r"none is not an array that can be read"),
        ("deep", r"deep is not an array that can be read"),
        ("vector", r"vector has shape \(3,\)"),
        ("../other.zarr", r"leaves its store"),
        ("deep/../../other.zarr", r"leaves its store"),
    ],
)
def test_what_is_no_matrix_in_the_group_is_named(store, name, message):
    zarr.create_array(str(store.parent / "other.zarr"), shape=X.shape, chunks=(8, 3), dtype="f8")
    with pytest.raises(InvalidInputError, match=message):
        open_source(f"store.zarr#{name}", store.parent)


def test_name_after_what_holds_no_arrays_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(InvalidInputError, match=r"a\.npy is one array; leave out #x"):
        open_source("a.npy#x", tmp_path)
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(InvalidInputError, match=r"a\.csv holds no arrays; leave out #x"):
        open_source("a.csv#x", tmp_path)


def test_a_path_may_hold_the_sign_itself(tmp_path):
    (tmp_path / "a#1").mkdir()
    np.save(tmp_path / "a#1" / "x#y.npy", X)
    assert np.array_equal(rows_of(open_source("a#1/x#y.npy", tmp_path)), X)
    (tmp_path / "a#1" / "x#y.npy").rename(tmp_path / "a#1.npy")
    assert np.array_equal(rows_of(open_source("a#*.npy", tmp_path)), X)
