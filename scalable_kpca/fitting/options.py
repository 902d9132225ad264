"""What is asked of a fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scalable_kpca.kernels import CallableKernel, Kernel, resolve_kernel
from scalable_kpca.source import RowSummary

__all__ = ["RANDOMIZED", "Options"]

RANDOMIZED = "randomized"  # scikit-learn's name of a solver, for which ours is block Krylov


@dataclass(frozen=True, kw_only=True)
class Options:
    """The parameters of `KernelPCA`, which documents them."""

    kernel: Any
    kernel_params: Mapping[str, Any] | None
    gamma: float | str | None
    degree: float
    coef0: float
    method: str
    eigen_solver: str
    gram: str
    n_landmarks: int
    landmarks: Any
    tol: float | None
    max_passes: int | None
    remove_zero_eig: bool
    indefinite: str
    on_failure: str
    dtype: str
    memory_limit: int | str | None
    workdir: str | Path | None
    tile_rows: int | None
    seed: int
    n_jobs: int | None

    @property
    def kernel_name(self) -> str:
        """Of the kernel; of a function, what all are called."""
        return self.kernel if isinstance(self.kernel, str) else CallableKernel.name

    @property
    def landmark_method(self) -> str:
        """Name of the method; ``"given"`` for an array."""
        return self.landmarks if isinstance(self.landmarks, str) else "given"

    @property
    def landmark_count(self) -> int:
        """Landmarks that are asked for, or given."""
        return self.n_landmarks if isinstance(self.landmarks, str) else int(np.shape(self.landmarks)[0])

    def resolve_kernel(self, summary: RowSummary, median: Callable[[], float] | None = None) -> Kernel:
        """The kernel with every parameter resolved on the rows."""
        return resolve_kernel(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            n_features=summary.n_features,
            variance=summary.variance,
            median=median,
        )
