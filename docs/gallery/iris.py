r"""
Iris
====

Four measurements of 150 flowers of three species (Anderson 1935, Fisher 1936). Two of them show a part of what
sets the species apart; the plane of the first two components holds nearly all the variance of the four. Its share is

.. math:: \frac{λ_1 + λ_2}{λ_1 + λ_2 + λ_3 + λ_4}

of the eigenvalues, which scikit-learn's ``PCA`` finds from the covariance matrix and kernel PCA with the linear kernel
from the Gram matrix. Scores agree up to the signs of the components.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_iris

from scalable_kpca import KernelPCA
from scalable_kpca.plots import draw_cumulative, draw_scatter

iris = load_iris()
X, species = iris.data, iris.target

# %%
# All components that are not zero are returned when no number is asked for: four.

pca = KernelPCA(None, kernel="linear").fit(X)
scores = pca.transform(X)
share = float(pca.explained_variance_ratio_[:2].sum())

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
draw_scatter(axes[0], *X.T[:2], groups=species, names=iris.feature_names[:2])
axes[0].set(title="two of four features", xlim=(4, 8.2), ylim=(1.8, 4.6))
axes[0].legend(iris.target_names, frameon=False)
draw_scatter(axes[1], *scores.T[:2], groups=species, names=("component 1", "component 2"))
axes[1].set_title("scores")
axes[2].set_title("explained by the first components")
draw_cumulative(axes[2], np.cumsum(pca.explained_variance_ratio_))

# %%
# What its test asserts (``tests/gallery/test_iris.py``):

print(f"{len(pca.eigenvalues_)} components; the first two explain {share:.2%} of the variance")
