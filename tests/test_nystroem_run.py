"""A Nyström run reads its files where they are: labels stay beside their rows, and what is done is not done again."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner

from scalable_kpca.cli import skpca
from scalable_kpca.errors import ConfigError, InvalidInputError, MemoryLimitError
from scalable_kpca.model import load_model
from scalable_kpca.source import ParquetSpan
from scalable_kpca.streaming import WAVE
from scalable_kpca.workflow import streamed
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.inspect import inspect_output, verify_output
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import Outcome, execute, prepare

PART_ROWS = [7, 0, 12, 5] + [3] * (WAVE + 4)  # spans never cross files: more than one wave of them
N_ROWS = sum(PART_ROWS)
GAMMA = 0.3


def source_rows(dtype: str = "float64") -> np.ndarray:
    rows = np.random.default_rng(5).normal(size=(N_ROWS, 3)).astype(dtype)
    rows.flags.writeable = False
    return rows


def write_parts(folder: Path, rows: np.ndarray) -> None:
    """One file for each of `PART_ROWS`, in natural order, with text ids and a number that travels."""
    (folder / "data").mkdir(exist_ok=True)
    stops = np.cumsum(PART_ROWS)
    for part, (start, stop) in enumerate(zip([0, *stops], stops, strict=False)):
        table = {"name": pa.array([f"row {row}" for row in range(start, stop)], pa.string())}
        table |= {f"x{column}": rows[start:stop, column] for column in range(rows.shape[1])}
        table["weight"] = np.arange(start, stop) * 0.5
        pq.write_table(pa.table(table), folder / "data" / f"part-{part}.parquet")


@pytest.fixture
def job(tmp_path) -> Path:
    write_parts(tmp_path, source_rows())
    return tmp_path


def settings(**changes: object) -> dict[str, object]:
    return {
        "source": {"uri": "data/*.parquet", "id": "name", "features": "x*", "passthrough": "weight"},
        "kernel": {"name": "rbf", "gamma": GAMMA},
        "method": "nystroem",
        "nystroem": {"n_landmarks": 25},
        "n_components": 4,
        "dtype": "float64",
        "cluster": {"kind": "synchronous"},
        "budget": {"memory": "3GiB"},
        "output": {"path": "out"},
        **changes,
    }


def prepared(folder: Path, **changes: object):
    return prepare(Config.model_validate(settings(**changes)), folder)


def run(folder: Path, **changes: object) -> Outcome:
    return execute(prepared(folder, **changes))


def write_config(folder: Path, **changes: object) -> str:
    path = folder / "job.yaml"
    path.write_text(json.dumps(settings(**changes)))
    return str(path)


def table_of(run: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in sorted((run / "embedding").iterdir())])


def scores_of(table: pa.Table) -> np.ndarray:
    return np.column_stack([table[name].to_numpy() for name in table.column_names if name.startswith("pc_")])


def described(outcome: Outcome) -> dict:
    return json.loads((outcome.run.path / "run.json").read_text())


def bits(run: Path) -> dict[str, bytes]:
    """What depends on the job alone: not on the hour, nor on how often it was interrupted."""
    kept = ("model", "embedding", "metrics.json", "ledger.json")
    files = [file for name in kept for file in [run / name, *(run / name).rglob("*")] if file.is_file()]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def dense_spectrum(rows: np.ndarray) -> np.ndarray:
    """Eigenvalues of the centred RBF matrix, descending."""
    squares = ((rows[:, None].astype(float) - rows[None]) ** 2).sum(axis=2)
    kernel = np.exp(-GAMMA * squares)
    centring = np.eye(len(rows)) - 1 / len(rows)
    return np.linalg.eigvalsh(centring @ kernel @ centring)[::-1]


# ---------------------------------------------------------------- what is published


def test_labels_and_scores_are_of_the_same_rows_in_the_parts_of_the_input(job):
    done = run(job)
    parts = sorted((done.run.path / "embedding").iterdir())
    assert [path.name for path in parts] == [f"part-{part:05d}.parquet" for part in range(len(PART_ROWS))]
    assert [pq.read_metadata(path).num_rows for path in parts] == PART_ROWS
    table = table_of(done.run.path)
    assert table.column_names == ["name", "weight", "pc_000", "pc_001", "pc_002", "pc_003"]
    assert table["name"].to_pylist() == [f"row {row}" for row in range(N_ROWS)]
    np.testing.assert_array_equal(table["weight"].to_numpy(), np.arange(N_ROWS) * 0.5)
    # rows one by one, in another order: the products round differently, n·eps of scores below 1
    model = load_model(done.run.path / "model")
    for row in (0, 6, 7, 23, 24, N_ROWS - 1):
        found = scores_of(table.slice(row, 1))
        np.testing.assert_allclose(found, model.scores(source_rows()[row : row + 1]), rtol=0, atol=1e-13)


def test_run_directory_holds_results_and_no_copy_of_the_rows(job):
    done = run(job)
    results = {"model", "embedding", "metrics.json", "run.json", "profile.json", "ledger.json"}
    assert {path.name for path in done.run.path.iterdir()} == {*results, "plan.json", "COMMIT.json"}
    committed = {entry["path"] for entry in json.loads((done.run.path / "COMMIT.json").read_text())["files"]}
    assert {Path(path).parts[0] for path in committed} == results
    stored = sum(array.size for array in _arrays(done.run.path / "model"))
    assert stored < 4 * 25 * 25, "the model grows with the landmarks, not with the rows"
    assert verify_output(Output(job / "out")).problems == []


def _arrays(model: Path):
    return [array for _, array in zarr.open_group(str(model / "arrays.zarr"), mode="r").arrays()]


def test_ledger_lists_every_file_with_rows_once_and_the_residual_of_all_of_them(job):
    done = run(job)
    ledger = json.loads((done.run.path / "ledger.json").read_text())
    assert ledger["base"] == done.run.fingerprint
    found = {Path(entry["path"]).name: entry["rows"] for entry in ledger["partitions"] if entry["rows"]}
    assert found == {f"part-{part}.parquet": rows for part, rows in enumerate(PART_ROWS) if rows}
    assert all(entry["own"] is None for entry in ledger["partitions"])
    metrics = json.loads((done.run.path / "metrics.json").read_text())
    assert metrics["relative_residual"] == pytest.approx(ledger["residual"], rel=1e-12)
    assert metrics["method"] == "nystroem"


def test_all_rows_as_landmarks_give_the_exact_spectrum(job):
    done = run(job, nystroem={"n_landmarks": 10 * N_ROWS})
    expected = dense_spectrum(source_rows())[:4]
    found = load_model(done.run.path / "model").eigenvalues
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * expected[0])
    exact = run(job, method="exact")
    np.testing.assert_allclose(load_model(exact.run.path / "model").eigenvalues, found, rtol=0, atol=1e-10 * found[0])
    # also the sign of a component is the same
    tables = [scores_of(table_of(outcome.run.path)) for outcome in (done, exact)]
    assert np.abs(tables[0] - tables[1]).max() < 1e-7


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky"])
def test_every_choice_of_landmarks_is_a_run_with_its_bounds(job, landmarks):
    done = run(job, nystroem={"n_landmarks": 25, "landmarks": landmarks})
    certificate = json.loads((done.run.path / "metrics.json").read_text())["certificate"]
    model, exact = load_model(done.run.path / "model"), dense_spectrum(source_rows())[:4]
    assert described(done)["landmarks"]["method"] == landmarks
    assert certificate["n_landmarks"] == len(model.basis.landmarks) == 25
    assert (model.eigenvalues <= exact + certificate["rounding"]).all()
    assert (exact <= model.eigenvalues + np.array(certificate["eigenvalue_bounds"])).all()


@pytest.mark.parametrize("kind", ["npy", "zarr"])
def test_bare_arrays_are_numbered_where_ids_are_missing(tmp_path, kind):
    rows = source_rows("float32")
    if kind == "npy":
        np.save(tmp_path / "rows.npy", rows)
    else:
        store = zarr.create_array(str(tmp_path / "rows.zarr"), shape=rows.shape, chunks=(50, 3), dtype="float32")
        store[...] = rows
    done = run(tmp_path, source={"uri": f"rows.{kind}"})
    table, model = table_of(done.run.path), load_model(done.run.path / "model")
    assert table["row"].to_pylist() == list(range(N_ROWS))
    np.testing.assert_allclose(scores_of(table), model.scores(rows), rtol=0, atol=1e-13)


def test_gamma_scale_is_of_all_rows(job):
    done = run(job, kernel={"name": "rbf", "gamma": "scale"})
    gamma = json.loads((done.run.path / "metrics.json").read_text())["kernel"]["gamma"]
    assert gamma == pytest.approx(1 / (3 * source_rows().var()), rel=1e-12)


def test_share_of_the_variance_is_reached_for_certain(job):
    done = run(job, n_components=0.5, nystroem={"n_landmarks": 80})
    spectrum, k = dense_spectrum(source_rows()), load_model(done.run.path / "model").n_components
    assert spectrum[:k].sum() >= 0.5 * spectrum.sum() > spectrum[: k - 2].sum()


# ---------------------------------------------------------------- again, after a change, after a stop


def test_second_run_finds_nothing_to_do_and_changes_no_byte(job):
    done = run(job)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (job / "out").rglob("*")}
    again = run(job)
    assert (again.status, again.run) == ("unchanged", done.run)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (job / "out").rglob("*")} == before


def test_damaged_result_is_made_again_with_the_same_bits(job, caplog):
    done = run(job)
    expected = bits(done.run.path)
    (done.run.path / "embedding" / "part-00002.parquet").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        again = run(job)
    assert again.status == "done"
    assert bits(again.run.path) == expected
    assert "part-00002.parquet" in caplog.text


def count_reads(monkeypatch, log: list[tuple[int, str]]) -> None:
    """Log the part and the labels of every span that is read."""
    plain = ParquetSpan.batches

    def counted(self, batch_rows, labels="none"):
        log.append((self.part, labels))
        return plain(self, batch_rows, labels)

    monkeypatch.setattr(ParquetSpan, "batches", counted)


def test_interrupted_run_reads_no_finished_wave_again_and_gives_the_same_bits(job, monkeypatch):
    expected = bits(run(job, output={"path": "reference"}).run.path)
    save, waves = streamed.SumsCheckpoint.save, []

    def interrupted(self, basis, done, sums):
        save(self, basis, done, sums)
        waves.append(done)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streamed.SumsCheckpoint, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(job)
    assert waves == [WAVE]
    facts = inspect_output(Output(job / "out")).facts
    (progress,) = [text for name, text in facts.items() if name.startswith("run ")]
    n_rows = sum([rows for rows in PART_ROWS if rows][:WAVE])
    assert progress == f"in progress, landmarks found, sums over {n_rows} rows"
    assert not (job / "out" / "latest.json").exists()
    reads: list[tuple[int, str]] = []
    count_reads(monkeypatch, reads)
    done = run(job)
    assert described(done)["resumed_spans"] == WAVE
    n_spans = sum(rows > 0 for rows in PART_ROWS)
    # the rest of the sums, and scores with labels: neither a look nor landmarks
    assert [labels for _, labels in reads] == ["none"] * (n_spans - WAVE) + ["all"] * n_spans
    assert bits(done.run.path) == expected
    assert not (done.run.path / "journal").exists()


def test_run_interrupted_while_it_scores_keeps_its_sums(job, monkeypatch):
    expected = bits(run(job, output={"path": "reference"}).run.path)

    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streamed, "write_scores", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(job)
    reads: list[tuple[int, str]] = []
    count_reads(monkeypatch, reads)
    done = run(job)
    n_spans = sum(rows > 0 for rows in PART_ROWS)
    assert described(done)["resumed_spans"] == n_spans
    assert [labels for _, labels in reads] == ["all"] * n_spans
    assert bits(done.run.path) == expected


def test_damaged_journal_is_made_again(job, monkeypatch):
    expected = bits(run(job, output={"path": "reference"}).run.path)

    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streamed, "write_scores", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(job)
    for file in (job / "out").glob("runs/*/journal/*.npz"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    done = run(job)
    assert described(done)["resumed_spans"] == 0
    assert bits(done.run.path) == expected


def change_during(monkeypatch, owner, name: str, action) -> None:
    """Do something once, before a function is called."""
    plain, todo = getattr(owner, name), [action]

    def changing(*arguments, **options):
        while todo:
            todo.pop()()
        return plain(*arguments, **options)

    monkeypatch.setattr(owner, name, changing)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["fit_nystroem", "save_model", "write_json"])
def test_source_that_changes_while_it_is_read_publishes_nothing_and_poisons_no_later_run(job, monkeypatch, stage):
    expected = bits(run(job, output={"path": "reference"}).run.path)
    part = job / "data" / "part-2.parquet"
    original = part.read_bytes()

    def change() -> None:
        write_parts(job, source_rows() + 1)

    with monkeypatch.context() as patch:
        change_during(patch, streamed, stage, change)
        if stage == "write_json":  # after the last look at the source: what was read is what was prepared
            assert bits(run(job).run.path) == expected
            return
        with pytest.raises(InvalidInputError, match="the source changed while it was read"):
            run(job)
    assert not (job / "out" / "latest.json").exists()
    assert not list((job / "out").glob("runs/*/COMMIT.json"))
    write_parts(job, source_rows())  # the old contents come back
    assert part.read_bytes() == original
    assert bits(run(job).run.path) == expected


def test_file_that_is_gone_in_the_middle_is_named(job, monkeypatch):
    change_during(monkeypatch, streamed, "fit_nystroem", (job / "data" / "part-2.parquet").unlink)
    with pytest.raises(InvalidInputError, match="the source changed while it was read") as refused:
        run(job)
    assert "part-2.parquet" in str(refused.value.__cause__)
    assert not (job / "out" / "latest.json").exists()


def test_source_that_loses_a_file_before_the_first_read_is_refused(job):
    ready = prepared(job)
    (job / "data" / "part-2.parquet").unlink()
    with pytest.raises(InvalidInputError):
        execute(ready)
    assert not (job / "out" / "latest.json").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_not_finite_are_named_by_row_and_column(tmp_path, value):
    rows = source_rows().copy()
    rows[[9, 30], 1] = value
    write_parts(tmp_path, rows)
    part = next(number for number in range(len(PART_ROWS)) if sum(PART_ROWS[: number + 1]) > 9)
    place = rf"row {9 - sum(PART_ROWS[:part])} of .*/data/part-{part}\.parquet"
    with pytest.raises(InvalidInputError, match=rf'{place}, column "x1".*1 of 2 such rows'):
        run(tmp_path)
    assert not (tmp_path / "out" / "latest.json").exists()


# ---------------------------------------------------------------- identity


def test_fingerprint_covers_what_results_depend_on_and_nothing_else(job):
    base = prepared(job).fingerprint
    free = [{"drift": {"warn": 3.0}}, {"budget": {"memory": "4GiB"}}, {"gram": "recompute"}, {"on_failure": "return"}]
    free += [{"output": {"path": "elsewhere"}}, {"cluster": {"kind": "threads", "n_threads": 3}}]
    free += [{"method": "exact", "solver": {"max_passes": 0}}, {"method": "auto", "solver": {"max_passes": 0}}]
    assert {prepared(job, **changes).fingerprint for changes in free} == {base}
    other = [{"seed": 1}, {"n_components": 3}, {"dtype": "float32"}, {"indefinite": "clip"}]
    other += [{"kernel": {"name": "rbf", "gamma": 0.4}}, {"nystroem": {"n_landmarks": 24}}]
    other += [{"nystroem": {"n_landmarks": 25, "landmarks": name}} for name in ("kmeans++", "rpcholesky")]
    other += [{"method": "exact"}, {"solver": {"max_passes": 1}}, {"solver": {"max_passes": 2}}]
    names = {prepared(job, **changes).fingerprint for changes in other}
    assert len(names) == len(other)
    assert base not in names


def test_exact_jobs_share_one_fingerprint_by_either_method(job):
    exact = {prepared(job, method=method).fingerprint for method in ("auto", "exact")}
    assert len(exact) == 1
    assert {prepared(job, method="exact", nystroem={"n_landmarks": m}).fingerprint for m in (5, 9)} == exact
    refined = {prepared(job, solver={"max_passes": 2}, nystroem={"n_landmarks": m}).fingerprint for m in (5, 9)}
    assert len(refined) == 2


# ---------------------------------------------------------------- passes that refine


def test_passes_over_k_refine_a_nystroem_start(job):
    few = {"n_landmarks": 20}
    start = load_model(run(job, nystroem=few).run.path / "model")
    done = run(job, nystroem=few, solver={"max_passes": 3, "tol": 1e-2}, on_failure="return")
    model, exact = load_model(done.run.path / "model"), dense_spectrum(source_rows())[:4]
    by_pass = described(done)["residuals_by_pass"]
    assert 1 <= len(by_pass) <= 3
    assert max(by_pass[-1]) < max(by_pass[0])
    assert np.abs(model.eigenvalues - exact).max() < 0.1 * np.abs(start.eigenvalues - exact).max()
    assert (done.run.path / "rows.zarr").exists()
    assert not (done.run.path / "ledger.json").exists()


def test_refined_run_is_found_again(job):
    passes = {"max_passes": 1}
    assert run(job, solver=passes).status == "done"
    assert run(job, solver=passes).status == "unchanged"


def test_landmarks_that_memory_cannot_hold_are_refused_before_the_rows_are_copied(job):
    changes = {"nystroem": {"n_landmarks": 20_000}, "solver": {"max_passes": 1}, "budget": {"memory": "400MiB"}}
    rows = np.zeros((20_000, 2), np.float32)
    np.save(job / "rows.npy", rows)
    with pytest.raises(MemoryLimitError, match="20000 landmarks"):
        prepared(job, source={"uri": "rows.npy"}, **changes)
    assert not (job / "out").exists()


# ---------------------------------------------------------------- refusals and commands


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"nystroem": {"n_landmarks": 3}}, ConfigError, "n_components=4 needs at least as many landmarks"),
        ({"budget": {"memory": "3GiB", "disk": "1kiB"}}, ConfigError, r"budget\.disk=1kiB cannot hold .* raise it to"),
        ({"kernel": {"name": "sigmoid", "gamma": 3.0}}, InvalidInputError, "not positive semi-definite"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(job, changes, error, words):
    with pytest.raises(error, match=words):
        run(job, **changes)
    assert not (job / "out" / "latest.json").exists()


def test_disk_that_a_refusal_names_is_accepted(job):
    with pytest.raises(ConfigError) as refused:
        run(job, budget={"memory": "3GiB", "disk": 1000})
    needed = int(str(refused.value).split("raise it to ")[1].rstrip("."))
    assert run(job, budget={"memory": "3GiB", "disk": needed}).status == "done"


def test_commands_work_on_a_nystroem_output(job):
    config, output = write_config(job), str(job / "out")
    answers = {}
    for command in (["plan", config], ["run", config], ["status", output], ["verify", output], ["run", config]):
        found = CliRunner().invoke(skpca, [*command, "--json"])
        assert found.exit_code == (99 if "run" in answers and command[0] == "run" else 0), found.output
        answers[command[0]] = json.loads(found.stdout.splitlines()[-1])
        if command[0] == "plan":
            assert not (job / "out").exists()
    advice, n_parts = answers["plan"]["advice"], sum(rows > 0 for rows in PART_ROWS)
    assert advice["asked"] == 25
    assert 0 < advice["predicted"] < 1
    assert answers["plan"]["plan"]["n_landmarks"] == 25
    assert answers["status"]["in force"] == Path(answers["run"]["run"]).name
    assert answers["status"]["partitions"].startswith(f"{n_parts} of {N_ROWS} rows, 0 of them by updates")
    assert answers["verify"]["problems"] == []


def test_transform_gives_the_rows_of_a_run_the_scores_of_the_run(job):
    done = run(job)
    n_rows, _ = transform_source(Output(job / "out"), "data/*.parquet", job, job / "again")
    assert n_rows == N_ROWS
    table = pa.concat_tables([pq.read_table(part) for part in sorted((job / "again").glob("*.parquet"))])
    trained = table_of(done.run.path)
    assert table.column_names == trained.column_names
    assert table["name"].equals(trained["name"])
    np.testing.assert_allclose(scores_of(table), scores_of(trained), rtol=0, atol=1e-13)


def test_lines_of_a_run_say_method_bounds_and_where(job):
    found = CliRunner().invoke(skpca, ["run", write_config(job)])
    assert found.exit_code == 0, found.output
    for words in ("Nyström kernel PCA", "trace residual", "25 landmarks (uniform)", "scores, model and metrics are in"):
        assert words in found.stdout
    stages = [line.split(":")[0] for line in found.stderr.splitlines()]
    assert [name for name in ("look", "accumulate", "score") if name not in stages] == []
    assert f"accumulate: {N_ROWS} of {N_ROWS}" in found.stderr


def test_schema_knows_the_sections_of_a_nystroem_job():
    schema = json.loads(CliRunner().invoke(skpca, ["schema"]).stdout)
    assert {"method", "nystroem", "drift"} <= set(schema["properties"])


@pytest.mark.slow
def test_worker_processes_give_the_bits_of_one_thread(job):
    expected = bits(run(job).run.path)
    shutil.rmtree(job / "out")
    local = run(job, cluster={"kind": "local", "n_workers": 2, "n_threads": 1})
    assert bits(local.run.path) == expected
    shutil.rmtree(job / "out")
    assert bits(run(job, cluster={"kind": "threads", "n_threads": 4}).run.path) == expected
