r"""
More features than rows
=======================

Sixty samples of four tissues, five thousand genes each: the covariance matrix is five thousand genes square, the Gram
matrix sixty samples square. Both say the same. If :math:`X` are the centred rows and :math:`X X^T v = λ v`, then

.. math:: X^T X (X^T v) = X^T (X X^T v) = λ X^T v ,

so :math:`X^T v` is an eigenvector of the other matrix, with the same eigenvalue and of length :math:`\sqrt{λ}`:
every direction is a sum of rows, :math:`u_a = \sum_i α_i^a x_i` with :math:`‖α^a‖ = 1/\sqrt{λ_a}` (Welling, eq. 6 to 9,
where :math:`λ_a` here is :math:`N λ_a` there; Thiagarajan, notes of week 2, section 4). Kernel PCA needs no
more than the small one.
"""

import numpy as np
from matplotlib import pyplot as plt

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE, draw_scatter

N, GENES, TISSUES, MARKERS = 60, 5000, 4, 150

rng = np.random.default_rng(0)
tissue = np.arange(N) % TISSUES
levels = rng.gamma(2.0, 1.0, GENES) * np.ones((TISSUES, 1))
for level in levels:
    level[rng.choice(GENES, MARKERS, replace=False)] += 2
X = np.log1p(rng.poisson(np.exp(levels[tissue])))

# %%
# From the Gram matrix: all components that are not zero, one fewer than there are rows, as these are centred.

pca = KernelPCA(None, kernel="linear").fit(X)
centred = X - X.mean(axis=0)
directions = centred.T @ pca.eigenvectors_ / np.sqrt(pca.eigenvalues_)

# %%
# From the covariance matrix of all genes, which need not be formed: the squares of the singular values of the centred
# rows are :math:`n` times its eigenvalues. Of 400 genes it is formed.

singular_values = np.linalg.svd(centred, compute_uv=False)
few = X[:, :400]
few_pca = KernelPCA(None, kernel="linear").fit(few)
few_covariance = np.linalg.eigvalsh(np.cov(few.T, bias=True))[::-1]

# %%
# Bytes of the two matrices in double precision.

gram_bytes, covariance_bytes = 8 * N**2, 8 * GENES**2

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
scores = pca.transform(X)
draw_scatter(axes[0], *scores.T[:2], groups=tissue, names=("component 1", "component 2"))
axes[0].set_title("scores of 60 samples, 4 tissues")
numbers = np.arange(1, N)
squares = singular_values[:-1] ** 2
axes[1].plot(numbers, squares, "o", color=PALETTE[1], label="singular values²", markersize=7)
axes[1].plot(numbers, pca.eigenvalues_, ".", color=PALETTE[0], label="Gram matrix", markersize=5)
axes[1].set(title="the same spectrum", xlabel="component", ylabel="eigenvalue λ", yscale="log")
axes[1].legend(frameon=False)
names = ["Gram\n60 × 60", "covariance\n5000 × 5000"]
bars = axes[2].bar(names, [gram_bytes, covariance_bytes], color=PALETTE[:2])
axes[2].set(title="bytes of the matrix", yscale="log", ylim=(1e3, 2e9))
sizes = f"{gram_bytes / 1e3:.1f} kB", f"{covariance_bytes / 1e6:.0f} MB"
labels = axes[2].bar_label(bars, sizes)

# %%
# What its test asserts (``tests/gallery/test_many_features.py``):

difference = np.abs(pca.eigenvalues_ - squares).max()
same = bool(difference < 1e-12 * pca.eigenvalues_[0])
print(f"{len(pca.eigenvalues_)} eigenvalues are not zero")
print(f"the same both ways, to 1e-12 of the first: {same}")
print(f"Gram matrix {gram_bytes} bytes, covariance matrix {covariance_bytes} bytes")
