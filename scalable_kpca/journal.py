"""Journal of the passes of a solve on disk: a killed solve goes on by replaying them.

::

    journal/000007.npz      the seventh pass: digest of what was multiplied, what came out, checksum of both; written
                            beside its place, flushed and renamed

Solvers are deterministic: given the same products they ask for the same vectors, ARPACK too, which keeps its state to
itself. So every product is logged, and when the solve is begun again each pass that is found in the journal takes its
product from there, with the same bits, until the journal ends. A pass is found only when its number and every byte of
its vectors are those of the record: a solve that takes another course (another library, another number of BLAS threads)
makes its own passes from there on and is as correct as without a journal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import storage_errors
from scalable_kpca.gram import PassResult, TileCounts
from scalable_kpca.records import digest_arrays, read_record, write_record

__all__ = ["Journal"]

logger = logging.getLogger(__name__)

Block = NDArray[np.floating[Any]]
Digest = NDArray[np.uint8]

FIELDS = ("key", "product", "row_sums", "facts", "counts")


class Journal:
    """Passes of one solve, in their order.

    Parameters
    ----------
    path : Path
        Directory of the records; made with the first one, in a directory that exists.
    fingerprint : str
        Identity of the matrix: another one's records are never taken.

    Attributes
    ----------
    n_replayed : int
        Passes that were taken from the disk.

    Notes
    -----
    Bytes: 8·n·(b + 1) a pass with b vectors, flushed to the disk; time: theirs, and a SHA-256 of twice as many. One
    process at a time writes to a journal; the lock of the output sees to that. A record that is damaged or missing
    costs its own pass, not the later ones: they are checked against what they multiplied, not against their neighbours.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path, self._fingerprint = path, fingerprint
        self._number = 0
        self.n_replayed = 0

    def obtain(self, block: Block, compute: Callable[[Block], PassResult]) -> PassResult:
        """The next pass: from the journal when it was made before, else made by `compute` and logged.

        Parameters
        ----------
        block : ndarray of shape (n_samples, b), float32 or float64
            What is multiplied.
        compute : callable
            Makes a pass over the matrix.

        Returns
        -------
        PassResult
            Of a replayed pass too, but for what an engine kept.

        Raises
        ------
        StorageError
            When the file system refuses the record; earlier ones stay.
        """
        self._number += 1
        key = digest_arrays(f"{self._fingerprint} {self._number}", block)
        result = self._read(key)
        if result is not None:
            self.n_replayed += 1
            return result
        result = compute(block)
        self._write(key, result)
        return result

    @property
    def _place(self) -> Path:
        return self._path / f"{self._number:06d}.npz"

    def _read(self, key: Digest) -> PassResult | None:
        """The pass as it was logged; None when it was not, or is damaged, or multiplied something else."""
        stored = read_record(self._place, FIELDS)
        if stored is None:
            return None
        if not np.array_equal(stored["key"], key):
            logger.info("%s is of another product: this pass is made", self._place)
            return None
        squared_norm, error = stored["facts"].tolist()
        counts = TileCounts(*stored["counts"].tolist())
        return PassResult(stored["product"], stored["row_sums"], squared_norm, error, counts, [])

    def _write(self, key: Digest, result: PassResult) -> None:
        counts = result.counts
        record: dict[str, Any] = {
            "key": key,
            "product": result.product,
            "row_sums": result.row_sums,
            "facts": np.array([result.squared_norm, result.error]),
            "counts": np.array([counts.computed, counts.read, counts.repaired]),
        }
        with storage_errors(f"writing pass {self._number} to {self._path}"):
            write_record(self._place, record)
