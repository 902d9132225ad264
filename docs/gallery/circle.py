r"""
A circle and a polynomial kernel
================================

On a circle of radius 10, PCA finds two directions of the same variance, and no gain. The kernel
:math:`k(x, y) = (x^\top y + 1)^2` maps a row to six features,

.. math:: φ(x) = (1, \sqrt{2} x_1, \sqrt{2} x_2, \sqrt{2} x_1 x_2, x_1^2, x_2^2),

in which the circle lies in a subspace: :math:`x_1^2 + x_2^2` is 100 everywhere. So there are at most five eigenvalues
that are not zero, and four when the features are centred, as the constant one has no variance.
"""

import numpy as np
from matplotlib import pyplot as plt

from scalable_kpca import KernelPCA
from scalable_kpca.plots import draw_component, draw_eigenvalues, draw_scatter

angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 200)
X = 10 * np.column_stack([np.cos(angles), np.sin(angles)])

# %%
# Without centring, from the definition: the eigenvalues of the kernel matrix itself.

K = (X @ X.T + 1) ** 2
uncentred = np.linalg.eigvalsh(K)[::-1]
n_uncentred = int((uncentred > len(K) * np.finfo(float).eps * uncentred[0]).sum())

# %%
# Centred, as kernel PCA is: all components that are not zero are returned when no number is asked for.

pca = KernelPCA(None, kernel="poly", degree=2, gamma=1, coef0=1).fit(X)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
draw_scatter(axes[0], X[:, 0], X[:, 1], names=("x₁", "x₂"))
axes[0].set(title="the rows", aspect="equal")
draw_eigenvalues(axes[1], pca.eigenvalues_)
axes[1].set_title("all eigenvalues")
draw_component(axes[2], pca, 0, X)
axes[2].set(title="the first component", aspect="equal")

# %%
# What its test asserts (``tests/gallery/test_circle.py``):

print(f"without centring {n_uncentred} eigenvalues are not zero, centred {len(pca.eigenvalues_)}")
