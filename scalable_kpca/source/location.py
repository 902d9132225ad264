"""Which files a URI means, and of what kind they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from scalable_kpca.errors import InvalidInputError

__all__ = ["find_files", "natural_key", "source_kind", "split_uri"]


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts ``part-2`` before ``part-10``."""
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in re.split(r"(\d+)", text) if piece]


def split_uri(uri: str, base: Path) -> tuple[Path, tuple[str, ...]]:
    """Where a source begins, and the glob parts that follow: none for a path, which may hold ``[`` itself."""
    parts = Path(uri).parts
    magic = [index for index, part in enumerate(parts) if any(letter in part for letter in "*?[")]
    if not magic or (base / uri).exists():
        return base / uri, ()
    return base.joinpath(*parts[: magic[0]]), parts[magic[0] :]


def find_files(uri: str, base: Path) -> list[Path]:
    """Files or zarr arrays behind a path, directory or glob, in natural order.

    Raises
    ------
    InvalidInputError
        When nothing is there.

    Notes
    -----
    Of a directory, the Parquet files at any depth are read; what is called ``_…`` or ``.…``, or lies below such a
    directory, is left out, as Spark, Hive and dask do.
    """
    root, glob = split_uri(uri, base)
    if glob:
        found = list(root.glob("/".join(glob)))
    elif root.is_dir() and not _is_zarr(root):
        found = [file for file in root.rglob("*.parquet") if file.is_file() and not _is_hidden(file.relative_to(root))]
        if not found:
            raise InvalidInputError(
                f"source.uri={uri!r}: no Parquet file in or below the directory {root}; correct the path, or name the "
                "files themselves."
            )
    else:
        found = [root] if root.exists() else []
    if not found:
        raise InvalidInputError(
            f"source.uri={uri!r}: no such file ({root.joinpath(*glob)}); correct the path: a relative one starts at "
            f"{base}."
        )
    return sorted(found, key=lambda file: natural_key(str(file)))


def source_kind(files: Sequence[Path]) -> str | None:
    """``".parquet"``, ``".npy"`` or ``".zarr"``; None for a mixture and for what cannot be read."""
    kinds = {".zarr" if _is_zarr(file) else file.suffix for file in files}
    if kinds == {".parquet"} or (len(files) == 1 and kinds <= {".npy", ".zarr"}):
        return kinds.pop()
    return None


def _is_zarr(path: Path) -> bool:
    return path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zarray"))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
