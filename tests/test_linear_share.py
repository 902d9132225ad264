"""What a page says of PCA: how much of the scores of a kernel is a linear function of the rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_circles
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

from scalable_kpca import KernelPCA
from scalable_kpca.model import load_model
from scalable_kpca.quality import LinearShare, linear_share, rows_of_share
from scalable_kpca.source import are_drawn
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.stages import execute, prepare

X = np.random.default_rng(0).standard_normal((600, 4)) * [3.0, 2.0, 1.0, 0.5] + 7
X.flags.writeable = False
HALF = 0.5 * 10**-4  # a share has four decimals


def adjusted(rows, scores):
    """By scikit-learn, and the formula in its common form."""
    n, p = rows.shape
    left = ((scores - LinearRegression().fit(rows, scores).predict(rows)) ** 2).sum()
    return 1 - left / ((scores - scores.mean(axis=0)) ** 2).sum() * (n - 1) / (n - p - 1)


@pytest.mark.parametrize(("kernel", "k"), [("rbf", 1), ("rbf", 3), ("poly", 6)])
def test_shares_are_those_of_a_regression_on_the_rows_and_on_the_components_of_pca(kernel, k):
    scores = KernelPCA(k, kernel=kernel, gamma=0.1).fit_transform(X)
    found = linear_share(X, scores)
    assert found.n_rows == len(X)
    assert found.linear == pytest.approx(adjusted(X, scores), abs=HALF + 1e-9)
    components = PCA(min(k, 4)).fit_transform(X)
    assert found.leading == pytest.approx(adjusted(components, scores), abs=HALF + 1e-9)
    assert 0 < found.leading <= found.linear < 1


def test_scores_of_the_linear_kernel_are_linear_and_those_of_circles_are_not():
    assert linear_share(X, KernelPCA(2, kernel="linear").fit_transform(X)) == LinearShare(1.0, 1.0, len(X))
    circles, _ = make_circles(600, factor=0.3, noise=0.02, random_state=0)
    first = KernelPCA(1, kernel="rbf", gamma=2.0).fit_transform(circles)
    assert linear_share(circles, first).linear < 0.01


def test_a_direction_that_pca_puts_last_is_linear_and_not_among_its_leading_components():
    found = linear_share(X, X[:, 3:])
    assert found.linear == 1.0
    assert found.leading < 0.01


def test_what_fits_by_chance_is_not_counted():
    rng = np.random.default_rng(1)
    rows, scores = rng.standard_normal((500, 50)), rng.standard_normal((500, 8))
    # without the adjustment, 50 of 499 by chance; 4000 scores leave a standard error of 0.005
    assert linear_share(rows, scores).linear < 0.02


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e150, 1e300])
def test_shares_do_not_depend_on_units_nor_on_columns_that_say_nothing_new(size):
    scores = KernelPCA(2, gamma=0.1).fit_transform(X)
    expected = linear_share(X, scores)
    assert linear_share(X * size, scores * size) == expected
    repeated = linear_share(np.column_stack([X, X, np.ones(len(X))]), scores)
    assert repeated.linear == pytest.approx(expected.linear, abs=2 * HALF)


@pytest.mark.parametrize(
    ("rows", "scores"),
    [
        (X[:39], X[:39]),
        (X, np.full((600, 2), 0.1)),
        (X, np.empty((600, 0))),
        (X[:0], X[:0]),
    ],
)
def test_where_nothing_can_be_said_nothing_is(rows, scores):
    assert linear_share(rows, scores) is None


def test_rows_of_equal_values_have_nothing_linear():
    assert linear_share(np.full((600, 2), 0.1), X) == LinearShare(0.0, 0.0, 600)


def test_rows_are_few_enough_for_memory_and_enough_for_the_features():
    assert rows_of_share(64, 10) == 2048
    assert rows_of_share(100, 200) == 1747  # 4 MiB
    assert rows_of_share(400, 2) == 0
    assert rows_of_share(3, 0) == 0


def test_rows_are_drawn_by_their_numbers_however_they_come():
    numbers = np.arange(100_000)
    drawn = are_drawn(numbers, len(numbers), 2048)
    # binomial: a standard deviation of 45
    assert abs(drawn.sum() - 2048) < 5 * 45
    np.testing.assert_array_equal(drawn[30_000:70_000], are_drawn(numbers[30_000:70_000], len(numbers), 2048))
    assert are_drawn(numbers[:7], 7, 2048).all()
    assert not are_drawn(numbers, len(numbers), 0).any()
    # no part of the rows is left out
    assert np.histogram(numbers[drawn], 20)[0].min() > 50


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shares")
    rows = np.random.default_rng(2).standard_normal((6000, 3))
    for part, own in enumerate(np.split(rows, [1000, 1003, 4500])):
        pq.write_table(pa.table({f"x{i}": own[:, i] for i in range(3)}), folder / f"part-{part}.parquet")
    return folder, rows


def share_of(files, tmp_path, **changes):
    """Of a job, with the share of all rows and scores of its model."""
    folder, rows = files
    settings = {
        "source": {"uri": f"{folder}/*.parquet", "features": "x*"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "n_components": 4,
        "cluster": {"kind": "synchronous"},
        "output": {"path": "out"},
        **changes,
    }
    run = execute(prepare(Config.model_validate(settings), tmp_path)).run.path
    found = json.loads((run / "metrics.json").read_text())["beside_pca"]
    model = load_model(run / "model")
    return found, linear_share(rows, model.training_scores if changes["method"] == "exact" else model.scores(rows))


@pytest.mark.parametrize("more", [{"method": "exact"}, {"method": "nystroem", "nystroem": {"n_landmarks": 100}}])
@pytest.mark.parametrize("limit", ["400MiB", "2GiB"])
def test_a_job_says_it_of_some_two_thousand_rows(files, tmp_path, more, limit):
    found, expected = share_of(files, tmp_path, budget={"memory": limit}, **more)
    assert 1800 < found["n_rows"] < 2300
    # of a sample: the standard error of a share is at most 0.77 / √m
    assert found["linear"] == pytest.approx(expected.linear, abs=4 * 0.77 / 1800**0.5)
    assert found["leading"] == pytest.approx(expected.leading, abs=4 * 0.77 / 1800**0.5)
    again, _ = share_of(files, tmp_path / "again", cluster={"kind": "threads", "n_threads": 2}, **more)
    assert again == found


def test_a_job_without_health_looks_at_no_row_for_it(files, tmp_path):
    found, _ = share_of(files, tmp_path, method="nystroem", nystroem={"n_landmarks": 20}, health=False)
    assert found is None
