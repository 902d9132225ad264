"""Objects of S3, written whole: whoever reads one sees what was there before, or all of what is there now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from scalable_kpca.objects.buckets import ReplacedObjectError, bucket_of, import_obstore, named_errors
from scalable_kpca.objects.places import StoredObject
from scalable_kpca.objects.reading import read_object

__all__ = ["UPLOAD_BYTES", "put_object", "remove_objects", "replace_object", "upload_file", "writing_object"]

PART_BYTES = 5 * 2**20  # of an upload in parts: the least that S3 takes
MOST_PARTS = 9_000  # it takes 10 000 of them
AT_ONCE = 2  # parts on their way
UPLOAD_BYTES = (AT_ONCE + 1) * PART_BYTES  # that an object on its way takes of memory
KEYS_AT_ONCE = 1000  # that S3 removes by one request


def put_object(place: StoredObject, content: bytes, content_type: str | None = None) -> None:
    """Write an object, whatever was there; browsers are told its `content_type`.

    Raises
    ------
    MissingObjectError, BusyError, StorageError
        When there is no such bucket, when the server does not answer now, or refuses.
    """
    _put(place, content, "overwrite", {} if content_type is None else {"Content-Type": content_type})


def replace_object(place: StoredObject, content: bytes, known: str | None) -> str:
    """Write an object where it is still the one that is known, and give its new ETag.

    Parameters
    ----------
    place : StoredObject
    content : bytes
        What no other writer writes: it says whether an attempt that was not answered has succeeded.
    known : str or None
        ETag of the object that is there; None when there is none.

    Raises
    ------
    ReplacedObjectError
        When another one is there by now; nothing is written.
    MissingObjectError, BusyError, StorageError
        As of `put_object`.
    """
    try:
        return _put(place, content, "create" if known is None else {"e_tag": known})
    except ReplacedObjectError:
        found = read_object(place)
        if found is None or found[0] != content:
            raise
        return found[1]


def upload_file(file: Path, place: StoredObject) -> None:
    """Write the contents of a file as an object, in parts where it is large; see `put_object`."""
    import obstore

    chunk = max(PART_BYTES, -(-file.stat().st_size // MOST_PARTS))
    with file.open("rb") as stream, named_errors(place, "writing"):
        obstore.put(bucket_of(place), place.key, stream, chunk_size=chunk, max_concurrency=AT_ONCE)


@contextmanager
def writing_object(place: StoredObject) -> Iterator[BinaryIO]:
    """A stream whose contents are an object once all of it has been written; what fails leaves what was there.

    Notes
    -----
    Memory: `UPLOAD_BYTES`. Parts of an upload that was broken off are invisible, and are kept and
    charged for until a lifecycle rule of the bucket (AbortIncompleteMultipartUpload) removes them.
    """
    import_obstore()
    import obstore

    with named_errors(place, "writing"):
        stream: Any = obstore.open_writer(bucket_of(place), place.key, buffer_size=PART_BYTES, max_concurrency=AT_ONCE)
    yield _NamedStream(stream, place)  # type: ignore[misc]
    with named_errors(place, "writing"):
        stream.close()


def remove_objects(places: Sequence[StoredObject]) -> None:
    """Remove objects of one bucket, those that are not there are no error; of 1000 at a time in any order."""
    import obstore

    for first in range(0, len(places), KEYS_AT_ONCE):
        some = places[first : first + KEYS_AT_ONCE]
        with named_errors(some[0], "removing"):
            obstore.delete(bucket_of(some[0]), [place.key for place in some])


class _NamedStream:
    """A stream into an object, whose errors are ours."""

    def __init__(self, stream: Any, place: StoredObject) -> None:
        self._stream, self._place = stream, place

    def write(self, content: Any) -> int:
        with named_errors(self._place, "writing"):
            # obstore keeps what it is given until a part is full; the caller may write over a buffer before
            return int(self._stream.write(bytes(content)))


def _put(place: StoredObject, content: bytes, mode: Any, attributes: Any = None) -> str:
    import_obstore()
    import obstore

    with named_errors(place, "writing"):
        done = obstore.put(
            bucket_of(place), place.key, content, mode=mode, attributes=attributes or None, use_multipart=False
        )
        return str(done["e_tag"])
