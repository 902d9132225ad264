"""Objects of S3, read where they are."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from scalable_kpca.documents import MAX_JSON_BYTES
from scalable_kpca.errors import StorageError
from scalable_kpca.objects.buckets import (
    MissingObjectError,
    ReplacedObjectError,
    bucket_of,
    import_obstore,
    named_errors,
)
from scalable_kpca.objects.places import StoredObject

__all__ = [
    "READ_BYTES",
    "ObjectFile",
    "check_bucket",
    "has_object",
    "list_objects",
    "object_sizes",
    "object_state",
    "open_object",
    "read_beginning",
    "read_object",
]

READ_BYTES = 8 * 2**20  # of one request, at most, that fills a buffer


class ObjectFile(io.RawIOBase):
    """An object, opened for reading: whatever is asked for is one request for so many bytes.

    Parameters
    ----------
    place : StoredObject

    Raises
    ------
    MissingObjectError, BusyError, StorageError
        When it is not there, when the server does not answer now, or refuses.
    ReplacedObjectError
        From `read`, when it was written anew after it was opened.

    Notes
    -----
    Nothing is kept. Concurrency: one reader at a time, as of any file.
    """

    def __init__(self, place: StoredObject) -> None:
        super().__init__()
        self._place, self._at = place, 0
        meta = _head(place)
        self.n_bytes, self._tag = int(meta["size"]), meta["e_tag"]

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte, as of any file."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.n_bytes}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes; fewer at the end."""
        import obstore

        left = max(0, self.n_bytes - self._at)
        count = left if size is None or size < 0 else min(size, left)
        if not count:
            return b""
        options: dict[str, Any] = {"range": (self._at, self._at + count)}
        if self._tag is not None:
            options["if_match"] = self._tag
        with named_errors(self._place):
            content = bytes(obstore.get(bucket_of(self._place), self._place.key, options=options).bytes())  # type: ignore[arg-type]
        if len(content) != count:
            raise ReplacedObjectError(f"{len(content)} of {count} bytes came")
        self._at += count
        return content

    def readinto(self, buffer: Any) -> int:
        """Fill the beginning of a buffer with the next bytes, as many as one request may ask for; how many came."""
        content = self.read(min(len(buffer), READ_BYTES))
        buffer[: len(content)] = content
        return len(content)


def open_object(uri: str) -> ObjectFile:
    """The object behind a URI; see `ObjectFile`."""
    return ObjectFile(StoredObject.of(uri))


def read_object(place: StoredObject) -> tuple[bytes, str] | None:
    """Contents of a small object and its ETag; None when it is not there.

    Raises
    ------
    BusyError, StorageError
        When the server does not answer now, or refuses.
    """
    import_obstore()
    import obstore

    try:
        with named_errors(place):
            found = obstore.get(bucket_of(place), place.key)
            size = int(found.meta["size"])
            content = bytes(found.bytes()) if size <= MAX_JSON_BYTES else None
    except MissingObjectError:
        return None
    if content is None:
        raise StorageError(f"{place} has {size} bytes, and at most {MAX_JSON_BYTES} are read: it is none of ours.")
    return content, str(found.meta["e_tag"])


def read_beginning(place: StoredObject, at_most: int) -> bytes | None:
    """The first bytes of an object, whatever its size, by one request; None when it is not there.

    Raises
    ------
    BusyError, StorageError
        When the server does not answer now, or refuses.
    """
    import_obstore()
    import obstore

    content = bytearray()
    try:
        with named_errors(place):
            for piece in obstore.get(bucket_of(place), place.key).stream():
                content += piece
                if len(content) >= at_most:
                    break
    except MissingObjectError:
        return None
    return bytes(content[:at_most])


def has_object(place: StoredObject) -> bool:
    """Whether there is an object of just this key."""
    try:
        return bool(place.key) and _head(place) is not None
    except MissingObjectError:
        return False


def object_state(uri: str) -> list[int | str | None] | None:
    """What changes whenever an object is written: size, ETag and time; None when it is not there."""
    try:
        meta = _head(StoredObject.of(uri))
    except MissingObjectError:
        return None
    return [int(meta["size"]), meta["e_tag"], meta["last_modified"].isoformat()]


def list_objects(below: StoredObject) -> list[StoredObject]:
    """Objects whose keys begin with the pieces of a key.

    Raises
    ------
    MissingObjectError, BusyError, StorageError
        When there is no such bucket, when the server does not answer now, or refuses.
    """
    return [StoredObject(below.bucket, meta["path"]) for meta in _listed(below)]


def object_sizes(below: StoredObject) -> dict[str, int]:
    """Bytes of the objects below a key, by what follows it; see `list_objects`."""
    return {meta["path"].removeprefix(f"{below.key}/"): int(meta["size"]) for meta in _listed(below)}


def check_bucket(place: StoredObject) -> None:
    """Ask once whether there is such a bucket, and whether it may be listed; raises as `list_objects` does."""
    next(_listed(place), None)


def _listed(below: StoredObject) -> Iterator[Any]:
    import_obstore()
    import obstore

    with named_errors(below):
        for chunk in obstore.list(bucket_of(below), below.key or None):
            yield from chunk


def _head(place: StoredObject) -> Any:
    import_obstore()
    import obstore

    with named_errors(place):
        return obstore.head(bucket_of(place), place.key)
