"""Sums of an unfinished pass on disk: a killed one goes on after the last wave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scalable_kpca.errors import storage_errors
from scalable_kpca.nystroem.accumulators import Accumulators
from scalable_kpca.nystroem.basis import Basis
from scalable_kpca.records import digest_arrays, read_record, write_record

__all__ = ["SumsCheckpoint"]

FIELDS = ("key", "gram", "sums", "numbers", "counts")


@dataclass(frozen=True)
class SumsCheckpoint:
    """One file with the sums so far; replaced after every wave.

    Parameters
    ----------
    path : Path
        The file; its directory is made when it is first written, in one that exists.
    key : str
        Identity of the rows and of the way that they are cut into spans; with the basis, that of the pass.

    Notes
    -----
    Bytes: 8·c·(c + 1), flushed to the disk. One process at a time writes it; the lock of the output sees to that.
    """

    path: Path
    key: str

    def load(self, basis: Basis) -> tuple[int, Accumulators]:
        """Spans that are done, and their sums; none when the file is absent, damaged or of another pass."""
        stored = read_record(self.path, FIELDS)
        if stored is None or not np.array_equal(stored["key"], self._identity(basis)):
            return 0, Accumulators.zero(basis)
        done, n_samples = (int(value) for value in stored["counts"])
        return done, Accumulators(basis.digest, n_samples, stored["gram"], stored["sums"], *stored["numbers"].tolist())

    def save(self, basis: Basis, done: int, sums: Accumulators) -> None:
        """Write the sums over the first `done` spans; StorageError when the file system refuses."""
        with storage_errors(f"writing sums over {sums.n_samples} rows to {self.path}"):
            write_record(
                self.path,
                {
                    "key": self._identity(basis),
                    "gram": sums.gram,
                    "sums": sums.sums,
                    "numbers": np.array([sums.diagonal_sum, sums.max_diagonal, sums.entry_error]),
                    "counts": np.array([done, sums.n_samples]),
                },
            )

    def _identity(self, basis: Basis) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        return digest_arrays(f"{self.key} {basis.digest}")
