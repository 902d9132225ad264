r"""
PCA as encoder and decoder
==========================

PCA solves a problem in which no variance occurs (Steven Wu, Lecture 20: Kernel PCA, April 2020, equation 1): write
each row with k numbers, by a matrix E, so that the rows that a matrix D makes of them are as near as can be,

.. math:: \min_{D, E} \lVert X - X E D \rVert_F^2 = \sum_{j > k} s_j^2.

With :math:`X = U S V^T`, the first k columns of :math:`V` are the encoder and their transpose is the decoder, and the
error is the sum of the squared singular values that are left out. In feature space the same holds for kernel PCA:
the encoded rows are :math:`\bar{G} A`, with the centred Gram matrix :math:`\bar{G}` and eigenvectors over the roots of
their eigenvalues in :math:`A`, and the error is the total variance less the eigenvalues that are kept.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_wine
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE

X = StandardScaler().fit_transform(load_wine().data)  # 178 wines, 13 features, each of mean 0 and variance 1
n_samples, n_features = X.shape

# %%
# The error of PCA, from the definition, and of encoders that are drawn at random, each with the decoder that serves it
# best, by least squares.

U, s, Vt = np.linalg.svd(X, full_matrices=False)
rng = np.random.default_rng(0)


def error(encoder, decoder):
    """‖X − XED‖²."""
    return float(np.square(X - X @ encoder @ decoder).sum())


def error_of_random(k):
    """The least of twenty encoders of k columns."""
    encoders = rng.standard_normal((20, n_features, k))
    return min(error(encoder, np.linalg.lstsq(X @ encoder, X, rcond=None)[0]) for encoder in encoders)


numbers = np.arange(n_features + 1)
of_pca = np.array([error(Vt[:k].T, Vt[:k]) for k in numbers])
of_random = np.array([error_of_random(k) for k in numbers])
left_out = np.append(np.cumsum((s**2)[::-1])[::-1], 0.0)

# %%
# In the feature space of the rbf kernel. Its dimension is infinite, but 178 centred rows span 177 directions of it: so
# many numbers a row give them all back. ``certificate_.total_variance`` is the sum of all eigenvalues, known from the
# diagonal and the mean of the matrix however few of them are computed.

pca = KernelPCA(n_samples - 1, kernel="rbf", gamma="median").fit(X)
total = pca.certificate_.total_variance
of_kernel_pca = total - np.append(0.0, np.cumsum(pca.eigenvalues_))

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
axes[0].plot(
    numbers, of_random / of_random[0], "s--", color=PALETTE[1], markersize=4, label="best of 20 random encoders"
)
axes[0].plot(numbers, of_pca / of_pca[0], "o-", color=PALETTE[0], markersize=4, label="PCA")
axes[0].set(title="the rows", xlabel="numbers for each row, k", ylabel="error / total variance")
axes[1].plot(of_kernel_pca / total, "-", color=PALETTE[0], label="kernel PCA, rbf")
axes[1].set(title="their images in feature space", xlabel="numbers for each row, k")
for panel in axes:
    panel.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    panel.grid(visible=True, axis="y")
    panel.legend(frameon=False)

# %%
# The shares of the two panels are of different spaces, and do not compare.
#
# The encoded rows from their definition, for three components; and the error from what the decoder leaves of each row:
# ``novelty`` is the squared distance of a row's image from the span of the components.

K = rbf_kernel(X, gamma=pca.gamma_)
E = np.full((n_samples, n_samples), 1 / n_samples)
G = K - E @ K - K @ E + E @ K @ E
three = KernelPCA(3, kernel="rbf", gamma="median").fit(X)
A = three.eigenvectors_ / np.sqrt(three.eigenvalues_)
encoded = G @ A
distances = three.novelty(X)

# %%
# What its test asserts (``tests/gallery/test_encoder_decoder.py``):

print(f"PCA, k = 3: error {of_pca[3]:.2f}, squared singular values left out {left_out[3]:.2f}")
print(f"kernel PCA, k = 3: total variance less eigenvalues {of_kernel_pca[3]:.4f}, distances {distances.sum():.4f}")
print(f"encoded rows and scores differ by {np.abs(encoded - three.transform(X)).max():.0e}")
