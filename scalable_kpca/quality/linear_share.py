"""How much of the scores of a kernel is a linear function of the rows: what PCA of the same rows has as well."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinearShare", "linear_share", "rows_of_share"]

Matrix = NDArray[np.float64]

MOST_ROWS = 2048  # a share of them is uncertain by some hundredths at most
MOST_BYTES = 4 * 2**20  # of rows and scores together
ROWS_A_FEATURE = 10  # with fewer, what fits by chance is not small beside what is linear
DIGITS = 4


@dataclass(frozen=True)
class LinearShare:
    """Of the variance of some scores, summed over components.

    Attributes
    ----------
    linear : float
        Share that a linear function of the features has, 0 to 1: what the kernel finds beyond PCA with all of its
        components is the rest.
    leading : float
        Share that a linear function of the first k principal components has, for k components of the kernel.
    n_rows : int
        Rows that it is estimated from.
    """

    linear: float
    leading: float
    n_rows: int

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return asdict(self)


def rows_of_share(n_features: int, n_components: int) -> int:
    """Rows that a share is estimated from, at most; 0 where features or components are too many."""
    size = min(MOST_ROWS, MOST_BYTES // (8 * (n_features + n_components)))
    return size if n_components and size >= ROWS_A_FEATURE * n_features else 0


def linear_share(rows: NDArray[np.floating[Any]], scores: Matrix) -> LinearShare | None:
    """Share of the variance of scores that is linear in the rows, less what chance gives that many features.

    Parameters
    ----------
    rows : ndarray of shape (m, n_features)
        Finite, drawn at random.
    scores : ndarray of shape (m, k), float64
        Of the same rows.

    Returns
    -------
    LinearShare or None
        To four decimals; None for scores that do not vary, and fewer than ten rows a feature.

    Notes
    -----
    R² of a regression of all scores on the left singular vectors of the centred rows, adjusted for their number.
    Cost: some 6·m·n_features² flops. Memory: some four times the rows and scores.

    References
    ----------
    Ezekiel (1930), Methods of Correlation Analysis, for the adjustment.
    """
    m, d = len(rows), int(rows.shape[1])
    if m < ROWS_A_FEATURE * d:
        return None
    centred, wanted = (_centred(np.asarray(values, np.float64)) for values in (rows, scores))
    total = float(np.square(wanted).sum())
    if total == 0:
        return None
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    rank = int((singular > m * np.finfo(np.float64).eps * singular.max(initial=0)).sum())
    along = np.square(left[:, :rank].T @ wanted).sum(axis=1)

    def adjusted(n_columns: int) -> float:
        rest = 1 - float(along[:n_columns].sum()) / total
        return min(1.0, max(0.0, 1 - rest * (m - 1) / (m - 1 - n_columns)))

    leading = adjusted(min(wanted.shape[1], rank))
    return LinearShare(round(max(leading, adjusted(rank)), DIGITS), round(leading, DIGITS), m)


def _centred(values: Matrix) -> Matrix:
    """Values less the mean of their column, over the largest of all: squares of them are no infinity, and not all 0."""
    scale = float(np.abs(values).max(initial=0))
    values = values / (scale or 1.0)
    values -= values.mean(axis=0)
    largest = float(np.abs(values).max(initial=0))
    # what rounding leaves of equal values is not a difference
    values /= largest if largest > 8 * np.finfo(np.float64).eps else np.inf
    return values
