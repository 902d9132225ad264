"""Gamma from the distances between rows, and from sigma: one number, however rows are held and whoever says it."""

import json

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from click.testing import CliRunner
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits

from scalable_kpca.cli import skpca
from scalable_kpca.engine import open_engine
from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.kernels import MEDIAN_ROWS, Linear, Matern32, median_gamma, resolve_kernel
from scalable_kpca.landmarks import draw_numbers, draw_rows, sampled_gamma
from scalable_kpca.model import load_model
from scalable_kpca.source import ArrayRows, row_spans
from scalable_kpca.streaming import block_spans
from scalable_kpca.workflow.advising import advise
from scalable_kpca.workflow.config import Config, KernelConfig
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.stages import execute, prepare

EPS = float(np.finfo(np.float64).eps)
X = np.random.default_rng(0).standard_normal((70, 4)) + 2.0
X.flags.writeable = False


def test_median_gamma_makes_sigma_the_median_distance():
    assert abs(median_gamma(X) - 0.5 / np.median(pdist(X)) ** 2) <= 8 * EPS * median_gamma(X)
    assert median_gamma(np.array([[0.0], [1.0], [3.0]])) == 0.125


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix, np.float32])
def test_median_gamma_takes_sparse_and_float32_rows(kind):
    rows = np.where(np.abs(X) > 2, X, 0.0)
    found, expected = median_gamma(kind(rows)), median_gamma(rows)
    assert abs(found - expected) <= 1e-6 * expected


def test_median_gamma_of_wide_rows_is_that_of_their_differences():
    rows = 1e3 + np.random.default_rng(1).standard_normal((40, 1500))
    rows[1] = rows[0]
    expected = 0.5 / np.median(pdist(rows)) ** 2
    # rows are shifted by their mean: products are as small as the distances
    assert abs(median_gamma(rows) - expected) <= 1e-10 * expected


@pytest.mark.parametrize("sparse", [False, True])
def test_repeated_rows_do_not_make_gamma_infinite(sparse):
    wrap = scipy.sparse.csr_array if sparse else np.asarray
    rows = np.zeros((10, 3))
    rows[:3] += [3.0, 4.0, 0.0]  # 21 of 45 pairs are 5 apart, the others are equal
    assert abs(median_gamma(wrap(rows)) - 0.5 / 25) <= 4 * EPS
    assert median_gamma(wrap(np.full((5, 3), 7.3))) == 1.0
    assert median_gamma(wrap(np.zeros((5, 3)))) == 1.0
    assert median_gamma(wrap(np.ones((1, 3)))) == 1.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_features", [37, 1500])
@pytest.mark.parametrize("sparse", [False, True])
def test_rounding_of_products_does_not_tell_repeated_rows_apart(n_features, sparse, seed):
    pair = 1e3 + np.random.default_rng(seed).standard_normal((2, n_features))
    different = 0.5 / np.square(pair[0] - pair[1]).sum()
    # 33 of 91 pairs are of different rows, so that the median is 0 and the mean of the others counts
    rows = np.repeat(pair, [11, 3], axis=0)[np.random.default_rng(3).permutation(14)]
    found = median_gamma(scipy.sparse.csr_array(rows) if sparse else rows)
    # products of sparse rows are not shifted: eps·‖x‖²/‖x − y‖² with norms of 1e6 a feature
    assert abs(found - different) <= 1e-8 * different


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[-128], [-128], [0]], np.int8),
        np.array([[0], [255], [1]], np.uint8),
        np.array([[-(2**63)], [0]], np.int64),
        np.array([[False], [True], [True]]),
        scipy.sparse.csr_array(np.array([[-128], [0]], np.int8)),
    ],
    ids=lambda rows: str(rows.dtype),
)
def test_median_gamma_of_integers_is_that_of_the_numbers(rows):
    expected = median_gamma(rows.astype(np.float64))
    assert abs(median_gamma(rows) - expected) <= 4 * EPS * expected


@pytest.mark.parametrize("scale", [1e150, 1e-150])
def test_median_gamma_of_huge_and_tiny_rows_is_scaled(scale):
    expected = median_gamma(X) / scale / scale
    assert abs(median_gamma(scale * X) - expected) <= 16 * EPS * expected


@pytest.mark.parametrize("scale", [1e200, 1e-170])
def test_distances_whose_gamma_is_no_number_are_refused(scale):
    with pytest.raises(InvalidInputError, match="scale the features"):
        median_gamma(scale * X)


def test_kernels_ask_for_the_median_only_when_gamma_is_that():
    asked = []

    def median():
        asked.append(1)
        return 0.25

    assert resolve_kernel("matern32", gamma="median", n_features=4, median=median) == Matern32(0.25)
    assert resolve_kernel("linear", gamma="median", n_features=4, median=median) == Linear()
    assert resolve_kernel("rbf", n_features=4, median=median).gamma == 0.25
    assert asked == [1]
    with pytest.raises(InvalidInputError, match="needs some of the training rows"):
        resolve_kernel("rbf", gamma="median", n_features=4)
    with pytest.raises(InvalidInputError, match='"median"'):
        resolve_kernel("rbf", gamma="mediam", n_features=4)


def test_the_same_rows_are_drawn_however_they_are_cut():
    first = draw_rows(row_spans(ArrayRows(X), 70), 20, seed=3)
    assert first.shape == (20, 4)
    assert (draw_rows(row_spans(ArrayRows(X), 9), 20, seed=3, batch_rows=4) == first).all()
    assert (first == X[draw_numbers(70, 20, seed=3)]).all()
    with open_engine("threads", n_threads=2) as engine:
        spans = block_spans(da.from_array(X, chunks=(13, 2)))
        assert (draw_rows(spans, 20, seed=3, engine=engine) == first).all()
    assert not (draw_rows(row_spans(ArrayRows(X), 9), 20, seed=4) == first).all()
    assert (draw_rows(row_spans(ArrayRows(X), 9), 70) == X).all()
    with pytest.raises(InvalidInputError, match="no rows"):
        draw_rows([], 5)


def test_every_row_is_drawn_equally_often():
    counts = np.bincount(np.concatenate([draw_numbers(30, 10, seed=seed) for seed in range(600)]), minlength=30)
    # 600 draws at probability 1/3: standard deviation 11.5, and five of them for the worst of thirty rows
    assert np.abs(counts - 200).max() <= 5 * 11.6


def write_digits(folder):
    """Digits in three Parquet files."""
    rows = load_digits().data[:300]
    (folder / "data").mkdir()
    for part, block in enumerate(np.split(rows, [90, 210])):
        columns = {f"px{column:02}": block[:, column] for column in range(64)}
        pq.write_table(pa.table(columns), folder / "data" / f"part-{part}.parquet")
    return rows


def job(method, **kernel):
    return Config.model_validate(
        {
            "source": {"uri": "data/*.parquet", "features": "px*"},
            "kernel": {"name": "rbf", **kernel},
            "method": method,
            "n_components": 3,
            "nystroem": {"n_landmarks": 40, "landmarks": "uniform"},
            "tile_rows": 128,
            "seed": 5,
            "cluster": {"kind": "synchronous"},
            "output": {"path": "out"},
        }
    )


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_a_run_resolves_the_median_on_rows_of_its_seed(method, tmp_path):
    rows = write_digits(tmp_path)
    prepared = prepare(job(method, gamma="median"), tmp_path)
    outcome = execute(prepared)
    model = load_model(outcome.run.path / "model")
    assert len(rows) < MEDIAN_ROWS  # so that all of them are looked at
    assert abs(model.kernel.gamma - median_gamma(rows)) <= 8 * EPS * median_gamma(rows)
    assert execute(prepare(job(method, gamma="median"), tmp_path)).status == "unchanged"
    advise(prepared)


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_a_run_takes_sigma_for_gamma(method, tmp_path):
    write_digits(tmp_path)
    outcome = execute(prepare(job(method, sigma=20.0), tmp_path))
    assert load_model(outcome.run.path / "model").kernel.gamma == 1 / 800
    # the same kernel by either name is the same run, and another width is another
    assert execute(prepare(job(method, gamma=1 / 800), tmp_path)).status == "unchanged"
    other = prepare(job(method, sigma=21.0), tmp_path)
    assert other.fingerprint != outcome.run.fingerprint


def test_the_command_line_takes_both(tmp_path):
    write_digits(tmp_path)
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job("exact", sigma=20.0).model_dump(mode="json", exclude_unset=True)))
    found = {}
    for setting in ("kernel.sigma=20", "kernel={name: rbf, gamma: median}"):
        told = CliRunner().invoke(skpca, ["run", str(file), "--set", setting])
        assert told.exit_code == 0, told.output
        found[setting] = load_model(Output(tmp_path / "out").require_latest().path / "model").kernel.gamma
    assert list(found.values()) == [1 / 800, pytest.approx(median_gamma(load_digits().data[:300]), rel=8 * EPS)]
    refused = CliRunner().invoke(skpca, ["run", str(file), "--set", "kernel.gamma=median"])
    assert refused.exit_code == 78
    assert "gamma and sigma are both given" in refused.output


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_a_run_draws_the_rows_of_its_seed(method, tmp_path, monkeypatch):
    monkeypatch.setattr("scalable_kpca.landmarks.draw.MEDIAN_ROWS", 20)
    rows = write_digits(tmp_path)
    outcome = execute(prepare(job(method, gamma="median"), tmp_path))
    expected = median_gamma(rows[draw_numbers(len(rows), 20, seed=5)])
    assert abs(load_model(outcome.run.path / "model").kernel.gamma - expected) <= 8 * EPS * expected


def test_a_sample_smaller_than_the_rows_follows_the_seed(monkeypatch):
    monkeypatch.setattr("scalable_kpca.landmarks.draw.MEDIAN_ROWS", 20)
    spans = row_spans(ArrayRows(X), 16)
    found = {sampled_gamma(spans, seed=seed) for seed in (0, 0, 1)}
    assert len(found) == 2
    assert median_gamma(X[draw_numbers(70, 20, seed=1)]) in found


def test_an_interrupted_run_with_the_median_takes_its_rows_and_tiles_over(tmp_path):
    write_digits(tmp_path)
    first = execute(prepare(job("exact", gamma="median").model_copy(update={"gram": "zarr"}), tmp_path))
    more = job("exact", gamma="median").model_copy(update={"gram": "zarr", "n_components": 5})
    second = execute(prepare(more, tmp_path))
    assert second.run.path != first.run.path
    counts = second.fit.build_counts
    assert (counts.computed, counts.read) == (0, 6)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"name": "rbf", "gamma": 1.0, "sigma": 2.0}, "gamma and sigma are both given"),
        ({"name": "rbf", "gamma": "scale", "sigma": 2.0}, "gamma and sigma are both given"),
        ({"name": "poly", "sigma": 2.0}, "kernel poly has no sigma, only rbf, matern12"),
        ({"name": "laplacian", "sigma": 2.0}, "has no sigma"),
        ({"name": "rbf", "sigma": 0}, "greater than 0"),
        ({"name": "rbf", "sigma": 1e200}, "beyond float64"),
        ({"name": "rbf", "sigma": 1e-200}, "beyond float64"),
        ({"name": "rbf", "sigma": True}, "a truth value means nothing here"),
        ({"name": "rbf", "gamma": "mean"}, "'median'"),
        ({"name": "rbf", "gamma": float("inf")}, r"(?s)kernel\.gamma.*finite number"),
        ({"name": "rbf", "gamma": float("nan")}, "finite number"),
        ({"name": "rbf", "sigma": float("inf")}, "finite number"),
        ({"name": "poly", "coef0": float("-inf")}, "finite number"),
    ],
)
def test_widths_that_mean_nothing_are_refused(kernel, message, tmp_path):
    from scalable_kpca.workflow.loading import load_config

    file = tmp_path / "job.yaml"
    written = str(kernel).replace("inf", ".inf").replace("nan", ".nan")
    file.write_text(f"source: {{uri: x.npy}}\noutput: {{path: out}}\nkernel: {written}\n")
    with pytest.raises(ConfigError, match=message):
        load_config(file)
    assert CliRunner().invoke(skpca, ["run", str(file)]).exit_code == 78


def test_configurations_without_sigma_have_the_identity_that_they_had():
    assert KernelConfig(name="poly", gamma=0.5).identity == {"name": "poly", "gamma": 0.5, "degree": 3.0, "coef0": 1.0}
    assert KernelConfig(name="matern52", sigma=0.5).identity == KernelConfig(name="matern52", gamma=2.0).identity
