"""scikit-learn's own tests of `KernelPCA`, from the installed package, with our class in the place of theirs.

What differs by intention is listed with its reason, here and in docs/compatibility.md, and must fail as expected.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA as Reference

from scalable_kpca import KernelPCA
from scalable_kpca.errors import InvalidInputError

DIFFERENCES = {
    "test_kernel_pca_invalid_parameters": "the refusal is a ValueError in words of its own",
    "test_kernel_pca_precomputed_non_symmetric": "a matrix that is not symmetric is no kernel: refused",
    "test_precomputed_kernel_not_psd": "an indefinite kernel is refused however few components, unless it is clipped",
}

pytestmark = [
    # their suite does not treat warnings as errors: ours warns of components that constant rows do not have
    pytest.mark.filterwarnings("default"),
]


def their_tests():
    """A copy of their module, whose `KernelPCA` is ours."""
    spec = importlib.util.find_spec("sklearn.decomposition.tests.test_kernel_pca")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.KernelPCA.__module__.startswith("sklearn")
    module.KernelPCA = KernelPCA
    return {name: test for name, test in vars(module).items() if name.startswith("test_")}


@pytest.fixture
def global_random_seed():
    return 42  # their default


THEIRS = their_tests()
for name, test in THEIRS.items():
    if name in DIFFERENCES:
        differs = pytest.mark.xfail(strict=True, reason=DIFFERENCES[name], raises=(AssertionError, InvalidInputError))
        test = differs(test)
    globals()[name] = pytest.mark.slow(test) if name == "test_kernel_pca_solvers_equivalence" else test


def test_their_suite_has_what_is_listed_and_enough_besides():
    assert set(DIFFERENCES) < set(THEIRS)
    assert len(THEIRS) >= 20


def test_the_compatibility_table_names_every_parameter_attribute_and_difference():
    page = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()
    theirs, ours = Reference().get_params(), KernelPCA().get_params()
    assert set(theirs) < set(ours)
    fitted = vars(Reference(1, fit_inverse_transform=True).fit(np.eye(3)))
    public = [name for name in fitted if name.endswith("_") and not name.startswith("_")]
    for name in [*ours, *public, *DIFFERENCES]:
        assert f"`{name}`" in page, name


SOLVERS = ["auto", "dense", "arpack", "randomized"]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_kernel_that_is_not_symmetric_is_refused_with_its_entries(solver):
    K = np.array([[1.0, 2.0], [3.0, 40.0]])
    with pytest.raises(ValueError, match=r"not symmetric: K\[0, 1\] = 2 and K\[1, 0\] = 3"):
        KernelPCA(1, kernel="precomputed", eigen_solver=solver).fit(K)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("k", [2, 7])
def test_an_indefinite_kernel_is_refused_or_clipped_by_every_solver_alike(solver, k):
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(np.column_stack([np.ones(8), rng.normal(size=(8, 7))]))[0]
    values = np.array([0, 52.7, 7.7, 7.6, 5.0, 0, -6.1, -15.1])
    K = (vectors * values) @ vectors.T
    K = (K + K.T) / 2
    with pytest.raises(ValueError, match=r"not positive semi-definite.* a centred eigenvalue is -15.1 or lower"):
        KernelPCA(k, kernel="precomputed", eigen_solver=solver).fit(K)
    clipped = KernelPCA(k, kernel="precomputed", eigen_solver=solver, indefinite="clip").fit(K)
    expected = [52.7, 7.7, 7.6, 5.0, 0, 0, 0][:k]
    np.testing.assert_allclose(clipped.eigenvalues_, expected, atol=1e-12 * 52.7)


def test_the_way_back_from_a_precomputed_kernel_is_refused_before_anything_is_read():
    with pytest.raises(ValueError, match="fit_inverse_transform is not possible with kernel='precomputed'"):
        KernelPCA(fit_inverse_transform=True, kernel="precomputed").fit(np.full((3, 3), np.nan))
