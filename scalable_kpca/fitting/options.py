"""What is asked of a fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalable_kpca.kernels import Kernel, resolve_kernel
from scalable_kpca.source import RowSummary

__all__ = ["Options"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The parameters of `KernelPCA`, which documents them."""

    kernel: str
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
    random_state: int | None
    n_jobs: int | None

    @property
    def seed(self) -> int:
        """Of start vectors and landmarks."""
        return self.random_state or 0

    @property
    def landmark_method(self) -> str:
        """Name of the method; ``"given"`` for an array."""
        return self.landmarks if isinstance(self.landmarks, str) else "given"

    @property
    def landmark_count(self) -> int:
        """Landmarks that are asked for, or given."""
        return self.n_landmarks if isinstance(self.landmarks, str) else len(self.landmarks)

    def resolve_kernel(self, summary: RowSummary) -> Kernel:
        """The kernel with every parameter resolved on the rows."""
        return resolve_kernel(
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            n_features=summary.n_features,
            variance=summary.variance,
        )
