r"""
Kernels compared
================

The same 300 rows, two half-moons, by PCA and by kernel PCA with the kernels that introductions list:

.. math:: (x^T y + c)^d, \qquad \exp \left( -\frac{\lVert x - y \rVert^2}{2 σ^2} \right), \qquad \tanh(α x^T y + c).

Here :math:`γ = 1 / (2 σ^2)` is ``gamma`` of the rbf kernel and :math:`α` is ``gamma`` of the sigmoid; :math:`d` is
``degree`` and :math:`c` is ``coef0``. What a kernel makes of the rows depends on its parameters more than on its name:
every panel says how many of the rows a threshold on the first component puts on the side of their moon.
"""

import textwrap

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits, make_moons

from scalable_kpca import KernelPCA, compare_with_pca
from scalable_kpca.errors import InvalidInputError
from scalable_kpca.plots import draw_scatter

X, moon = make_moons(300, noise=0.06, random_state=0)


def share_of_threshold(scores):
    """Largest share of rows that a threshold on a score puts on the side of their moon."""
    first = moon[np.argsort(scores)] == 0
    # rows of the first moon up to here, and of the other one beyond
    right = np.cumsum(first) + np.cumsum(~first[::-1])[::-1] - ~first
    return max(right.max(), (len(moon) - right).max()) / len(moon)


def rbf(sigma):
    """Parameters of the rbf kernel of a width."""
    return {"kernel": "rbf", "gamma": 1 / (2 * sigma**2)}


# %%
# The sigmoid kernel need not be positive semi-definite, and on these rows it is not: it is no inner product of
# features, and distances, explained variance and novelty would mean nothing. It is refused, with its lowest eigenvalue:

sigmoid = {"kernel": "sigmoid", "gamma": 1, "coef0": -1}
try:
    KernelPCA(2, **sigmoid).fit(X)
except InvalidInputError as error:
    refusal = str(error)
print(textwrap.fill(refusal, 96))

# %%
# On request the negative part is dropped (``indefinite="clip"``). All eight:

settings = {
    "linear, which is PCA": {"kernel": "linear"},
    "poly, c = 1, d = 2": {"kernel": "poly", "gamma": 1, "coef0": 1, "degree": 2},
    "poly, c = 1, d = 5": {"kernel": "poly", "gamma": 1, "coef0": 1, "degree": 5},
    "sigmoid, α = 1, c = −1": sigmoid | {"indefinite": "clip"},
    "rbf, σ = 1": rbf(1),
    "rbf, σ = 0.5": rbf(0.5),
    "rbf, σ = 0.2": rbf(0.2),
    "rbf, σ = 0.05": rbf(0.05),
}
fits = {name: KernelPCA(2, **parameters).fit(X) for name, parameters in settings.items()}
shares = {name: share_of_threshold(fitted.transform(X)[:, 0]) for name, fitted in fits.items()}

figure, axes = plt.subplots(2, 4, figsize=(11, 5.6), layout="constrained")
for panel, (name, fitted) in zip(axes.flat, fits.items(), strict=True):
    scores = fitted.transform(X)
    draw_scatter(panel, scores[:, 0], scores[:, 1], groups=moon)
    panel.set_title(f"{name}\n{shares[name]:.0%} by a threshold", fontsize=10)

# %%
# Polynomials of degree 2 and 5 do no better than PCA here. An rbf kernel that is wider than the gap between the moons
# mixes them as PCA does; one that is much narrower knows no row but its next neighbours, and its first components are
# of a few rows each.
#
# ``compare_with_pca`` judges on rows that were held out, with equal numbers of components. PCA gets the ridge map from
# scores to rows too, so that what the map does is not taken for what the kernel does. ``separation`` is the silhouette
# of the classes among the scores, and shares of variance are of different spaces, which do not compare.

moons = compare_with_pca(X, 1, **rbf(0.2), labels=moon)
print(moons.to_frame().round(3).to_string(index=False))

# %%
# One component of the kernel separates the moons, and is worse at saying where in a moon a row is. The digits, with 16
# components and the median distance for the width:

digits = load_digits()
of_digits = compare_with_pca(digits.data[:600] / 16, 16, labels=digits.target[:600])
print(of_digits.to_frame().round(3).to_string(index=False))

# %%
# Here PCA gives the rows back as well as kernel PCA does, and keeps the classes nearly as well apart: it is the cheaper
# of the two, its components are directions of pixels, and nothing has to be chosen. Kernel PCA is for rows like the
# moons: where what matters is no direction of the features, and a width can be found at which a kernel shows it.
#
# The page of ``skpca report`` has a line on it: how much of the variance of the scores linear functions of the features
# make.
#
# What its test asserts (``tests/gallery/test_kernels_compared.py``):

for name, share in shares.items():
    print(f"{name}: {share:.1%} by a threshold on the first component")
print(f"separation of the moons: PCA {moons.sides[0].separation:.2f}, kernel PCA {moons.sides[2].separation:.2f}")
print(f"of the digits: PCA {of_digits.sides[0].separation:.2f}, kernel PCA {of_digits.sides[2].separation:.2f}")
