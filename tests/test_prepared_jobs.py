"""Jobs whose columns are prepared: fit, update and transform make the same features of a row."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from scalable_kpca.cli import skpca
from scalable_kpca.errors import InvalidInputError, ModelFormatError
from scalable_kpca.model import load_model
from scalable_kpca.source import Recipe
from scalable_kpca.transform import project
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import execute, outline, prepare
from scalable_kpca.workflow.update import update_output
from tests.support import describe_model
from tests.test_preparation import reference, table_of, write

N_ROWS = 240
CLUSTERS = [
    {"kind": "threads", "n_threads": 2},
    pytest.param({"kind": "local", "n_workers": 2}, marks=pytest.mark.slow),
]
METHODS = {"exact": {}, "nystroem": {"nystroem": {"n_landmarks": 60, "landmarks": "uniform"}}}


def job(method: str, nulls: str, **changes: object) -> dict[str, object]:
    source = {"uri": "rows", "id": "id", "categorical": ["carrier", "month"], "nulls": nulls, "standardize": True}
    return {
        "source": {**source, **changes.pop("source", {})},
        "kernel": {"name": "rbf", "gamma": 0.2},
        "method": method,
        "n_components": 3,
        "dtype": "float64",
        "cluster": {"kind": "synchronous"},
        "budget": {"memory": "2GiB"},
        "output": {"path": "out"},
        **METHODS[method],
        **changes,
    }


def run(folder: Path, fields: dict[str, object]) -> Path:
    return execute(prepare(Config.model_validate(fields), folder)).run.path


def scores_in(directory: Path) -> tuple[list[int], np.ndarray]:
    table = pa.concat_tables([pq.read_table(part) for part in sorted(directory.glob("*.parquet"))])
    return table["id"].to_pylist(), np.column_stack([table[f"pc_{k:03d}"].to_numpy() for k in range(3)])


def assert_scores(directory: Path, ids: list[int], expected: np.ndarray) -> None:
    found, scores = scores_in(directory)
    assert found == ids
    # a column is off by 1e6·n·eps of its mean, over a standard deviation of 1, before the kernel is taken
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("nulls", ["drop", "impute:median"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster["kind"])
def test_scores_are_those_of_rows_that_scikit_learn_prepared(tmp_path, method, nulls, cluster):
    table = table_of(N_ROWS)
    write(tmp_path / "rows", table)
    made = run(tmp_path, job(method, nulls, cluster=cluster))
    features, ids = reference(table, Recipe(nulls, standardize=True))
    model = load_model(made / "model")
    assert model.n_samples == len(ids)
    assert model.preparation is not None
    assert model.feature_names == model.preparation.feature_names
    assert_scores(made / "embedding", ids, project(model, features))
    # and later rows with the numbers of these
    later = table_of(40, seed=5)
    write(tmp_path / "later", later, parts=2)
    transform_source(Output(tmp_path / "out"), "later", tmp_path, tmp_path / "to")
    rows, ids = reference_like(table, later, nulls)
    assert_scores(tmp_path / "to", ids, project(model, rows))


def reference_like(fitted: pa.Table, later: pa.Table, nulls: str) -> tuple[np.ndarray, list[int]]:
    """Rows of `later` with what scikit-learn learned of `fitted`: prepared together, the later ones cut off."""
    recipe = Recipe(nulls)
    raw, _ = reference(fitted, recipe)
    rows, ids = reference(later, recipe)
    mean, scale = raw[:, :3].mean(axis=0), raw[:, :3].std(axis=0)
    if recipe.imputes:  # holes of the later rows have the medians of the first
        frame = later.to_pandas()[["far", "wide", "small"]]
        rows[:, :3] = frame.fillna(fitted.to_pandas()[["far", "wide", "small"]].median()).to_numpy(float)
    rows[:, :3] = (rows[:, :3] - mean) / scale
    return rows, ids


@pytest.mark.parametrize("nulls", ["drop", "impute:mean"])
def test_an_update_prepares_new_rows_as_the_base_and_knows_what_it_has_seen(tmp_path, nulls):
    base, day = table_of(N_ROWS), table_of(50, seed=9)
    write(tmp_path / "rows", base)
    made = run(tmp_path, job("nystroem", nulls))
    write(tmp_path / "days", day, parts=1)
    output = Output(tmp_path / "out")
    done = update_output(output, "days", tmp_path)
    assert (done.status, len(done.added)) == ("done", 1)
    model = load_model(done.run.path / "model")
    assert model.preparation == load_model(made / "model").preparation
    ids = scores_in(done.run.path / "embedding")[0]
    kept = day.to_pandas().notna().all(axis=1).to_numpy()
    assert ids == (np.flatnonzero(kept).tolist() if nulls == "drop" else list(range(50)))
    assert model.n_samples == load_model(made / "model").n_samples + len(ids)
    assert update_output(output, "days", tmp_path).status == "unchanged"
    assert update_output(output, "rows", tmp_path).status == "unchanged"
    back = update_output(output, None, tmp_path, withdraw=[done.added[0].path])
    assert back.status == "done"
    np.testing.assert_allclose(load_model(back.run.path / "model").eigenvalues, load_model(made / "model").eigenvalues)
    away = str((tmp_path / "rows" / "1.parquet").resolve())  # of the base run: it is read again, prepared alike
    assert [part.path for part in update_output(output, None, tmp_path, withdraw=[away]).withdrawn] == [away]


def test_a_prepared_job_that_is_done_is_done_and_another_recipe_is_another_run(tmp_path):
    write(tmp_path / "rows", table_of(N_ROWS))
    assert execute(prepare(Config.model_validate(job("exact", "drop")), tmp_path)).status == "done"
    assert execute(prepare(Config.model_validate(job("exact", "drop")), tmp_path)).status == "unchanged"
    other = job("exact", "drop", source={"standardize": False})
    assert execute(prepare(Config.model_validate(other), tmp_path)).status == "done"


def test_a_day_with_an_unknown_category_is_refused_and_changes_nothing(tmp_path):
    write(tmp_path / "rows", table_of(N_ROWS))
    made = run(tmp_path, job("nystroem", "drop"))
    day = table_of(20, seed=1, holes=0)
    day = day.set_column(4, "carrier", [["ZZ"] * 20])
    write(tmp_path / "days", day, parts=1)
    with pytest.raises(InvalidInputError, match=r'row 0 of .*0\.parquet, column "carrier" is \'ZZ\''):
        update_output(Output(tmp_path / "out"), "days", tmp_path)
    assert Output(tmp_path / "out").require_latest().path == made


def test_partition_keys_travel_to_the_scores(tmp_path):
    for day in ("2024-01-01", "2024-01-02"):
        write(tmp_path / "rows" / f"day={day}", table_of(60, holes=0), parts=1)
    made = run(tmp_path, job("exact", "error", source={"partition": "day"}))
    tables = [pq.read_table(part) for part in sorted((made / "embedding").iterdir())]
    assert [set(table["day"].to_pylist()) for table in tables] == [{"2024-01-01"}, {"2024-01-02"}]


def test_a_plan_of_prepared_columns_says_what_it_does_not_know(tmp_path):
    write(tmp_path / "rows", table_of(N_ROWS))
    planned = outline(Config.model_validate(job("exact", "drop")), tmp_path)
    assert planned.plan.n_samples == N_ROWS
    assert planned.plan.n_features == 3 + 4 + 3
    assert planned.plan.reasons[-2:] == (
        "categories were counted on some of the rows: there may be more features",
        "rows with nulls are not left out here: there may be fewer rows",
    )
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("nystroem", "drop")))
    done = CliRunner().invoke(skpca, ["plan", str(tmp_path / "job.yaml"), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    assert json.loads(done.stdout.splitlines()[-1])["advice"]


def test_a_model_whose_preparation_is_of_other_features_is_refused(tmp_path):
    write(tmp_path / "rows", table_of(N_ROWS))
    made = run(tmp_path, job("nystroem", "impute:mean"))
    fields = json.loads((made / "model" / "model.json").read_text())
    other = fields["preparation"] | {"vocabularies": []}
    describe_model(made / "model", preparation=other)
    with pytest.raises(ModelFormatError, match="not prepared for these features"):
        load_model(made / "model")


def test_a_constant_that_fills_nothing_is_refused():
    with pytest.raises(ValueError, match="fill is for nulls: impute:constant"):
        Config.model_validate(job("exact", "drop", source={"fill": 3.0}))
    assert Config.model_validate(job("exact", "impute:constant", source={"fill": 3.0})).source.fill == 3


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_one_data_set_whatever_types_the_files_hold_ids_as(tmp_path, method):
    table = table_of(N_ROWS)
    (tmp_path / "rows").mkdir()
    for number, kind in enumerate((pa.int32(), pa.int64(), pa.null())):
        part = table.slice(80 * number, 80)
        ids = pa.nulls(80) if kind == pa.null() else part["id"].cast(kind)
        pq.write_table(part.set_column(0, "id", ids), tmp_path / "rows" / f"{number}.parquet")
    made = run(tmp_path, job(method, "impute:median"))
    parts = [pq.read_schema(part).field("id").type for part in sorted((made / "embedding").glob("*.parquet"))]
    assert parts == [pa.int64()] * 3
    assert pq.read_table(made / "embedding")["id"].to_pylist() == [*table["id"].to_pylist()[:160], *[None] * 80]
