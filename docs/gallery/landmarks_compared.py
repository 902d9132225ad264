r"""
Landmarks compared
==================

The Nyström method knows the Gram matrix by m landmarks :math:`L` among the rows,

.. math:: \hat{K} = K_{XL} K_{LL}^{+} K_{LX},

and :math:`K - \hat{K}` is positive semi-definite, so that its trace bounds it: no eigenvalue of the centred matrix is
below its approximation, and none exceeds it by more than :math:`\mathrm{tr}(K - \hat{K})`. The trace needs the
diagonal of :math:`K` alone, and is in every ``certificate_``. How many landmarks make it small depends on the spectrum,
and on how they are chosen: uniformly, spread out by k-means++, or by randomly pivoted Cholesky (Chen, Epperly, Tropp
and Webber 2025), which draws a row with a probability in proportion to what the landmarks so far do not reach of it.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits, make_moons

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE, draw_landmark_residuals, draw_scatter, draw_scree

METHODS = ("uniform", "kmeans++", "rpcholesky")


def nystroem(rows, gamma, method, n_landmarks, seed=0):
    """Fit with landmarks of one of the methods."""
    options = {"landmarks": method, "n_landmarks": n_landmarks, "dtype": "float64", "random_state": seed}
    return KernelPCA(8, kernel="rbf", gamma=gamma, method="nystroem", **options).fit(rows)


# %%
# 950 rows in two half-moons, and two small groups of 30 and 20 rows. Of 20 uniform landmarks 0.6 and 0.4 fall into
# the small groups on average; the other methods look for what is not reached.

rng = np.random.default_rng(0)
plane = np.concatenate(
    [
        make_moons(950, noise=0.05, random_state=0)[0],
        rng.normal((2.5, 2.0), 0.3, (30, 2)),
        rng.normal((-1.5, -1.5), 0.2, (20, 2)),
    ]
)

figure, axes = plt.subplots(1, 3, figsize=(11, 4.4), sharex=True, sharey=True, layout="constrained")
for panel, method in zip(axes, METHODS, strict=True):
    landmarks = nystroem(plane, 1, method, 20).landmarks_
    draw_scatter(panel, plane[:, 0], plane[:, 1], groups=np.full(len(plane), 7), names=("x₁", "x₂"))
    panel.scatter(*landmarks.T, s=40, marker="D", color=PALETTE[3], edgecolor="white", linewidth=0.8)
    panel.set(title=f"20 landmarks, {method}", aspect="equal")

# %%
# The share of the trace that is left out, the mean of five draws. The spectrum of the plane decays fast, and 80
# landmarks by rpcholesky leave out less than a thousandth of what uniform ones do. That of the digits decays slowly,
# and there it hardly matters which rows are taken.

sizes = {"plane": (10, 20, 40, 80), "digits": (10, 20, 40, 80, 160)}
digits = load_digits().data / 16
sources = {"plane": (plane, 1), "digits": (digits, 0.05)}


def mean_residuals(name, method):
    """Mean share of the trace over five draws, for each number of landmarks."""
    rows, gamma = sources[name]
    draws = [
        [nystroem(rows, gamma, method, m, seed).certificate_.relative_residual for seed in range(5)]
        for m in sizes[name]
    ]
    return np.mean(draws, axis=1)


residuals = {name: {method: mean_residuals(name, method) for method in METHODS} for name in sources}

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for panel, name in zip(axes, sources, strict=True):
    draw_landmark_residuals(panel, np.array(sizes[name]), residuals[name])
    panel.set_title(name)
    panel.set_xticks(sizes[name], [str(m) for m in sizes[name]])
    panel.minorticks_off()

# %%
# What each number of landmarks bounds: an interval for each eigenvalue, which begins at the approximation and reaches
# up by the trace that is left out. The exact eigenvalues, by a fit of all pairs of rows, lie in all of them.

exact = KernelPCA(8, kernel="rbf", gamma=1, method="exact", dtype="float64").fit(plane)
brackets = {m: nystroem(plane, 1, "rpcholesky", m) for m in (10, 20, 40)}

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
for panel, (m, fitted) in zip(axes, brackets.items(), strict=True):
    certificate = fitted.certificate_
    below = np.full(len(fitted.eigenvalues_), certificate.rounding)
    draw_scree(panel, fitted.eigenvalues_, below, certificate.eigenvalue_bounds)
    panel.plot(np.arange(1, 9), exact.eigenvalues_, "x", color=PALETTE[2], markersize=7, label="exact")
    panel.set(title=f"{m} landmarks", ylim=(10, 600))
    panel.legend(frameon=False)
    panel.label_outer()

# %%
# What its test asserts (``tests/gallery/test_landmarks_compared.py``):

for name, of_methods in residuals.items():
    for method, values in of_methods.items():
        print(
            f"{name}, {method}: left out", *(f"{m}: {value:.1e}" for m, value in zip(sizes[name], values, strict=True))
        )
for m, fitted in brackets.items():
    low, high = fitted.eigenvalues_, fitted.eigenvalues_ + fitted.certificate_.eigenvalue_bounds
    print(f"{m} landmarks: eigenvalue 1 in {low[0]:.3f} … {high[0]:.3f}, exactly {exact.eigenvalues_[0]:.3f}")
