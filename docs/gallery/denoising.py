r"""
Digits without their noise
==========================

Components of clean digits say what digits look like. A noisy digit is projected onto them, and a *pre-image* is a digit
whose own image in feature space is near that projection,

.. math:: \min_z \lVert φ(z) - P φ(x) \rVert^2,

so that what the components leave out, noise first, is gone. This is the example of Mika and others (1998), as figure 1
of Steven Wu's Lecture 20: Kernel PCA (April 2020) shows it: digits, the same with Gaussian noise, and what PCA and
kernel PCA with a Gaussian kernel make of them.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from scalable_kpca import KernelPCA
from scalable_kpca.plots import draw_images

X = load_digits().data / 16
order = np.random.default_rng(0).permutation(len(X))
training, clean = X[order[:1000]], X[order[1000:]]
noisy = clean + 0.4 * np.random.default_rng(1).standard_normal(clean.shape)

# %%
# ``fit_inverse_transform`` says which way there is from scores to rows. The fixed point (Mika and others 1998) is for
# the rbf kernel, and needs nothing but the fit: an iteration for each row. The ridge map is learned from the scores and
# the rows of the fit, serves every named kernel but chi2 and additive_chi2, and costs one product when it is used.

pca = KernelPCA(32, kernel="rbf", gamma=0.05, fit_inverse_transform="fixed_point").fit(training)
denoised = pca.inverse_transform(pca.transform(noisy))
report = pca.preimages(pca.transform(noisy))  # the same rows, and how each was found

# %%
# Others to compare with. γ = 0.05 and α = 0.01 are round numbers near the best for this noise.

COMPONENTS = (8, 16, 32, 64)
METHODS = {
    "PCA": PCA(svd_solver="full"),
    "kernel PCA, ridge map": KernelPCA(kernel="rbf", gamma=0.05, fit_inverse_transform=True, alpha=0.01),
    "kernel PCA, fixed point": KernelPCA(kernel="rbf", gamma=0.05, fit_inverse_transform="fixed_point"),
}


def reconstruct(method, n_components):
    """Denoised digits, shape (797, 64)."""
    fitted = clone(METHODS[method]).set_params(n_components=n_components).fit(training)
    return fitted.inverse_transform(fitted.transform(noisy))


def error(rows):
    """Mean squared error against the clean digits; grey levels are 0 … 1."""
    return float(np.square(rows - clean).mean())


made = {method: {k: reconstruct(method, k) for k in COMPONENTS} for method in METHODS}

# %%
# With 32 components:

shown = {"original": clean, "with noise": noisy} | {method: of_numbers[32] for method, of_numbers in made.items()}
figure, axis = plt.subplots(figsize=(9.5, 4), layout="constrained")
draw_images(
    axis,
    np.array([rows[:12].reshape(12, 8, 8) for rows in shown.values()]),
    row_labels=[name if name == "original" else f"{name}\nerror {error(rows):.4f}" for name, rows in shown.items()],
    limits=(0, 1),
)

# %%
# Mean squared errors against the clean digits, 797 of them that no fit has seen:

errors = {method: [error(of_numbers[k]) for k in COMPONENTS] for method, of_numbers in made.items()}
print(f"{'components':24}", *(f"{k:6d}" for k in COMPONENTS))
for method, values in errors.items():
    print(f"{method:24}", *(f"{value:.4f}" for value in values))

# %%
# The components of PCA span a flat space: every component more lets it keep more noise, and all 64 keep all of it.
# Images in feature space lie on a surface that bends with the data, and pre-images go back to it, so that kernel PCA
# may use many components.
#
# What its test asserts (``tests/gallery/test_denoising.py``):

best = {method: min(values) for method, values in errors.items()}
print(f"noisy digits: error {error(noisy):.4f}")
print(f"least errors: PCA {best['PCA']:.4f}, ridge map {best['kernel PCA, ridge map']:.4f}", end=", ")
print(f"fixed point {best['kernel PCA, fixed point']:.4f}")
print(f"iterations of a digit: {report.n_iterations.min()} to {report.n_iterations.max()}")
