"""The Gram store keeps what was committed, names what was lost, and never answers with a fill value."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from scalable_kpca.engine import open_engine
from scalable_kpca.errors import CorruptTileError, IncompleteGramError, InvalidInputError, StorageError
from scalable_kpca.gram import MemoryGram, StoredGram, TileCounts, create_tiles
from scalable_kpca.kernels import RBF, Linear, Polynomial, kernel_block
from scalable_kpca.source import ArrayRows
from scalable_kpca.tiling import Tiling
from tests.support import tmpfs

TILING = Tiling(n_samples=50, tile_rows=16)  # 4 blocks, the last of 2 rows; 10 tiles
KERNEL = RBF(0.3)


def samples(n=TILING.n_samples, d=3):
    X = np.random.default_rng(7).standard_normal((n, d))
    X.setflags(write=False)
    return X


def block_of(n=TILING.n_samples, b=3):
    return np.random.default_rng(8).standard_normal((n, b))


@pytest.fixture
def engine():
    with open_engine("threads", n_threads=2) as opened:
        yield opened


def open_store(path, engine, *, X=None, kernel=KERNEL, tiling=TILING, dtype="float64", fingerprint="f", width=1):
    tiles = create_tiles(path, tiling, dtype, fingerprint, {"kernel": kernel.to_json()})
    return StoredGram(ArrayRows(samples() if X is None else X), kernel, tiles, engine, width), tiles


def chunks_of(path, array):
    folder = path / array / "c"
    return {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}


def tile_file(path, i, j):
    return path / "tiles" / "c" / str(i) / str(j)


def sums_file(path, i, j):
    return path / "row_sums" / "c" / str(i) / str(j) / "0"


def contents(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture(scope="module", params=["float64", "float32"])
def whole(request, tmp_path_factory):
    """Finished store, its dtype, and the bits that every repaired copy of it must give."""
    path = tmp_path_factory.mktemp("whole") / "gram.zarr"
    with open_engine("synchronous") as engine:
        gram, _ = open_store(path, engine, dtype=request.param)
        return path, request.param, bits(gram.build()), bits(gram.multiply(block_of()))


@pytest.fixture
def copy(whole, tmp_path, engine):
    """A copy of the finished store in its own place, as a process that opens it for the first time sees it."""
    path = Path(shutil.copytree(whole[0], tmp_path / "gram.zarr"))
    gram, tiles = open_store(path, engine, dtype=whole[1])
    return path, gram, tiles


def bits(result):
    return result.product.tobytes(), result.row_sums.tobytes(), result.squared_norm


def assert_names(error, tile):
    assert str(tile) in str(error)
    if isinstance(error, IncompleteGramError):
        assert error.missing == (tile,)
    else:
        assert (error.i, error.j) == tile


# ---------------------------------------------------------------- what is stored


@pytest.mark.parametrize(("dtype", "width"), [("float64", 1), ("float32", 3)])
@pytest.mark.parametrize(("n", "t"), [(1, 1), (1, 16), (2, 1), (15, 16), (16, 16), (17, 16), (50, 16)])
def test_only_the_upper_triangle_is_computed_and_stored(tmp_path, engine, n, t, dtype, width):
    tiling = Tiling(n, t)
    path = tmp_path / "gram.zarr"
    gram, _ = open_store(path, engine, X=samples(n), tiling=tiling, dtype=dtype, width=width)
    n_blocks = -(-n // t)
    n_tiles = n_blocks * (n_blocks + 1) // 2
    assert gram.build().counts == TileCounts(computed=n_tiles)
    assert gram.multiply(block_of(n)).counts == TileCounts(read=n_tiles)

    tiles, sums = chunks_of(path, "tiles"), chunks_of(path, "row_sums")
    assert set(tiles) == {f"{i}/{j}" for i in range(n_blocks) for j in range(i, n_blocks)}
    assert set(sums) == {f"{i}/{j}/0" for i in range(n_blocks) for j in range(n_blocks)}
    crc = 4
    assert sum(file.stat().st_size for file in tiles.values()) == n_tiles * (t * t * np.dtype(dtype).itemsize + crc)
    assert sum(file.stat().st_size for file in sums.values()) == n_blocks**2 * (t * 8 + crc)


def test_stored_entries_are_the_kernel_and_exactly_symmetric(whole, copy):
    _, gram, _ = copy
    X, dtype = samples(), np.dtype(whole[1])
    found = gram.to_array()
    assert found.dtype == dtype
    # factors of norm ‖x‖ ≤ 5 and γ = 0.3: the exponent is below 30, so its absolute error is below 30·8·eps
    # and float32 evaluation, where it is used, is good for 4·eps32 of the exponent
    error = (
        30 * 8 * np.finfo(np.float64).eps
        + np.finfo(dtype).eps / 2
        + (4 * 30 * np.finfo(dtype).eps if dtype == np.float32 else 0)
    )
    exact = np.exp(-0.3 * np.square(X[:, None] - X[None]).sum(axis=2))
    assert np.abs(found - exact).max() <= error
    assert np.array_equal(found, found.T)


def test_sums_and_product_are_those_of_the_whole_matrix(copy):
    _, gram, _ = copy
    K, V = gram.to_array().astype(np.float64), block_of()
    result = gram.multiply(V)
    # sums of n = 50 terms in two orders: 2·n·eps·Σ|k||v|
    scale = 2 * 50 * np.finfo(np.float64).eps
    assert np.all(np.abs(result.row_sums - K.sum(axis=1)) <= scale * K.sum(axis=1))
    assert np.all(np.abs(result.product - K @ V) <= scale * (K @ np.abs(V)))
    assert result.squared_norm == 0
    # a building pass that finds every tile measures as one that makes them
    assert gram.build(V).squared_norm == pytest.approx(np.square(K).sum(), rel=2500 * np.finfo(np.float64).eps)


def test_building_and_reading_apply_the_same_matrix_bit_for_bit(tmp_path, engine):
    gram, _ = open_store(tmp_path / "gram.zarr", engine, dtype="float32")
    built = gram.build()
    reread = gram.build()
    assert reread.counts == TileCounts(read=10)
    assert bits(reread) == bits(built)


def test_lazy_array_of_the_store_is_the_whole_matrix(copy):
    _, gram, _ = copy
    lazy = gram.to_dask()
    assert lazy.chunks == ((16, 16, 16, 2), (16, 16, 16, 2))
    assert np.array_equal(lazy.compute(scheduler="synchronous"), gram.to_array())


def test_tiles_of_zeros_are_kept_as_data(tmp_path, engine):
    X = np.zeros((50, 2))
    X[:16, 0] = 1.0  # block 0 is orthogonal to block 1; blocks 2 and 3 are zero rows
    X[16:32, 1] = 1.0
    gram, tiles = open_store(tmp_path / "gram.zarr", engine, X=X, kernel=Linear())
    gram.build()
    assert tiles.missing() == ()
    result = gram.multiply(block_of())
    assert result.counts == TileCounts(read=10)
    assert np.array_equal(result.row_sums, np.repeat([16.0, 16.0, 0.0, 0.0], [16, 16, 16, 2]))
    assert np.array_equal(gram.to_array(), X @ X.T)
    assert gram.build().counts == TileCounts(read=10)


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize(
    ("tiles_lost", "sums_lost"),
    [
        ([(0, 0)], []),
        ([], [(1, 3)]),
        ([], [(3, 1)]),  # only the column sums of tile (1, 3)
        ([(2, 2)], [(2, 2)]),
        ([(0, 1), (3, 3), (1, 2)], [(0, 1), (0, 3), (2, 0)]),
        ([(i, j) for i in range(4) for j in range(i, 4)], []),
        ([], [(i, j) for i in range(4) for j in range(4)]),
    ],
)
def test_resumed_build_computes_only_missing_tiles(whole, copy, tiles_lost, sums_lost):
    path, gram, _ = copy
    for at in tiles_lost:
        tile_file(path, *at).unlink()
    for at in sums_lost:
        sums_file(path, *at).unlink()
    lost = set(tiles_lost) | {(min(at), max(at)) for at in sums_lost}
    with pytest.raises((IncompleteGramError, CorruptTileError)):
        gram.multiply(block_of())
    built = gram.build()
    assert (built.counts.computed, built.counts.read) == (len(lost), 10 - len(lost))
    assert bits(built) == whole[2]
    assert bits(gram.multiply(block_of())) == whole[3]
    assert contents(path) == contents(whole[0])


def test_incomplete_store_names_every_missing_tile(copy):
    path, gram, tiles = copy
    lost = ((0, 2), (1, 1), (2, 3))
    for at in lost:
        sums_file(path, *at).unlink()
    assert tiles.missing() == lost
    with pytest.raises(IncompleteGramError) as caught:
        gram.to_array()
    assert caught.value.missing == lost
    assert str(caught.value) == (
        f"{path} holds 7 of 10 tiles, missing (0, 2), (1, 1), (2, 3); run the same command again to finish: "
        "nothing committed is recomputed."
    )


def test_build_sweeps_what_killed_writers_left(whole, copy):
    path, gram, _ = copy
    orphans = [path / "tiles" / "c" / "0" / "1.0a1b.partial", path / "row_sums" / "c" / "2" / "0" / "0.77.partial"]
    for orphan in orphans:
        orphan.write_bytes(b"half a chunk")
    assert gram.build().counts == TileCounts(read=10)
    assert not any(orphan.exists() for orphan in orphans)
    assert contents(path) == contents(whole[0])


def test_store_whose_creation_was_interrupted_is_created_again(tmp_path, engine):
    staging = tmp_path / "gram.zarr.new"
    staging.mkdir()
    (staging / "zarr.json").write_text('{"zarr_format": 3, "node')
    gram, _ = open_store(tmp_path / "gram.zarr", engine)
    assert gram.build().counts == TileCounts(computed=10)
    assert not staging.exists()


CHILD = """
import sys, time
from pathlib import Path
import numpy as np
from scalable_kpca.engine import open_engine
from scalable_kpca.gram import StoredGram, create_tiles
from scalable_kpca.kernels import Linear
from scalable_kpca.source import ArrayRows
from scalable_kpca.tiling import Tiling

class SlowLinear(Linear):
    def evaluate(self, left, right, out):
        time.sleep(0.05)
        super().evaluate(left, right, out)

folder = Path(sys.argv[1])
tiles = create_tiles(folder / "gram.zarr", Tiling(160, 8), "float32", "f", {})
with open_engine("threads", n_threads=2) as engine:
    StoredGram(ArrayRows(np.load(folder / "X.npy")), SlowLinear(), tiles, engine).build()
"""


def kill_build_when_committed(folder, wanted):
    """Start the build in its own process, kill it once `wanted` tiles are committed, and say how many there are."""
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder)])
    try:
        while committed(folder / "gram.zarr") < wanted:
            assert child.poll() is None, "the build ended before it could be killed"
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    return committed(folder / "gram.zarr")


def committed(path):
    files = (path / "row_sums" / "c").glob("*/*/0")
    return sum(int(file.parts[-3]) <= int(file.parts[-2]) for file in files)


@pytest.mark.slow
def test_killed_build_resumes_with_exactly_the_missing_tiles_and_the_same_bits(tmp_path, engine):
    tiling, X = Tiling(160, 8), samples(160)  # 210 tiles of 50 ms each on two threads: seconds of work to be killed in
    np.save(tmp_path / "X.npy", X)
    first = kill_build_when_committed(tmp_path, 5)
    second = kill_build_when_committed(tmp_path, first + 20)
    assert 5 <= first < second < tiling.n_tiles

    options = {"X": X, "kernel": Linear(), "tiling": tiling, "dtype": "float32"}
    gram, tiles = open_store(tmp_path / "gram.zarr", engine, **options)
    missing = tiles.missing()
    assert len(missing) == tiling.n_tiles - second
    with pytest.raises(IncompleteGramError):
        gram.multiply(block_of(160))
    built = gram.build()
    assert built.counts == TileCounts(computed=tiling.n_tiles - second, read=second)

    never_killed, _ = open_store(tmp_path / "other.zarr", engine, **options)
    assert bits(built) == bits(never_killed.build())
    assert bits(gram.multiply(block_of(160))) == bits(never_killed.multiply(block_of(160)))
    assert not list((tmp_path / "gram.zarr").rglob("*.partial"))


# ---------------------------------------------------------------- damage


def flip(position):
    def damage(file):
        data = bytearray(file.read_bytes())
        data[int(position * (len(data) - 1))] ^= 0x10
        file.write_bytes(data)

    return damage


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def truncate_by_one(file):
    file.write_bytes(file.read_bytes()[:-1])


def keep_three_bytes(file):
    file.write_bytes(file.read_bytes()[:3])  # fewer than the checksum itself


def empty(file):
    file.write_bytes(b"")


def extend(file):
    file.write_bytes(file.read_bytes() + b"\0")


def zero(file):
    file.write_bytes(bytes(file.stat().st_size))


def replace_by_directory(file):
    file.unlink()
    file.mkdir()
    (file / "stray").write_bytes(b"x")


DAMAGES = {
    "first byte flipped": flip(0),
    "middle byte flipped": flip(0.5),
    "checksum flipped": flip(1),
    "truncated": truncate,
    "one byte short": truncate_by_one,
    "three bytes left": keep_three_bytes,
    "emptied": empty,
    "extended": extend,
    "zeroed": zero,
    "a directory": replace_by_directory,
}


@pytest.mark.slow
@pytest.mark.parametrize("whole", ["float32"], indirect=True)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("where", "tile"),
    [
        (("tiles", 1, 2), (1, 2)),
        (("tiles", 3, 3), (3, 3)),
        (("row_sums", 1, 2), (1, 2)),
        (("row_sums", 2, 1), (1, 2)),
        (("row_sums", 0, 0), (0, 0)),
    ],
)
def test_damaged_tile_is_named_never_multiplied_and_repaired_alone(whole, copy, where, tile, damage):
    path, gram, _ = copy
    array, i, j = where
    DAMAGES[damage](tile_file(path, i, j) if array == "tiles" else sums_file(path, i, j))
    before = contents(path)
    with pytest.raises((CorruptTileError, IncompleteGramError)) as caught:
        gram.multiply(block_of())
    assert contents(path) == before  # an error repairs nothing by itself
    assert_names(caught.value, tile)
    assert str(path) in str(caught.value)
    built = gram.build()
    assert (built.counts.computed, built.counts.read) == (1, 9)
    assert bits(built) == whole[2]
    assert bits(gram.multiply(block_of())) == whole[3]
    assert contents(path) == contents(whole[0])


@pytest.mark.parametrize("whole", ["float32"], indirect=True)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_tile_is_never_handed_out_by_the_whole_matrix(copy, damage):
    path, gram, tiles = copy
    DAMAGES[damage](tile_file(path, 1, 2))
    lazy = gram.to_dask()
    for read in (gram.to_array, lambda: lazy.compute(scheduler="synchronous"), lambda: tiles.read(1, 2)):
        with pytest.raises(CorruptTileError) as caught:
            read()
        assert_names(caught.value, (1, 2))
    assert np.array_equal(tiles.read(0, 1), lazy[:16, 16:32].compute(scheduler="synchronous"))


@pytest.mark.parametrize("whole", ["float32"], indirect=True)
@pytest.mark.parametrize("damage", ["middle byte flipped", "truncated", "a directory"])
def test_repairs_are_counted(copy, damage):
    path, gram, _ = copy
    DAMAGES[damage](tile_file(path, 0, 3))
    assert gram.build().counts == TileCounts(computed=1, read=9, repaired=1)


@pytest.fixture
def refusing(monkeypatch):
    """Makes the file system refuse to open a file, with an error number."""

    def refuse(wanted, number):
        opened = Path.open

        def open_or_refuse(path, *arguments, **options):
            if path == wanted:
                raise OSError(number, os.strerror(number), str(path))
            return opened(path, *arguments, **options)

        monkeypatch.setattr(Path, "open", open_or_refuse)

    yield refuse
    monkeypatch.undo()


@pytest.mark.parametrize("whole", ["float32"], indirect=True)
@pytest.mark.parametrize("place", [tile_file, sums_file])
@pytest.mark.parametrize(
    "number",
    [
        errno.EACCES,
        *(pytest.param(other, marks=pytest.mark.slow) for other in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
    ],
)
def test_tile_that_may_not_be_read_is_no_damaged_one_and_stays(whole, copy, refusing, monkeypatch, place, number):
    path, gram, _ = copy
    refusing(place(path, 1, 2), number)
    for make in (lambda: gram.multiply(block_of()), gram.build):
        with pytest.raises(StorageError, match=rf"reading .*tile \(1, 2\) of .*{os.strerror(number)}"):
            make()
    monkeypatch.undo()
    assert contents(path) == contents(whole[0])
    assert gram.build().counts == TileCounts(read=10)


@pytest.mark.parametrize("whole", ["float32"], indirect=True)
@pytest.mark.parametrize("place", [tile_file, sums_file])
def test_tile_that_the_disk_has_lost_is_damaged_and_made_again(whole, copy, refusing, monkeypatch, place):
    path, gram, _ = copy
    refusing(place(path, 1, 2), errno.EIO)
    with pytest.raises(CorruptTileError) as caught:
        gram.multiply(block_of())
    assert_names(caught.value, (1, 2))
    # a build replaces the file, by renaming: the disk gives it another place
    tile_file(path, 1, 2).unlink()
    monkeypatch.undo()
    assert gram.build().counts == TileCounts(computed=1, read=9, repaired=1)
    assert contents(path) == contents(whole[0])


@pytest.mark.parametrize(
    ("one", "other"), [((0, 1), (0, 2)), ((0, 0), (1, 1)), ((0, 1), (1, 1)), ((0, 3), (3, 3)), ((1, 3), (2, 3))]
)
def test_swapped_tiles_are_caught_by_their_sums(whole, copy, one, other):
    path, gram, _ = copy
    first, second = tile_file(path, *one), tile_file(path, *other)
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    with pytest.raises(CorruptTileError) as caught:
        gram.multiply(block_of())
    assert (caught.value.i, caught.value.j) in (one, other)
    assert "sums differ" in str(caught.value)
    built = gram.build()
    assert built.counts == TileCounts(computed=2, read=8, repaired=2)
    assert bits(built) == whole[2]
    assert contents(path) == contents(whole[0])


def test_tile_of_another_kernel_is_caught_by_its_sums(whole, copy, tmp_path, engine):
    path, gram, _ = copy
    open_store(tmp_path / "stale.zarr", engine, kernel=RBF(0.3001), dtype=whole[1])[0].build()
    shutil.copy(tile_file(tmp_path / "stale.zarr", 1, 2), tile_file(path, 1, 2))
    with pytest.raises(CorruptTileError) as caught:
        gram.multiply(block_of())
    assert (caught.value.i, caught.value.j) == (1, 2)
    assert gram.build().counts.repaired == 1


# ---------------------------------------------------------------- whose store it is


def test_store_of_another_job_is_refused_and_left_alone(whole, copy, engine):
    path, _, _ = copy
    with pytest.raises(StorageError, match=r"fingerprint f .*this job is g") as caught:
        open_store(path, engine, dtype=whole[1], fingerprint="g")
    assert str(path) in str(caught.value)
    assert contents(path) == contents(whole[0])


@pytest.mark.parametrize("whole", ["float32"], indirect=True)
@pytest.mark.parametrize("member", ["zarr.json", "tiles/zarr.json", "row_sums/zarr.json"])
@pytest.mark.parametrize("text", [None, b"", b'{"zarr_format": 3, "shape": [5', b"{}", b"null", b"\xff\xfe\x00"])
def test_damaged_metadata_names_the_store(whole, tmp_path, engine, member, text):
    path = Path(shutil.copytree(whole[0], tmp_path / "gram.zarr"))
    if text is None:
        (path / member).unlink()
    else:
        (path / member).write_bytes(text)
    before = contents(path)
    with pytest.raises(StorageError) as caught:
        open_store(path, engine, dtype=whole[1])
    assert str(path) in str(caught.value)
    assert "remove it" in str(caught.value)
    assert contents(path) == before


def test_file_in_the_place_of_a_store_is_named(tmp_path, engine):
    path = tmp_path / "gram.zarr"
    path.write_text("not a store")
    with pytest.raises(StorageError, match=re.escape(str(path))):
        open_store(path, engine)
    assert path.read_text() == "not a store"


def test_store_that_cannot_be_created_is_a_storage_error(tmp_path, engine):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=re.escape(str(tmp_path / "file" / "gram.zarr"))):
        open_store(tmp_path / "file" / "gram.zarr", engine)


# ---------------------------------------------------------------- full disks


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of its own, and a function that mounts it again with other limits."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)

    with tmpfs(place, "size=1m"):
        yield place, mount


@pytest.mark.slow
@pytest.mark.parametrize(
    ("too_small", "enough"), [("size=300k", "size=8m"), ("size=8m,nr_inodes=70", "size=8m,nr_inodes=4000")]
)
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_build_on_a_full_disk_stops_with_a_name_and_finishes_when_there_is_room(
    small_disk, tmp_path, too_small, enough, scheduler
):
    place, mount = small_disk
    mount(too_small)
    path, tiling, X = place / "gram.zarr", Tiling(200, 32), samples(200)  # 28 tiles of 8 KiB, 49 small files
    with open_engine(scheduler, n_threads=2) as engine:
        gram, tiles = open_store(path, engine, X=X, tiling=tiling)
        with pytest.raises(StorageError, match=r"writing tile \(\d, \d\) of .* failed") as caught:
            gram.build()
    assert str(path) in str(caught.value)
    assert "No space left on device" in str(caught.value)
    assert re.search("make room|remove files: it has no inodes left", str(caught.value))
    assert "run the same command again" in str(caught.value)

    missing = tiles.missing()
    assert 0 < len(missing) < tiling.n_tiles
    mount(enough)
    with open_engine(scheduler, n_threads=2) as engine:
        gram, _ = open_store(path, engine, X=X, tiling=tiling)
        with pytest.raises(IncompleteGramError):
            gram.multiply(block_of(200))
        built = gram.build()
        assert built.counts.computed == len(missing)
        assert built.counts.read == tiling.n_tiles - len(missing)
        elsewhere, _ = open_store(tmp_path / "gram.zarr", engine, X=X, tiling=tiling)
        assert bits(built) == bits(elsewhere.build())
        assert bits(gram.multiply(block_of(200))) == bits(elsewhere.multiply(block_of(200)))
    assert contents(path) == contents(tmp_path / "gram.zarr")


def test_store_on_a_disk_without_inodes_cannot_be_created(small_disk, engine):
    place, mount = small_disk
    mount("size=1m,nr_inodes=3")
    with pytest.raises(StorageError, match=re.escape(str(place / "gram.zarr"))) as caught:
        open_store(place / "gram.zarr", engine)
    assert "No space left on device" in str(caught.value)


# ---------------------------------------------------------------- values that no tile can hold


@pytest.mark.parametrize("home", ["zarr", "memory"])
@pytest.mark.parametrize("huge", [(37,), (20, 37)])
def test_kernel_beyond_float32_names_two_rows(tmp_path, engine, home, huge):
    X = np.ones((50, 2))
    X[:, 1] = 0
    X[list(huge)] = [0, 1e20]  # (xᵀy)² is 1e40 between huge rows, 0 or 1 for all others
    X.setflags(write=False)
    kernel = Polynomial(gamma=1.0, degree=2, coef0=0.0)
    if home == "zarr":
        gram, tiles = open_store(tmp_path / "gram.zarr", engine, X=X, kernel=kernel, dtype="float32")
    else:
        gram, tiles = MemoryGram(ArrayRows(X), kernel, TILING, "float32", engine), None
    with pytest.raises(InvalidInputError, match=r"kernel of rows \d+ and \d+ is inf .*scale the features") as caught:
        gram.build()
    named = tuple(int(row) for row in re.search(r"rows (\d+) and (\d+)", str(caught.value)).groups())
    assert set(named) <= set(huge)
    if tiles is not None:
        assert {(row // 16, row // 16) for row in huge} <= set(tiles.missing())


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(gamma=1.0, degree=3, coef0=0.0)])
def test_kernel_beyond_float64_names_two_rows(engine, kernel):
    X = np.ones((50, 2))
    X[41] = 1e200
    gram = MemoryGram(ArrayRows(X), kernel, TILING, "float64", engine)
    with pytest.raises(InvalidInputError, match=r"kernel of rows \d+ and \d+ is inf"):
        gram.build()


def test_values_that_only_together_overflow_are_accepted(engine):
    X = np.full((50, 1), np.sqrt(2e38))  # every entry is 2e38, 16 of them exceed the largest float32
    gram = MemoryGram(ArrayRows(X), Linear(), TILING, "float32", engine)
    entry = float(kernel_block(Linear(), X[:1], X[1:2], dtype="float32")[0, 0])
    assert gram.build().row_sums == pytest.approx(np.full(50, 50 * entry), rel=50 * np.finfo(np.float64).eps)
