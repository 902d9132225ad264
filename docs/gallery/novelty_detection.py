r"""
Novelty detection
=================

Hoffmann (2007): a row is novel when its image in feature space is far from the subspace of the leading components,

.. math:: \lVert \tilde{φ}(x) \rVert^2 - \sum_{j=1}^{k} \langle v_j, \tilde{φ}(x) \rangle^2,

which is the error that an encoder and decoder of k numbers would make of it. The components follow the rows however
they lie, and so does the boundary of what is normal. ``novelty`` is that distance, and ``novelty_threshold(0.99)`` a
level that 99 % of the fitted rows do not exceed.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits, make_circles
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from scalable_kpca import KernelPCA
from scalable_kpca.plots import PALETTE, draw_novelty, draw_novelty_map

# %%
# In the plane: rows on two rings. The dashed line is the threshold. What lies between the rings is novel, and so is the
# centre, as no row is near.

rows, ring = make_circles(400, factor=0.5, noise=0.04, random_state=0)
plane = KernelPCA(30, kernel="rbf", gamma=10).fit(rows)
of_plane = plane.novelty_threshold(0.99)
centre, between = plane.novelty(np.array([[0.0, 0.0], [0.75, 0.0]]))

figure, axis = plt.subplots(figsize=(6.4, 5), layout="constrained")
draw_novelty_map(axis, plane, rows, threshold=of_plane, groups=1 + ring)
axis.set(title="two rings, 30 components", aspect="equal")

# %%
# Digits: the classes 0 to 4 are known, and two thirds of them are fitted. The classes 5 to 9 come later. A threshold
# from the fitted rows is too low for rows like them, as the components were chosen to be near the fitted ones. So half
# of the known rows that were not fitted give a second threshold, and the other half is judged.

digits = load_digits()
X = digits.data / 16
order = np.random.default_rng(0).permutation(len(X))
known, novel = X[order][digits.target[order] < 5], X[order][digits.target[order] >= 5]
training, calibration, normal = np.split(known, [600, 750])
judged, is_novel = np.concatenate([normal, novel]), np.repeat([False, True], [len(normal), len(novel)])

pca = KernelPCA(48, kernel="rbf", gamma="median").fit(training)
novelty = pca.novelty(judged)
thresholds = {"fitted": pca.novelty_threshold(0.99), "held out": pca.novelty_threshold(0.99, calibration)}
alarms = {name: float((novelty[~is_novel] > level).mean()) for name, level in thresholds.items()}
found = {name: float((novelty[is_novel] > level).mean()) for name, level in thresholds.items()}

# %%
# For comparison PCA, where novelty is the squared error of reconstruction. The area under the ROC curve is the chance
# that a novel row scores higher than a normal one.

numbers = (4, 8, 16, 32, 48)


def area_of_pca(k):
    """Area under the ROC curve of the reconstruction error."""
    fitted = PCA(k, svd_solver="full").fit(training)
    return roc_auc_score(is_novel, np.square(judged - fitted.inverse_transform(fitted.transform(judged))).sum(axis=1))


def area_of_kernel_pca(k):
    """Area under the ROC curve of the novelty."""
    return roc_auc_score(is_novel, KernelPCA(k, kernel="rbf", gamma="median").fit(training).novelty(judged))


areas = {"PCA": [area_of_pca(k) for k in numbers], "kernel PCA": [area_of_kernel_pca(k) for k in numbers]}

figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
for panel, title, values in (
    (axes[0], "known classes, not fitted", novelty[~is_novel]),
    (axes[1], "other classes", novelty[is_novel]),
):
    draw_novelty(panel, values, thresholds)
    panel.set(title=title, xlim=(0, 1.05 * novelty.max()))
for (name, values), line, colour in zip(areas.items(), ("s--", "o-"), PALETTE[1::-1], strict=True):
    axes[2].plot(numbers, values, line, color=colour, markersize=5, label=name)
axes[2].set(title="other classes from known ones", xlabel="components", ylabel="area under the ROC curve", xscale="log")
axes[2].set_xticks(numbers, [str(k) for k in numbers])
axes[2].minorticks_off()
axes[2].grid(visible=True, axis="y")
axes[2].legend(frameon=False)

# %%
# The more components PCA has, the better it reconstructs digits of other classes too. In feature space they stay far
# away.
#
# What its test asserts (``tests/gallery/test_novelty_detection.py``):

print(f"in the plane: threshold {of_plane:.3f}, the centre {centre:.3f}, between the rings {between:.3f}")
for k, linear, kernel in zip(numbers, *areas.values(), strict=True):
    print(f"{k} components: area under the ROC curve {linear:.3f} by PCA, {kernel:.3f} by kernel PCA")
for name in thresholds:
    print(f"threshold of {name} rows: {alarms[name]:.1%} false alarms, {found[name]:.1%} of the other classes found")
