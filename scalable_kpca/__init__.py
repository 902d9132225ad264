"""Exact, certified, resumable kernel PCA for data whose Gram matrix fits nowhere.

`KernelPCA` stands in for scikit-learn's; `plan` says what a fit would cost; `load_model`, `project` and `reconstruct`
use a saved model; `eigenvalue_table`, `compare_with_pca` and `select_gamma` say how good one is; the command line is
``skpca``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalable_kpca.approximate import merge
    from scalable_kpca.errors import KernelPCAError
    from scalable_kpca.estimators import KernelPCA
    from scalable_kpca.kernels import kernel_array
    from scalable_kpca.model import Model, load_model
    from scalable_kpca.planning import plan
    from scalable_kpca.preimage import reconstruct
    from scalable_kpca.quality import compare_with_pca, eigenvalue_table, select_gamma
    from scalable_kpca.transform import project

__version__ = "0.1.0"

__all__ = [
    "KernelPCA",
    "KernelPCAError",
    "Model",
    "compare_with_pca",
    "eigenvalue_table",
    "kernel_array",
    "load_model",
    "merge",
    "plan",
    "project",
    "reconstruct",
    "select_gamma",
]

# names are imported when they are first used, so that `skpca --help` does not wait for numpy, dask and scikit-learn
_HOMES = {
    "KernelPCA": "estimators",
    "KernelPCAError": "errors",
    "Model": "model",
    "compare_with_pca": "quality",
    "eigenvalue_table": "quality",
    "kernel_array": "kernels",
    "load_model": "model",
    "merge": "approximate",
    "plan": "planning",
    "project": "transform",
    "reconstruct": "preimage",
    "select_gamma": "quality",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
