r"""
Zeros and ones
==============

Pictures of handwritten zeros and ones have many features, and two components are enough to tell them apart: scores are
a representation that a standard classifier goes on with (Thiagarajan, notes of week 2, section 2, where the pictures
have 784 pixels; here 64). The components are found on one half of the pictures, a linear classifier learns on their
two scores, and the other half is classified by it. PCA is the linear kernel; the Gaussian one is

.. math:: k(x, y) = \exp(-γ ‖x - y‖^2) .
"""

from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from scalable_kpca import KernelPCA
from scalable_kpca.plots import draw_side_by_side

X, digit = load_digits(n_class=2, return_X_y=True)
X = X / 16
split = train_test_split(X, digit, test_size=0.5, random_state=0, stratify=digit)
fitted, held_out, labels, new_labels = split

# %%
# Both kernels with two components, and :math:`γ` by the median distance of the pictures.

METHODS = {
    "PCA": KernelPCA(2, kernel="linear"),
    "kernel PCA": KernelPCA(2, kernel="rbf", gamma="median"),
}
scores, lines, accuracy = {}, {}, {}
for name, method in METHODS.items():
    classifier = make_pipeline(method, LogisticRegression())
    classifier.fit(fitted, labels)
    scores[name] = classifier[0].transform(held_out)
    lines[name] = classifier[-1].coef_[0], classifier[-1].intercept_[0]
    accuracy[name] = float(classifier.score(held_out, new_labels))

# %%
# The half that was held out, in the plane of the two scores, and the line :math:`w^T x + b = 0` of the classifier.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
draw_side_by_side(*axes, *scores.values(), groups=new_labels)
for axis, (w, b) in zip(axes, lines.values(), strict=True):
    axis.autoscale(enable=False)
    axis.axline(-b * w / (w @ w), slope=-w[0] / w[1], color="black", linewidth=1, linestyle="--")
legend = axes[0].legend(["zero", "one"], frameon=False, loc="lower left")

# %%
# What its test asserts (``tests/gallery/test_digits_classified.py``):

for name, share in accuracy.items():
    print(f"{name}: {share:.1%} of {len(held_out)} new pictures are recognised by two scores")
