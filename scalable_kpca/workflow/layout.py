"""A run on disk: what is where below an output directory, and what makes a result whole.

::

    OUT/LOCK                    one writer
    OUT/latest.json             the run that is in force; replaced atomically, last
    OUT/tables/                 Parquet copies of sources in CSV and Arrow files, see `source.copies`
    OUT/remote.json             of a working directory: the output on S3 that it belongs to
    OUT/report.html             a page about the run that was in force when it was asked for
    OUT/runs/<fingerprint>/     immutable once COMMIT.json exists
       plan.json rows.zarr labels/ gram.zarr       work in progress, reusable, removable; labels/KEY.json says
       journal/                                    that rows and labels are whole, and whose they are; the journal
                                                   holds the passes that a killed solve replays
       journal/landmarks.npz sums.npz              of a Nyström run: its landmarks, sums so far
       tiles.json                                  where the tiles are, when they are on S3
       damaged/                                    tiles that did not match their checksum or their sums
       model/ embedding/ metrics.json run.json     results
       embedding.zarr                              scores of a job with ``output.format: zarr``; labels in embedding/
       profile.json                                what its rows are like: later ones are compared with them
       ledger.json contributions/                  of a Nyström run: which partitions are in it; sums of those that
                                                   came by updates
       COMMIT.json              list of results with size and digest
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from scalable_kpca.disk import sync_tree
from scalable_kpca.documents import refuse_links
from scalable_kpca.errors import StorageError, UnreadableError
from scalable_kpca.faults import is_loss
from scalable_kpca.objects import StoredObject
from scalable_kpca.workflow.files import file_digest, read_json

__all__ = [
    "EMBEDDING",
    "MARK",
    "PAGE",
    "REMOTE_WRITES",
    "RESULTS",
    "TILES",
    "WORK",
    "WRITES",
    "Output",
    "RunDirectory",
    "committed_files",
    "fence_of",
    "is_digest",
]

EMBEDDING = ("embedding", "embedding.zarr")
RESULTS = ("model", *EMBEDDING, "metrics.json", "run.json", "profile.json", "ledger.json", "contributions")
TILES = "tiles.json"
WORK = ("plan.json", "labels/KEY.json", "labels", "rows.zarr", "gram.zarr", TILES, "damaged", "journal")
PAGE = "report.html"
MARK = "remote.json"

# what a reader may come upon in an output, down to where the parts are
_RUN = "runs/" + 64 * "0"
_PIECES = (*RESULTS, "COMMIT.json", *WORK)
_PARTS = ("embedding/part-00000.parquet", "embedding.zarr/scores", "labels/part-00000.parquet", "model/model.json")
_COPY = f"tables/{64 * '0'}.{64 * '0'}.parquet"
_OWN = ("LOCK", "latest.json", PAGE, MARK, "tables", _COPY, "runs", _RUN)
REMOTE_WRITES = ("LOCK", "latest.json", PAGE, *(f"{_RUN}/0-0/{name}" for name in (*RESULTS, "COMMIT.json", *_PARTS)))
WRITES = (*_OWN, *(f"{_RUN}/{name}" for name in (*_PIECES, *_PARTS)))


@dataclass(frozen=True)
class RunDirectory:
    """One run.

    Parameters
    ----------
    path : Path
        ``OUT/runs/<fingerprint>``.
    """

    path: Path

    @property
    def fingerprint(self) -> str:
        """Identity of the run."""
        return self.path.name

    @property
    def is_committed(self) -> bool:
        """Whether its results are whole."""
        return (self.path / "COMMIT.json").exists()

    @property
    def fence(self) -> int:
        """Number of the writer that has committed it, 0 where it is not committed or does not say."""
        try:
            return fence_of(read_json(self.path / "COMMIT.json"))
        except UnreadableError:
            raise
        except StorageError:
            return 0

    def refuse_links(self) -> None:
        """StorageError when the run or a piece of it is a link: none is ever made, and one may lead anywhere."""
        _refuse_link(self.path.parent)
        for name in ("", *_PIECES):
            _refuse_link(self.path / name)

    def flushed_results(self) -> list[dict[str, Any]]:
        """Every result file with size and digest, after all of them have reached the disk.

        Raises
        ------
        StorageError
            When one of them is a link.
        """
        for name in RESULTS:
            result = self.path / name
            if result.is_dir():
                _refuse_links_below(result)
                sync_tree(result)
        return [
            {"path": str(file.relative_to(self.path)), "bytes": file.stat().st_size, "sha256": file_digest(file)}
            for file in self._results()
        ]

    def problems(self, names: Sequence[str] = RESULTS) -> list[str]:
        """What differs from the commit list, of some of the `RESULTS`, one sentence each; empty for a whole run.

        Raises
        ------
        UnreadableError
            When the system does not let one of them be read.

        Notes
        -----
        Reads each of them once. Work in progress is no part of the results: a missing tile is not a problem.
        """
        try:
            entries = [entry for entry in self._committed() if entry[0].parts[0] in names]
        except UnreadableError:
            raise
        except (StorageError, KeyError, TypeError):
            return [f"{self.path / 'COMMIT.json'} is missing or damaged"]
        except ValueError as error:
            return [f"{self.path / 'COMMIT.json'} is damaged: {error}"]
        found = []
        for name, size, digest in entries:
            file = self.path / name
            try:
                if any(place.is_symlink() for place in (file, *file.parents[: len(name.parts)])):
                    found.append(f"{file} is reached by a link, which is not followed")
                elif not file.is_file():
                    found.append(f"{file} is missing")
                elif file.stat().st_size != size:
                    found.append(f"{file} has {file.stat().st_size} bytes, {size} were committed")
                elif file_digest(file) != digest:
                    found.append(f"{file} differs from what was committed")
            except OSError as error:
                text = f"{file} cannot be read: {error.strerror or error}"
                if not is_loss(error):
                    raise UnreadableError(f"{text}; run again when it can.") from error
                found.append(text)
        return found

    def digests(self, name: str) -> dict[str, str]:
        """SHA-256 of each file of one of the `RESULTS` as it was committed, by its path in the run.

        Raises
        ------
        StorageError
            When there is no commit list that can be read.
        """
        try:
            return {str(path): digest for path, _, digest in self._committed() if path.parts[0] == name}
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{self.path / 'COMMIT.json'} is missing or damaged; run the job again.") from error

    def _committed(self) -> Iterator[tuple[PurePosixPath, int, str]]:
        """Files of the commit list: see `committed_files`."""
        yield from committed_files(read_json(self.path / "COMMIT.json"))

    def _results(self) -> list[Path]:
        files: list[Path] = []
        for name in RESULTS:
            result = self.path / name
            if result.is_dir():
                files += sorted(file for file in result.rglob("*") if file.is_file())
            elif result.exists():
                files.append(result)
        return files


@dataclass(frozen=True)
class Output:
    """An output directory with all its runs.

    Parameters
    ----------
    path : Path
        ``OUT``.
    remote : StoredObject, optional
        Where on S3 its results are published; `path` is then a working directory that mirrors them, see `mirror`.
    """

    path: Path
    remote: StoredObject | None = None

    @classmethod
    def of(cls, run: Path) -> Output:
        """Output that the directory of a run belongs to."""
        return cls(run.parents[1])

    @property
    def place(self) -> Path | StoredObject:
        """Where its results are published: what people call it."""
        return self.remote or self.path

    @property
    def name(self) -> str:
        """What it is called where it really is, however one gets there."""
        return self.remote.name if self.remote is not None else Path(os.path.realpath(self.path)).name

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.path / "LOCK"

    @property
    def tables(self) -> Path:
        """Directory of the copies of its sources."""
        return self.path / "tables"

    def run(self, fingerprint: str) -> RunDirectory:
        """Directory of a run; StorageError for a name that is no fingerprint, or one behind a link."""
        if not is_digest(fingerprint):
            raise StorageError(f"{str(fingerprint)[:80]!r} is no run of {self.path}: 64 hexadecimal digits name one.")
        run = RunDirectory(self.path / "runs" / fingerprint)
        run.refuse_links()
        return run

    def runs(self) -> list[RunDirectory]:
        """All runs that have a directory; StorageError when one is behind a link."""
        root = self.path / "runs"
        _refuse_link(root)
        places = sorted(root.iterdir()) if root.is_dir() else []
        return [self.run(place.name) for place in places if is_digest(place.name) and place.is_dir()]

    def latest(self) -> RunDirectory | None:
        """The run in force, None before the first one.

        Raises
        ------
        StorageError
            When the pointer is damaged or points nowhere, or anywhere else than to a run of this output.
        """
        pointer: Any = read_json(self.path / "latest.json")
        if pointer is None:
            return None
        name = pointer.get("run") if isinstance(pointer, dict) else None
        run = self.run(name) if isinstance(name, str) and is_digest(name) else None
        if run is None or not run.is_committed:
            raise StorageError(f"{self.path / 'latest.json'} does not name a committed run; run the job again.")
        return run

    def sound_latest(self) -> RunDirectory | None:
        """The run in force; None before the first one, and where the pointer is damaged, as a run replaces it."""
        try:
            return self.latest()
        except UnreadableError:
            raise
        except StorageError:
            return None

    def require_latest(self) -> RunDirectory:
        """The run in force; StorageError before the first one."""
        latest = self.latest()
        if latest is None:
            raise StorageError(f"{self.place} holds no finished run; `skpca run` makes one.")
        return latest


def committed_files(fields: Any) -> Iterator[tuple[PurePosixPath, int, str]]:
    """Path, bytes and SHA-256 of each file of a commit list.

    Raises
    ------
    KeyError, TypeError, ValueError
        When it is none, or an entry is no file of a result, whatever it leads to.
    """
    seen = set()
    for entry in fields["files"]:
        name, size, digest = entry["path"], entry["bytes"], entry["sha256"]
        path = PurePosixPath(name)
        fits = str(path) == name and "\0" not in name and ".." not in path.parts and (*path.parts, "")[0] in RESULTS
        if not fits or type(size) is not int or size < 0 or not is_digest(digest) or path in seen:
            raise ValueError(f"{str(entry)[:200]} is no file of a result")
        seen.add(path)
        yield path, size, digest


def fence_of(fields: Any) -> int:
    """Number of the writer of a commit list or of the pointer; 0 where there is none."""
    found = fields.get("fence") if isinstance(fields, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def is_digest(name: Any) -> bool:
    """Whether this is a SHA-256 as all names of runs are: 64 hexadecimal digits, in small letters."""
    return isinstance(name, str) and re.fullmatch("[0-9a-f]{64}", name) is not None


def _refuse_link(place: Path) -> None:
    if place.is_symlink():
        raise StorageError(f"{place} is a link, which is not followed; remove the link and run again.")


def _refuse_links_below(result: Path) -> None:
    try:
        refuse_links(result)
    except ValueError as error:
        raise StorageError(f"{error}, which is not committed as a result; remove the link and run again.") from error
