r"""
A kernel and the features behind it
===================================

For two features :math:`k(x, y) = (1 + x^T y)^2` is the inner product of six,

.. math:: φ(x) = (1, \sqrt{2} x_1, \sqrt{2} x_2, \sqrt{2} x_1 x_2, x_1^2, x_2^2) .

An ellipse around the origin is a straight line in :math:`x_1^2` and :math:`x_2^2`. Kernel PCA is PCA of these features,
which it never forms: with the eigenvectors :math:`V` of the centred :math:`K` and :math:`D = Λ^{-1/2}` the scores are
the columns of :math:`D V^T K` (Thiagarajan, notes of week 2, sections 5 to 9), and new rows are centred by the means of
the kernel over the fitted ones (Welling, eq. 10 to 18). Degree :math:`p` of :math:`d` features stands for
:math:`\binom{d + p}{p}` features.
"""

from math import comb

import numpy as np
from matplotlib import pyplot as plt
from sklearn.decomposition import PCA

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE, draw_scatter


def features(X):
    """The six features of rows of two."""
    x, y = X.T
    return np.column_stack([np.ones(len(X)), 2**0.5 * x, 2**0.5 * y, 2**0.5 * x * y, x**2, y**2])


def kernel(X, Y):
    """Kernel values of pairs of rows."""
    return (1 + X @ Y.T) ** 2


rng = np.random.default_rng(0)
angles = rng.uniform(0, 2 * np.pi, 120)
ellipse = np.column_stack([3 * np.cos(angles), 1.5 * np.sin(angles)])
rows = ellipse + 0.1 * rng.standard_normal((120, 2))
X, new = rows[:90], rows[90:]

# %%
# The kernel matrix is that of the inner products of the features.

K = kernel(X, X)
difference = float(np.abs(K - features(X) @ features(X).T).max())

# %%
# Centred as in Welling, eq. 14; the eigenvectors by numpy; the scores one product more.

Kc = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
values, V = np.linalg.eigh(Kc)
values, V = values[:-6:-1], V[:, :-6:-1]
D = np.diag(values**-0.5)
by_product = (D @ V.T @ Kc).T

# %%
# New rows, eq. 18: the centred kernel of new and fitted rows, by the same vectors.

Kn = kernel(new, X)
Knc = Kn - Kn.mean(axis=1)[:, None] - K.mean(axis=0) + K.mean()
new_by_product = Knc @ V @ D

# %%
# PCA of the features, and kernel PCA, of which five components are not zero: the first feature is constant.

pca_of_features = PCA(5).fit(features(X))
pca = KernelPCA(None, kernel="poly", degree=2, gamma=1, coef0=1).fit(X)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
axes[0].set(title="rows near an ellipse", aspect="equal")
draw_scatter(axes[0], *X.T, names=("x₁", "x₂"))
axes[1].set_title("are near a line of their squares")
draw_scatter(axes[1], *X.T**2, names=("x₁²", "x₂²"))
scores, of_features = pca.transform(X), pca_of_features.transform(features(X))
signs = np.sign((scores * of_features).sum(axis=0))
both = signs * of_features
axes[2].scatter(both[:, 0], both[:, 1], s=45, facecolors="none", edgecolors=PALETTE[1])
axes[2].set_title("scores, and PCA of six features (rings)")
draw_scatter(axes[2], *scores.T[:2], names=("component 1", "component 2"))

# %%
# How many features there are can be seen in the spectrum: as many eigenvalues are not zero, but for the constant one.

SIZES = ((2, 2), (2, 3), (3, 2), (4, 3))


def count(d, p):
    """Components that are not zero, of more rows than there are features behind the kernel."""
    drawn = np.random.default_rng(1).uniform(-1, 1, (100, d))
    return len(KernelPCA(None, kernel="poly", degree=p, gamma=1, coef0=1).fit(drawn).eigenvalues_)


counted = [count(d, p) for d, p in SIZES]

# %%
# What its test asserts (``tests/gallery/test_explicit_map.py``):

agree = bool(difference < 1e-12 * K.max())
print(f"kernel and inner products of six features are the same to 1e-12: {agree}")
print(f"{len(pca.eigenvalues_)} components are not zero")
for (d, p), found in zip(SIZES, counted, strict=True):
    print(f"d = {d}, p = {p}: {found} eigenvalues and a constant, {comb(d + p, p)} features")
