"""Eigensolvers: an operator in, an `EigenResult` out."""

from scalable_kpca.solvers.arpack import solve_arpack
from scalable_kpca.solvers.block_krylov import (
    MAX_PASSES,
    KrylovState,
    begin,
    expand,
    random_directions,
    solve_block_krylov,
)
from scalable_kpca.solvers.dense import solve_dense
from scalable_kpca.solvers.lowest import lowest_eigenvalue
from scalable_kpca.solvers.power import solve_power
from scalable_kpca.solvers.result import EigenResult, canonical

__all__ = [
    "MAX_PASSES",
    "EigenResult",
    "KrylovState",
    "begin",
    "canonical",
    "expand",
    "lowest_eigenvalue",
    "random_directions",
    "solve_arpack",
    "solve_block_krylov",
    "solve_dense",
    "solve_power",
]
