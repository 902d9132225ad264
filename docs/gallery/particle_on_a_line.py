r"""
A particle on a line
====================

A particle moves from the origin with speed :math:`u` along a unit vector :math:`p`: at time :math:`t` it is at
:math:`u t p`. Three sensors record its coordinates, where one number would do. PCA finds that out: one eigenvalue of
the Gram matrix is not zero,

.. math:: λ_1 = u^2 \sum_t (t - \bar{t})^2 = u^2 \frac{T (T^2 - 1)}{12} ,

its direction is :math:`p`, and the scores are the distance along the line, but for the sign and the place of zero
(Thiagarajan, notes of week 2, section 1).
"""

import numpy as np
from matplotlib import pyplot as plt

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE, draw_eigenvalues

u, p, T = 0.5, np.array([2, 3, 6]) / 7, 60
t = np.arange(T)
X = u * t[:, None] * p

# %%
# The direction is a sum of the centred rows, weighted by the eigenvector over :math:`\sqrt{λ_1}`, or, which is the
# same, by the scores over :math:`λ_1`.

pca = KernelPCA(3, kernel="linear").fit(X)
scores = pca.transform(X)[:, 0]
direction = (X - X.mean(axis=0)).T @ scores / pca.eigenvalues_[0]
direction_error = float(np.abs(np.sign(direction @ p) * direction - p).max())

# %%
# The distance from the origin is the score plus that of the mean row, with the sign that the direction has along
# :math:`p`.

recovered = np.sign(direction @ p) * (scores + X.mean(axis=0) @ direction)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for place, (name, line) in enumerate(zip("xyz", ("-", "--", "-."), strict=True)):
    axes[0].plot(t, X[:, place], line, color=PALETTE[place], label=name)
axes[0].set(title="what three sensors record", xlabel="time t", ylabel="coordinate")
axes[0].legend(frameon=False)
axes[2].plot(t, u * t, color=PALETTE[7], linewidth=4, alpha=0.5, label="u t")
axes[2].plot(t, recovered, ".", color=PALETTE[0], label="from the scores")
axes[2].set(title="one coordinate along the line", xlabel="time t", ylabel="distance")
axes[2].legend(frameon=False)
axes[1].set_title("eigenvalues: one is not zero")
draw_eigenvalues(axes[1], pca.eigenvalues_)

# %%
# What its test asserts (``tests/gallery/test_particle_on_a_line.py``):

n_nonzero, by_the_sum = int((pca.eigenvalues_ > 0).sum()), u**2 * T * (T**2 - 1) / 12
print(f"{n_nonzero} eigenvalue is not zero: {pca.eigenvalues_[0]:.2f}, by the sum {by_the_sum:.2f}")
print(f"direction {np.round(np.abs(direction) * 7, 6).tolist()} / 7")
