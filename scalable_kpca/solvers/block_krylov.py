"""Block Lanczos with full re-orthogonalisation: many vectors a pass, and a residual test that costs no pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from scalable_kpca.errors import NotConvergedError
from scalable_kpca.operator import CenteredGram
from scalable_kpca.solvers.result import EigenResult, canonical

__all__ = ["KrylovState", "begin", "expand", "random_directions", "solve_block_krylov"]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Ritz = tuple[Vector, Matrix, Vector]
EPS = float(np.finfo(np.float64).eps)
SMALL_SPREAD = 0.1  # of the smallest wanted eigenvalue: residuals of the Ritz vectors kept beside the wanted ones
COMPRESSED_ROWS = 8192  # at a time
FIRST_BLOCKS = 8  # that there is room for in the beginning
MAX_PASSES = 100  # when no limit is given: ten times what a spectrum that can be told apart takes


@dataclass(frozen=True, eq=False)
class KrylovState:
    """Everything that the next pass needs: ``A·basis = basis·projected + block·coupling`` up to the product's rounding.

    Attributes
    ----------
    room : ndarray of shape (n, ≥ m), float64
        Columns one after another in memory, the first m of them the basis. The next ones are written by whoever expands
        this state, which can be done once.
    projected : ndarray of shape (m, m), float64
        basisᵀ A basis, symmetric.
    block : ndarray of shape (n, b), float64
        Orthonormal columns, orthogonal to the basis: the next to be multiplied. b is 0 when the basis is invariant.
    coupling : ndarray of shape (b, m), float64
        blockᵀ A basis.
    rounding : float
        Largest disagreement seen between the two ways to compute blockᵀ A basis: the size of the product's rounding.
    n_passes : int
        Products so far.
    """

    room: Matrix
    projected: Matrix
    block: Matrix
    coupling: Matrix
    rounding: float = 0.0
    n_passes: int = 0

    def __post_init__(self) -> None:
        # one memory layout, whatever made the arrays: BLAS adds in another order for another layout
        for name in ("projected", "block", "coupling"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name)))

    @property
    def basis(self) -> Matrix:
        """Orthonormal columns whose images are known, shape (n, m): a view."""
        return self.room[:, : len(self.projected)]

    def ritz(self) -> Ritz:
        """Ritz values, descending, their coordinates in the basis, and residual norms from the recurrence."""
        values, vectors = scipy.linalg.eigh(self.projected)
        values, vectors = values[::-1], vectors[:, ::-1]
        return values, vectors, np.linalg.norm(self.coupling @ vectors, axis=0)


def solve_block_krylov(
    operator: CenteredGram,
    start: Matrix,
    count: Callable[[Vector, Vector], int | None],
    *,
    tol: float = 1e-6,
    max_basis: int,
    max_passes: int = MAX_PASSES,
    seed: int = 0,
) -> EigenResult:
    """Leading eigenpairs by block Krylov iteration from a given block.

    Parameters
    ----------
    operator : CenteredGram of shape (n_samples, n_samples)
        One pass a product with a block.
    start : ndarray of shape (n_samples, b)
        Start block, b ≥ k: guesses of the eigenvectors, and random columns so that nothing is out of reach.
    count : callable
        ``count(values, residual_norms)`` says how many leading pairs are wanted, given all Ritz values; None when the
        basis has to grow before that is known.
    tol : float
        Pairs are accepted when ‖K̃v − λv‖ ≤ tol·λ₁, or when it is within the rounding of the products.
    max_basis : int
        Columns of the basis at which it is compressed to its leading Ritz vectors (thick restart); at least 3b.
    max_passes : int
        Limit on products.
    seed : int
        Of the random vectors that are needed when the basis is invariant before it is large enough.

    Returns
    -------
    EigenResult

    Raises
    ------
    NotConvergedError
        When `max_passes` are used up; the message names the residual that was reached, `result` holds the pairs.

    Notes
    -----
    A pass: one product with b vectors, 8·n·m·b flops of orthogonalisation. Memory: n·(max_basis + 4b) float64; the
    basis grows and is compressed where it is. It is kept orthonormal by two rounds of classical Gram–Schmidt in
    float64, also where products are float32.

    References
    ----------
    Golub and Underwood (1977), The block Lanczos method; Wu and Simon (2000), Thick-restart Lanczos method.
    """
    rng = np.random.default_rng(seed)
    n = operator.shape[0]
    nothing = np.empty((n, 0))
    block, _ = _orthonormal(start - start.mean(axis=0), nothing, n * EPS * float(np.linalg.norm(start)))
    state = begin(nothing, block, min(max_basis, FIRST_BLOCKS * start.shape[1]))
    b = max(1, start.shape[1])
    while True:
        state = expand(operator, state)
        ritz = values, _, residuals = state.ritz()
        wanted = count(values, residuals)
        # below the rounding of the products a residual says nothing more, and no further pass would make it smaller
        accepted = max(tol * values[0], state.rounding)
        if wanted is not None and wanted <= len(values) and (residuals[:wanted] <= accepted).all():
            return _result(state, ritz, wanted, max_basis // 2)
        if state.n_passes >= max_passes:
            raise _not_converged(state, ritz, wanted, tol, max_passes, max_basis)
        if state.block.shape[1] == 0:
            state = _continue_invariant(state, b, rng)
            if state.block.shape[1] == 0:
                k = len(values) if wanted is None else min(wanted, len(values))
                return _result(state, ritz, k, max_basis // 2)
        elif state.basis.shape[1] + 2 * state.block.shape[1] > max_basis:
            state = _restart(state, max(b, min(len(values), max_basis - 2 * b)))


def _not_converged(
    state: KrylovState, ritz: Ritz, wanted: int | None, tol: float, max_passes: int, max_basis: int
) -> NotConvergedError:
    values, _, residuals = ritz
    if wanted is None:
        message = (
            f"block Krylov has {len(values)} components in max_passes={max_passes} passes, too few for the share of "
            f"the variance that is asked for; its basis holds {max_basis} columns. Raise memory_limit, ask for a "
            "smaller share or a number of components, or use eigen_solver='dense'."
        )
    else:
        message = (
            f"block Krylov reached a residual of {residuals[:wanted].max() / values[0]:.2g}·λ₁ in "
            f"max_passes={max_passes} passes, tol={tol:.2g} was asked for; raise max_passes or tol, or set dtype to "
            "float64."
        )
    k = len(values) if wanted is None else min(wanted, len(values))
    return NotConvergedError(message, result=_result(state, ritz, k, max_basis // 2))


def begin(vectors: Matrix, block: Matrix, n_columns: int) -> KrylovState:
    """State before the first pass: a block to be multiplied, and vectors whose images count as zero beside it.

    Parameters
    ----------
    vectors : ndarray of shape (n, p), float64
        Orthonormal columns that the iteration stays orthogonal to; copied.
    block : ndarray of shape (n, b), float64
        Orthonormal columns, orthogonal to the vectors.
    n_columns : int
        That the basis will have, p among them; should they not suffice, it is copied to where there are more.

    Returns
    -------
    KrylovState
    """
    (n, p), b = vectors.shape, block.shape[1]
    room = np.empty((n, max(n_columns, p)), order="F")
    room[:, :p] = vectors
    return KrylovState(room, np.zeros((p, p)), block, np.zeros((b, p)))


def expand(operator: CenteredGram, state: KrylovState) -> KrylovState:
    """One pass: the block joins the basis, what its image has outside becomes the next block."""
    m, b = state.basis.shape[1], state.block.shape[1]
    image = operator.matmat(state.block)
    room = _with_columns(state.room, state.block, m)
    basis = room[:, : m + b]
    coordinates = basis.T @ image
    image -= basis @ coordinates
    correction = basis.T @ image
    image -= basis @ correction
    coordinates += correction
    projected = np.empty((m + b, m + b))
    projected[:m, :m] = state.projected
    projected[:m, m:] = (coordinates[:m] + state.coupling.T) / 2
    projected[m:, :m] = projected[:m, m:].T
    projected[m:, m:] = (coordinates[m:] + coordinates[m:].T) / 2
    scale = float(np.abs(np.diagonal(projected)).max(initial=0.0))
    disagreement = np.concatenate([coordinates[:m] - state.coupling.T, (coordinates[m:] - coordinates[m:].T) / 2])
    block, factor = _orthonormal(image, basis, len(image) * EPS * scale)
    return KrylovState(
        room=room,
        projected=projected,
        block=block,
        coupling=np.concatenate([np.zeros((block.shape[1], m)), factor], axis=1),
        rounding=max(state.rounding, float(np.linalg.norm(disagreement, 2))),
        n_passes=state.n_passes + 1,
    )


def _with_columns(room: Matrix, block: Matrix, m: int) -> Matrix:
    """Columns with a block behind the first m of them; the same array while there is room."""
    stop = m + block.shape[1]
    if room.shape[1] < stop:
        larger = np.empty((len(room), max(stop, 2 * room.shape[1])), order="F")
        larger[:, :m] = room[:, :m]
        room = larger
    room[:, m:stop] = block
    return room


def _orthonormal(image: Matrix, basis: Matrix, floor: float) -> tuple[Matrix, Matrix]:
    """Block and factor with image = block·factor; directions not longer than `floor` are rounding and left out."""
    q, r = scipy.linalg.qr(image, mode="economic", overwrite_a=True, check_finite=False)
    left, lengths, right = scipy.linalg.svd(r)
    rank = int((lengths > floor).sum())
    block = q @ left[:, :rank]
    if basis.shape[1] and rank:
        # short directions carry the rounding of long ones: make them orthogonal to the basis again
        block -= basis @ (basis.T @ block)
        block = _nearest_orthonormal(block)
    return block, lengths[:rank, None] * right[:rank]


def _nearest_orthonormal(block: Matrix) -> Matrix:
    """Orthonormal columns closest to nearly orthonormal ones, so that each keeps its meaning (polar factor)."""
    values, vectors = scipy.linalg.eigh(block.T @ block)
    return np.asarray(block @ ((vectors / np.sqrt(values)) @ vectors.T), np.float64)


def _continue_invariant(state: KrylovState, b: int, rng: np.random.Generator) -> KrylovState:
    """Fresh random directions for a basis that the operator maps into itself; none when it spans everything centred."""
    block = random_directions(state.basis, b, rng)
    width = block.shape[1]
    return replace(state, block=block, coupling=np.zeros((width, state.basis.shape[1]))) if width else state


def random_directions(basis: Matrix, width: int, rng: np.random.Generator) -> Matrix:
    """Gaussian directions in what centred vectors leave beside a basis: orthonormal, as many as there is room for.

    Parameters
    ----------
    basis : ndarray of shape (n, m), float64
        Orthonormal, centred columns.
    width : int
        Columns wanted.
    rng : numpy.random.Generator
        Of the draw.

    Returns
    -------
    ndarray of shape (n, min(width, n − 1 − m)), float64
    """
    n, m = basis.shape
    fresh = rng.standard_normal((n, max(0, min(width, n - 1 - m))))
    fresh -= fresh.mean(axis=0)
    for _ in range(2):
        fresh -= basis @ (basis.T @ fresh)
    return np.asarray(scipy.linalg.qr(fresh, mode="economic")[0], np.float64)


def _restart(state: KrylovState, kept: int) -> KrylovState:
    """Thick restart: the leading Ritz vectors take the place of the basis, the next block stays."""
    values, vectors, _ = state.ritz()
    for start in range(0, len(state.room), COMPRESSED_ROWS):
        rows = slice(start, start + COMPRESSED_ROWS)
        state.room[rows, :kept] = state.basis[rows] @ vectors[:, :kept]
    return KrylovState(
        room=state.room,
        projected=np.diag(values[:kept]),
        block=state.block,
        coupling=state.coupling @ vectors[:, :kept],
        rounding=state.rounding,
        n_passes=state.n_passes,
    )


def _result(state: KrylovState, ritz: Ritz, k: int, max_vectors: int) -> EigenResult:
    values, coordinates, residuals = ritz
    projected = state.coupling @ coordinates
    # beside the wanted pairs, those that are nearly as good: what is left without them has smaller eigenvalues
    spread = np.sqrt(np.cumsum(np.square(residuals)))
    p = max(k, min(int((spread <= SMALL_SPREAD * values[k - 1]).sum()), max_vectors))
    vectors = state.basis @ coordinates[:, :p]
    found, columns = canonical(values[:k], vectors[:, :k])
    return EigenResult(
        eigenvalues=found,
        eigenvectors=columns,
        solver="block_krylov",
        n_passes=state.n_passes,
        is_whole_spectrum=state.basis.shape[1] >= state.basis.shape[0] - 1,
        residual_norms=residuals[:k],
        rounding=state.rounding,
        ritz_values=values,
        ritz_gram=projected.T @ projected,
        ritz_vectors=vectors,
    )
