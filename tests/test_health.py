"""Later rows are compared with those of a fit: what has changed is seen, what chance does is not."""

import json
import logging
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from scipy.stats import binom, chi2, norm

from scalable_kpca.cli import skpca
from scalable_kpca.errors import ConfigError, InvalidInputError, StorageError
from scalable_kpca.health import (
    MEASURES,
    Profile,
    compare_columns,
    compare_novelty,
    compare_scores,
    score_bins,
    shares_of,
)
from scalable_kpca.source import Recipe, open_source, survey
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.inspect import verify_output
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import execute, prepare
from scalable_kpca.workflow.update import update_output

N_ROWS = 400
D = 3


def rows_of(seed: int, n: int = N_ROWS, *, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    return shift + scale * np.random.default_rng(seed).standard_normal((n, D))


def write(path: Path, rows: np.ndarray, **more: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {f"x{column}": pa.array(values, from_pandas=True) for column, values in enumerate(rows.T)}
    pq.write_table(pa.table({"id": np.arange(len(rows))} | columns | more), path)
    return path


def surveyed(folder: Path, name: str, rows: np.ndarray, profile: Profile | None = None, nulls: str = "impute:mean"):
    source = open_source(str(write(folder / name / "0.parquet", rows)), folder, id_columns=["id"])
    expected = None if profile is None else (profile.low, profile.high)
    return survey(source, Recipe(nulls), expected=expected)


def profile_of(folder: Path, rows: np.ndarray, scores: np.ndarray | None = None) -> Profile:
    bins = score_bins(np.zeros((0, 0)) if scores is None else scores, None)
    return Profile.of(("x0", "x1", "x2"), (), surveyed(folder, "fit", rows), bins)


def values_of(findings) -> dict[str, tuple[float, str]]:
    return {finding.measure: (finding.value, finding.where) for finding in findings}


# ---------------------------------------------------------------- measures


@pytest.mark.parametrize("n", [1, 10, 100, 2000])
def test_rows_like_those_of_the_fit_have_nothing_to_report(tmp_path, n):
    profile = profile_of(tmp_path, rows_of(0, 5000))
    for seed in range(20):
        found = values_of(compare_columns(profile, surveyed(tmp_path, "later", rows_of(seed + 1, n), profile)))
        assert found["missing"][0] == found["outside"][0] == 0
        # four standard deviations of one column are exceeded once in 16 000 times, and there are 3 × 20 × 4 here
        assert found["mean"][0] == 0
        assert found["spread"][0] == 0


def test_each_measure_is_about_the_column_that_changed(tmp_path):
    profile = profile_of(tmp_path, rows_of(0, 5000))
    later = rows_of(1, 1000)
    later[:, 0] += 2
    later[:, 1] *= 3
    later[:300, 2] = np.nan
    found = values_of(compare_columns(profile, surveyed(tmp_path, "later", later, profile)))
    assert found["mean"] == (pytest.approx(2 - 4 * math.sqrt(1 / 1000 + 1 / 5000), abs=0.1), "x0")
    assert found["spread"] == (pytest.approx(3 * math.exp(-4 * math.sqrt(0.5 / 1000 + 0.5 / 5000)) - 1, rel=0.15), "x1")
    assert found["missing"] == (0.3, "x2")  # none was missing in the fit
    high = profile.high[1]
    beyond = (np.abs(later[:, 1]) > high).sum()
    assert found["outside"][1] == "x1"
    assert 0 < found["outside"][0] < beyond / 1000


def test_a_constant_column_that_is_another_constant_is_infinitely_far(tmp_path):
    rows = rows_of(0, 50)
    rows[:, 1] = 7
    profile = profile_of(tmp_path, rows)
    same = values_of(compare_columns(profile, surveyed(tmp_path, "same", rows, profile)))
    assert (same["mean"][0], same["spread"][0], same["outside"][0]) == (0, 0, 0)
    rows[:, 1] = 8
    other = values_of(compare_columns(profile, surveyed(tmp_path, "other", rows, profile)))
    assert other["mean"] == (math.inf, "x1")
    assert other["outside"] == (pytest.approx((50 - binom.ppf(norm.cdf(4), 50, 2 / 51)) / 50), "x1")


def test_population_stability_index_is_its_formula_less_chance():
    rng = np.random.default_rng(0)
    bins = score_bins(rng.standard_normal((50_000, 2)), None)
    assert bins.edges.shape == (2, 9)
    np.testing.assert_allclose(bins.shares, 0.1, atol=1e-9)
    later = rng.standard_normal((20_000, 2)) + np.array([0, 0.5])
    counts = shares_of(later, bins.edges)
    assert counts.sum(axis=1).tolist() == [20_000, 20_000]
    share = counts[1] / 20_000
    index = ((share - 0.1) * np.log(share / 0.1)).sum()
    (found,) = compare_scores(bins, counts)
    assert found.where == "pc_001"
    assert found.value == pytest.approx(index - (1 / 50_000 + 1 / 20_000) * chi2.isf(norm.sf(4), 9), rel=1e-6)
    # of two normal distributions half a standard deviation apart it is a quarter, the square of that, but for the bins
    assert 0.2 < found.value < 0.26


@pytest.mark.parametrize("m", [1, 10, 100, 10_000])
def test_scores_and_novelty_like_those_of_the_fit_have_nothing_to_report(m):
    rng = np.random.default_rng(m)
    scores = rng.standard_normal((20_000, 3))
    bins = score_bins(scores, (scores**2).sum(axis=1))
    for _ in range(20):
        later = rng.standard_normal((m, 3))
        (found,) = compare_scores(bins, shares_of(later, bins.edges))
        assert found.value < 0.05
        assert bins.novel is not None
        (novel,) = compare_novelty(bins, int(((later**2).sum(axis=1) > bins.novel).sum()), m)
        # one of one row is more novel in a hundred times: a share of 1 that chance explains to 0.4
        assert novel.value == 0 or m == 1


def test_a_profile_is_the_same_after_it_was_written(tmp_path):
    profile = profile_of(tmp_path, rows_of(0), rows_of(1))
    again = Profile.from_json(json.loads(json.dumps(profile.to_json())))
    assert again.to_json() == profile.to_json()
    fields = profile.to_json()
    for wrong in (
        fields | {"mean": [0.0]},
        fields | {"low": [math.nan] * 3},
        fields | {"numeric": [1, 2, 3]},
        fields | {"scores": {**fields["scores"], "edges": [[1.0] * 8 + [0.0]]}},
        fields | {"scores": {**fields["scores"], "weights": [[1.0, 2.0]], "offset": [0.0]}},
        {},
    ):
        with pytest.raises((ValueError, TypeError, KeyError)):
            Profile.from_json(wrong)


@pytest.mark.parametrize("n_values", [1, 2, 3, 25])
@pytest.mark.parametrize("m", [1, 5, 20, 3000])
def test_scores_that_repeat_are_not_cut_apart_by_their_last_digits(n_values, m):
    rng = np.random.default_rng(n_values + m)
    values = rng.standard_normal(n_values)
    fitted = values[rng.integers(0, n_values, 5000)]
    bins = score_bins(fitted[:, None], None)
    for _ in range(10):
        later = values[rng.integers(0, n_values, m)] * (1 + 4e-16 * rng.standard_normal(m))
        (found,) = compare_scores(bins, shares_of(later[:, None], bins.edges))
        assert found.value < 0.05
    (other,) = compare_scores(bins, shares_of(np.full((3000, 1), 9.0), bins.edges))
    assert other.value > 0.5


def test_chance_is_that_of_four_standard_deviations():
    """Of rows like those of the fit, next to none have anything to report."""
    rng, reported = np.random.default_rng(0), 0
    bins = score_bins(rng.standard_normal((3000, 1)), None)
    for _ in range(2000):
        (found,) = compare_scores(bins, shares_of(rng.standard_normal((500, 1)), bins.edges))
        reported += found.value > 0
    assert reported <= 2  # 0.06 are expected


def test_a_share_of_a_small_fit_is_known_as_well_as_its_rows_allow(tmp_path):
    rng = np.random.default_rng(1)
    for _ in range(20):
        rows, later = rng.standard_normal((50, D)), rng.standard_normal((5000, D))
        rows[rng.random((50, D)) < 0.1] = np.nan
        later[rng.random((5000, D)) < 0.1] = np.nan
        profile = profile_of(tmp_path, rows)
        found = values_of(compare_columns(profile, surveyed(tmp_path, "later", later, profile)))
        assert found["missing"][0] == 0


@pytest.mark.parametrize("value", [0.1, -1e9 / 3, 1e-300])
def test_a_constant_column_stays_constant_however_its_sums_are_rounded(tmp_path, value):
    profile = profile_of(tmp_path, np.full((8, D), value))
    found = values_of(compare_columns(profile, surveyed(tmp_path, "later", np.full((777, D), value), profile)))
    assert {measure: size for measure, (size, _) in found.items()} == dict.fromkeys(found, 0)


def test_values_whose_squares_are_beyond_float64_have_a_profile_that_can_be_read(tmp_path):
    profile = profile_of(tmp_path, rows_of(0) * 1e200)
    again = Profile.from_json(json.loads(json.dumps(profile.to_json())))
    assert compare_columns(again, surveyed(tmp_path, "later", rows_of(1) * 1e200, again))


# ---------------------------------------------------------------- jobs


def job(method: str, **changes: object) -> dict[str, object]:
    return {
        "source": {"uri": "base", "id": "id", "features": "x*"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "method": method,
        "n_components": 4,
        "dtype": "float64",
        "cluster": {"kind": "synchronous"},
        "budget": {"memory": "3GiB"},
        "output": {"path": "out"},
        "novelty": True,
        **({"nystroem": {"n_landmarks": 60}} if method == "nystroem" else {}),
        **changes,
    }


@pytest.fixture(params=["exact", "nystroem"])
def base(tmp_path, request) -> tuple[Path, str]:
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    execute(prepare(Config.model_validate(job(request.param)), tmp_path))
    return tmp_path, request.param


def measures_of(health: dict) -> dict[str, float]:
    (only,) = health.values()
    return {measure: math.inf if entry["value"] is None else entry["value"] for measure, entry in only.items()}


def test_rows_that_are_transformed_are_compared_with_those_of_the_fit(base, caplog):
    folder, _ = base
    output = Output(folder / "out")
    write(folder / "alike" / "0.parquet", rows_of(5))
    n_rows, health = transform_source(output, "alike", folder, folder / "to")
    assert n_rows == N_ROWS
    found = measures_of(health)
    assert set(found) == set(MEASURES) - {"unknown"}
    assert found["missing"] == found["mean"] == found["novelty"] == 0
    assert found["psi"] < 0.1
    assert json.loads((folder / "to" / "_health.json").read_text()) == health
    assert len(pq.read_table(folder / "to")) == N_ROWS  # readers of directories leave out what begins with _
    assert not caplog.records

    write(folder / "moved" / "0.parquet", rows_of(6, shift=3))
    with caplog.at_level(logging.WARNING):
        _, health = transform_source(output, "moved", folder, folder / "moved-to")
    found = measures_of(health)
    assert found["mean"] > 2
    assert found["psi"] > 1
    assert found["novelty"] > 0.5
    warned = "\n".join(record.message for record in caplog.records)
    for measure in ("mean", "psi", "novelty", "outside"):
        assert f"drift.{measure}.warn is" in warned
    assert 'moved/0.parquet, "x' in warned


@pytest.mark.parametrize("measure", ["mean", "psi", "novelty", "outside", "spread"])
def test_rows_that_are_too_far_from_the_fit_are_refused_by_transform(base, measure):
    folder, _ = base
    write(folder / "moved" / "0.parquet", rows_of(6, shift=3, scale=4))
    write(folder / "alike" / "0.parquet", rows_of(7))
    limit = [f"drift.{measure}.fail={1.5 if measure == 'spread' else 0.3}"]
    with pytest.raises(InvalidInputError, match=rf"moved/0\.parquet.*drift\.{measure}\.fail is .*nothing is published"):
        transform_source(Output(folder / "out"), "moved", folder, folder / "to", limit)
    assert [place.name for place in folder.iterdir() if place.name.startswith((".", "to"))] == []
    transform_source(Output(folder / "out"), "alike", folder, folder / "to", limit)
    with pytest.raises(ConfigError, match="only drift, monitor can be changed here"):
        transform_source(Output(folder / "out"), "alike", folder, folder / "again", ["kernel.gamma=1"])


@pytest.mark.parametrize("measure", ["mean", "psi", "novelty"])
def test_a_partition_that_is_too_far_from_the_base_is_refused_and_changes_nothing(tmp_path, measure):
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    made = execute(prepare(Config.model_validate(job("nystroem")), tmp_path)).run
    output, limit = Output(tmp_path / "out"), [f"drift.{measure}.fail=0.3"]
    write(tmp_path / "days" / "1.parquet", rows_of(1))
    first = update_output(output, "days", tmp_path, overrides=limit)
    assert measures_of(first.health)[measure] < 0.3
    before = output.require_latest()
    write(tmp_path / "days" / "2.parquet", rows_of(2, shift=4))
    with pytest.raises(InvalidInputError, match=rf"2\.parquet.*drift\.{measure}\.fail is 0\.3"):
        update_output(output, "days", tmp_path, overrides=limit)
    assert output.require_latest() == before
    assert verify_output(output).problems == []
    # allowed: the same version, with what it found; and later ones are still compared with the base
    done = update_output(output, "days", tmp_path, overrides=[f"drift.{measure}.fail=99"])
    assert done.status == "done"
    assert measures_of(done.health)[measure] > 0.3
    metrics = json.loads((done.run.path / "metrics.json").read_text())
    assert metrics["health"] == done.health
    assert (done.run.path / "profile.json").read_bytes() == (made.path / "profile.json").read_bytes()
    write(tmp_path / "days" / "3.parquet", rows_of(3))
    assert measures_of(update_output(output, "days", tmp_path).health)["psi"] < 0.15


def test_components_that_updates_turned_are_not_taken_for_drift(tmp_path):
    """A second cluster makes new leading components; a day like the base is like the base all the same."""
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    execute(prepare(Config.model_validate(job("nystroem", kernel={"name": "linear"})), tmp_path))
    output = Output(tmp_path / "out")
    far = rows_of(1, 4 * N_ROWS) * [1, 1, 12]
    write(tmp_path / "days" / "1.parquet", far)
    update_output(output, "days", tmp_path)
    write(tmp_path / "days" / "2.parquet", rows_of(2))
    assert measures_of(update_output(output, "days", tmp_path).health)["psi"] < 0.1
    write(tmp_path / "alike" / "0.parquet", rows_of(3))
    assert measures_of(transform_source(output, "alike", tmp_path, tmp_path / "to")[1])["psi"] < 0.1


def test_a_profile_that_is_gone_is_missed(tmp_path):
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    made = execute(prepare(Config.model_validate(job("nystroem")), tmp_path)).run
    write(tmp_path / "days" / "1.parquet", rows_of(1))
    (made.path / "profile.json").unlink()
    with pytest.raises(StorageError, match=r"profile\.json is missing"):
        update_output(Output(tmp_path / "out"), "days", tmp_path)
    with pytest.raises(StorageError, match=r"profile\.json is missing"):
        transform_source(Output(tmp_path / "out"), "days", tmp_path, tmp_path / "to")


def test_a_day_without_a_row_to_keep_is_judged_all_the_same(tmp_path, caplog):
    source = {"uri": "base", "id": "id", "features": "x*", "nulls": "drop"}
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    execute(prepare(Config.model_validate(job("nystroem", source=source)), tmp_path))
    broken = rows_of(1)
    broken[:, 0] = np.nan
    write(tmp_path / "days" / "1.parquet", broken)
    output = Output(tmp_path / "out")
    with pytest.raises(InvalidInputError, match=r'1\.parquet, "x0".*drift\.missing\.fail is 0\.1'):
        update_output(output, "days", tmp_path, overrides=["drift.missing.fail=0.1"])
    with caplog.at_level(logging.WARNING):
        assert update_output(output, "days", tmp_path).status == "unchanged"
    assert "1.parquet: every row has a null in one of the features" in caplog.text
    assert "drift.missing.warn" in caplog.text


def test_rows_that_are_counted_are_looked_at_once_in_an_update(tmp_path, monkeypatch):
    from scalable_kpca.source import prepared

    source = {"uri": "base", "id": "id", "features": "x*", "nulls": "drop"}
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    execute(prepare(Config.model_validate(job("nystroem", source=source)), tmp_path))
    looks, original = [], prepared.survey

    def watched(*arguments, **options):
        looks.append(options["expected"])
        return original(*arguments, **options)

    monkeypatch.setattr(prepared, "survey", watched)
    for day in (1, 2):
        write(tmp_path / "days" / f"{day}.parquet", rows_of(day))
    done = update_output(Output(tmp_path / "out"), "days", tmp_path)
    assert len(done.added) == len(looks) == len(done.health) == 2
    assert None not in looks


def test_one_limit_that_is_said_leaves_the_others_as_they_are():
    drift = Config.model_validate(job("exact", drift={"psi": {"fail": 1}})).drift
    assert (drift.psi.warn, drift.psi.fail) == (0.25, 1)
    assert Config.model_validate(job("exact", drift={"psi": {"warn": None}})).drift.psi.warn is None


def test_a_run_that_keeps_a_profile_is_another_one_than_a_run_without(tmp_path):
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    without = execute(prepare(Config.model_validate(job("nystroem", health=False)), tmp_path)).run
    kept = execute(prepare(Config.model_validate(job("nystroem")), tmp_path)).run
    assert without.path != kept.path
    assert (kept.path / "profile.json").exists()


def test_a_job_that_keeps_no_profile_compares_nothing(tmp_path):
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    made = execute(prepare(Config.model_validate(job("nystroem", health=False)), tmp_path)).run
    assert not (made.path / "profile.json").exists()
    write(tmp_path / "days" / "1.parquet", rows_of(1, shift=9))
    assert transform_source(Output(tmp_path / "out"), "days", tmp_path, tmp_path / "to") == (N_ROWS, {})
    assert [file.suffix for file in (tmp_path / "to").iterdir()] == [".parquet"]
    assert update_output(Output(tmp_path / "out"), "days", tmp_path).health == {}


def test_the_command_line_says_what_is_worst(tmp_path):
    write(tmp_path / "base" / "0.parquet", rows_of(0))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("nystroem")))
    assert CliRunner().invoke(skpca, ["run", str(tmp_path / "job.yaml")]).exit_code == 0
    for day, shift in ((1, 0), (2, 5)):
        write(tmp_path / "days" / f"{day}.parquet", rows_of(day, shift=shift))
    asked = ["transform", str(tmp_path / "out"), "--source", str(tmp_path / "days"), "--to", str(tmp_path / "to")]
    done = CliRunner().invoke(skpca, [*asked, "--json"], catch_exceptions=False)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["health"]["mean"]["path"].endswith("2.parquet")
    assert answer["health"]["mean"]["value"] > 3
    refused = CliRunner().invoke(skpca, [*asked[:-1], str(tmp_path / "other"), "--set", "drift.mean.fail=2"])
    assert refused.exit_code == 65
