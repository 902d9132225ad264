"""The lower end of a spectrum: whether a matrix that should be positive semi-definite shows that it is not."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers.block_krylov import begin, expand, random_directions

__all__ = ["lowest_eigenvalue"]

Matrix = NDArray[np.float64]

FEWEST_PASSES = 3  # before a Ritz value that has converged is taken for the lowest: one may hide behind a flat bulk
FOUND = 0.1  # of a positive one: residual at which the block has come to the end of the spectrum
GOOD = 1e-2  # of a negative eigenvalue: residual at which it is told


def lowest_eigenvalue(
    operator: CenteredGram, vectors: Matrix, *, allowed: float, width: int, max_passes: int, seed: int
) -> float:
    """Lowest Ritz value that a random block reaches, in what found eigenvectors leave.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        K̃.
    vectors : ndarray of shape (n_samples, p)
        Orthonormal, centred: leading eigenvectors, without which the rest of the spectrum is narrow.
    allowed : float
        Size up to which a negative eigenvalue has no meaning.
    width : int
        Columns of the block, ≥ 1.
    max_passes : int
        Most products, ≥ 1.
    seed : int
        Of the block.

    Returns
    -------
    float
        Never below the lowest eigenvalue, by Cauchy's interlacing theorem: what is below −`allowed` proves that the
        matrix is indefinite. What is not proves nothing, when the passes were used up. ∞ where nothing is left.

    Notes
    -----
    Passes: until a value below −`allowed` is good to one per cent, or the lowest Ritz value is positive and to within a
    tenth an eigenvalue, or the images of the block vanish beside `allowed`, or `max_passes`. That a matrix is *not*
    indefinite at 10⁻⁶ of its norm cannot be had from products: Krylov spaces take some 10³ of them to tell 0 from −10⁻⁶
    (Kuczyński and Woźniakowski 1992, theorem 3.2).
    Memory: n·(p + width·(passes + 2)) float64.
    """
    block = random_directions(vectors, width, np.random.default_rng([seed, 4]))
    p, width = vectors.shape[1], block.shape[1]
    if width == 0:
        return np.inf
    state = begin(vectors, block, p + width * max_passes)
    while True:
        state = expand(operator, state)
        projected, coupling = state.projected[p:, p:], state.coupling[:, p:]
        values, coordinates = scipy.linalg.eigh(projected, subset_by_index=[0, 0])
        lowest, residual = float(values[0]), float(np.linalg.norm(coupling @ coordinates[:, 0]))
        is_nothing = np.linalg.norm(projected) + np.linalg.norm(coupling) <= allowed
        if is_nothing or state.block.shape[1] == 0 or state.n_passes >= max_passes:
            return lowest
        if lowest < -allowed:
            if residual <= -GOOD * lowest:
                return lowest
        elif state.n_passes >= FEWEST_PASSES and residual <= FOUND * lowest:
            return lowest  # one below zero is further out, and would have come first
