"""Eigensolvers: an operator in, an `EigenResult` out."""

from scalable_kpca.solvers.arpack import lowest_eigenvalue, solve_arpack
from scalable_kpca.solvers.dense import solve_dense
from scalable_kpca.solvers.result import EigenResult, canonical

__all__ = ["EigenResult", "canonical", "lowest_eigenvalue", "solve_arpack", "solve_dense"]
