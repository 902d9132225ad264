"""Pre-images of the RBF kernel by fixed-point iteration (Mika et al. 1998)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalable_kpca.errors import InvalidInputError
from scalable_kpca.kernels import STRIP_ROWS
from scalable_kpca.model import AnyModel, as_array, check_scores
from scalable_kpca.preimage.expansion import Expansion, expand
from scalable_kpca.preimage.pairs import check_not_negative, choose_training_pairs
from scalable_kpca.source import FiniteCheck, check_width
from scalable_kpca.tiling import is_whole

__all__ = ["N_CANDIDATES", "Preimages", "best_preimages", "find_preimages", "preimage_finder"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Counts = NDArray[np.int64]

N_CANDIDATES = 2048  # training rows that starts are chosen from
# kernel values are good to 1e-12: a denominator this small beside its terms has lost all but two digits
VANISHING = 1e-10


@dataclass(frozen=True, eq=False)
class Preimages:
    """Rows whose images are near some projections, and how each was found.

    Attributes
    ----------
    rows : ndarray of shape (b, n_features), float64
    distances : ndarray of shape (b,), float64
        ‖φ(z) − Pφ(x)‖² in feature space, which the iteration makes small: 0 for an exact pre-image.
    n_iterations : ndarray of shape (b,), int64
        Of all starts together.
    converged : ndarray of shape (b,), bool
        Whether the last step was as short as asked. Where not, the row is the best that was seen.
    n_restarts : ndarray of shape (b,), int64
    """

    rows: Matrix
    distances: Vector
    n_iterations: Counts
    converged: NDArray[np.bool_]
    n_restarts: Counts


def best_preimages(first: Preimages, *others: Preimages) -> Preimages:
    """Of several results for the same scores, such as from different starts, the nearest of each row."""
    found = [first, *others]
    nearest = np.argmin([each.distances for each in found], axis=0)
    here = np.arange(len(nearest))

    def pick(name: str) -> NDArray[Any]:
        picked: NDArray[Any] = np.stack([getattr(each, name) for each in found])[nearest, here]
        return picked

    return Preimages(pick("rows"), pick("distances"), pick("n_iterations"), pick("converged"), pick("n_restarts"))


def find_preimages(
    model: AnyModel,
    scores: Any,
    *,
    start: Any = None,
    max_iterations: int = 200,
    tol: float = 1e-6,
    n_restarts: int = 5,
    seed: int = 0,
) -> Preimages:
    """Rows whose images are near the projections that some scores describe.

    Parameters
    ----------
    model : Model or NystroemModel
        With the RBF kernel.
    scores : ndarray of shape (b, k)
        As `project` gives them.
    start : ndarray of shape (b, n_features), optional
        Where to begin: the noisy rows themselves, as Mika et al. do. By default the training row that is nearest by its
        scores.
    max_iterations : int
        For each row, restarts included, ≥ 1.
    tol : float
        A row is done when a step is at most so many σ = 1/√(2γ) long.
    n_restarts : int
        Further starts of a row at most.
    seed : int
        Of the training rows that starts are chosen from, where there are more than 2048.

    Returns
    -------
    Preimages

    Raises
    ------
    InvalidInputError
        For another kernel than RBF, sparse training rows, or scores or starts that are not finite or of another shape.

    Notes
    -----
    Scores s of a row x describe its projection onto the components, Pφ(x) = φ̄ + Σ_a s_a v_a = Σ_i γ_i φ(x_i). With
    v_a = Σ_i α_ia (φ(x_i) − φ̄) and φ̄ the mean of the φ(x_i),

        γ_i = Σ_a s_a (α_ia − ᾱ_a) + 1/n,        Σ_i γ_i = 1.

    As k(z, z) = 1, the squared distance ‖φ(z) − Pφ(x)‖² is least where f(z) = Σ γ_i k(z, x_i) is largest; its gradient
    2γ Σ γ_i k(z, x_i)(x_i − z) vanishes where z is what it is replaced by in each iteration:

        z ← Σ γ_i k(z, x_i) x_i / Σ γ_i k(z, x_i).

    The step is ∇f/(2γf): uphill as long as the denominator f is positive. Where it is not, or is lost in the rounding
    of its terms, z is no nearer to the projection than points at infinity are, and the row starts again: from the
    training row that is nearest by scores, then from the 2nd, 4th, 8th … nearest. An iteration that diverges ends so
    too, because k(z, x_i) underflows. What is found is a local maximum of f; `best_preimages` keeps the best of several
    starts. A Nyström model has landmarks in the place of the x_i: see `Expansion`.

    Cost: an iteration of all rows is one pass over the training rows, b·n kernel values and 2·b·n·(n_features + k + 1)
    flops; rows that are done take no part. 10 to 30 iterations are usual. Memory: n·(k + 1) float64 and one block of
    training rows; some 5 times the result; 2048 training rows.

    References
    ----------
    Mika, Schölkopf, Smola, Müller, Scholz and Rätsch (1998), Kernel PCA and de-noising in feature spaces.
    """
    find = preimage_finder(model, max_iterations=max_iterations, tol=tol, n_restarts=n_restarts, seed=seed)
    return find(scores, start)


def preimage_finder(
    model: AnyModel, *, max_iterations: int = 200, tol: float = 1e-6, n_restarts: int = 5, seed: int = 0
) -> Callable[..., Preimages]:
    """Function from scores, and starts or None, to `Preimages`; holds what all blocks share: see `find_preimages`."""
    for name, value, least in (("max_iterations", max_iterations, 1), ("n_restarts", n_restarts, 0), ("seed", seed, 0)):
        if not (is_whole(value) and value >= least):
            raise InvalidInputError(f"{name}={value!r}; an integer ≥ {least} is needed.")
    check_not_negative("tol", tol)
    expansion = expand(model)
    known, rows = choose_training_pairs(model, limit=N_CANDIDATES, seed=seed)
    expansion = replace(expansion, origin=rows.mean(axis=0, dtype=np.float64))
    candidates = rows.astype(np.float64) - expansion.origin

    def find(scores: Any, start: Any = None) -> Preimages:
        # a component whose eigenvalue is zero has no direction
        values = np.where(model.eigenvalues == 0, 0.0, check_scores(scores, model.n_components))
        order = _starts(values, known, n_restarts)
        if start is None:
            begin, order = candidates[order[:, 0]], order[:, 1:]
        else:
            begin = _check_start(start, len(values), model.n_features) - expansion.origin
        search = _Search(expansion, values, begin, candidates, order[:, :n_restarts])
        for _ in range(max_iterations):
            if len(search.active) == 0:
                break
            search.step(tol)
        return search.result()

    return find


class _Search:
    """State of the iteration of all rows; what is shifted by the origin of the expansion stays so until the result."""

    def __init__(self, expansion: Expansion, scores: Matrix, begin: Matrix, candidates: Matrix, order: Counts) -> None:
        self.expansion, self.scores, self.candidates, self.order = expansion, scores, candidates, order
        b = len(scores)
        self.points, self.best, self.highest = begin.copy(), begin.copy(), np.full(b, -np.inf)
        self.n_iterations, self.n_restarts = np.zeros(b, np.int64), np.zeros(b, np.int64)
        self.converged = np.zeros(b, np.bool_)
        self.active = np.arange(b)

    def step(self, tol: float) -> None:
        """One iteration of the rows that are active."""
        rows = self.active
        sums = self.expansion.sums(self.points[rows], self.scores[rows])
        self._keep_best(rows, sums.values)
        self.n_iterations[rows] += 1
        good = sums.values > VANISHING * sums.sizes  # neither for 0/0
        moving, lost = rows[good], rows[~good]
        moved = sums.products[good] / sums.values[good, None]
        lengths = np.linalg.norm(moved - self.points[moving], axis=1)
        self.points[moving] = moved
        done = lengths * math.sqrt(2 * self.expansion.kernel.gamma) <= tol
        self.converged[moving[done]] = True
        again = lost[self.n_restarts[lost] < self.order.shape[1]]
        self.points[again] = self.candidates[self.order[again, self.n_restarts[again]]]
        self.n_restarts[again] += 1
        self.active = np.sort(np.concatenate([moving[~done], again]))

    def result(self) -> Preimages:
        """Rows that converged, and the best that was seen of the others."""
        values = self.expansion.sums(self.points, self.scores).values
        worse = ~self.converged & (values < self.highest)
        rows = np.where(worse[:, None], self.best, self.points) + self.expansion.origin
        distances = self.expansion.distances(np.where(worse, self.highest, values), self.scores)
        return Preimages(rows, distances, self.n_iterations, self.converged, self.n_restarts)

    def _keep_best(self, rows: Counts, values: Vector) -> None:
        better = values > self.highest[rows]
        kept = rows[better]
        self.best[kept], self.highest[kept] = self.points[kept], values[better]


def _starts(scores: Matrix, known: Matrix, n_restarts: int) -> Counts:
    """Candidates to start each row from: the nearest by scores, then the 2nd, 4th, 8th … nearest."""
    ranks = [rank - 1 for rank in (2**power for power in range(n_restarts + 1)) if rank <= len(known)]
    order = np.empty((len(scores), len(ranks)), np.int64)
    for first in range(0, len(scores), STRIP_ROWS):
        distances = _distances(scores[first : first + STRIP_ROWS], known)
        order[first : first + STRIP_ROWS] = distances.argsort(axis=1, kind="stable")[:, ranks]
    return order


def _distances(scores: Matrix, known: Matrix) -> Matrix:
    if scores.shape[1] == 0:
        return np.zeros((len(scores), len(known)))
    from scipy.spatial.distance import cdist

    distances: Matrix = cdist(scores, known, "sqeuclidean")
    return distances


def _check_start(start: Any, n_rows: int, n_features: int) -> Matrix:
    rows = as_array("start rows", start)
    if rows.ndim != 2 or len(rows) != n_rows:
        raise InvalidInputError(f"start has shape {rows.shape}; one row for each of the {n_rows} scores is needed.")
    check_width(rows.shape[1], n_features)
    if rows.dtype.kind not in "fiub":
        raise InvalidInputError(f"start has dtype {rows.dtype}; real numbers are needed.")
    finite = FiniteCheck()
    finite.add(rows)
    finite.raise_if_any()
    return rows.astype(np.float64)
