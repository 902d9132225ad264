"""An output on S3: what is where in it, and how a run gets there and comes back.

::

    s3://BUCKET/PREFIX/LOCK                                one writer, see `lease`
    s3://BUCKET/PREFIX/latest.json                         the run in force and where it is; replaced last
    s3://BUCKET/PREFIX/report.html                         as in a directory
    s3://BUCKET/PREFIX/runs/<fingerprint>/<writer>/        results of one writer, and COMMIT.json, put there last

Nothing but the first three is ever written over: each writer has places of its own, so that two of them do not mix
their files even when one was believed to be dead. Which of them has won is decided by one conditional request.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalable_kpca.disk import sync_tree
from scalable_kpca.documents import format_json, parse_json
from scalable_kpca.errors import LockedError, StorageError, storage_errors
from scalable_kpca.objects import (
    MissingObjectError,
    ObjectFile,
    ReplacedObjectError,
    StoredObject,
    object_sizes,
    put_object,
    read_object,
    remove_objects,
    replace_object,
    upload_file,
)
from scalable_kpca.workflow.layout import PAGE, RunDirectory, committed_files, is_digest

__all__ = ["COMMIT", "Publication", "RemoteOutput", "upload_files"]

COMMIT = "COMMIT.json"
WRITER = re.compile(r"\d{1,18}-[0-9a-f]{32}")
AT_ONCE = 4  # files on their way, some 16 MiB of each are held
PIECE_BYTES = 4 * 2**20  # of a file, that are asked for and held at once

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Publication:
    """Results of one writer, as objects.

    Attributes
    ----------
    fingerprint : str
        Of the run.
    place : StoredObject
        Below which its objects are.
    sizes : dict of str to int
        Bytes of each object, by its path in the run.
    """

    fingerprint: str
    place: StoredObject
    sizes: dict[str, int]

    def commit_list(self) -> bytes | None:
        """COMMIT.json; None where nothing was committed, it is damaged, or an object of it is not there whole."""
        found = read_object(self.place / COMMIT) if self.is_committed else None
        return found[0] if found is not None and self.has(found[0]) else None

    @property
    def is_committed(self) -> bool:
        """Whether its writer has come to its end, whatever became of its objects since."""
        return COMMIT in self.sizes

    @property
    def number(self) -> int:
        """Of the writer."""
        return int(self.place.name.partition("-")[0])

    def has(self, commit_list: bytes) -> bool:
        """Whether all of a commit list is there, by the sizes."""
        try:
            files = list(committed_files(parse_json(commit_list)))
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("%s", f"{self.place / COMMIT} is damaged: {error}")
            return False
        return self.is_committed and all(self.sizes.get(str(path)) == size for path, size, _ in files)

    def fetch(self, directory: Path) -> None:
        """Write every committed object and the commit list to an empty directory.

        Raises
        ------
        StorageError
            When one is not what was committed.
        MissingObjectError
            When one is gone by now.
        """
        content = self.commit_list()
        if content is None:
            raise MissingObjectError(f"{self.place} is not whole; run the job again.")
        files = list(committed_files(parse_json(content)))
        _each(lambda file: _fetch(self.place / str(file[0]), directory / file[0], file[1], file[2]), files)
        (directory / COMMIT).write_bytes(content)
        sync_tree(directory)


@dataclass(frozen=True)
class RemoteOutput:
    """What is published below a place on S3.

    Parameters
    ----------
    place : StoredObject
    """

    place: StoredObject

    @property
    def lock(self) -> StoredObject:
        """The lock."""
        return self.place / "LOCK"

    @property
    def pointer(self) -> StoredObject:
        """What names the run in force."""
        return self.place / "latest.json"

    @property
    def page(self) -> StoredObject:
        """The page about the run in force."""
        return self.place / PAGE

    def read_pointer(self) -> tuple[dict[str, Any] | None, str | None]:
        """The pointer, None before the first run, and its ETag.

        Raises
        ------
        StorageError
            When it is damaged.
        """
        found = read_object(self.pointer)
        if found is None:
            return None, None
        try:
            fields = parse_json(found[0])
            if not is_digest(fields["run"]) or not re.fullmatch(
                rf"runs/{fields['run']}/{WRITER.pattern}", fields["path"]
            ):
                raise ValueError("it does not name a run")  # noqa: TRY301
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{self.pointer} is damaged ({error}); put an earlier version of it back, or remove it and run again."
            ) from error
        return fields, found[1]

    def publications(self, fingerprint: str | None = None) -> list[Publication]:
        """What writers have put there, of one run or of all, the last ones first; nothing else that is there."""
        above = "" if fingerprint is None else f"{fingerprint}/"
        below = self.place / f"runs/{above}".rstrip("/")
        sizes: dict[tuple[str, str], dict[str, int]] = {}
        for found, size in object_sizes(below).items():
            name, _, rest = f"{above}{found}".partition("/")
            writer, _, file = rest.partition("/")
            if is_digest(name) and WRITER.fullmatch(writer) and file:
                sizes.setdefault((name, writer), {})[file] = size
        found_ones = [
            Publication(name, self.place / "runs" / name / writer, files) for (name, writer), files in sizes.items()
        ]
        return sorted(found_ones, key=lambda one: one.number, reverse=True)

    def upload(self, run: RunDirectory, fence: int, require: Callable[[], None]) -> StoredObject:
        """Put the results of a committed run there, its commit list last; where they are.

        Parameters
        ----------
        run : RunDirectory
        fence : int
            Number of the writer.
        require : callable
            Raises when this process may write no more; asked before each file.

        Notes
        -----
        What an earlier attempt has put there whole is not put there again.
        """
        content = (run.path / COMMIT).read_bytes()
        for earlier in self.publications(run.fingerprint):
            if earlier.commit_list() == content:
                return earlier.place
        place = self.place / "runs" / run.fingerprint / f"{fence}-{uuid.uuid4().hex}"
        upload_files(run.path, [str(path) for path, _, _ in committed_files(parse_json(content))], place, require)
        require()
        put_object(place / COMMIT, content)
        return place

    def point_to(self, run: RunDirectory, place: StoredObject, fence: int, known: str | None) -> None:
        """Put a published run in force where the pointer is still the one that is known.

        Raises
        ------
        LockedError
            When another writer has published meanwhile.
        """
        path = "/".join(place.parts[len(self.place.parts) :])
        fields = {"run": run.fingerprint, "fence": fence, "path": path}
        try:
            replace_object(self.pointer, format_json(fields).encode(), known)
        except ReplacedObjectError as error:
            raise LockedError(
                f"{self.place} was written by another run while this one, number {fence}, was at work; its results "
                "stay in force, and nothing is published: run again."
            ) from error

    def remove(self, publications: Sequence[Publication]) -> None:
        """Remove what writers have put there, each time its commit list first."""
        for one in publications:
            remove_objects([one.place / COMMIT])
            remove_objects([one.place / name for name in one.sizes if name != COMMIT])

    def previous(self, one: Publication) -> str | None:
        """The run that a published one goes on with.

        Raises
        ------
        StorageError
            When it does not say.
        """
        described = read_object(one.place / "run.json")
        try:
            found = parse_json(b"" if described is None else described[0]).get("previous")
        except (ValueError, AttributeError) as error:
            raise StorageError(f"{one.place / 'run.json'} is missing or damaged: {error}.") from error
        if found is not None and not is_digest(found):
            raise StorageError(f"{one.place / 'run.json'} is damaged: it does not say what it goes on with.")
        return found if isinstance(found, str) else None


def upload_files(
    directory: Path, names: Sequence[str], place: StoredObject, require: Callable[[], None] = lambda: None
) -> None:
    """Put files of a directory below a place, several at once; `require` raises when no more may be written."""

    def put(name: str) -> None:
        require()
        upload_file(directory / name, place / name)

    _each(put, names)


def _each(function: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Call a function for each item, several at once; the first error ends it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(function, items):
            pass


def _fetch(place: StoredObject, file: Path, size: int, digest: str) -> None:
    """Write an object to a file; StorageError when it is not what was committed."""
    found = hashlib.sha256()
    with storage_errors(f"writing {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            for piece in _pieces(place):
                found.update(piece)
                stream.write(piece)
    if file.stat().st_size != size or found.hexdigest() != digest:
        raise StorageError(
            f"{place} differs from what was committed; put it back from a copy, or remove it and run the job again."
        )


def _pieces(place: StoredObject) -> Iterator[bytes]:
    try:
        stream = ObjectFile(place)
        while piece := stream.read(PIECE_BYTES):
            yield piece
    except ReplacedObjectError as error:
        raise StorageError(
            f"{place} was replaced while it was read, which is never done by a run; run again."
        ) from error
