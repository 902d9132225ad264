"""Opening a stored Gram matrix: only what its description and its place say that we have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalable_kpca.errors import StorageError
from scalable_kpca.source import ROW_DTYPES, ArrayDescription, check_group, open_stored
from scalable_kpca.tiling import Tiling

__all__ = ["FORMAT_VERSION", "described_tiles", "open_store"]

FORMAT_VERSION = 1

# of a store that is known by its own word only: a plan has been checked, and one with more would have 12 million files
MOST_TILES, MOST_ROWS = 2**22, 2**20


def open_store(path: Path, tiling: Tiling, dtype: str, fingerprint: str) -> tuple[Any, Any]:
    """The arrays of tiles and of row sums, for reading and writing; chunks may be missing.

    Raises
    ------
    StorageError
        When it has another fingerprint, or is not the store of these tiles.
    """
    n, t, nb = tiling.n_samples, tiling.tile_rows, tiling.n_blocks
    wanted = ArrayDescription((n, n), (t, t), dtype), ArrayDescription((nb, nb, t), (1, 1, t), "float64")
    try:
        facts = _facts(path)
        found = facts.get("fingerprint"), facts.get("format_version")
        stored = [
            open_stored(path / name, ROW_DTYPES, len(array.shape), mode="r+", expected=array)
            for name, array in zip(("tiles", "row_sums"), wanted, strict=True)
            if found == (fingerprint, FORMAT_VERSION)
        ]
    except Exception as error:
        raise _unusable(path, error) from error
    if not stored:
        raise StorageError(
            f"{path} belongs to fingerprint {str(found[0])[:80]} (format {str(found[1])[:80]}), this job is "
            f"{fingerprint} (format {FORMAT_VERSION}); choose another directory or remove it."
        )
    tiles, sums = (array.with_config({"write_empty_chunks": True}) for array in stored)
    return tiles, sums


def described_tiles(path: Path) -> tuple[Tiling, str, str]:
    """Tiling, dtype and fingerprint that a store says of itself.

    Raises
    ------
    StorageError
        When it does not, or has more tiles than can be looked at one by one.
    """
    try:
        facts = _facts(path)
        n, t, dtype, fingerprint = (facts[name] for name in ("n_samples", "tile_rows", "dtype", "fingerprint"))
        if not (type(n) is type(t) is int and n >= 1 and 1 <= t <= MOST_ROWS) or type(fingerprint) is not str:
            raise ValueError("it does not say how it is tiled")  # noqa: TRY301
        if Tiling(n, t).n_tiles > MOST_TILES:
            raise ValueError(f"it has {Tiling(n, t).n_tiles} tiles, at most {MOST_TILES} are looked at")  # noqa: TRY301
    except Exception as error:
        raise _unusable(path, error) from error
    return Tiling(n, t), dtype, fingerprint


def _facts(path: Path) -> dict[str, Any]:
    if path.is_symlink():
        raise ValueError("it is a link, which is not followed")
    return check_group(path)


def _unusable(path: Path, error: Exception) -> StorageError:
    return StorageError(
        f"{path} is not a Gram store that can be opened ({str(error)[:400]}); remove it to start again."
    )
