"""From an array of the caller to a fit: what is asked (`options`), where rows are read (`arrays`), and the `fits`."""

from scalable_kpca.fitting.arrays import scores_of
from scalable_kpca.fitting.fits import Added, Fitted, Fitting
from scalable_kpca.fitting.options import RANDOMIZED, Options
from scalable_kpca.fitting.planned import resident_bytes

__all__ = ["RANDOMIZED", "Added", "Fitted", "Fitting", "Options", "resident_bytes", "scores_of"]
