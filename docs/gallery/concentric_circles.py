r"""
Two rings that no line separates
================================

Rows on two circles about one centre, of radius 1 and 0.3. Every direction of the plane sees the small ring inside the
large one, so that no score of PCA tells them apart. The map

.. math:: φ(x_1, x_2) = (x_1^2, \sqrt{2} x_1 x_2, x_2^2), \qquad φ(x)^T φ(z) = (x^T z)^2

takes them to three dimensions, where a plane lies between them; the rbf kernel
:math:`k(x, z) = \exp(-γ \lVert x - z \rVert^2)` takes them to infinitely many. Coordinates need not be computed in
either space: kernel values are enough. Introductions to kernel PCA begin with this example; the kernel is in Schölkopf,
Smola and Müller (1998).
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import make_circles

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE, draw_scatter, draw_side_by_side

X, ring = make_circles(400, factor=0.3, noise=0.05, random_state=0)  # ring 1 is the small one


def best_threshold(scores):
    """Threshold on one score, and the share of rows that are then on the side of their ring."""
    order = np.argsort(scores)
    small = ring[order] == 1
    # rows of the small ring up to here, and of the large one beyond
    right = np.cumsum(small) + np.cumsum(~small[::-1])[::-1] - ~small
    right = np.maximum(right, len(ring) - right)[:-1]
    place = int(right.argmax())
    return scores[order[place : place + 2]].mean(), right[place] / len(ring)


# %%
# PCA is kernel PCA with the linear kernel.

pca_scores = KernelPCA(2, kernel="linear").fit_transform(X)
scores = KernelPCA(2, kernel="rbf", gamma=2).fit_transform(X)
threshold, share = best_threshold(scores[:, 0])

figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
draw_scatter(axes[0], X[:, 0], X[:, 1], groups=ring, names=("x₁", "x₂"))
axes[0].set(title="the rows", aspect="equal")
draw_side_by_side(axes[1], axes[2], pca_scores, scores, groups=ring)
axes[2].axvline(threshold, color=PALETTE[3], linestyle="--", label="threshold")
axes[2].legend(loc="upper right")

# %%
# Not only the two components: any direction of the plane is tried. Without noise, and with ever more rows, the best
# threshold lies at the edge of the small ring and has all of it, and the part of the large one beyond, on the right
# sides: :math:`\frac{1}{2} (1 + \arccos(0.3) / π)`, which is 70 %.

angles = np.linspace(0, np.pi, 180, endpoint=False)
of_pca = max(best_threshold(pca_scores @ [np.cos(angle), np.sin(angle)])[1] for angle in angles)
expected = (1 + np.arccos(0.3) / np.pi) / 2

# %%
# The three features written out: on a ring :math:`z_1 + z_3` is its squared radius.

features = np.column_stack([X[:, 0] ** 2, np.sqrt(2) * X[:, 0] * X[:, 1], X[:, 1] ** 2])
of_radius = best_threshold(features[:, 0] + features[:, 2])[1]

# %%
# What its test asserts (``tests/gallery/test_concentric_circles.py``):

print(f"rows on the side of their ring, by a threshold on the first component of kernel PCA: {share:.0%}")
print(f"by one along any direction of PCA: {of_pca:.1%}, expected {expected:.1%}")
print(f"by the plane z₁ + z₃ = c in three dimensions: {of_radius:.0%}")
