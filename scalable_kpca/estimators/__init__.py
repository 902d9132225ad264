"""`KernelPCA`: scikit-learn's shape around an out-of-core fit. What it takes (`inputs`), what a fitted one does."""

from scalable_kpca.estimators.kernel_pca import KernelPCA

__all__ = ["KernelPCA"]
