"""Jobs, updates and transforms on CSV and Arrow files give what they give on Parquet, and leave nothing behind."""

import json
import shutil

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from scalable_kpca.errors import ConfigError, InvalidInputError
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.loading import load_config
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import execute, outline, prepare
from scalable_kpca.workflow.update import update_output
from tests.recovery.jobs import JOBS, latest_run, leftovers, write_job, write_rows

NYSTROEM = JOBS["Nyström"]
EXACT = JOBS["tiles evaluated again, power"]
ROWS = {"uri": "rows", "id": "id"}


def convert(folder, kind):
    """The Parquet files of a folder as files of another kind."""
    for file in sorted(folder.glob("*.parquet")):
        table = pq.read_table(file)
        if kind == "csv":
            pyarrow.csv.write_csv(table, file.with_suffix(".csv"))
        else:
            pyarrow.feather.write_feather(table, str(file.with_suffix(".arrow")))
        file.unlink()


def write_day(path, seed, kind="csv"):
    write_rows(path.with_suffix(".parquet"), seed, 17)
    convert(path.parent, kind)


def run_job(job, *overrides):
    return execute(prepare(load_config(job, overrides), job.parent))


def scores_of(directory):
    return [pq.read_table(part) for part in sorted(directory.glob("part-*.parquet"))]


def copies_in(out):
    return [place.name for place in (out / "tables").glob("*")]


@pytest.mark.parametrize("kind", ["csv", "arrow"])
@pytest.mark.parametrize("fields", [NYSTROEM, EXACT], ids=["Nyström", "exact"])
def test_a_job_gives_the_bits_that_it_gives_on_parquet(tmp_path, kind, fields):
    expected = run_job(write_job(tmp_path / "1", fields, source=ROWS)).run
    job = write_job(tmp_path / "2", fields, source=ROWS)
    convert(tmp_path / "2" / "rows", kind)
    outcome = run_job(job)
    for found, wanted in zip(
        scores_of(outcome.run.path / "embedding"), scores_of(expected.path / "embedding"), strict=True
    ):
        assert found.equals(wanted)
    assert (outcome.run.path / "metrics.json").read_bytes() == (expected.path / "metrics.json").read_bytes()
    again = run_job(job)
    assert again.status == "unchanged"
    assert len(copies_in(tmp_path / "2" / "out")) == 2
    assert leftovers(tmp_path / "2" / "out") == []
    committed = json.loads((outcome.run.path / "COMMIT.json").read_text())["files"]
    assert not any("tables" in entry["path"] for entry in committed)


def test_the_ledger_names_the_files_and_not_their_copies(tmp_path):
    job = write_job(tmp_path, NYSTROEM, source=ROWS)
    convert(tmp_path / "rows", "csv")
    run = run_job(job).run
    paths = [part["path"] for part in json.loads((run.path / "ledger.json").read_text())["partitions"]]
    assert paths == [str(tmp_path / "rows" / f"part-{number}.csv") for number in (0, 1)]


@pytest.mark.parametrize(("keep", "left"), [("all", 4), (1, 2), ("results", 0)])
def test_keep_says_which_copies_stay(tmp_path, keep, left):
    job = write_job(tmp_path, NYSTROEM, source=ROWS, keep=keep)
    convert(tmp_path / "rows", "csv")
    run_job(job)
    for file in (tmp_path / "rows").iterdir():
        file.write_text(file.read_text() + "12345,0,0,0\n")
    assert run_job(job).status == "done"
    assert len(copies_in(tmp_path / "out")) == left
    assert run_job(job).status == "unchanged"
    assert len(copies_in(tmp_path / "out")) == left


def test_copies_count_as_bytes_of_the_budget(tmp_path):
    job = write_job(tmp_path, NYSTROEM, source=ROWS)
    convert(tmp_path / "rows", "csv")
    prepared = prepare(load_config(job), tmp_path)
    assert prepared.source.copied_bytes == sum(f.stat().st_size for f in (tmp_path / "out" / "tables").iterdir())
    with pytest.raises(ConfigError, match=r"sums over landmarks and copies of the source; raise it to (\d+)") as caught:
        run_job(job, "budget.disk=1000")
    assert run_job(job, f"budget.disk={str(caught.value).rstrip('.').split()[-1]}").status == "done"


def test_update_brings_a_file_in_once_whatever_it_is_called(tmp_path):
    run_job(write_job(tmp_path, NYSTROEM))  # a base of Parquet
    output = Output(tmp_path / "out")
    write_day(tmp_path / "days" / "day-1", 50)
    first = update_output(output, "days/day-1.csv", tmp_path)
    assert [part.path for part in first.added] == [str(tmp_path / "days" / "day-1.csv")]
    assert first.added[0].rows == 17
    shutil.copy(tmp_path / "days" / "day-1.csv", tmp_path / "days" / "again.csv")
    assert update_output(output, "days", tmp_path).status == "unchanged"
    (tmp_path / "days" / "day-1.csv").write_text("id,x0,x1,x2\n1,2,3,4\n")
    with pytest.raises(InvalidInputError, match=r"days/day-1\.csv is in the model with other contents"):
        update_output(output, "days/day-1.csv", tmp_path)
    done = update_output(output, None, tmp_path, withdraw=["day-1.csv"])
    assert len(done.withdrawn) == 1
    assert leftovers(output.path) == []


def test_updates_of_text_and_of_parquet_make_the_same_model(tmp_path):
    metrics = []
    for kind in ("parquet", "csv"):
        job = write_job(tmp_path / kind, NYSTROEM)
        run_job(job)
        write_rows(tmp_path / kind / "day.parquet", 50, 17)
        if kind == "csv":
            convert(tmp_path / kind, kind)
        update_output(Output(tmp_path / kind / "out"), f"day.{kind}", tmp_path / kind)
        metrics.append(json.loads((latest_run(tmp_path / kind / "out") / "metrics.json").read_text()))
        for name in ("drift", "health"):  # by the paths of the files
            metrics[-1][name] = list(metrics[-1][name].values())
    assert metrics[0] == metrics[1]


def test_file_of_the_base_is_withdrawn_by_reading_it_again(tmp_path):
    job = write_job(tmp_path, NYSTROEM, source=ROWS, keep="results")
    convert(tmp_path / "rows", "csv")
    run_job(job)
    done = update_output(Output(tmp_path / "out"), None, tmp_path, withdraw=["part-1.csv"])
    assert [part.path for part in done.withdrawn] == [str(tmp_path / "rows" / "part-1.csv")]
    assert copies_in(tmp_path / "out") == []


def test_a_day_that_changes_while_it_is_added_is_not_published(tmp_path, monkeypatch):
    from scalable_kpca.workflow import update

    run = run_job(write_job(tmp_path, NYSTROEM)).run
    write_day(tmp_path / "days" / "day", 50)
    write = update._write_scores

    def write_and_change(*given):
        found = write(*given)
        (tmp_path / "days" / "day.csv").write_text("id,x0,x1,x2\n1,2,3,4\n")
        return found

    monkeypatch.setattr(update, "_write_scores", write_and_change)
    with pytest.raises(InvalidInputError, match=r"days/day\.csv changed while it was read; nothing is published"):
        update_output(Output(tmp_path / "out"), "days/day.csv", tmp_path)
    assert latest_run(tmp_path / "out") == run.path


@pytest.mark.parametrize("fields", [NYSTROEM, EXACT], ids=["Nyström", "exact"])
def test_transform_leaves_scores_and_nothing_else(tmp_path, fields):
    run_job(write_job(tmp_path, fields))
    write_rows(tmp_path / "new.parquet", 50, 17)
    assert transform_source(Output(tmp_path / "out"), "new.parquet", tmp_path, tmp_path / "a" / "of Parquet")[0] == 17
    convert(tmp_path, "csv")
    before = sorted(tmp_path.rglob("*"))
    assert transform_source(Output(tmp_path / "out"), "new.csv", tmp_path, tmp_path / "a" / "of text")[0] == 17
    new = {str(path.relative_to(tmp_path)) for path in set(tmp_path.rglob("*")) - set(before)}
    assert new == {"a/of text", "a/of text/part-00000.parquet", "a/of text/_health.json"}
    assert scores_of(tmp_path / "a" / "of text")[0].equals(scores_of(tmp_path / "a" / "of Parquet")[0])
    (tmp_path / "new.csv").write_text("id,x0,x1,x2\n1,2,3,4\n2,,3,4\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInputError, match=r'row 1 of .*new\.csv, column "x0" is NaN'):
        transform_source(Output(tmp_path / "out"), "new.csv", tmp_path, tmp_path / "b" / "scores")
    assert set(tmp_path.rglob("*")) - set(before) == {tmp_path / "b"}


def test_plan_of_text_writes_nothing_and_says_what_is_a_guess(tmp_path):
    job = write_job(tmp_path, NYSTROEM, source=ROWS)
    convert(tmp_path / "rows", "csv")
    planned = outline(load_config(job), tmp_path)
    assert planned.plan.n_samples == 40
    assert not any("about" in reason and "copied" in reason for reason in planned.plan.reasons)
    with (tmp_path / "rows" / "part-9.csv").open("w") as stream:
        stream.write("id,x0,x1,x2\n" + "1234567,0.125,0.25,0.5\n" * 100_000)
    planned = outline(load_config(job), tmp_path)
    assert abs(planned.plan.n_samples - 100_040) <= 5000
    assert planned.plan.reasons[-1].startswith(f"rows: about {planned.plan.n_samples}, guessed from the first ")
    assert planned.plan.reasons[-1].endswith("the files are copied to Parquet and counted when the job is run")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", ["rows", "rows/out", "."])
def test_output_where_the_source_is_read_is_refused_before_anything_is_written(tmp_path, path):
    job = write_job(tmp_path, NYSTROEM, source={"uri": "**/*.csv" if path == "." else "rows", "id": "id"})
    convert(tmp_path / "rows", "csv")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=r"output\.path="):
        run_job(job, f"output.path={path}")
    assert sorted(tmp_path.rglob("*")) == before


def test_options_of_a_job_hold_for_its_updates_too(tmp_path):
    source = {"uri": "rows", "id": "id", "csv": {"delimiter": ";", "types": {"id": "string"}}}
    job = write_job(tmp_path, NYSTROEM, source=source)
    convert(tmp_path / "rows", "csv")
    write_day(tmp_path / "days" / "day", 50)
    for file in [*(tmp_path / "rows").iterdir(), tmp_path / "days" / "day.csv"]:
        file.write_text(file.read_text().replace(",", ";"))
    run = run_job(job).run
    assert scores_of(run.path / "embedding")[0].schema.field("id").type == pa.string()
    assert update_output(Output(tmp_path / "out"), "days", tmp_path).added[0].rows == 17


@pytest.mark.parametrize(
    ("csv", "message"),
    [
        ("{delimiter: ab}", r"source\.csv\.delimiter"),
        ("{delimiter: '\"'}", r"source\.csv\.delimiter"),
        ("{names: [a]}", r"names are for files without a header: set header: false"),
        ("{types: {x: number}}", r"source\.csv\.types"),
        ("{typs: {x: string}}", r"unknown key 'source\.csv\.typs': did you mean 'types'"),
        ("{header: 1.5}", r"source\.csv\.header"),
    ],
)
def test_options_that_mean_nothing_are_named(tmp_path, csv, message):
    job = write_job(tmp_path, NYSTROEM)
    with pytest.raises(ConfigError, match=message):
        load_config(job, [f"source.csv={csv}"])


@pytest.mark.parametrize("fields", [NYSTROEM, EXACT], ids=["Nyström", "exact"])
def test_parts_of_other_types_and_without_rows_are_written_all_the_same(tmp_path, fields):
    job = write_job(tmp_path, fields, source={"uri": "rows", "id": "name", "features": "x*", "passthrough": "when"})
    for number, file in enumerate(sorted((tmp_path / "rows").iterdir())):
        table = pq.read_table(file)
        names = pa.array([f"r{value}" for value in table["id"].to_pylist()])
        table = table.append_column("name", names.dictionary_encode() if number else names)
        table = table.append_column("when", pa.array([number] * len(table), pa.timestamp("us")))
        pq.write_table(table, file)
    pq.write_table(table.slice(0, 0), tmp_path / "rows" / "part-2.parquet")
    parts = scores_of(run_job(job).run.path / "embedding")
    assert [len(part) for part in parts] == [23, 17, 0]
    assert [part["name"].to_pylist()[:1] for part in parts] == [["r0"], ["r1000"], []]


def test_job_on_a_dataset_of_hdf5_is_updated_by_another(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    with h5py.File(tmp_path / "base.h5", "w") as file:
        file["rows"], file["others"] = X[:40], X[40:]
    job = write_job(tmp_path, NYSTROEM, source={"uri": "base.h5#rows"})
    run = run_job(job).run
    assert json.loads((run.path / "ledger.json").read_text())["partitions"][0]["path"] == f"{tmp_path}/base.h5#rows"
    assert run_job(job).status == "unchanged"
    done = update_output(Output(tmp_path / "out"), "base.h5#others", tmp_path)
    assert [(part.path, part.rows) for part in done.added] == [(f"{tmp_path}/base.h5#others", 20)]
    assert update_output(Output(tmp_path / "out"), "base.h5#others", tmp_path).status == "unchanged"
    withdrawn = update_output(Output(tmp_path / "out"), None, tmp_path, withdraw=[f"{tmp_path}/base.h5#rows"])
    assert len(withdrawn.withdrawn) == 1
    assert transform_source(Output(tmp_path / "out"), "base.h5#others", tmp_path, tmp_path / "scores")[0] == 20


def test_columns_of_text_files_are_prepared_as_those_of_parquet_are(tmp_path):
    columns = {"id": "id", "features": "x*", "categorical": "tag", "nulls": "impute:mean"}
    found = []
    for kind in ("parquet", "csv"):
        folder = tmp_path / kind
        job = write_job(folder, NYSTROEM, source={"uri": "rows", **columns}, keep="results")
        for number, file in enumerate(sorted((folder / "rows").iterdir())):
            table = pq.read_table(file)
            table = table.append_column("tag", pa.array([f"t{(number + row) % 3}" for row in range(len(table))]))
            x1 = pa.array([None, *table["x1"].to_pylist()[1:]], pa.float64())
            pq.write_table(table.set_column(2, "x1", x1), file)
        if kind == "csv":
            convert(folder / "rows", kind)
        planned = outline(load_config(job), folder)
        assert (planned.plan.n_samples, planned.plan.n_features) == (40, 6)
        outcome = run_job(job)
        assert len(copies_in(folder / "out")) == 0
        found.append([table.to_pydict() for table in scores_of(outcome.run.path / "embedding")])
    assert found[0] == found[1]
