"""The median heuristic: gamma from the distances between some of the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError

__all__ = ["MEDIAN_ROWS", "median_gamma"]

MEDIAN_ROWS = 1000  # half a million distances: their median is within some percent of that of all
WIDE = 1000  # features from which distances are made of inner products: from differences they would take seconds


def median_gamma(rows: Any) -> float:
    """γ = 1/(2·med²), with med the median distance between two of the rows: the σ of seed 002 is a typical distance.

    Parameters
    ----------
    rows : ndarray or scipy CSR array of shape (m, n_features)
        Finite rows, at most `MEDIAN_ROWS` of them by intention; never written to.

    Returns
    -------
    float
        Where more than half of the pairs are repeated rows, so that their median is 0, the mean of the distances that
        are not takes its place; 1.0 where all rows are equal, or there is only one.

    Raises
    ------
    InvalidInputError
        When no float64 is 1/(2·med²).

    Notes
    -----
    Two conventions are in use. Here the median distance is σ; others take half the median squared distance for σ²,
    which doubles γ. Cost: m²/2 distances, m²·n_features/2 differences or as many multiplications. Memory: 4·m² bytes,
    or 24·m² for wide or sparse rows, and one copy of dense rows.

    References
    ----------
    Garreau, Jitkrittum and Kanagawa (2017), Large sample analysis of the median heuristic, arXiv:1707.07269.

    Examples
    --------
    >>> median_gamma(np.array([[0.0], [1.0], [3.0]]))  # distances 1, 2 and 3
    0.125
    """
    # not abs(rows): the smallest integer of a dtype has no negative in it
    largest = max(float(rows.max()), -float(rows.min())) if min(rows.shape) else 0.0
    if rows.shape[0] < 2 or largest == 0:
        return 1.0
    # a power of two, so that dividing is exact: relative to the largest entry no square overflows
    largest = math.ldexp(1.0, math.frexp(largest)[1] - 1)
    distances = _distances(rows.astype(np.float64) / largest)
    middle = float(np.median(distances))
    if middle == 0:
        positive = distances[distances > 0]
        if len(positive) == 0:
            return 1.0
        middle = float(positive.mean())
    gamma = 0.5 / middle / middle / largest / largest
    if not (math.isfinite(gamma) and gamma > 0):
        raise InvalidInputError(
            f'gamma="median": distances between rows are about {middle:.3g} times {largest:.3g}, and one over their '
            "square is beyond float64; standardize or scale the features."
        )
    return gamma


def _distances(rows: Any) -> NDArray[np.float64]:
    """Distance of every pair of two rows, shape (m·(m − 1)/2,); exactly 0 for equal rows."""
    if isinstance(rows, np.ndarray):
        if rows.shape[1] < WIDE:
            from scipy.spatial.distance import pdist

            direct: NDArray[np.float64] = pdist(rows)
            return direct
        rows = rows - rows.mean(axis=0)  # which moves no distance, and makes products small
    from sklearn.metrics.pairwise import euclidean_distances
    from sklearn.utils.extmath import row_norms

    norms = row_norms(rows, squared=True)
    first, second = np.triu_indices(rows.shape[0], 1)
    squares = euclidean_distances(rows, squared=True)[first, second]
    # as a difference of products, of equal rows too, it is no better than this
    squares[squares <= 16 * np.finfo(np.float64).eps * (norms[first] + norms[second])] = 0.0
    distances: NDArray[np.float64] = np.sqrt(squares)
    return distances
