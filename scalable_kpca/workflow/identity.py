"""A job that has been checked and planned, and the names of what it makes: same name, same contents."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from scalable_kpca.kernels import Kernel, resolve_kernel
from scalable_kpca.planning import ALGORITHM_VERSION, gram_fingerprint
from scalable_kpca.source import RowSummary, Source
from scalable_kpca.tiling import Plan
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.layout import Output

__all__ = ["Prepared", "run_fingerprint"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A job that has been checked and planned, before anything is written.

    Attributes
    ----------
    config : Config
    source : Source
    plan : Plan
    output : Output
    source_digest : str
        Identity of the source's contents when it was prepared; what is published belongs to them.
    fingerprint : str
        Identity of the run: same contents, kernel, plan and solver settings, same name.
    """

    config: Config
    source: Source
    plan: Plan
    output: Output
    source_digest: str
    fingerprint: str

    @property
    def rows_key(self) -> str:
        """Identity of the stored rows and of the labels that belong to them."""
        return _sha256([self.source_digest, self.plan.tile_rows, self.source.dtype])

    def kernel(self, summary: RowSummary) -> Kernel:
        """The kernel with every parameter resolved on the rows."""
        wanted = self.config.kernel
        return resolve_kernel(
            wanted.name,
            gamma=wanted.gamma,
            degree=wanted.degree,
            coef0=wanted.coef0,
            n_features=summary.n_features,
            variance=summary.variance,
        )

    def gram_key(self, kernel: Kernel) -> str:
        """Identity of the tiles: other components or tolerances use the same ones."""
        return gram_fingerprint(self.rows_key, kernel, self.plan)


def run_fingerprint(config: Config, source_digest: str, plan: Plan) -> str:
    """Identity of a run, SHA-256 in hexadecimal, of everything that its results depend on."""
    identity = {
        "source": source_digest,
        "kernel": config.kernel.model_dump(mode="json"),
        "method": "exact",
        "solver": [plan.solver, config.solver.tol, config.solver.max_passes],
        "n_components": config.n_components,
        "dtype": plan.dtype,
        "tile_rows": plan.tile_rows,
        "tiles_per_task": plan.tiles_per_task,
        "indefinite": config.indefinite,
        "on_failure": config.on_failure,
        "seed": config.seed,
        "algorithm": ALGORITHM_VERSION,
    }
    return _sha256(identity)


def _sha256(identity: Any) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
