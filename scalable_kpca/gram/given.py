"""Whether a matrix that the caller gives is a Gram matrix at all: finite and symmetric, tile by tile."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.engine import Engine
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.source import ASYMMETRY, MatrixEntries, refuse_asymmetric
from scalable_kpca.tiling import Tiling

__all__ = ["check_matrix"]

ROWS = 256  # of a tile that are compared at a time


@dataclass(frozen=True)
class _Found:
    """Of a run of tiles: the first entry that is not finite and how many there are, and the worst pair of entries."""

    n_bad: int = 0
    bad: tuple[int, int, float] = (0, 0, 0.0)
    excess: float = 0.0
    pair: tuple[int, int, float, float] = (0, 0, 0.0, 0.0)


def check_matrix(matrix: MatrixEntries, tiling: Tiling, dtype: str, engine: Engine, tiles_per_task: int = 1) -> None:
    """Refuse a matrix with entries that are not finite, or that is not symmetric beyond rounding.

    Parameters
    ----------
    matrix : MatrixEntries of shape (n_samples, n_samples)
    tiling : Tiling
    dtype : str
        Of its entries: what rounding is measured by.
    engine : Engine
        Where the tasks run.
    tiles_per_task : int

    Raises
    ------
    InvalidInputError
        Naming entries by row and column.

    Notes
    -----
    Cost: every entry is read once. Memory a task: two tiles, of an array on disk. K[i, j] and K[j, i] may differ by
    `ASYMMETRY`·eps times the largest entry of their tile, its mirror image and the diagonals of both rows.
    """
    name = engine.new_name("check")
    allowed = ASYMMETRY * float(np.finfo(dtype).eps)
    graph = {
        (name, i, columns.start): (_check_run, matrix, tiling, allowed, i, columns.start, columns.stop)
        for i in range(tiling.n_blocks)
        for columns in tiling.runs(i, tiles_per_task)
    }
    found, _ = engine.run(graph, list(graph), stage="check")
    n_bad = sum(run.n_bad for run in found)
    if n_bad:
        row, column, value = next(run.bad for run in found if run.n_bad)
        raise InvalidInputError(
            f"K[{row}, {column}] of the precomputed kernel is {value} (1 of {n_bad} such entries); kernel PCA accepts "
            "no NaN or infinity: evaluate these entries anew, or leave out their rows and columns."
        )
    worst = max(found, key=lambda run: run.excess)
    if worst.excess > 1:
        refuse_asymmetric(*worst.pair)


def _check_run(matrix: MatrixEntries, tiling: Tiling, allowed: float, i: int, start: int, stop: int) -> _Found:
    found = _Found()
    diagonal = matrix.diagonal(_numbers(tiling, i))
    for j in range(start, stop):
        rows, columns = _numbers(tiling, i), _numbers(tiling, j)
        tile, mirrored = matrix.read(rows, columns), matrix.read(columns, rows)
        with np.errstate(invalid="ignore", over="ignore"):
            largest = max(float(np.abs(values).max()) for values in (tile, mirrored, diagonal))
            here = _check_tile(tile, mirrored, allowed * largest, int(rows[0]), int(columns[0]))
        if i == j and here.n_bad:  # every entry is seen on both sides
            here = replace(here, n_bad=int((~np.isfinite(tile)).sum()))
        found = _worse(found, here)
    return found


def _check_tile(
    tile: NDArray[np.floating], mirrored: NDArray[np.floating], allowed: float, first_row: int, first_column: int
) -> _Found:
    found = _Found()
    for top in range(0, len(tile), ROWS):
        upper, lower = tile[top : top + ROWS], mirrored[:, top : top + ROWS].T
        difference = np.abs(upper - lower)
        if not np.isfinite(difference.sum()):
            bad = np.argwhere(~(np.isfinite(upper) & np.isfinite(lower)))
            n_bad = int((~np.isfinite(upper)).sum() + (~np.isfinite(lower)).sum())
            if len(bad):
                row, column = (int(index) for index in bad[0])
                is_upper = not np.isfinite(upper[row, column])
                place = (first_row + top + row, first_column + column)
                value = float(upper[row, column] if is_upper else lower[row, column])
                found = _worse(found, _Found(n_bad, (*(place if is_upper else place[::-1]), value)))
                continue
        worst = float(difference.max())
        if worst > 0 and worst > allowed * found.excess:
            row, column = (int(index) for index in np.unravel_index(int(difference.argmax()), difference.shape))
            pair = (first_row + top + row, first_column + column, float(upper[row, column]), float(lower[row, column]))
            excess = worst / allowed if allowed > 0 else np.inf
            found = _Found(found.n_bad, found.bad, excess, pair)
    return found


def _worse(a: _Found, b: _Found) -> _Found:
    """What both found together."""
    worse = a if a.excess >= b.excess else b
    return _Found(a.n_bad + b.n_bad, a.bad if a.n_bad else b.bad, worse.excess, worse.pair)


def _numbers(tiling: Tiling, i: int) -> NDArray[np.int64]:
    block = tiling.block(i)
    return np.arange(block.start, block.stop)
