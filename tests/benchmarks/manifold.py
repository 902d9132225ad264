"""The rows that every benchmark uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["GAMMA", "N_FEATURES", "manifold"]

N_FEATURES = 64
N_LATENT = 6
NOISE = 0.1
BLOCK = 8192  # rows drawn at a time, so that the generator needs no second copy of the rows
GAMMA = 1 / N_FEATURES


def manifold(n_samples: int, n_features: int = N_FEATURES, seed: int = 0, *, first: int = 0) -> NDArray[np.float32]:
    """Noisy 6-dimensional manifold, shape (n_samples, n_features): rows `first`, `first` + 1, … of an endless list."""
    directions = np.random.default_rng([seed, 0]).standard_normal((N_LATENT, n_features))
    rows = np.empty((n_samples, n_features), np.float32)
    for block in range(first // BLOCK, -(-(first + n_samples) // BLOCK)):
        rng = np.random.default_rng([seed, block + 1])
        surface = np.tanh(rng.uniform(-1, 1, (BLOCK, N_LATENT)) @ directions)
        surface += NOISE * rng.standard_normal((BLOCK, n_features))
        start = block * BLOCK - first
        rows[max(start, 0) : start + BLOCK] = surface[max(-start, 0) : n_samples - start]
    return rows
