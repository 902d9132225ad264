"""Rows from scores: a ridge map learned on training rows (`ridge`), or the fixed point of Mika et al. (`fixed_point`).

What scores say about a row is its projection Pφ(x) in feature space; few points there are the image of a row. A
pre-image is a row whose image is near: projecting and going back takes away what the components leave out, noise first.
"""

from scalable_kpca.model import RidgeMap, as_array, check_ridge_kernel, check_scores
from scalable_kpca.preimage.expansion import Expansion, expand
from scalable_kpca.preimage.fixed_point import Preimages, best_preimages, find_preimages, preimage_finder
from scalable_kpca.preimage.pairs import choose_training_pairs, dense, reconstruct_lazily
from scalable_kpca.preimage.reconstruction import held_map, learn_ridge, most_pairs, reconstruct
from scalable_kpca.preimage.ridge import check_ridge, fit_ridge_map, ridge_bytes

__all__ = [
    "Expansion",
    "Preimages",
    "RidgeMap",
    "as_array",
    "best_preimages",
    "check_ridge",
    "check_ridge_kernel",
    "check_scores",
    "choose_training_pairs",
    "dense",
    "expand",
    "find_preimages",
    "fit_ridge_map",
    "held_map",
    "learn_ridge",
    "most_pairs",
    "preimage_finder",
    "reconstruct",
    "reconstruct_lazily",
    "ridge_bytes",
]
