"""The picture on the first page: rings that PCA leaves as they are. `python docs/figures/draw.py` writes rings.png."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import make_circles
from sklearn.decomposition import PCA

from scalable_kpca import KernelPCA
from scalable_kpca.plots import draw_component, draw_scatter, look


def draw(path: Path) -> None:
    """Rows with the contours of the first component, PCA, and kernel PCA, side by side."""
    X, rings = make_circles(400, factor=0.35, noise=0.06, random_state=0)
    fitted = KernelPCA(2, kernel="rbf", gamma=4.0).fit(X)
    scores, linear = fitted.transform(X), PCA(2).fit_transform(X)
    with look():
        figure = Figure(figsize=(11, 3.5), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        draw_component(left, fitted, 0, np.asarray(X), groups=rings)
        left.set_title("rows, and the first component's contours")
        draw_scatter(middle, linear[:, 0], linear[:, 1], groups=rings)
        middle.set_title("PCA")
        draw_scatter(right, scores[:, 0], scores[:, 1], groups=rings)
        right.set_title("kernel PCA")
        figure.savefig(path, dpi=110, facecolor="white")


if __name__ == "__main__":
    mpl.use("agg")
    draw(Path(__file__).with_name("rings.png"))
