r"""
The power method
================

How singular values were found before there were better ways, and still the shortest way to find them (Steven Wu,
Lecture 20: Kernel PCA, April 2020): multiply a random vector by :math:`X^T X` until it points along the first right
singular vector,

.. math:: y_t = X^T X y_{t-1}, \qquad v_1 = y_T / \lVert y_T \rVert, \quad s_1 = \lVert X v_1 \rVert, \quad
    u_1 = X v_1 / s_1,

take :math:`s_1 u_1 v_1^T` off :math:`X`, and begin again for the second. :math:`X X^T` has the same eigenvalues
:math:`s_j^2`, and :math:`u_j` for eigenvectors. It is the Gram matrix of the linear kernel, so that kernel PCA can be
computed in the same way.
"""

import warnings

import numpy as np
from matplotlib import pyplot as plt

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE

rng = np.random.default_rng(0)

# %%
# Centred rows with known singular values: their squares are 100, 100/2, 100/3, 100/4, and a long tail from 20 down.

n_samples, n_features = 600, 600
squares = np.concatenate([100 / np.arange(1, 5), 20 * 0.995 ** np.arange(n_samples - 5)])
ones_and_random = np.column_stack([np.ones(n_samples), rng.standard_normal((n_samples, n_samples - 1))])
U = np.linalg.qr(ones_and_random)[0][:, 1:]  # orthogonal to the ones: the columns of X have mean 0
V = np.linalg.qr(rng.standard_normal((n_features, n_samples - 1)))[0]
X = (U * np.sqrt(squares)) @ V.T

# %%
# The method, which also keeps what is missing to an eigenvector after every step.


def power_method(X, k, n_steps=100):
    """Leading singular triplets of X by powers of XᵀX, and the residual norms of each step, shape (k, n_steps)."""
    triplets, residuals = [], np.empty((k, n_steps))
    for j in range(k):
        y = rng.standard_normal(X.shape[1])
        for step in range(n_steps):
            y = y / np.linalg.norm(y)
            image = X.T @ (X @ y)
            residuals[j, step] = np.linalg.norm(image - (y @ image) * y)
            y = image
        v = y / np.linalg.norm(y)
        s = np.linalg.norm(X @ v)
        u = X @ v / s
        triplets.append((u, s, v))
        X = X - s * np.outer(u, v)
    return triplets, residuals


right, residuals = power_method(X, 4)
left, _ = power_method(X.T, 4)  # the powers are those of XXᵀ, and u and v change places

# %%
# ``eigen_solver="power"`` iterates a block of vectors together on the centred Gram matrix, and begins with what
# landmarks say; block Krylov keeps the products of all earlier passes too. Both stop at the residual that is asked for.
# ``n_passes_`` says how often the matrix was gone through, with a few passes at the end in which a random block looks
# for larger eigenvalues that were missed.

fits = {
    solver: KernelPCA(4, kernel="linear", eigen_solver=solver, tol=1e-9).fit(X) for solver in ("power", "block_krylov")
}


def residual_after(solver, passes):
    """Largest residual norm of the four components over the first eigenvalue, when passes are limited."""
    options = {"eigen_solver": solver, "tol": 1e-9, "max_passes": passes, "on_failure": "return"}
    limited = KernelPCA(4, kernel="linear", **options).fit(X)
    return limited.certificate_.residual_norms.max() / limited.eigenvalues_[0]


limits = {"power": [1, 2, 4, 8, 16, 32], "block_krylov": [1, 2, 4, 8]}
with warnings.catch_warnings(action="ignore"):  # that the passes were too few
    histories = {solver: [residual_after(solver, passes) for passes in limits[solver]] for solver in fits}

figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
looks = [{"linestyle": line, "marker": marker} for line, marker in (("-", "o"), ("--", "s"), ("-.", "^"), (":", "D"))]
for j, look in enumerate(looks):
    label = f"vector {j + 1}: by {j + 1}/{j + 2} a step"
    shown = residuals[j, :81] / squares[0]
    axes[0].semilogy(np.arange(1, 82), shown, **look, markevery=10, markersize=5, color=PALETTE[j], label=label)
axes[0].set(title="powers of XᵀX, one vector after another", xlabel="step", ylabel="residual norm / λ₁")
for (solver, history), look, colour in zip(histories.items(), looks, PALETTE, strict=False):
    axes[1].semilogy(limits[solver], history, **look, markersize=5, color=colour, label=f'eigen_solver="{solver}"')
axes[1].axhline(1e-9, color=PALETTE[3], linewidth=1, linestyle="--")
axes[1].annotate("tol", (1, 1e-9), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right")
axes[1].set(title="four vectors together", xlabel="pass", ylim=(1e-12, 3))
for panel in axes:
    panel.grid(visible=True, axis="y")
    panel.legend(frameon=False)

# %%
# Alone, a vector converges by :math:`s_{j+1}^2 / s_j^2` a step, which is j/(j + 1) here: the further down the spectrum,
# the slower.
#
# What its test asserts (``tests/gallery/test_power_method.py``):

print("singular values", *(f"{value:.6f}" for value in np.sqrt(squares[:4])))
print("by powers of XᵀX", *(f"{value:.6f}" for _, value, _ in right))
print("by powers of XXᵀ", *(f"{value:.6f}" for _, value, _ in left))
for solver, fitted in fits.items():
    print(f"{solver}, {fitted.n_passes_} passes", *(f"{value:.6f}" for value in np.sqrt(fitted.eigenvalues_)))
