"""The homes of a tile, behind one protocol: `build` once, then `multiply` in every pass."""

from scalable_kpca.gram.given import check_matrix
from scalable_kpca.gram.memory import MemoryGram
from scalable_kpca.gram.passes import Gram, PassResult
from scalable_kpca.gram.products import TileCounts
from scalable_kpca.gram.recompute import RecomputeGram
from scalable_kpca.gram.store import StoredTiles, create_tiles, find_tiles
from scalable_kpca.gram.stored import StoredGram

__all__ = [
    "Gram",
    "MemoryGram",
    "PassResult",
    "RecomputeGram",
    "StoredGram",
    "StoredTiles",
    "TileCounts",
    "check_matrix",
    "create_tiles",
    "find_tiles",
]
