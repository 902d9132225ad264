"""What a page says of PCA: how much of the scores of a kernel is a linear function of the rows."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_circles
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

from scalable_kpca import KernelPCA
from scalable_kpca.health import JointMoments, LinearShare
from scalable_kpca.model import load_model
from scalable_kpca.source import ArrayRows
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.stages import execute, prepare
from scalable_kpca.workflow.watching import RowLook, look_at_rows

X = np.random.default_rng(0).standard_normal((600, 4)) * [3.0, 2.0, 1.0, 0.5] + 7
X.flags.writeable = False
HALF = 0.5 * 10**-4 + 1e-9  # a share has four decimals


def share(rows, scores, batch_rows=100):
    return look_at_rows(ArrayRows(rows), scores, batch_rows, columns=False).linear_share()


def adjusted(rows, scores):
    """By scikit-learn, and the formula in its common form."""
    n, p = rows.shape
    left = ((scores - LinearRegression().fit(rows, scores).predict(rows)) ** 2).sum()
    return 1 - left / ((scores - scores.mean(axis=0)) ** 2).sum() * (n - 1) / (n - p - 1)


def regressions(rows, scores):
    """`LinearShare` of a direct computation."""
    components = PCA(min(scores.shape[1], rows.shape[1])).fit_transform(rows)
    return adjusted(rows, scores), adjusted(components, scores)


@pytest.fixture(scope="module")
def scores():
    return KernelPCA(3, kernel="rbf", gamma=0.1).fit_transform(X)


@pytest.mark.parametrize(("kernel", "k"), [("rbf", 1), ("rbf", 3), ("poly", 6)])
def test_shares_are_those_of_a_regression_on_the_rows_and_on_the_components_of_pca(kernel, k):
    scores = KernelPCA(k, kernel=kernel, gamma=0.1).fit_transform(X)
    found, (linear, leading) = share(X, scores), regressions(X, scores)
    assert found.linear == pytest.approx(linear, abs=HALF)
    assert found.leading == pytest.approx(leading, abs=HALF)
    assert 0 < found.leading <= found.linear < 1


def test_scores_of_the_linear_kernel_are_linear_and_those_of_circles_are_not():
    assert share(X, KernelPCA(2, kernel="linear").fit_transform(X)) == LinearShare(1.0, 1.0)
    circles, _ = make_circles(600, factor=0.3, noise=0.02, random_state=0)
    first = KernelPCA(1, kernel="rbf", gamma=2.0).fit_transform(circles)
    assert share(circles, first).linear < 0.01


def test_a_direction_that_pca_puts_last_is_linear_and_not_among_its_leading_components():
    found = share(X, X[:, 3:])
    assert found.linear == 1.0
    assert found.leading < 0.01


def test_what_fits_by_chance_is_not_counted():
    rng = np.random.default_rng(1)
    rows, scores = rng.standard_normal((500, 50)), rng.standard_normal((500, 8))
    # without the adjustment, 50 of 499 by chance; 4000 scores leave a standard error of 0.005
    assert share(rows, scores).linear < 0.02


@pytest.mark.parametrize("batch_rows", [1, 7, 599, 600])
def test_blocks_do_not_show(scores, batch_rows):
    moments = look_at_rows(ArrayRows(X), scores, batch_rows, columns=False).moments
    centred, deviations = X - X.mean(axis=0), scores - scores.mean(axis=0)
    assert moments.count == 600
    np.testing.assert_allclose(moments.origin + moments.mean, [*X.mean(axis=0), *scores.mean(axis=0)], atol=1e-13)
    np.testing.assert_allclose(moments.rows, centred.T @ centred, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(moments.both, centred.T @ deviations, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(moments.scores, np.square(deviations).sum(axis=0), rtol=1e-12)
    assert moments.linear_share() == share(X, scores)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: np.column_stack([rows, np.full(600, 1e16)]),
        lambda rows: np.column_stack([rows, np.full(600, 0.1)]),
        lambda rows: np.column_stack([rows, rows, rows[:, 0] - rows[:, 1]]),
        lambda rows: rows * [1, 1e13, 1, 1],
        lambda rows: rows * [1e-100, 1, 1e100, 1],
        lambda rows: rows + 1e10,
        lambda rows: rows.astype(np.float32),
    ],
)
def test_neither_units_nor_columns_that_say_nothing_new_change_what_is_linear(scores, change):
    # offsets of 1e10 round rows to 2e-6, float32 to 1e-6
    assert share(change(X), scores).linear == pytest.approx(share(X, scores).linear, abs=2 * HALF)
    assert share(X, scores * 1e100).linear == share(X, scores).linear


def test_a_large_column_without_a_part_in_the_scores_leads_pca_and_is_not_linear(scores):
    noise = np.random.default_rng(3).standard_normal((600, 1)) * 1e6
    found = share(np.column_stack([X, noise]), scores[:, :1])
    assert found.linear == pytest.approx(share(X, scores[:, :1]).linear, abs=0.01)
    assert found.leading < 0.01


@pytest.mark.parametrize(
    ("rows", "scores"),
    [
        (X[:39], X[:39]),
        (X, np.full((600, 2), 0.1)),
        (X, np.empty((600, 0))),
        (X[:0], X[:0]),
        (np.full((600, 2), 0.1), X),
        (X * 1e200, X),
        (X * 1e-200, X),
        (X, X * 1e200),
        (X, X * 1e-170),
        (X * [1, 1e-155, 1, 1], X),
    ],
)
def test_where_nothing_can_be_said_nothing_is(rows, scores):
    assert share(rows, scores) is None


def test_rows_that_are_not_finite_have_no_share(scores):
    for bad in (np.nan, np.inf):
        rows = X.copy()
        rows[3, 1] = bad
        assert share(rows, scores) is None
        assert share(X, np.where(np.arange(600)[:, None] == 3, bad, scores)) is None


def test_moments_are_small():
    assert RowLook.of(64, 900, columns=False).moments
    assert RowLook.of(250, 10, columns=False).moments
    assert not RowLook.of(256, 10, columns=False).moments
    assert not RowLook.of(64, 0, columns=False).moments
    assert look_at_rows(ArrayRows(np.ones((5, 300))), np.ones((5, 2)), 5, columns=False).moments is None


def test_merging_moments_keeps_constant_columns_constant():
    total = JointMoments.of(np.full((10, 1), 0.1), np.arange(10.0)[:, None])
    total.merge(JointMoments.of(np.full((7, 1), 0.1), np.arange(7.0)[:, None]))
    assert total.rows[0, 0] == 0


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shares")
    rows = np.random.default_rng(2).standard_normal((9000, 3)) * [1.0, 1.5, 2.0]
    for part, own in enumerate(np.split(rows, [1000, 1003, 8600])):
        pq.write_table(pa.table({f"x{i}": own[:, i] for i in range(3)}), folder / f"part-{part}.parquet")
    return folder, rows


def run(files, tmp_path, source=(), **changes):
    folder, _ = files
    settings = {
        "source": {"uri": f"{folder}/*.parquet", "features": "x*", **dict(source)},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "n_components": 2,
        "cluster": {"kind": "synchronous"},
        "output": {"path": "out"},
        **changes,
    }
    path = execute(prepare(Config.model_validate(settings), tmp_path)).run.path
    return json.loads((path / "metrics.json").read_text())["linear_share"], load_model(path / "model")


METHODS = {"exact": {"method": "exact"}, "nystroem": {"method": "nystroem", "nystroem": {"n_landmarks": 100}}}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cluster", [{"kind": "synchronous"}, {"kind": "threads", "n_threads": 2}])
def test_a_job_says_it_of_all_rows(files, tmp_path, method, cluster):
    found, model = run(files, tmp_path, cluster=cluster, **METHODS[method])
    rows = files[1]
    scores = model.training_scores if method == "exact" else model.scores(rows)
    linear, leading = regressions(rows, scores)
    assert found["linear"] == pytest.approx(linear, abs=HALF)
    assert found["leading"] == pytest.approx(leading, abs=HALF)
    assert found["leading"] < found["linear"] < 1


@pytest.mark.parametrize("method", METHODS)
def test_a_job_without_health_looks_at_no_row_for_it(files, tmp_path, method):
    assert run(files, tmp_path, **METHODS[method], health=False)[0] is None


@pytest.mark.parametrize("method", METHODS)
def test_prepared_columns_are_those_that_count(files, tmp_path, method):
    found, model = run(files, tmp_path, source={"standardize": True}, **METHODS[method])
    rows = files[1]
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    scores = model.training_scores if method == "exact" else model.scores(rows)
    assert found["leading"] == pytest.approx(regressions(rows, scores)[1], abs=HALF)


def test_rows_are_not_read_where_nothing_is_looked_for():
    class Unread(ArrayRows):
        def read(self, rows):
            raise AssertionError(f"{rows} were read")

    seen = look_at_rows(Unread(np.ones((5, 300))), np.ones((5, 2)), 5, columns=False)
    assert (seen.columns, seen.moments, seen.linear_share()) == (None, None, None)


def test_tasks_and_reports_do_not_import_scikit_learn():
    text = "import sys, scalable_kpca.report, scalable_kpca.workflow.stages; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
