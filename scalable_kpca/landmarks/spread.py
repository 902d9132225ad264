"""Rows that are far from each other, by k-means++ seeding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.source import RowBlock, is_sparse, squared_norms_of

__all__ = ["spread_out"]

Positions = NDArray[np.intp]


def spread_out(sample: RowBlock, m: int, seed: int) -> Positions:
    """Positions of at most m different rows, chosen one after another, each ∝ its squared distance to those before.

    Parameters
    ----------
    sample : ndarray or scipy CSR array of shape (s, n_features)
        Finite rows, s ≥ m.
    m, seed : int

    Returns
    -------
    ndarray of shape (≤ m,), intp

    Notes
    -----
    Every step draws 2 + ln m candidates and takes the one that leaves least. Cost: s·m·(2 + ln m) distances. Memory:
    two copies of the sample.

    References
    ----------
    Arthur and Vassilvitskii (2007), k-means++: The advantages of careful seeding.
    """
    # distances are all that counts, so that neither an offset nor a scale beyond any square may do harm
    largest = float(abs(sample).max()) if min(sample.shape) else 0.0
    rows = sample.astype(np.float64) / (largest if largest > 0 else 1.0)
    state = int(np.random.SeedSequence(seed).generate_state(1)[0])
    chosen: Any
    if is_sparse(rows):
        chosen = _spread_sparse(rows, m, np.random.RandomState(state))
    else:
        from sklearn.cluster import kmeans_plusplus

        rows -= rows.mean(axis=0)
        _, chosen = kmeans_plusplus(rows, m, random_state=state)
    # where no other rows are left, equal ones are chosen
    return np.asarray(chosen, np.intp)[_first_of_equal(sample[chosen])]


def _spread_sparse(rows: RowBlock, m: int, random: np.random.RandomState) -> list[int]:
    """What `sklearn.cluster.kmeans_plusplus` does, which holds the m rows dense: too many features for that."""
    n, norms = rows.shape[0], squared_norms_of(rows)

    def distances(candidates: Any) -> NDArray[np.float64]:
        products = rows @ rows[candidates].T.toarray()
        found: NDArray[np.float64] = np.maximum(norms[:, None] - 2 * products + norms[candidates], 0.0)
        return found

    chosen = [int(random.choice(n, p=np.full(n, 1 / n)))]
    closest = distances(chosen)[:, 0]
    for _ in range(1, m):
        sums = np.cumsum(closest)
        candidates = np.searchsorted(sums, random.uniform(size=2 + int(math.log(m))) * sums[-1]).clip(max=n - 1)
        left = np.minimum(closest[:, None], distances(candidates))
        best = int(left.sum(axis=0).argmin())
        chosen.append(int(candidates[best]))
        closest = left[:, best]
        closest[chosen[-1]] = 0.0
    return chosen


def _first_of_equal(rows: RowBlock) -> Positions:
    """Position of the first one of each set of equal rows, ascending."""
    if is_sparse(rows):
        ends = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        contents = [(rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in ends]
        first: Any = list({content: i for i, content in reversed(list(enumerate(contents)))}.values())
    else:
        first = np.unique(rows, axis=0, return_index=True)[1]
    return np.sort(np.asarray(first, np.intp))
