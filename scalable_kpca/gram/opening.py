"""Descriptions of a stored Gram matrix: what we write, and that only what says so of itself is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalable_kpca.errors import StorageError
from scalable_kpca.gram.chunk_files import ChunkFiles
from scalable_kpca.gram.chunk_objects import ChunkObjects
from scalable_kpca.gram.places import GROUP, ChunkPlace
from scalable_kpca.objects import StoredObject, is_object
from scalable_kpca.source import ArrayDescription, array_description, checked_codecs, group_attributes
from scalable_kpca.tiling import Tiling

__all__ = ["FORMAT_VERSION", "check_store", "described_tiles", "descriptions", "place_of"]

FORMAT_VERSION = 1

# of a store that is known by its own word only: a plan has been checked, and one with more would have 12 million files
MOST_TILES, MOST_ROWS = 2**22, 2**20


def place_of(path: str) -> ChunkPlace:
    """Where the pieces of a store lie: a directory, or what begins with a key of S3."""
    return ChunkObjects(StoredObject.of(path)) if is_object(path) else ChunkFiles(Path(path))


def descriptions(tiling: Tiling, dtype: str, fingerprint: str, attributes: dict[str, Any]) -> dict[str, bytes]:
    """Contents of each ``zarr.json`` of an empty store, as zarr writes them, by its name."""
    import zarr
    from zarr.storage import MemoryStore

    facts = {
        **attributes,
        "format_version": FORMAT_VERSION,
        "fingerprint": fingerprint,
        "n_samples": tiling.n_samples,
        "tile_rows": tiling.tile_rows,
        "dtype": dtype,
        "triangle": "upper",
    }
    written: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(written), attributes=facts)
    for name, array in _arrays(tiling, dtype).items():
        group.create_array(name, shape=array.shape, chunks=array.chunks, dtype=array.dtype, **checked_codecs())
    return {name: content.to_bytes() for name, content in written.items()}


def check_store(path: str, tiling: Tiling, dtype: str, fingerprint: str) -> ChunkPlace:
    """The place of a store, when it is the one of these tiles; chunks may be missing.

    Raises
    ------
    StorageError
        When it has another fingerprint, or is not the store of these tiles.
    """
    place = place_of(path)
    try:
        facts = _facts(place, path)
        found = facts.get("fingerprint"), facts.get("format_version")
        is_ours = found == (fingerprint, FORMAT_VERSION)
        for name, wanted in _arrays(tiling, dtype).items() if is_ours else ():
            array = array_description(_described(place, path, f"{name}/{GROUP}"), f"{path}/{name}")
            if array != wanted:
                raise ValueError(f"{path}/{name} is {array}; needed is {wanted}")  # noqa: TRY301
    except StorageError:
        raise
    except Exception as error:
        raise _unusable(path, error) from error
    if not is_ours:
        raise StorageError(
            f"{path} belongs to fingerprint {str(found[0])[:80]} (format {str(found[1])[:80]}), this job is "
            f"{fingerprint} (format {FORMAT_VERSION}); choose another directory or remove it."
        )
    return place


def described_tiles(path: str) -> tuple[Tiling, str, str]:
    """Tiling, dtype and fingerprint that a store says of itself.

    Raises
    ------
    StorageError
        When it does not, or has more tiles than can be looked at one by one.
    """
    try:
        facts = _facts(place_of(path), path)
        n, t, dtype, fingerprint = (facts[name] for name in ("n_samples", "tile_rows", "dtype", "fingerprint"))
        if not (type(n) is type(t) is int and n >= 1 and 1 <= t <= MOST_ROWS) or type(fingerprint) is not str:
            raise ValueError("it does not say how it is tiled")  # noqa: TRY301
        if Tiling(n, t).n_tiles > MOST_TILES:
            raise ValueError(f"it has {Tiling(n, t).n_tiles} tiles, at most {MOST_TILES} are looked at")  # noqa: TRY301
    except StorageError:
        raise
    except Exception as error:
        raise _unusable(path, error) from error
    return Tiling(n, t), dtype, fingerprint


def _arrays(tiling: Tiling, dtype: str) -> dict[str, ArrayDescription]:
    n, t, nb = tiling.n_samples, tiling.tile_rows, tiling.n_blocks
    return {
        "tiles": ArrayDescription((n, n), (t, t), dtype),
        "row_sums": ArrayDescription((nb, nb, t), (1, 1, t), "float64"),
    }


def _facts(place: ChunkPlace, path: str) -> dict[str, Any]:
    return group_attributes(_described(place, path, GROUP), path)


def _described(place: ChunkPlace, path: str, name: str) -> Any:
    try:
        return place.description(name)
    except ValueError as error:
        raise ValueError(f"{path}/{name} is damaged: {error}") from error


def _unusable(path: str, error: Exception) -> StorageError:
    return StorageError(
        f"{path} is not a Gram store that can be opened ({str(error)[:400]}); remove it to start again."
    )
