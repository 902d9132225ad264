"""Tiles as chunk files: zarr reads what is written here, and the other way round; damage has a name."""

import tracemalloc

import numpy as np
import pytest
import zarr

from scalable_kpca.gram.chunk_files import ChunkFiles
from scalable_kpca.gram.chunks import read_strips, write_chunk
from scalable_kpca.gram.places import DamagedChunkError
from scalable_kpca.kernels import STRIP_ROWS
from scalable_kpca.source import checked_codecs

T = 20
SHAPES = [(T, T), (T, 7), (3, T), (1, 1)]


def strips_of(tile, height):
    return [tile[start : start + height] for start in range(0, len(tile), height)]


def values(shape, dtype):
    rng = np.random.default_rng(1)
    tile = rng.standard_normal(shape).astype(dtype)
    tile.setflags(write=False)
    return tile


def zarr_array(path, dtype):
    return zarr.create_array(str(path), shape=(T, T), chunks=(T, T), dtype=dtype, **checked_codecs())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_zarr_reads_what_is_written_here(tmp_path, shape, dtype):
    array, tile = zarr_array(tmp_path / "a", dtype), values(shape, dtype)
    with write_chunk(ChunkFiles(tmp_path / "a"), "c/0/0", T, dtype) as chunk:
        for strip in strips_of(tile, 6):
            chunk.append(strip)
    found = array[...]
    np.testing.assert_array_equal(found[: shape[0], : shape[1]], tile)
    assert np.isnan(found).sum() == T * T - tile.size
    assert [file.name for file in (tmp_path / "a" / "c" / "0").iterdir()] == ["0"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("height", [1, 6, T, 256])
def test_what_zarr_writes_is_read_here(tmp_path, shape, dtype, height):
    array, tile = zarr_array(tmp_path / "a", dtype), values(shape, dtype)
    array[: shape[0], : shape[1]] = tile
    strips = read_strips(ChunkFiles(tmp_path / "a"), "c/0/0", T, shape, dtype, height)
    found = [(start, strip.copy()) for start, strip in strips]
    assert [start for start, _ in found] == list(range(0, shape[0], height))
    np.testing.assert_array_equal(np.concatenate([strip for _, strip in found]), tile)


def test_padding_takes_a_few_rows_of_memory_whatever_comes_at_once(tmp_path):
    n = 2048
    tile = np.zeros((n, n // 2), np.float32)
    tracemalloc.start()
    try:
        with write_chunk(ChunkFiles(tmp_path), "c", n, "float32") as chunk:
            chunk.append(tile)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # a strip, the next one before the first is gone, and a file buffer; the whole chunk is 8 strips
    assert peak < 3 * STRIP_ROWS * n * 4
    strips = read_strips(ChunkFiles(tmp_path), "c", n, tile.shape, "float32", STRIP_ROWS)
    assert all(len(strip) for _, strip in strips)


def read_all(path):
    return [strip.copy() for _, strip in read_strips(ChunkFiles(path.parent), path.name, T, (T, T), "float32", 6)]


@pytest.fixture
def chunk_file(tmp_path):
    path = tmp_path / "c" / "0"
    with write_chunk(ChunkFiles(path.parent), path.name, T, "float32") as chunk:
        chunk.append(values((T, T), "float32"))
    assert len(read_all(path)) == 4
    return path


@pytest.mark.parametrize("at", [0, 3, 800, 1599, 1600, 1603])
def test_one_flipped_bit_is_seen_before_the_iteration_ends(chunk_file, at):
    content = bytearray(chunk_file.read_bytes())
    content[at] ^= 8
    chunk_file.write_bytes(content)
    with pytest.raises(DamagedChunkError, match="checksum"):
        read_all(chunk_file)


@pytest.mark.parametrize("length", [0, 1, 1600, 1603, 1605])
def test_another_size_is_seen_before_the_first_strip(chunk_file, length):
    chunk_file.write_bytes((chunk_file.read_bytes() + b"x")[:length])
    with pytest.raises(DamagedChunkError, match=f"has {length} bytes instead of 1604"):
        next(read_strips(ChunkFiles(chunk_file.parent), chunk_file.name, T, (T, T), "float32", 6))


@pytest.mark.parametrize("instead", ["nothing", "a directory"])
def test_chunk_that_is_gone_is_damage(chunk_file, instead):
    chunk_file.unlink()
    if instead == "a directory":
        chunk_file.mkdir()
    with pytest.raises(DamagedChunkError, match="gone"):
        read_all(chunk_file)


def test_write_that_fails_leaves_what_was_there(chunk_file):
    before = chunk_file.read_bytes()

    def write():
        with write_chunk(ChunkFiles(chunk_file.parent), chunk_file.name, T, "float32") as chunk:
            chunk.append(np.zeros((6, T), np.float32))
            raise RuntimeError("it could not be evaluated")

    with pytest.raises(RuntimeError, match="evaluated"):
        write()
    assert chunk_file.read_bytes() == before
    assert list(chunk_file.parent.iterdir()) == [chunk_file]
