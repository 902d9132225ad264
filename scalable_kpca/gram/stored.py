"""Home of tiles on disk: computed once, written once, read in every pass; the store itself is in `store`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import CorruptTileError
from scalable_kpca.gram.chunks import ChunkWriter
from scalable_kpca.gram.passes import PassResult, assemble, run_pass
from scalable_kpca.gram.products import Strips, TileCounts, TileProduct, computed_strips, multiply_tile, strips_of_tile
from scalable_kpca.gram.reductions import RunProduct, multiply_run
from scalable_kpca.gram.store import StoredTiles
from scalable_kpca.kernels import Kernel, place_strip
from scalable_kpca.source import Rows

__all__ = ["StoredGram"]

Block = NDArray[np.floating[Any]]
Tile = NDArray[np.floating[Any]]


class StoredGram:
    """Gram matrix in a zarr group.

    Parameters
    ----------
    rows : Rows
        Training rows, readable wherever tasks run.
    kernel : Kernel
        Resolved kernel.
    tiles : StoredTiles
        The store.
    engine : Engine
        Where tasks run.
    tiles_per_task : int
        Length of a run.

    Notes
    -----
    `build` reads what is committed and computes the rest, so that an interrupted build is finished by the same call;
    damaged tiles count as missing there. `multiply` never computes: a missing or damaged tile is an error with a name.
    """

    def __init__(self, rows: Rows, kernel: Kernel, tiles: StoredTiles, engine: Engine, tiles_per_task: int = 1) -> None:
        self._rows, self._kernel, self._tiles = rows, kernel, tiles
        self._engine, self._width = engine, tiles_per_task
        self.tiling, self.dtype = tiles.tiling, tiles.dtype

    def build(self, block: Block | None = None) -> PassResult:
        """Compute exactly the missing and damaged tiles, and K times `block` on the way."""
        self._tiles.sweep()
        built = self._pass(block, "tiles", build=True)
        self._tiles.sweep()  # of workers that died on the way
        return built

    def multiply(self, block: Block) -> PassResult:
        """One pass: K times `block` of shape (n_samples, b)."""
        return self._pass(block, "pass", build=False)

    def _pass(self, block: Block | None, stage: str, *, build: bool) -> PassResult:
        origin = (self._rows, self._kernel) if build else (None, None)
        return run_pass(
            self._engine,
            self.tiling,
            block,
            lambda i, columns: (_run, self._tiles, *origin, i, columns.start),
            stage=stage,
            tiles_per_task=self._width,
        )

    def to_array(self) -> NDArray[np.floating[Any]]:
        """Whole matrix as an array of shape (n_samples, n_samples): for small n only."""
        return assemble(self.tiling, self.dtype, self._tiles.read_checked)

    def to_dask(self) -> Any:
        """Full symmetric matrix as a lazy dask array; mirrored blocks are transposes of stored ones."""
        import dask.array as da

        tiling = self.tiling
        lengths = tuple(tiling.length(i) for i in range(tiling.n_blocks))
        name = f"gram-{self._tiles.fingerprint}"
        graph: dict[Any, Any] = {}
        for i, j in tiling.tiles():
            graph[name, i, j] = (StoredTiles.read_checked, self._tiles, i, j)
            if i != j:
                graph[name, j, i] = (np.transpose, (name, i, j))
        return da.Array(graph, name, (lengths, lengths), dtype=self.dtype)


def _run(
    tiles: StoredTiles, rows: Rows | None, kernel: Kernel | None, i: int, start: int, w_rows: Block, *w_columns: Block
) -> RunProduct:
    def multiply(j: int, w_j: Block) -> TileProduct:
        if rows is None or kernel is None:
            return _read_and_multiply(tiles, i, j, w_rows, w_j, measure=False)
        return _build_and_multiply(tiles, rows, kernel, i, j, w_rows, w_j)

    return multiply_run(i, start, w_columns, multiply)


def _build_and_multiply(
    tiles: StoredTiles, rows: Rows, kernel: Kernel, i: int, j: int, w_rows: Block, w_columns: Block
) -> TileProduct:
    strips, counts = strips_of_tile(kernel, rows, tiles.tiling, i, j, tiles.dtype), TileCounts(computed=1)
    try:
        if tiles.is_committed(i, j):
            read = _read_and_multiply(tiles, i, j, w_rows, w_columns, measure=True)
            return replace(read, error=strips.error)
    except CorruptTileError as error:
        tiles.put_aside(error)
        counts = TileCounts(computed=1, repaired=1)
    tiles.withdraw(i, j)
    made = computed_strips(strips, tiles.tiling, i, j)
    with tiles.writing(i, j) as chunk:
        kept = _whole_tile(made, len(w_rows), chunk) if i == j else _appended(made, chunk)
        product = multiply_tile(kept, w_rows, w_columns, diagonal=i == j, measure=True)
    tiles.commit(i, j, product.row_sums, product.column_sums)
    return replace(product, error=strips.error, counts=counts)


def _appended(strips: Strips, chunk: ChunkWriter) -> Iterator[tuple[int, Tile]]:
    """Strips on their way, written as they come."""
    for start, strip in strips:
        chunk.append(strip)
        yield start, strip


def _whole_tile(strips: Strips, length: int, chunk: ChunkWriter) -> Iterator[tuple[int, Tile]]:
    """Strips of a diagonal tile on their way; the tile is written when its mirrored half is there too."""
    tile: Tile | None = None
    for start, strip in strips:
        tile = np.empty((length, length), strip.dtype) if tile is None else tile
        place_strip(tile, start, strip, diagonal=True)
        yield start, strip
    if tile is not None:
        chunk.append(tile)


def _read_and_multiply(
    tiles: StoredTiles, i: int, j: int, w_rows: Block, w_columns: Block, *, measure: bool
) -> TileProduct:
    """Products of a stored tile, whose sums have been compared with the stored ones."""
    roughly = 0.0

    def read() -> Iterator[tuple[int, Tile]]:
        nonlocal roughly
        for start, strip in tiles.strips(i, j):
            # only the tolerance of the sums is made from it
            roughly += 0.0 if measure else float(np.einsum("ij,ij->", strip, strip))
            # the memory layout of a strip that was just evaluated: BLAS adds in another order for another one
            yield start, np.ascontiguousarray(strip[:, start if i == j else 0 :])

    product = multiply_tile(read(), w_rows, w_columns, diagonal=i == j, measure=measure)
    norm = product.squared_norm if measure else roughly
    tiles.check(i, j, product.row_sums, product.column_sums, norm, dtype=w_rows.dtype.name)
    return replace(product, counts=TileCounts(read=1))
