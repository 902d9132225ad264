"""Three kinds of rows that landmarks are tried on: a spectrum that decays, one that is flat, and unequal clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DATASETS", "Dataset"]

N_CLUSTERS = 8
CLUSTER_SHARE = 0.005  # of the rows, in each
DISTANCE = 30.0  # of a cluster from the bulk, in kernel widths: nothing in one is seen from another

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
        """The same rows each time."""
        return self.draw(n_samples, np.random.default_rng(0))


def _smooth(n_samples: int, generator: np.random.Generator) -> Rows:
    return generator.standard_normal((n_samples, 3))


def _flat(n_samples: int, generator: np.random.Generator) -> Rows:
    return generator.standard_normal((n_samples, 64))


def _unequal(n_samples: int, generator: np.random.Generator) -> Rows:
    """A smooth bulk, and a few small clusters far from it and from one another, each as varied as the bulk is."""
    rows = generator.standard_normal((n_samples, 3))
    size = max(2, round(CLUSTER_SHARE * n_samples))
    for number in range(N_CLUSTERS):
        # corners of a cube
        corner = [DISTANCE * (1 if number >> bit & 1 else -1) for bit in range(3)]
        rows[number * size : (number + 1) * size] = corner + 0.3*generator.standard_normal((size, 3))
    return rows[generator.permutation(n_samples)]


DATASETS = {
    "decaying": Dataset("decaying spectrum: 3 features", _smooth, 0.1),
    "flat": Dataset("flat spectrum: 64 features", _flat, 1 / 64),
    "clusters": Dataset("unequal clusters: 8 of 0.5 % each", _unequal, 0.1),
}
