"""Jobs whose model learns the way back from scores, and that say beside the scores how far rows are from it."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from scalable_kpca import KernelPCA, load_model, project, reconstruct
from scalable_kpca.cli import skpca
from scalable_kpca.errors import ConfigError, MemoryLimitError
from scalable_kpca.source import Preparation, Recipe, Vocabulary, original_columns
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.loading import load_config
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import execute, outline, prepare
from scalable_kpca.workflow.update import update_output
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job, write_rows
from tests.test_prepared_jobs import job as prepared_job
from tests.test_prepared_jobs import table_of as prepared_table
from tests.test_prepared_jobs import write as write_prepared

METHODS = {"exact": JOBS["stored tiles, block Krylov"], "nystroem": JOBS["Nyström"]}
CLUSTERS = [
    {"kind": "synchronous"},
    pytest.param({"kind": "threads", "n_threads": 2}, marks=pytest.mark.slow),
    pytest.param({"kind": "local", "n_workers": 2}, marks=pytest.mark.slow),
]
ERROR = 1e-12  # batches are cut in another way here: products of other shapes round in another way


def run_job(folder: Path, fields: dict[str, object], **more: object) -> Path:
    job = write_job(folder, {"inverse": {"alpha": 0.5}, **fields}, **more)
    return execute(prepare(load_config(job, environment={}), folder)).run.path


def table_of(directory: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in sorted(directory.glob("*.parquet"))])


def rows_of(folder: Path, glob: str) -> np.ndarray:
    table = pa.concat_tables([pq.read_table(part) for part in sorted(folder.glob(glob))])
    return np.column_stack([table[f"x{column}"].to_numpy() for column in range(3)])


def scores_of(table: pa.Table) -> np.ndarray:
    return np.column_stack([table[f"pc_{column:03d}"].to_numpy() for column in range(3)])


def assert_distances(table: pa.Table, model: object, rows: np.ndarray) -> None:
    assert table.column_names[-1] == "reconstruction"
    expected = np.linalg.norm(rows - reconstruct(model, scores_of(table)), axis=1)
    np.testing.assert_allclose(table["reconstruction"].to_numpy(), expected, rtol=0, atol=ERROR)
    assert expected.max() > 0.1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster["kind"])
def test_a_run_and_transform_say_how_far_rows_are_from_their_pre_images(tmp_path, method, cluster):
    run = run_job(tmp_path, METHODS[method], cluster=cluster, novelty=True)
    model, table = load_model(run / "model"), table_of(run / "embedding")
    assert table.column_names == ["id", "pc_000", "pc_001", "pc_002", "novelty", "reconstruction"]
    assert_distances(table, model, rows_of(tmp_path, "rows/*"))
    assert leftovers(tmp_path / "out") == []
    write_rows(tmp_path / "new" / "part-0.parquet", 9)
    transform_source(Output(tmp_path / "out"), "new", tmp_path, tmp_path / "to")
    assert_distances(table_of(tmp_path / "to"), model, rows_of(tmp_path, "new/*"))


def test_the_map_of_a_job_is_that_of_the_estimator(tmp_path):
    X = rows_of(write_job(tmp_path, {}).parent, "rows/*")
    run = run_job(tmp_path, {"method": "exact", "solver": {"name": "dense"}, "dtype": "float64"})
    model = load_model(run / "model")
    asked = {"kernel": "rbf", "gamma": 0.3, "alpha": 0.5, "fit_inverse_transform": True, "eigen_solver": "dense"}
    scores = project(model, X[:7])
    expected = KernelPCA(3, method="exact", dtype="float64", **asked).fit(X).inverse_transform(scores)
    np.testing.assert_allclose(reconstruct(model, scores), expected, rtol=0, atol=1e-10)

    run = run_job(tmp_path, JOBS["Nyström"])
    model = load_model(run / "model")
    estimator = KernelPCA(3, method="nystroem", landmarks=model.basis.landmarks, dtype=model.dtype, **asked).fit(X)
    scores = project(model, X[:7])
    signs = np.sign((scores * estimator.transform(X[:7])).sum(axis=0))
    np.testing.assert_allclose(
        reconstruct(model, scores), estimator.inverse_transform(scores * signs), rtol=0, atol=1e-9
    )


def test_an_update_learns_the_map_again_for_its_components_with_the_same_bits(tmp_path):
    run = run_job(tmp_path, METHODS["nystroem"])
    write_rows(tmp_path / "more" / "part-2.parquet", 9)
    done = update_output(Output(tmp_path / "out"), "more", tmp_path)
    before, after = load_model(run / "model"), load_model(done.run.path / "model")
    assert not np.array_equal(before.way_back.centres, after.way_back.centres)
    np.testing.assert_array_equal(after.way_back.centres, after.projection(after.basis.landmarks))
    assert_distances(table_of(done.run.path / "embedding"), after, rows_of(tmp_path, "more/*"))
    transform_source(Output(tmp_path / "out"), "more", tmp_path, tmp_path / "to")
    assert_distances(table_of(tmp_path / "to"), after, rows_of(tmp_path, "more/*"))
    bits = bits_of(done.run.path)
    (done.run.path / "COMMIT.json").unlink()
    (tmp_path / "out" / "latest.json").write_text(json.dumps({"run": run.name}))
    assert update_output(Output(tmp_path / "out"), "more", tmp_path).run.path == done.run.path
    assert bits_of(done.run.path) == bits
    back = update_output(Output(tmp_path / "out"), None, tmp_path, withdraw=["part-2.parquet"])
    np.testing.assert_allclose(
        np.abs(load_model(back.run.path / "model").way_back.centres), np.abs(before.way_back.centres), atol=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_scores_are_the_same_with_a_map_and_its_ridge_is_a_part_of_the_name(tmp_path, method):
    runs = [
        run_job(tmp_path / str(number), METHODS[method], inverse=inverse)
        for number, inverse in enumerate([False, True, {"alpha": 1.0}, {"alpha": 2}])
    ]
    assert runs[1].name == runs[2].name
    assert len({run.name for run in runs}) == 3
    tables = [table_of(run / "embedding") for run in runs]
    assert "reconstruction" not in tables[0].column_names
    for table in tables[1:]:
        assert table.select(tables[0].column_names).equals(tables[0])
    assert load_model(runs[0] / "model").way_back is None


def test_rows_of_float32_are_measured_in_float64(tmp_path):
    write_job(tmp_path, {})
    for path in (tmp_path / "rows").iterdir():
        table = pq.read_table(path)
        narrow = [column.cast(pa.float32()) if column.type == pa.float64() else column for column in table.columns]
        pq.write_table(pa.table(narrow, names=table.column_names), path)
    run = run_job(tmp_path, METHODS["exact"])
    model = load_model(run / "model")
    assert model.rows.dtype == "float32"
    assert_distances(table_of(run / "embedding"), model, rows_of(tmp_path, "rows/*").astype(np.float64))


# ---------------------------------------------------------------- prepared columns


@pytest.mark.parametrize("method", ["exact", pytest.param("nystroem", marks=pytest.mark.slow)])
def test_prepared_columns_are_compared_prepared_and_come_back_in_their_units(tmp_path, method):
    table = prepared_table(240)
    write_prepared(tmp_path / "rows", table)
    fields = prepared_job(method, "impute:median", inverse={"alpha": 1e-3}, n_components=3)
    run = execute(prepare(Config.model_validate(fields), tmp_path)).run.path
    model, found = load_model(run / "model"), table_of(run / "embedding")
    transform_source(Output(tmp_path / "out"), "rows", tmp_path, tmp_path / "to", reconstruct=True)
    back = table_of(tmp_path / "to")
    preparation = model.preparation
    assert back.column_names == ["id", *preparation.numeric, *preparation.categorical]
    assert back["id"].equals(found["id"])
    features = reconstruct(model, scores_of(found))
    expected = original_columns(preparation, features)
    for column, (name, mean, scale) in enumerate(
        zip(preparation.numeric, preparation.mean, preparation.scale, strict=True)
    ):
        # scores of a transform and of a run differ by what prepared jobs allow, 1e-6
        np.testing.assert_allclose(back[name], features[:, column] * scale + mean, rtol=0, atol=1e-4 * scale)
    for vocabulary in preparation.vocabularies:
        values = back[vocabulary.column].to_pylist()
        assert values == expected[vocabulary.column].to_pylist()
        assert set(values) <= set(vocabulary.values)


def test_columns_that_are_made_of_rows_themselves_are_these_rows():
    vocabularies = (Vocabulary("c", ("a", "b", None)), Vocabulary("none", ()))
    preparation = Preparation(Recipe("impute:mean"), ("x", "y"), vocabularies, (0.0, 0.0), (3.0, 1e6), (2.0, 1e-3))
    features = np.array([[1.0, 0, 1, 0, 0], [0, -1, 0.2, 0.4, 0.3], [0, 0, 0, 0, 0.1], [0, 0, 0.5, 0.5, 0]])
    back = original_columns(preparation, features)
    assert back["x"].to_pylist() == [5, 3, 3, 3]
    assert back["y"].to_pylist() == [1e6, 1e6 - 1e-3, 1e6, 1e6]
    assert back["c"].to_pylist() == ["a", "b", None, "a"]
    assert back["none"].to_pylist() == [None] * 4
    assert list(original_columns(preparation, features[:0])) == ["x", "y", "c", "none"]


# ---------------------------------------------------------------- the command


def test_the_command_writes_pre_images_in_the_columns_of_the_source(tmp_path):
    run = run_job(tmp_path, METHODS["exact"])
    command = ["transform", str(tmp_path / "out"), "--source", str(tmp_path / "rows"), "--to", str(tmp_path / "to")]
    done = CliRunner().invoke(skpca, [*command, "--reconstruct", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == 40
    back, model = table_of(tmp_path / "to"), load_model(run / "model")
    assert back.column_names == ["id", "x0", "x1", "x2"]
    expected = reconstruct(model, project(model, rows_of(tmp_path, "rows/*")))
    np.testing.assert_allclose(rows_of(tmp_path, "to/*.parquet"), expected, rtol=0, atol=ERROR)


def test_what_has_no_map_or_no_room_for_its_columns_is_refused_and_nothing_is_written(tmp_path):
    run_job(tmp_path, METHODS["exact"], inverse=False)
    with pytest.raises(ConfigError, match="inverse: true"):
        transform_source(Output(tmp_path / "out"), "rows", tmp_path, tmp_path / "to", reconstruct=True)
    for path in (tmp_path / "rows").iterdir():  # rows without ids are numbered, in a column of this name
        pq.write_table(pq.read_table(path).rename_columns(["row", "x0", "x1", "x2"]), path)
    run_job(tmp_path, METHODS["exact"], source={"uri": "rows/*.parquet"})
    with pytest.raises(ConfigError, match=r"columns row travel beside the rows, and are features"):
        transform_source(Output(tmp_path / "out"), "rows", tmp_path, tmp_path / "to", reconstruct=True)
    assert not (tmp_path / "to").exists()


def test_a_column_of_that_name_is_refused_where_it_would_be_there_twice(tmp_path):
    write_rows(tmp_path / "rows" / "part-0.parquet", 0)
    table = pq.read_table(tmp_path / "rows" / "part-0.parquet")
    pq.write_table(table.append_column("reconstruction", table["x0"]), tmp_path / "rows" / "part-0.parquet")
    source = {"uri": "rows/part-0.parquet", "id": "id", "features": "x*", "passthrough": "reconstruction"}
    with pytest.raises(ConfigError, match=r"columns reconstruction of source\.id, source\.passthrough and"):
        run_job(tmp_path, METHODS["exact"], source=source)
    assert latest_run(run_job(tmp_path, METHODS["exact"], source=source, inverse=False).parents[1]).is_dir()


# ---------------------------------------------------------------- the configuration


@pytest.mark.parametrize(
    ("inverse", "words"),
    [
        ("{alpha: -1}", r"inverse\.alpha: .*greater than or equal to 0"),
        ("{alpha: true}", r"inverse\.alpha: a truth value means nothing"),
        ("{alpha: .nan}", r"inverse\.alpha: .*finite"),
        ("{alfa: 1}", r"unknown key 'inverse\.alfa': did you mean 'alpha'"),
        ("1", r"inverse: "),
        ("yes please", r"inverse: "),
    ],
)
def test_another_map_is_refused_by_its_key(tmp_path, inverse, words):
    job = write_job(tmp_path, {})
    with pytest.raises(ConfigError, match=words):
        load_config(job, [f"inverse={inverse}"], environment={})


def test_the_map_is_asked_for_in_a_few_words(tmp_path):
    job = write_job(tmp_path, {})
    of = lambda *overrides, **environment: load_config(job, overrides, environment).inverse  # noqa: E731
    assert of() is None
    assert of("inverse=false") is None
    assert of("inverse=true").alpha == 1
    assert of("inverse.alpha=3").alpha == 3
    assert of(SKPCA_INVERSE="true").alpha == 1


# ---------------------------------------------------------------- memory


def wide(folder: Path, method: str, memory: object, **more: object) -> Config:
    """A job whose map needs more memory than its fit."""
    d, n = 3000, 700
    if not (folder / "wide.npy").exists():
        folder.mkdir(exist_ok=True)
        np.save(folder / "wide.npy", np.random.default_rng(0).standard_normal((n, d)).astype(np.float32))
    fields = {"source": {"uri": "wide.npy"}, "kernel": {"name": "rbf"}, "n_components": 3, "method": method}
    budget = {"memory": memory}
    return Config.model_validate(
        {
            **fields,
            "inverse": True,
            "budget": budget,
            "output": {"path": "out"},
            "nystroem": {"n_landmarks": n},
            "cluster": {"kind": "threads", "n_threads": 1},
            **more,
        }
    )


@pytest.mark.parametrize("method", ["exact", "nystroem", "auto"])
def test_a_limit_that_cannot_hold_the_map_is_refused_with_the_smallest_that_can(tmp_path, method):
    with pytest.raises(
        MemoryLimitError, match=r"the map from scores to rows that inverse asks for.*inverse: false"
    ) as no:
        outline(wide(tmp_path, method, 260 * 2**20), tmp_path)
    planned = outline(wide(tmp_path, method, no.value.needed), tmp_path).plan
    assert planned.peak_memory <= no.value.needed
    assert any("inverse: the map" in reason for reason in planned.reasons)
    with pytest.raises(MemoryLimitError):
        outline(wide(tmp_path, method, no.value.needed - 1), tmp_path)
    without = outline(wide(tmp_path, method, no.value.needed, inverse=False), tmp_path).plan
    assert without.peak_memory < planned.peak_memory


def test_an_update_whose_limit_cannot_hold_the_map_is_refused_with_one_that_can(tmp_path):
    run = run_job(tmp_path, METHODS["nystroem"])
    write_rows(tmp_path / "more" / "part-2.parquet", 9)
    with pytest.raises(MemoryLimitError, match="inverse: false") as refused:
        update_output(Output(tmp_path / "out"), "more", tmp_path, overrides=["budget.memory=200MiB"])
    assert latest_run(tmp_path / "out") == run
    overrides = [f"budget.memory={refused.value.needed}"]
    assert update_output(Output(tmp_path / "out"), "more", tmp_path, overrides=overrides).status == "done"
    with pytest.raises(MemoryLimitError, match="inverse: false"):  # nothing is read, and the map is learned again
        update_output(
            Output(tmp_path / "out"), None, tmp_path, withdraw=["part-2.parquet"], overrides=["budget.memory=200MiB"]
        )
