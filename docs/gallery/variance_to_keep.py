r"""
The 95 % rule
=============

How many components are needed? A rule of thumb takes the fewest that explain 95 % of the variance,

.. math:: \frac{λ_1 + … + λ_k}{λ_1 + … + λ_d} ≥ 0.95 .

Pixels of digits are redundant: for 64 of them fewer than half as many components do. On a ring the
variance is about the same in every direction: the rule takes both directions for two features, and PCA gains nothing
(Thiagarajan, notes of week 2, sections 2 and 3.1). ``n_components=0.95`` is that rule.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from scalable_kpca import KernelPCA
from scalable_kpca.plots import draw_cumulative, draw_directions, draw_scatter

# %%
# The whole spectrum of 600 digits, and what a fit by the rule keeps.

X = load_digits().data[:600]
whole = KernelPCA(None, kernel="linear").fit(X)
cumulative = np.cumsum(whole.explained_variance_ratio_)
by_spectrum = int(np.flatnonzero(cumulative >= 0.95)[0]) + 1

kept = KernelPCA(0.95, kernel="linear").fit(X)
by_rule = len(kept.eigenvalues_)

# %%
# A ring of 300 rows.

rng = np.random.default_rng(0)
angles = np.arange(300) * 2 * np.pi / 300
radii = 10 + 0.5 * rng.standard_normal(300)
ring = radii[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
ring_pca = KernelPCA(None, kernel="linear").fit(ring)
on_the_ring = len(KernelPCA(0.95, kernel="linear").fit(ring).eigenvalues_)

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
draw_cumulative(axes[0], cumulative)
axes[0].axvline(by_rule, color="black", linestyle=":", linewidth=1)
axes[0].set_title(f"digits: {by_rule} of {X.shape[1]}")
draw_scatter(axes[1], ring[:, 0], ring[:, 1], names=("x₁", "x₂"))
directions = (ring - ring.mean(axis=0)).T @ ring_pca.eigenvectors_
draw_directions(axes[1], ring.mean(axis=0), directions / np.sqrt(ring_pca.eigenvalues_))
axes[1].set(title="a ring, with both directions", aspect="equal")
axes[2].set_title(f"the ring: {on_the_ring} of 2")
draw_cumulative(axes[2], np.cumsum(ring_pca.explained_variance_ratio_))

# %%
# What its test asserts (``tests/gallery/test_variance_to_keep.py``):

print(f"digits: {by_rule} of {X.shape[1]} components by the rule, {by_spectrum} by the whole spectrum")
first = float(ring_pca.explained_variance_ratio_[0])
print(f"ring: {on_the_ring} of 2, the first explains {first:.1%}")
