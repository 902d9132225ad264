"""Digits without their noise: the numbers and the picture of denoising.md. Writes ../figures/denoising.png."""

from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from scalable_kpca import KernelPCA

X = load_digits().data / 16
order = np.random.default_rng(0).permutation(len(X))
training, clean = X[order[:1000]], X[order[1000:]]
noisy = clean + 0.4 * np.random.default_rng(1).standard_normal(clean.shape)

est = KernelPCA(32, kernel="rbf", gamma=0.05, fit_inverse_transform="fixed_point").fit(training)
denoised = est.inverse_transform(est.transform(noisy))

COMPONENTS = (8, 16, 32, 64)
METHODS = {
    "PCA": PCA(),
    "kernel PCA, ridge map": KernelPCA(kernel="rbf", gamma=0.05, fit_inverse_transform=True, alpha=0.01),
    "kernel PCA, fixed point": KernelPCA(kernel="rbf", gamma=0.05, fit_inverse_transform="fixed_point"),
}


def reconstruct(method: str, n_components: int) -> np.ndarray:
    """Denoised digits, shape (797, 64)."""
    fitted = clone(METHODS[method]).set_params(n_components=n_components).fit(training)
    return fitted.inverse_transform(fitted.transform(noisy))


def error(rows: np.ndarray) -> float:
    """Mean squared error against the clean digits; grey levels are 0 … 1."""
    return float(np.square(rows - clean).mean())


def table() -> dict[str, list[float]]:
    """Errors of every method, one for each number of components."""
    return {method: [error(reconstruct(method, k)) for k in COMPONENTS] for method in METHODS}


def draw(path: Path, n_digits: int = 12) -> None:
    """Picture of the first digits: clean, noisy, and denoised with 32 components."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = {"clean": clean, "noisy": noisy, **{method: reconstruct(method, 32) for method in METHODS}}
    figure, axes = pyplot.subplots(len(shown), n_digits, figsize=(9, 4))
    for line, (name, rows) in zip(axes, shown.items(), strict=True):
        for axis, row in zip(line, rows, strict=False):
            axis.imshow(row.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        caption = name if name == "clean" else f"{name}\nerror {error(rows):.4f}"
        line[0].set_ylabel(caption, rotation=0, ha="right", va="center")
    figure.tight_layout(pad=0.3)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    for name, errors in table().items():
        print(name, *(f"{value:.4f}" for value in errors))
    draw(Path(__file__).parent.parent / "figures" / "denoising.png")
