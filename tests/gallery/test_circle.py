"""The page docs/gallery/circle.py."""


def test_a_circle_has_five_eigenvalues_of_the_quadratic_kernel_and_four_when_centred(page):
    shown = page("circle")
    assert shown["n_uncentred"] == 5
    assert shown["pca"].eigenvalues_.shape == (4,)
    assert (shown["pca"].eigenvalues_ > 0).all()
    assert "without centring 5 eigenvalues are not zero, centred 4" in shown.printed
