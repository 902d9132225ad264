"""A run on disk: what is where below an output directory, and what makes a result whole.

::

    OUT/LOCK                    one writer
    OUT/latest.json             the run that is in force; replaced atomically, last
    OUT/runs/<fingerprint>/     immutable once COMMIT.json exists
       plan.json rows.zarr labels/ gram.zarr       work in progress, reusable, removable; labels/KEY.json says
       journal/                                    that rows and labels are whole, and whose they are; the journal
                                                   holds the passes that a killed solve replays
       journal/landmarks.npz sums.npz              of a Nyström run: its landmarks, sums so far
       model/ embedding/ metrics.json run.json     results
       ledger.json contributions/                  of a Nyström run: which partitions are in it; sums of those that
                                                   came by updates
       COMMIT.json              list of results with size and digest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalable_kpca.disk import sync_tree
from scalable_kpca.errors import StorageError
from scalable_kpca.workflow.files import file_digest, read_json, remove_file, write_json

__all__ = ["RESULTS", "WRITES", "Output", "RunDirectory"]

RESULTS = ("model", "embedding", "metrics.json", "run.json", "ledger.json", "contributions")

# what a reader may come upon in an output, down to where the parts are
_RUN = "runs/" + 64 * "0"
_PIECES = (*RESULTS, "COMMIT.json", "plan.json", "rows.zarr", "labels", "gram.zarr", "journal")
_PARTS = ("embedding/part-00000.parquet", "labels/part-00000.parquet", "labels/KEY.json", "model/model.json")
WRITES = ("LOCK", "latest.json", "runs", _RUN, *(f"{_RUN}/{name}" for name in (*_PIECES, *_PARTS)))


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

    def commit(self) -> None:
        """List every result file with size and digest, after all of them have reached the disk."""
        for name in RESULTS:
            result = self.path / name
            if result.is_dir():
                sync_tree(result)
        files = [
            {"path": str(file.relative_to(self.path)), "bytes": file.stat().st_size, "sha256": file_digest(file)}
            for file in self._results()
        ]
        write_json(self.path / "COMMIT.json", {"fingerprint": self.fingerprint, "files": files})

    def withdraw(self) -> None:
        """Take a commit back, before anything of the run is touched."""
        if self.is_committed:
            remove_file(self.path / "COMMIT.json")

    def problems(self, names: Sequence[str] = RESULTS) -> list[str]:
        """What differs from the commit list, of some of the `RESULTS`, one sentence each; empty for a whole run.

        Notes
        -----
        Reads each of them once. Work in progress is no part of the results: a missing tile is not a problem.
        """
        try:
            listed = read_json(self.path / "COMMIT.json")
            entries = [
                (self.path / entry["path"], entry["bytes"], entry["sha256"])
                for entry in listed["files"]
                if Path(entry["path"]).parts[0] in names
            ]
        except (StorageError, KeyError, TypeError):
            return [f"{self.path / 'COMMIT.json'} is missing or damaged"]
        found = []
        for file, size, digest in entries:
            try:
                if not file.is_file():
                    found.append(f"{file} is missing")
                elif file.stat().st_size != size:
                    found.append(f"{file} has {file.stat().st_size} bytes, {size} were committed")
                elif file_digest(file) != digest:
                    found.append(f"{file} differs from what was committed")
            except OSError as error:
                found.append(f"{file} cannot be read: {error.strerror or error}")
        return found

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
    """

    path: Path

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.path / "LOCK"

    def run(self, fingerprint: str) -> RunDirectory:
        """Directory of a run."""
        return RunDirectory(self.path / "runs" / fingerprint)

    def runs(self) -> list[RunDirectory]:
        """All runs that have a directory."""
        root = self.path / "runs"
        return [RunDirectory(path) for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []

    def latest(self) -> RunDirectory | None:
        """The run in force, None before the first one.

        Raises
        ------
        StorageError
            When the pointer is damaged or points nowhere.
        """
        pointer: Any = read_json(self.path / "latest.json")
        if pointer is None:
            return None
        name = pointer.get("run") if isinstance(pointer, dict) else None
        if not isinstance(name, str) or not name.isalnum() or not self.run(name).is_committed:
            raise StorageError(f"{self.path / 'latest.json'} does not name a committed run; run the job again.")
        return self.run(name)

    def require_latest(self) -> RunDirectory:
        """The run in force; StorageError before the first one."""
        latest = self.latest()
        if latest is None:
            raise StorageError(f"{self.path} holds no finished run; `skpca run` makes one.")
        return latest

    def point_to(self, run: RunDirectory) -> None:
        """Put a committed run in force."""
        write_json(self.path / "latest.json", {"run": run.fingerprint})
