"""Three kinds of rows that landmarks are tried on: a spectrum that decays, one that is flat, and unequal clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DATASETS", "N_CLUSTERS", "TIGHTNESS", "Dataset"]

N_CLUSTERS = 8
CLUSTER_SHARE = 0.005  # of the rows, in each
DISTANCE = 30.0  # of a cluster from the bulk in each coordinate: kernel values between them are below 1e-70
TIGHTNESS = 0.3  # of a cluster, beside 1 of the bulk

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Dataset:
    """Rows and an RBF kernel for them.

    Attributes
    ----------
    title : str
    draw : callable
        ``draw(n_samples, generator)`` gives rows of shape (n_samples, n_features).
    gamma : float
    """

    title: str
    draw: Callable[[int, np.random.Generator], Rows]
    gamma: float

    def rows(self, n_samples: int) -> Rows:
        """The same ones each time for a number of rows."""
        return self.draw(n_samples, np.random.default_rng(0))


def _smooth(n_samples: int, generator: np.random.Generator) -> Rows:
    return generator.standard_normal((n_samples, 3))


def _flat(n_samples: int, generator: np.random.Generator) -> Rows:
    return generator.standard_normal((n_samples, 64))


def _unequal(n_samples: int, generator: np.random.Generator) -> Rows:
    """A smooth bulk, and a few small clusters at the corners of a cube around it, in no order."""
    rows = generator.standard_normal((n_samples, 3))
    size = max(2, round(CLUSTER_SHARE * n_samples))
    for number in range(N_CLUSTERS):
        corner = np.array([DISTANCE if number >> axis & 1 else -DISTANCE for axis in range(3)])
        cluster = rows[number * size : (number + 1) * size]
        cluster *= TIGHTNESS
        cluster += corner
    return rows[generator.permutation(n_samples)]


DATASETS = {
    "decaying": Dataset("decaying: 3 features", _smooth, 0.2),
    "flat": Dataset("flat: 64 features", _flat, 1 / 64),
    "clusters": Dataset(f"bulk, {N_CLUSTERS} clusters of {100 * CLUSTER_SHARE:g} %", _unequal, 0.2),
}
