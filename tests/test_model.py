"""A saved model is numbers: the same after loading, refused when damaged, and never a program."""

import contextlib
import itertools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest

from scalable_kpca.engine import open_engine
from scalable_kpca.errors import InvalidInputError, ModelFormatError, StorageError
from scalable_kpca.exact import fit_exact, open_gram
from scalable_kpca.kernels import RBF, Cosine, Laplacian, Linear, Matern32, Polynomial
from scalable_kpca.model import load_model, save_model
from scalable_kpca.source import ArrayRows, StoredRows
from scalable_kpca.tiling import plan_exact
from scalable_kpca.transform import project, project_lazily
from tests.recovery.damage import damages_of, swap
from tests.support import describe_model

N, D, K = 50, 5, 4


def samples(n=N, seed=0, dtype="float64"):
    X = np.random.default_rng(seed).standard_normal((n, D)).astype(dtype)
    X.setflags(write=False)
    return X


def fitted(kernel=RBF(0.2), n=N, n_components=K, dtype="float64", names=()):  # noqa: B008 - a frozen value
    plan = plan_exact(
        n, D, n_components=n_components, dtype=dtype, gram="memory", tile_rows=16, memory_limit=2**30, n_threads=1
    )
    with open_engine("synchronous") as engine:
        rows = ArrayRows(samples(n, dtype=dtype))
        gram = open_gram(rows, kernel, plan, engine)
        return fit_exact(rows, kernel, plan, gram, engine, n_components=n_components, feature_names=names).model


@pytest.fixture(scope="module")
def model():
    return fitted(names=("a", "b", "c", "d", "e"))


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    save_model(model, path)
    return path


@pytest.fixture
def copy(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "model"))


def contents(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "kernel",
    # a fractional degree needs 0.2·xᵀy + 9 ≥ 0, which holds for these rows
    [RBF(0.1), Linear(), Polynomial(0.2, 3, 1.0), Polynomial(0.2, 2.5, 9.0), Laplacian(0.3), Cosine(), Matern32(0.1)],
)
def test_loaded_model_projects_to_the_same_bits(tmp_path, kernel, dtype):
    model = fitted(kernel, dtype=dtype)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    new = samples(23, seed=1)
    assert project(loaded, new).tobytes() == project(model, new).tobytes()
    for name in ("kernel", "tile_rows", "dtype", "solver", "n_passes", "feature_names", "n_components"):
        assert getattr(loaded, name) == getattr(model, name)
    for name in ("eigenvalues", "eigenvectors", "dual_coefficients", "training_scores"):
        assert getattr(loaded, name).tobytes() == getattr(model, name).tobytes()
    assert loaded.centering.row_means.tobytes() == model.centering.row_means.tobytes()
    assert loaded.centering.grand_mean == model.centering.grand_mean
    assert json.dumps(loaded.certificate.to_json()) == json.dumps(model.certificate.to_json())
    assert np.array_equal(loaded.rows.read(slice(0, N)), model.rows.read(slice(0, N)))
    assert loaded.rows.dtype == dtype


def test_loaded_model_can_be_saved_again_with_the_same_bytes(saved, tmp_path):
    save_model(load_model(saved), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(saved)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (17, 17)])
def test_smallest_models_survive_saving(tmp_path, n, k):
    model = fitted(n=n, n_components=k)
    save_model(model, tmp_path / "model")
    assert project(load_model(tmp_path / "model"), samples(3)).tobytes() == project(model, samples(3)).tobytes()


def test_training_rows_stay_on_disk_until_they_are_needed(saved):
    loaded = load_model(saved)
    assert isinstance(loaded.rows, StoredRows)
    assert str(saved) in loaded.rows.path


def test_training_rows_project_to_their_training_scores(saved, model):
    scores = project(load_model(saved), samples())
    # scores are sums of n terms k·α with k ≤ 1 and |α| ≤ 1/√λ, centred with means of as many
    error = 8 * N * np.finfo(np.float64).eps / np.sqrt(model.eigenvalues)
    assert np.all(np.abs(scores - model.training_scores).max(axis=0) <= error * np.sqrt(N))


AUDIT = """
import sys
from scalable_kpca.model import load_model
from scalable_kpca.transform import project
import numpy as np

X = np.ones((2, 5))
project(load_model(sys.argv[1]), X)  # imports what is imported lazily
watched = ("pickle", "marshal", "exec", "compile", "import", "subprocess", "os.system", "os.exec", "os.posix_spawn",
           "os.fork", "ctypes", "code", "socket")
seen, on = [], True
def hook(event, arguments):
    if on and event.startswith(watched):
        seen.append(event)
sys.addaudithook(hook)
scores = project(load_model(sys.argv[2]), X)
executed = list(seen)
import pickle
pickle.loads(pickle.dumps(np.float64))  # the hook does see what it is to see
on = False
assert "pickle.find_class" in seen, seen
assert scores.shape == (2, 4)
assert executed == [], executed
"""


def test_loading_executes_nothing(saved, copy):
    subprocess.run([sys.executable, "-c", AUDIT, str(saved), str(copy)], check=True)


def test_saved_model_is_json_and_checked_arrays_only(saved):
    files = [file for file in saved.rglob("*") if file.is_file()]
    assert {file.name for file in files if file.suffix} == {"model.json", "zarr.json"}
    for file in files:
        if file.suffix == ".json":
            json.loads(file.read_text())
        else:
            assert "c" in file.relative_to(saved).parts  # a chunk of one of the arrays
            assert not file.read_bytes().startswith(b"\x80\x04\x95")  # a pickle's first bytes


# ---------------------------------------------------------------- saving


def test_directory_that_holds_something_is_refused_and_left_alone(model, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    message = f"{tmp_path} is not empty; save a model in a new directory"
    with pytest.raises(StorageError, match=re.escape(message)):
        save_model(model, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_saved_model_is_not_overwritten(model, copy):
    with pytest.raises(StorageError, match="is not empty"):
        save_model(model, copy)


def test_empty_directory_and_missing_parents_are_fine(model, tmp_path):
    save_model(model, tmp_path)
    save_model(model, str(tmp_path / "deep" / "deeper"))
    assert load_model(str(tmp_path)).n_components == load_model(tmp_path / "deep" / "deeper").n_components == K


@pytest.mark.parametrize("below", [".", "model"])
def test_file_in_the_way_is_a_storage_error(model, tmp_path, below):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=re.escape(str(tmp_path / "file"))):
        save_model(model, tmp_path / "file" / below)
    assert (tmp_path / "file").read_text() == "in the way"


# ---------------------------------------------------------------- damage


def refusal(path):
    """The error of loading and using the model: what is read only when needed may be refused then."""
    with pytest.raises((ModelFormatError, StorageError)) as caught:
        project(load_model(path), samples(3))
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "text", [b"", b'{"format_version": 1,', b"\xff\xfe\xfd", b"null", b"[1, 2]", b'"model"', b"1", b"{}"]
)
def test_damaged_description_is_refused(copy, text):
    (copy / "model.json").write_bytes(text)
    assert isinstance(refusal(copy), ModelFormatError)


def test_directory_without_a_model_is_refused(tmp_path, copy):
    for path in (tmp_path / "none", copy / "arrays.zarr"):
        assert isinstance(refusal(path), ModelFormatError)
    (copy / "model.json").unlink()
    assert "model.json" in str(refusal(copy))


@pytest.mark.parametrize("version", [0, 1, 5, "6", None])
def test_other_format_version_is_refused_with_both_numbers(copy, version):
    describe_model(copy, format_version=version)
    error = refusal(copy)
    assert f"model format {version!r}; this version reads 6" in str(error)


FIELDS = [
    *("kernel", "n_samples", "n_features", "rows_dtype", "tile_rows", "dtype", "grand_mean", "certificate"),
    *("rows", "solver", "n_passes", "feature_names", "preparation", "method", "ridge_pairs"),
]


@pytest.mark.parametrize("field", FIELDS)
def test_missing_field_is_refused(copy, field):
    fields = json.loads((copy / "model.json").read_text())
    assert set(FIELDS) | {"format", "format_version", "arrays", "sha256"} == set(fields)
    describe_model(copy, field)
    assert isinstance(refusal(copy), ModelFormatError)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_samples": N + 1},
        {"n_samples": N - 1},
        {"n_features": D + 1},
        {"kernel": {"name": "os.system", "command": "true"}},
        {"kernel": {"name": "rbf"}},
        {"kernel": {"name": "rbf", "gamma": "many"}},
        {"kernel": None},
        {"tile_rows": 0},
        {"tile_rows": "sixteen"},
        {"grand_mean": float("nan")},
        {"rows": "csr"},
        {"rows": "none"},
        {"rows": "some"},
        {"certificate": {}},
    ],
    ids=lambda changes: "-".join(f"{key}={value}" for key, value in changes.items()),
)
def test_description_that_contradicts_the_arrays_or_itself_is_refused(copy, changes):
    describe_model(copy, **changes)
    assert isinstance(refusal(copy), ModelFormatError)


@pytest.mark.parametrize("name", ["eigenvalues", "eigenvectors", "row_means", "rows"])
def test_missing_array_is_refused(copy, name):
    shutil.rmtree(copy / "arrays.zarr" / name)
    refusal(copy)


def chunks(path, name):
    return sorted(file for file in (path / "arrays.zarr" / name / "c").rglob("*") if file.is_file())


def truncate(file):
    file.write_bytes(file.read_bytes()[:-9])


def flip_a_bit(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def remove(file):
    file.unlink()


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, remove])
@pytest.mark.parametrize("name", ["eigenvalues", "eigenvectors", "row_means", "rows"])
def test_damaged_chunk_is_refused_and_never_projected_with(copy, name, damage):
    damage(chunks(copy, name)[-1])
    refusal(copy)


def test_chunks_in_the_place_of_each_other_are_refused(copy):
    first, second = chunks(copy, "rows")[:2]
    assert first.stat().st_size == second.stat().st_size
    swap(first, second)  # each has its own right checksum
    assert "are not those that were saved" in str(refusal(copy))


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_no_damage_to_a_saved_model_changes_what_it_projects(saved, model, tmp_path, every):
    new = samples(3)
    expected, damages = project(model, new), list(damages_of(saved, saved, 1))
    for damage in damages[::every]:
        copy = shutil.copytree(saved, tmp_path / "copy")
        (tmp_path / "aside").mkdir()
        damage.do(copy, tmp_path / "aside", saved)
        with contextlib.suppress(ModelFormatError, StorageError):
            assert np.array_equal(project(load_model(copy), new), expected), damage
        shutil.rmtree(copy)
        shutil.rmtree(tmp_path / "aside")
    assert len(damages) > 500


@pytest.mark.parametrize("name", ["", "eigenvalues", "eigenvectors", "row_means", "rows"])
def test_damaged_metadata_of_an_array_is_refused(copy, name):
    (copy / "arrays.zarr" / name / "zarr.json").write_text('{"zarr_format": 3, "node_')
    refusal(copy)


def test_interrupted_saving_leaves_nothing_that_loads(model, tmp_path):
    class Unreadable:
        n_samples, n_features, dtype = N, D, "float64"

        def read(self, rows):
            if rows.start >= 32:
                raise KeyboardInterrupt
            return samples()[rows]

    with pytest.raises(KeyboardInterrupt):
        save_model(replace(model, rows=Unreadable()), tmp_path / "model")
    assert isinstance(refusal(tmp_path / "model"), ModelFormatError)


# ---------------------------------------------------------------- projecting


@pytest.mark.parametrize("row_chunks", [(40,), (16, 16, 8), (1, 39), (0, 40)])
def test_dask_rows_are_projected_lazily_block_by_block(saved, row_chunks):
    model, X, read = load_model(saved), samples(40, seed=2), []

    def block(start, stop):
        read.append((start, stop))
        return X[start:stop]

    edges = np.cumsum([0, *row_chunks])
    pieces = [
        da.from_delayed(dask.delayed(block)(int(start), int(stop)), (int(stop - start), D), np.float64)
        for start, stop in itertools.pairwise(edges)
    ]
    lazy = project_lazily(model, da.concatenate(pieces) if len(pieces) > 1 else pieces[0])
    assert isinstance(lazy, da.Array)
    assert lazy.dtype == np.float64
    assert lazy.shape == (40, K)
    assert read == []
    scores = lazy.compute(scheduler="synchronous")
    assert read
    by_block = [project(model, X[start:stop]) for start, stop in itertools.pairwise(edges)]
    assert scores.tobytes() == np.concatenate(by_block).tobytes()
    # a product of another height may be summed in another order: n terms of size |α| in each of two products
    error = 4 * N * np.finfo(np.float64).eps * np.abs(model.dual_coefficients).sum(axis=0)
    assert np.all(np.abs(scores - project(model, X)) <= error)


def test_dask_columns_in_several_chunks_are_projected_whole(saved):
    model, X = load_model(saved), samples(40, seed=2)
    lazy = project_lazily(model, da.from_array(X, chunks=(40, 2)))
    assert lazy.chunks == ((40,), (K,))
    assert lazy.compute(scheduler="threads").tobytes() == project(model, X).tobytes()


def test_integer_and_float32_rows_are_projected_in_float64(saved):
    model = load_model(saved)
    whole = np.arange(15).reshape(3, D) % 4
    scores = project(model, whole.astype(np.float64))
    assert project(model, whole).tobytes() == scores.tobytes()
    assert project(model, whole.astype(np.float32)).tobytes() == scores.tobytes()


def test_no_rows_have_no_scores(saved):
    for kernel_model in (load_model(saved), fitted(Linear()), fitted(Laplacian(0.1))):
        assert project(kernel_model, np.empty((0, D))).shape == (0, K)


@pytest.mark.parametrize("width", [1, D - 1, D + 1])
def test_wrong_width_says_both_widths_before_anything_is_computed(saved, width):
    model = load_model(saved)
    message = f"X has {width} features, but this model was fitted on {D} features"
    with pytest.raises(InvalidInputError, match=message):
        project(model, np.zeros((3, width)))
    with pytest.raises(InvalidInputError, match=message):
        project_lazily(model, da.zeros((3, width)))


def test_components_without_variance_have_scores_of_exactly_zero():
    model = fitted(Linear(), n_components=D + 2)  # a linear kernel of D columns has D components
    assert np.array_equal(model.eigenvalues[D:], [0, 0])
    scores = project(model, samples(9, seed=3))
    assert np.array_equal(scores[:, D:], np.zeros((9, 2)))
    assert np.all(np.abs(scores[:, :D]).max(axis=0) > 0)
