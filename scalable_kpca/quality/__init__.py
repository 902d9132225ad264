"""How good the components are: reconstruction error, eigenvalues with bounds, kernel PCA beside PCA, advice on gamma.

`compare_with_pca` and `select_gamma` judge on a sample of the rows, half of which, or a share, is held out.
"""

from scalable_kpca.quality.comparison import Comparison, Side, compare_with_pca
from scalable_kpca.quality.errors import reconstruction_error
from scalable_kpca.quality.selection import GammaChoice, GammaScore, select_gamma
from scalable_kpca.quality.table import eigenvalue_table

__all__ = [
    "Comparison",
    "GammaChoice",
    "GammaScore",
    "Side",
    "compare_with_pca",
    "eigenvalue_table",
    "reconstruction_error",
    "select_gamma",
]
