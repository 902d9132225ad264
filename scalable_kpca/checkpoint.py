"""State of a block Krylov solve on disk: written whole after every pass, so that a killed solve repeats no pass.

::

    basis.zarr/000003/      the state after three passes; written beside its place, flushed and renamed, then the
                            state before it is removed
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.disk import sync_tree
from scalable_kpca.errors import storage_errors
from scalable_kpca.gram import PassResult, TileCounts
from scalable_kpca.solvers import KrylovState
from scalable_kpca.source import checked_codecs

__all__ = ["clear_state", "load_state", "save_state"]

logger = logging.getLogger(__name__)

ARRAYS = ("basis", "projected", "block", "coupling")


def save_state(path: Path, fingerprint: str, state: KrylovState, built: PassResult) -> None:
    """Write the state after a pass, and what the first pass learned; earlier states are removed afterwards.

    Parameters
    ----------
    path : Path
        Directory of the states.
    fingerprint : str
        Identity of the solve: matrix, start block and arithmetic.
    state : KrylovState
        What the next pass needs.
    built : PassResult
        Of the first pass.

    Raises
    ------
    StorageError
        When the file system refuses a write; earlier states stay.

    Notes
    -----
    Bytes: 8·n·(m + b + 1) for a basis of m columns and a block of b.
    """
    import zarr

    staging, final = path / ".new", path / f"{state.n_passes:06d}"
    codecs = checked_codecs()
    description = {
        "fingerprint": fingerprint,
        "rounding": state.rounding,
        "n_passes": state.n_passes,
        "squared_norm": built.squared_norm,
        "error": built.error,
        "counts": [built.counts.computed, built.counts.read, built.counts.repaired],
    }
    with storage_errors(f"writing the solver's state to {path}"):
        path.mkdir(exist_ok=True)
        group = zarr.create_group(str(staging), attributes=description, overwrite=True)
        arrays = {name: getattr(state, name) for name in ARRAYS} | {"row_sums": built.row_sums}
        for name, values in arrays.items():
            if values.size:
                # a chunk of at most 64 columns, so that writing holds no second copy of the basis
                chunks = tuple(min(length, 64) if axis else length for axis, length in enumerate(values.shape))
                group.create_array(name, shape=values.shape, chunks=chunks, dtype="float64", **codecs)[...] = values
        sync_tree(staging)
        if final.exists():
            shutil.rmtree(final)
        staging.rename(final)
        for earlier in path.iterdir():
            if earlier != final:
                shutil.rmtree(earlier)


def load_state(path: Path, fingerprint: str) -> tuple[KrylovState, PassResult] | None:
    """The newest whole state of this solve with what its first pass learned; None when there is none."""
    for candidate in sorted(path.glob("[0-9]*"), reverse=True) if path.is_dir() else []:
        try:
            return _read(candidate, fingerprint)
        except MemoryError:
            raise
        except Exception:
            # damaged, or another solve's: the one before it is as good, only older
            logger.info("%s is passed over", candidate, exc_info=True)
    return None


def clear_state(path: Path) -> None:
    """Remove all states: the solve is over, or what it stood on is damaged."""
    shutil.rmtree(path, ignore_errors=True)


def _read(path: Path, fingerprint: str) -> tuple[KrylovState, PassResult]:
    import zarr

    group: Any = zarr.open_group(str(path), mode="r")
    facts = dict(group.attrs)
    if facts["fingerprint"] != fingerprint:
        raise ValueError("another solve")
    row_sums = np.asarray(group["row_sums"][...])
    n = len(row_sums)
    basis, projected, block = (np.asarray(group[name][...]) for name in ("basis", "projected", "block"))
    coupling = np.asarray(group["coupling"][...])
    for values in (row_sums, basis, projected, block, coupling):
        if not np.isfinite(values).all():
            raise ValueError("a chunk is missing")
    if basis.shape[0] != n or block.shape[0] != n or coupling.shape != (block.shape[1], basis.shape[1]):
        raise ValueError("arrays of different solves")
    state = KrylovState(basis, projected, block, coupling, facts["rounding"], facts["n_passes"])
    counts = TileCounts(*facts["counts"])
    built = PassResult(np.empty((n, 0)), row_sums, facts["squared_norm"], facts["error"], counts, [])
    return state, built
