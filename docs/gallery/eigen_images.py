r"""
Components as pictures
======================

A component of pictures is a picture: for faces an eigenface, for dogs an eigendog, here for digits of 8 × 8 pixels. A
digit is the mean digit plus a weighted sum of components, and its weights are its scores. With the first :math:`k`
components the mean squared error of what is rebuilt is exactly the sum of the eigenvalues that are left out,

.. math:: \frac{1}{n} \sum_i ‖x_i - \hat{x}_i‖^2 = \frac{1}{n} \sum_{a > k} λ_a

(Welling, eq. 5). The weights alone are enough to say which digit it is, in most cases. (After the eigendogs in a
lecture on PCA and kernel PCA by Yu-Te Wu.)
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestCentroid

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE, draw_images

digits = load_digits()
X, new = digits.data[:800], digits.data[800:]
labels, new_labels = digits.target[:800], digits.target[800:]

# %%
# All components of 800 digits. Blue and orange are the two signs; the sign of a whole component means nothing.

pca = KernelPCA(None, kernel="linear").fit(X)
mean = X.mean(axis=0)
directions = (X - mean).T @ pca.eigenvectors_ / np.sqrt(pca.eigenvalues_)

figure, axes = plt.subplots(1, 2, figsize=(9, 2.6), layout="constrained", width_ratios=(1, 6))
draw_images(axes[0], mean.reshape(1, 1, 8, 8), column_labels=["mean"])
axes[1].set_title("the first twelve components")
draw_images(axes[1], directions.T[:12].reshape(2, 6, 8, 8), signed=True)

# %%
# Reconstructions from few, more and most components; below each the weights that it is made of. The first ones
# are the same each time.

KEPT = (4, 16, 40)
weights = pca.transform(X)


def rebuilt(k):
    """Rows of pixels from the first k weights."""
    return mean + weights[:, :k] @ directions[:, :k].T


N_SHOWN = 8
heights = (1,) + len(KEPT) * (1, 0.9)
shape = len(heights), N_SHOWN
figure, axes = plt.subplots(*shape, figsize=(9, 8), sharey="row", height_ratios=heights)
figure.set_layout_engine("constrained")
for place in range(N_SHOWN):
    draw_images(axes[0, place], X[place].reshape(1, 1, 8, 8), limits=(0, 16))
    for line, k in enumerate(KEPT):
        above, below = axes[2 * line + 1 : 2 * line + 3, place]
        draw_images(above, rebuilt(k)[place].reshape(1, 1, 8, 8), limits=(0, 16))
        below.bar(np.arange(1, k + 1), weights[place, :k], color=PALETTE[0], width=1)
        above.set_ylabel("" if place else f"from {k}")
        below.set_ylabel("" if place else "weights")
axes[0, 0].set_ylabel("digits")
figure.align_ylabels()

# %%
# The errors, measured and as the eigenvalues say.

errors = [float(np.square(X - rebuilt(k)).sum(axis=1).mean()) for k in KEPT]
left_out = [float(pca.eigenvalues_[k:].sum() / len(X)) for k in KEPT]

# %%
# Digits that the fit has not seen, by the nearest mean weights of the ten classes.

nearest = NearestCentroid().fit(weights[:, :16], labels)
accuracy = float(nearest.score(pca.transform(new)[:, :16], new_labels))

# %%
# What its test asserts (``tests/gallery/test_eigen_images.py``):

for k, error, rest in zip(KEPT, errors, left_out, strict=True):
    print(f"{k:2} components: error {error:.4f}, eigenvalues left out {rest:.4f}")
print(f"{accuracy:.1%} of {len(new)} new digits are recognised by 16 weights")
