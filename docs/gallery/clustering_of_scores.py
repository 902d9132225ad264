r"""
Clustering of scores
====================

k-means looks for centres, and puts each row to the next one: it divides the space by planes. On the scores of kernel
PCA it divides feature space, so that clusters of rows may have any shape that the kernel can see. How well clusters
agree with known groups is measured by the adjusted Rand index: 1 where they are the same, 0 on average where chance
decides.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

from scalable_kpca import KernelPCA
from scalable_kpca.plots import draw_images, draw_scatter


def clusters_of(rows, n_clusters):
    """Numbers of the clusters that k-means finds, the best of ten starts."""
    return KMeans(n_clusters, n_init=10, random_state=0).fit_predict(rows)


# %%
# Two rings and two half-moons, and two clusters of each.

plane = {
    "rings": (*make_circles(400, factor=0.3, noise=0.05, random_state=0), KernelPCA(2, kernel="rbf", gamma=4)),
    "moons": (*make_moons(400, noise=0.06, random_state=0), KernelPCA(1, kernel="rbf", gamma=20)),
}
indices = {}
figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), layout="constrained")
for (name, (rows, groups, pca)), panels in zip(plane.items(), axes.reshape(2, 2), strict=True):
    for panel, features in zip(panels, ("rows", "scores"), strict=True):
        found = clusters_of(rows if features == "rows" else pca.fit_transform(rows), 2)
        indices[name, features] = adjusted_rand_score(groups, found)
        draw_scatter(panel, rows[:, 0], rows[:, 1], groups=found, names=("x₁", "x₂"))
        panel.set(title=f"k-means on {features}\nadjusted Rand index {indices[name, features]:z.2f}", aspect="equal")

# %%
# The rings are told apart by one component of this kernel or by four. Of the moons it is the first alone: the second
# halves a moon, and k-means follows it.
#
# Digits: ten clusters of rows; of scores; and of scores divided by their length, so that only their direction counts,
# as in spectral clustering (Ng, Jordan and Weiss 2002). With a kernel this narrow digits with many others near them
# have long images in the span of the components, and odd ones short ones; k-means on the scores takes the short ones
# for a cluster.

digits = load_digits()
X, classes = digits.data / 16, digits.target
scores = KernelPCA(9, kernel="rbf", gamma=0.5).fit_transform(X)
directions = scores / np.linalg.norm(scores, axis=1, keepdims=True)
found = {
    "rows": clusters_of(X, 10),
    "scores": clusters_of(scores, 10),
    "directions of scores": clusters_of(directions, 10),
}
for features, clusters in found.items():
    indices["digits", features] = adjusted_rand_score(classes, clusters)


def means(clusters):
    """Mean picture of each cluster, in the order of the class that most of its digits are of."""
    mostly = [np.bincount(classes[clusters == cluster]).argmax() for cluster in range(10)]
    return [X[clusters == cluster].mean(axis=0).reshape(8, 8) for cluster in np.argsort(mostly, kind="stable")]


figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
labels = [f"{features}\n{indices['digits', features]:.2f}" for features in found]
draw_images(axis, np.array([means(clusters) for clusters in found.values()]), row_labels=labels, limits=(0, 1))
axis.set_title("means of the clusters, and adjusted Rand index")

# %%
# What its test asserts (``tests/gallery/test_clustering_of_scores.py``):

for (name, features), index in indices.items():
    print(f"{name}, k-means on {features}: adjusted Rand index {index:z.2f}")
