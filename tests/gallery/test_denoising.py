"""The page docs/gallery/denoising.py."""

import numpy as np
import pytest

# as measured when the page was written; four digits are shown
ERRORS = {
    "PCA": [0.0440, 0.0509, 0.0818, 0.1588],
    "kernel PCA, ridge map": [0.0383, 0.0352, 0.0381, 0.0428],
    "kernel PCA, fixed point": [0.0394, 0.0339, 0.0336, 0.0361],
}


@pytest.fixture
def shown(page):
    return page("denoising")


def test_kernel_pca_takes_more_noise_away_than_pca_with_as_many_components(shown):
    errors = shown["errors"]
    linear, *better = errors.values()
    assert (np.array(better) < linear).all()
    # and than PCA with the best of these numbers
    assert all(min(values) < 0.9 * min(linear) for values in better)
    assert list(errors) == list(ERRORS)
    for method, values in errors.items():
        np.testing.assert_allclose(values, ERRORS[method], rtol=0, atol=1e-4)
        assert " ".join([f"{method:24}", *(f"{value:.4f}" for value in values)]) in shown.printed
    assert f"noisy digits: error {shown['error'](shown['noisy']):.4f}" in shown.printed
    assert "least errors: PCA 0.0440, ridge map 0.0352, fixed point 0.0336" in shown.printed


def test_errors_are_against_digits_that_no_fit_has_seen_and_pca_is_pca(shown):
    training, clean, noisy = shown["training"], shown["clean"], shown["noisy"]
    assert len(np.unique(np.concatenate([shown["order"][:1000], shown["order"][1000:]]))) == len(training) + len(clean)
    mean = training.mean(axis=0)
    for place, k in enumerate(shown["COMPONENTS"]):
        axes = np.linalg.svd(training - mean, full_matrices=False)[2][:k]
        linear = mean + (noisy - mean) @ axes.T @ axes
        assert shown["errors"]["PCA"][place] == pytest.approx(np.square(linear - clean).mean(), rel=1e-10)
    # 64 components of PCA keep all noise
    assert shown["errors"]["PCA"][3] == pytest.approx(np.square(noisy - clean).mean(), rel=1e-10)


def test_the_first_fit_gives_what_the_table_and_the_picture_have(shown):
    again = shown["made"]["kernel PCA, fixed point"][32]
    np.testing.assert_allclose(shown["denoised"], again, rtol=0, atol=1e-12)
    report = shown["report"]
    np.testing.assert_allclose(report.rows, shown["denoised"], rtol=0, atol=1e-12)
    assert report.converged.all()
    assert f"iterations of a digit: {report.n_iterations.min()} to {report.n_iterations.max()}" in shown.printed
    (figure,) = shown.figures
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [
        "original",
        "with noise\nerror 0.1588",
        "PCA\nerror 0.0818",
        "kernel PCA, ridge map\nerror 0.0381",
        "kernel PCA, fixed point\nerror 0.0336",
    ]
