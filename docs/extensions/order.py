"""In which order the pages of the gallery stand, and what their pictures look like."""

from __future__ import annotations

from typing import Any

__all__ = ["Taught", "our_look"]

PAGES = (
    "pca_clusters",
    "iris",
    "particle_on_a_line",
    "variance_to_keep",
    "many_features",
    "eigen_images",
    "power_method",
    "encoder_decoder",
    "explicit_map",
    "circle",
    "concentric_circles",
    "eigenfunctions",
    "kernels_compared",
    "digits_classified",
    "denoising",
    "novelty_detection",
    "clustering_of_scores",
    "landmarks_compared",
    "a_million_rows",
)


class Taught:
    """Sort key of the file names: from PCA to what kernel PCA is used for."""

    def __init__(self, _directory: str) -> None:
        pass

    def __call__(self, name: str) -> int:
        """Place of a page."""
        return PAGES.index(name.removesuffix(".py"))


def our_look(_configuration: Any, _name: str) -> None:
    """Before each page: settings that the pictures of the package have."""
    import matplotlib as mpl

    from scalable_kpca.plots.canvas import SETTINGS

    mpl.rcdefaults()
    mpl.use("agg")
    mpl.rcParams.update(SETTINGS | {"savefig.facecolor": "white", "figure.dpi": 100})
