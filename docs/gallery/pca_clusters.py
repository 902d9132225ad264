r"""
Three and four clusters
=======================

Rows of three or of four clusters in the plane, to which five features of noise are added. PCA is kernel PCA with the
linear kernel: its eigenvalues are :math:`n` times those of the covariance matrix

.. math:: C = \frac{1}{n} \sum_i (x_i - \bar{x}) (x_i - \bar{x})^T

(Welling, eq. 1 and 8). How many of them are large says how many directions are of interest: clusters along a diagonal
need one, clusters at the corners of a square two. The clusters stay apart in the plane of the first two components.
The data are those of examples 1 and 2 in Rogers and Girolami (2017), chapter 7.
"""

import numpy as np
from matplotlib import pyplot as plt

from scalable_kpca import KernelPCA
from scalable_kpca.plots import draw_directions, draw_eigenvalues, draw_scatter

N_EACH, N_NOISE, NAMES = 20, 5, ("component 1", "component 2")


def clusters(centres, seed):
    """Rows around centres in the plane, with features of noise, and their groups."""
    groups = np.repeat(np.arange(len(centres)), N_EACH)
    rng = np.random.default_rng(seed)
    plane = np.asarray(centres)[groups] + rng.standard_normal((len(groups), 2))
    return np.column_stack([plane, rng.standard_normal((len(groups), N_NOISE))]), groups


# %%
# Directions are columns :math:`u_a = \sum_i (x_i - \bar{x}) v_{ia} / \sqrt{\lambda_a}` of the centred rows and the
# eigenvectors of the Gram matrix (Welling, eq. 6 and 9).


def directions(X, pca):
    """Unit vectors in the space of the rows, one for each component."""
    return (X - X.mean(axis=0)).T @ pca.eigenvectors_ / np.sqrt(pca.eigenvalues_)


def draw(X, groups, pca):
    """Rows with both directions, variances along all seven, and scores."""
    _, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    draw_scatter(axes[0], X[:, 0], X[:, 1], groups=groups, names=("x₁", "x₂"))
    axes[0].autoscale(enable=False)
    draw_directions(axes[0], X[:, :2].mean(axis=0), directions(X, pca)[:2, :2])
    axes[0].set(title="rows, components 1 and 2 (dashed)", aspect="equal")
    draw_eigenvalues(axes[1], pca.eigenvalues_ / len(X))
    axes[1].set(title="all seven eigenvalues of C", ylabel="variance λ/n")
    scores = pca.transform(X)
    draw_scatter(axes[2], *scores.T[:2], groups=groups, names=NAMES)
    axes[2].set_title("scores")
    axes[2].set_aspect("equal", "datalim")


# %%
# Three clusters on a diagonal: one eigenvalue is large, and the second direction is one of noise. What is drawn of it
# is its part in the plane.

three, three_groups = clusters([(0, 0), (5, 5), (-5, -5)], seed=0)
three_pca = KernelPCA(None, kernel="linear").fit(three)
draw(three, three_groups, three_pca)

# %%
# Four clusters at the corners of a square: two are large.

four, four_groups = clusters([(0, 0), (5, 5), (5, 0), (0, 5)], seed=0)
four_pca = KernelPCA(None, kernel="linear").fit(four)
draw(four, four_groups, four_pca)

# %%
# The largest eigenvalue of :math:`n` rows of :math:`d` features of noise with variance 1 is near
# :math:`(1 + \sqrt{d/n})^2` (Marchenko and Pastur 1967); one that is more than twice as large counts as large here.


def count_large(X, pca):
    """Number of directions whose variance noise does not explain."""
    edge = (1 + np.sqrt(X.shape[1] / len(X))) ** 2
    return int((pca.eigenvalues_ / len(X) > 2 * edge).sum())


def count_near(X, groups, pca, n_components):
    """Number of rows whose scores are nearest to the mean scores of their own cluster."""
    scores = pca.transform(X)[:, :n_components]
    means = np.array([scores[groups == group].mean(axis=0) for group in np.unique(groups)])
    nearest = np.linalg.norm(scores[:, None] - means, axis=2).argmin(axis=1)
    return int((nearest == groups).sum())


n_three, n_four = count_large(three, three_pca), count_large(four, four_pca)
near_three = count_near(three, three_groups, three_pca, n_three)
near_four = count_near(four, four_groups, four_pca, n_four)

# %%
# What its test asserts (``tests/gallery/test_pca_clusters.py``):

print("large eigenvalues; rows whose scores are nearest to the mean of their own cluster")
print(f"three clusters: {n_three}; {near_three} of {len(three)}")
print(f"four clusters: {n_four}; {near_four} of {len(four)}")
