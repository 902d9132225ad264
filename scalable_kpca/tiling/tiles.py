"""Square tiles on and above the diagonal: integers only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Tiling"]


@dataclass(frozen=True)
class Tiling:
    """Square tiles on and above the diagonal of an n × n matrix.

    Parameters
    ----------
    n_samples : int
        Rows of the matrix, ≥ 1.
    tile_rows : int
        Rows of a tile, ≥ 1; the last block may have fewer.
    """

    n_samples: int
    tile_rows: int

    @property
    def n_blocks(self) -> int:
        """Blocks along one side."""
        return -(-self.n_samples // self.tile_rows)

    @property
    def n_tiles(self) -> int:
        """Tiles (i, j) with i ≤ j: the only ones that exist."""
        return self.n_blocks * (self.n_blocks + 1) // 2

    @property
    def n_entries(self) -> int:
        """Matrix entries inside the tiles that exist: what one pass evaluates or reads."""
        n, t, whole = self.n_samples, self.tile_rows, self.n_blocks - 1
        last = n - whole * t
        return whole * t * n - t * t * (whole * (whole - 1) // 2) + last * last

    def n_tasks(self, width: int) -> int:
        """Runs of at most `width` tiles over all block rows: what one pass schedules."""
        whole, rest = divmod(self.n_blocks, width)
        # block rows have 1, 2, …, n_blocks tiles: `width` of them take one run, `width` two, …, the longest `rest` more
        return width * whole * (whole + 1) // 2 + rest * (whole + 1)

    def block(self, i: int) -> slice[int, int, None]:
        """Rows of block i."""
        start = i * self.tile_rows
        return slice(start, min(start + self.tile_rows, self.n_samples))

    def length(self, i: int) -> int:
        """Number of rows in block i."""
        rows = self.block(i)
        return rows.stop - rows.start

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Coordinates of every tile, block row by block row."""
        for i in range(self.n_blocks):
            for j in range(i, self.n_blocks):
                yield i, j

    def segments(self, width: int) -> list[range]:
        """Blocks in segments of at most `width`: what one sum over the block rows is for."""
        return [range(start, min(start + width, self.n_blocks)) for start in range(0, self.n_blocks, width)]

    def runs(self, i: int, width: int) -> Iterator[range]:
        """Columns of block row i in runs of at most `width` tiles: one run is one task."""
        for start in range(i, self.n_blocks, width):
            yield range(start, min(start + width, self.n_blocks))
