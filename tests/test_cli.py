import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sklearn.decomposition import KernelPCA as ReferenceKernelPCA

from scalable_kpca.cli import skpca as commands
from tests.support import skip

ROOT = Path(__file__).resolve().parents[1]


def skpca(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scalable_kpca.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def write_job(folder: Path, rows: np.ndarray, **settings: object) -> Path:
    """A table with ids in reverse order and text labels, and a configuration beside it."""
    n_samples = len(rows)
    columns = {"key": np.arange(n_samples)[::-1].copy()}
    columns |= {f"x{column}": rows[:, column] for column in range(rows.shape[1])}
    table = pa.table(columns).append_column("kind", pa.array([f"kind {row % 3}" for row in range(n_samples)]))
    (folder / "data").mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "data" / "rows.parquet")
    config = {
        "source": {"uri": "data/*.parquet", "id": ["key"], "features": ["x*"], "passthrough": ["kind"]},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "n_components": 3,
        "output": {"path": "out"},
        **settings,
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 4))


def latest_run(folder: Path) -> Path:
    return folder / "out" / "runs" / json.loads((folder / "out" / "latest.json").read_text())["run"]


def read_embedding(run: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in sorted((run / "embedding").iterdir())])


def test_run_publishes_scores_beside_their_ids_and_labels(tmp_path, rows):
    job = write_job(tmp_path, rows)
    finished = skpca("run", job, "--json")
    assert finished.returncode == 0, finished.stderr
    answer = json.loads(finished.stdout.splitlines()[-1])
    run = latest_run(tmp_path)
    assert answer["status"] == "done"
    assert Path(answer["run"]) == run
    certificate = json.loads((run / "metrics.json").read_text())["certificate"]
    assert answer["complete"] is certificate["complete"] is True
    assert answer["missed_bound"] == certificate["missed_bound"]
    table = read_embedding(run)
    assert table.column_names == ["key", "kind", "pc_000", "pc_001", "pc_002"]
    assert table["key"].to_pylist() == list(range(60))[::-1]
    assert table["kind"].to_pylist()[:4] == ["kind 0", "kind 1", "kind 2", "kind 0"]
    expected = ReferenceKernelPCA(3, kernel="rbf", gamma=0.3, eigen_solver="dense").fit_transform(rows)
    scores = np.column_stack([table[f"pc_{column:03d}"].to_numpy() for column in range(3)])
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=1e-12)


def test_run_directory_holds_what_the_readme_lists_and_commits_every_result(tmp_path, rows):
    assert skpca("run", write_job(tmp_path, rows, gram="zarr")).returncode == 0
    run = latest_run(tmp_path)
    names = {path.name for path in run.iterdir()}
    results = {"model", "embedding", "metrics.json", "run.json", "profile.json", "COMMIT.json"}
    assert names == results | {"plan.json", "rows.zarr", "labels", "gram.zarr"}
    committed = {entry["path"] for entry in json.loads((run / "COMMIT.json").read_text())["files"]}
    on_disk = {
        str(path.relative_to(run))
        for name in results - {"COMMIT.json"}
        for path in [run / name, *(run / name).rglob("*")]
        if path.is_file()
    }
    assert committed == on_disk
    assert not (tmp_path / "out" / "LOCK").exists()
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_second_run_on_the_same_input_exits_99_and_rewrites_nothing(tmp_path, rows):
    job = write_job(tmp_path, rows)
    assert skpca("run", job).returncode == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    again = skpca("run", job, "--json")
    assert again.returncode == 99
    assert json.loads(again.stdout.splitlines()[-1])["status"] == "unchanged"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


@pytest.mark.slow
def test_changed_input_makes_a_new_run_and_leaves_the_old_one_whole(tmp_path, rows):
    job = write_job(tmp_path, rows)
    assert skpca("run", job).returncode == 0
    old = latest_run(tmp_path)
    rows[0, 0] += 1
    write_job(tmp_path, rows)
    assert skpca("run", job).returncode == 0
    assert latest_run(tmp_path) != old
    assert read_embedding(old).num_rows == 60
    assert skpca("verify", tmp_path / "out").returncode == 0


@pytest.mark.slow
def test_another_number_of_components_reuses_every_tile(tmp_path, rows):
    job = write_job(tmp_path, rows, gram="zarr", tile_rows=16)
    assert skpca("run", job).returncode == 0
    first = json.loads((latest_run(tmp_path) / "run.json").read_text())
    assert skpca("run", job, "--set", "n_components=5").returncode == 0
    second = json.loads((latest_run(tmp_path) / "run.json").read_text())
    assert first["tiles"] == {"computed": 10, "read": 0, "repaired": 0}
    assert second["tiles"] == {"computed": 0, "read": 10, "repaired": 0}


def test_transform_gives_training_rows_their_training_scores(tmp_path, rows):
    job = write_job(tmp_path, rows)
    assert skpca("run", job).returncode == 0
    finished = skpca("transform", tmp_path / "out", "--source", "data/rows.parquet", "--to", "new", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    new, trained = pq.read_table(tmp_path / "new"), read_embedding(latest_run(tmp_path))
    assert new.column_names == trained.column_names
    assert new["key"].equals(trained["key"])
    np.testing.assert_allclose(new["pc_001"].to_numpy(), trained["pc_001"].to_numpy(), atol=1e-13)


@pytest.mark.slow
def test_transform_refuses_nan_in_new_rows_by_place_and_writes_nothing(tmp_path, rows):
    job = write_job(tmp_path, rows)
    assert skpca("run", job).returncode == 0
    rows[7, 2] = np.nan
    write_job(tmp_path / "new", rows)
    arguments = ("--source", "data/*.parquet", "--to", "scores")
    finished = skpca("transform", tmp_path / "out", *arguments, cwd=tmp_path / "new")
    assert finished.returncode == 65
    assert f'row 7 of {tmp_path}/new/data/rows.parquet, column "x2" is NaN' in finished.stderr
    assert not (tmp_path / "new" / "scores").exists()


@pytest.mark.slow
def test_verify_names_a_changed_result_and_mentions_a_damaged_tile_that_no_result_needs(tmp_path, rows):
    job = write_job(tmp_path, rows, gram="zarr", tile_rows=16)
    assert skpca("run", job).returncode == 0
    run = latest_run(tmp_path)
    assert skpca("verify", tmp_path / "out").returncode == 0
    tile = run / "gram.zarr" / "tiles" / "c" / "1" / "2"
    content = bytearray(tile.read_bytes())
    content[40] ^= 1
    tile.write_bytes(content)
    finished = skpca("verify", tmp_path / "out", "--json")
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["tiles"] == "9 of 10 sound; damaged, made again when needed: (1, 2)"
    (run / "metrics.json").write_text("{}")
    finished = skpca("verify", tmp_path / "out", "--json")
    assert finished.returncode == 74
    assert "metrics.json" in " ".join(json.loads(finished.stdout)["problems"])


@pytest.mark.slow
def test_status_tells_committed_runs_from_nothing(tmp_path, rows):
    job = write_job(tmp_path, rows)
    assert json.loads(skpca("status", tmp_path / "out", "--json").stdout)["in force"] == "none"
    assert skpca("run", job).returncode == 0
    facts = json.loads(skpca("status", tmp_path / "out", "--json").stdout)
    run = latest_run(tmp_path)
    assert facts["in force"] == run.name
    assert facts[f"run {run.name[:16]}"] == "committed"
    assert facts["lock"] == "free"


@pytest.mark.slow
def test_plan_writes_nothing_and_counts_the_tiles(tmp_path, rows):
    job = write_job(tmp_path, rows, tile_rows=16)
    finished = skpca("plan", job, "--json")
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["plan"]["n_tiles"] == 10
    assert not (tmp_path / "out").exists()


def test_schema_describes_every_key_of_the_shipped_configuration():
    schema = json.loads(skpca("schema").stdout)
    assert {"source", "output", "kernel", "n_components"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_the_shipped_daily_job_grows_by_the_commands_that_it_names(tmp_path, monkeypatch):
    shutil.copy(ROOT / "pipelines" / "daily.yaml", tmp_path)
    for name in ("history/first", "history/second", "days/third"):
        rows = np.random.default_rng(len(name)).normal(size=(40, 3))
        (tmp_path / name).parent.mkdir(exist_ok=True)
        table = pa.table({"id": np.arange(40)} | {f"x{column}": rows[:, column] for column in range(3)})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    run = ("run", "daily.yaml")
    update = ("update", "out/daily", "--source", "days/*.parquet")
    # landmarks that are all of the first rows leave nothing out of them, and much of others: that would be drift
    asked = [(*run, "--set", "drift.fail=null"), update, (*update, "--json"), (*run, "--set", "drift.fail=null")]
    monkeypatch.chdir(tmp_path)
    done = [CliRunner().invoke(commands, arguments) for arguments in asked]
    assert [found.exit_code for found in done] == [0, 0, 99, 99], done[-1].output
    assert "1 partition of 40 rows added" in done[1].stdout


def test_doctor_finds_the_known_spectrum():
    finished = skpca("doctor", "--json")
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["problems"] == []


BAD_SETTINGS = [
    (["kernl.name=rbf"], 78, ["unknown key 'kernl'", "did you mean 'kernel'"]),
    (["kernel.gama=1"], 78, ["unknown key 'kernel.gama'", "did you mean 'gamma'"]),
    (["n_components=61"], 78, ["n_components=61", "60 rows"]),
    (["n_components=0"], 78, ["n_components"]),
    (["budget.memory=64MiB"], 78, ["64.00 MiB", "raise memory_limit to"]),
    (["budget.memory=lots"], 78, ["'lots' is not a size"]),
    (["budget.disk=1kiB", "gram=zarr"], 78, ["budget.disk", "raise it to"]),
    (["source.uri=absent.parquet"], 65, ["absent.parquet", "no such file"]),
    (["source.features=[y*]"], 65, ['"y*"', "matches no"]),
    (["source.id=[nokey]"], 65, ['no column "nokey"']),
    (["source.features=[kind]", "source.passthrough=[]"], 65, ['"kind"', "string"]),
    (["output.path=data"], 78, ["choose another output"]),
    (["output.path=data/rows.parquet"], 78, ["choose another output"]),
    (["output.path=."], 78, ["choose another output"]),
    (["output.path=/dev/null/out"], 74, ["/dev/null/out", "Not a directory"]),
    pytest.param(
        ["cluster.kind=address", "cluster.address=tcp://127.0.0.1:1"],
        69,
        ["no Dask scheduler answers"],
        marks=pytest.mark.slow,
    ),
    (["nonsense"], 78, ["not of the form"]),
    (["output.path=gs://bucket/out"], 78, ["output.path: gs:// is no place that is known; give a path, or s3://"]),
    (["output.path=S3://bucket/out"], 78, ["output.path: S3:// is no place that is known"]),
    (["output.path=file:///out"], 78, ["output.path: file:// is no place that is known"]),
    (["source.uri=s3a://bucket/rows"], 78, ["source.uri: s3a:// is no place that is known"]),
    (["health=false", "drift.mean.fail=1"], 78, ["drift.mean: health is false"]),
    (["drift.novelty.fail=0.1"], 78, ["drift.novelty: novelty is false"]),
    (["method=exact", "drift.fail=2"], 78, ["drift.fail: method is exact"]),
    (["source.id=[key]", "source.passthrough=[key]"], 78, ['column "key" is named in source.id and in source.pass']),
    (["source.id=[key, key]"], 78, ['column "key" is named twice in source.id']),
    (["method=nystroem", "nystroem.n_landmarks=2"], 78, ["n_components=3 needs at least as many landmarks"]),
]


@pytest.mark.parametrize(("settings", "code", "words"), BAD_SETTINGS)
def test_bad_settings_end_with_their_exit_code_and_say_what_is_wrong(tmp_path, rows, settings, code, words):
    overrides = [part for setting in settings for part in ("--set", setting)]
    finished = CliRunner().invoke(commands, ["run", str(write_job(tmp_path, rows)), *overrides])
    assert finished.exit_code == code, finished.output
    for word in words:
        assert word in finished.stderr


def test_a_failure_is_an_answer_in_json_too(tmp_path, rows):
    job = write_job(tmp_path, rows)
    failed = CliRunner().invoke(commands, ["run", str(job), "--set", "n_components=61", "--json"])
    assert failed.exit_code == 78
    answer = json.loads(failed.stdout)
    assert (answer["status"], answer["exit_code"]) == ("failed", 78)
    assert failed.stderr.strip().endswith(answer["error"])
    assert CliRunner().invoke(commands, ["run", str(job), "--set", "n_components=61"]).stdout == ""


@pytest.mark.parametrize("text", ["seed: 1\nseed: 2\n", "kernel: {name: rbf, gamma: 1, gamma: 2}\n"])
def test_a_key_that_is_there_twice_is_refused(tmp_path, text):
    (tmp_path / "job.yaml").write_text(f"source: {{uri: rows}}\noutput: {{path: out}}\n{text}")
    refused = CliRunner().invoke(commands, ["run", str(tmp_path / "job.yaml")])
    assert refused.exit_code == 78
    assert "is there twice; leave one of them out" in refused.stderr


def test_a_value_that_others_refer_to_may_be_there_once_more(tmp_path, rows):
    job = write_job(tmp_path, rows)
    fields = {name: value for name, value in json.loads(job.read_text()).items() if name != "kernel"}
    lines = "kernel: &usual {name: rbf, gamma: 0.3}\nsolver: {}\n"
    job.write_text("\n".join(f"{name}: {json.dumps(value)}" for name, value in fields.items()) + "\n" + lines)
    job.write_text(job.read_text().replace("&usual {", "{<<: &usual {degree: 2}, degree: 3, "))
    answer = CliRunner().invoke(commands, ["plan", str(job)])
    assert answer.exit_code == 0, answer.output


def test_a_place_of_another_scheme_is_refused_by_every_command_and_nothing_is_made(tmp_path, rows, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(commands, ["run", str(write_job(tmp_path, rows))]).exit_code == 0
    before = sorted(tmp_path.rglob("*"))
    for command in (
        ("transform", "out", "--source", "data", "--to", "gs://bucket/scores"),
        ("transform", "out", "--source", "abfs://data", "--to", "scores"),
        ("update", "out", "--source", "S3://bucket/new"),
        ("status", "s3a://bucket/out"),
        ("report", "out", "--to", "s3://bucket/page.html"),
    ):
        refused = CliRunner().invoke(commands, command)
        assert refused.exit_code == 78, refused.output
        assert "is no place that is known" in refused.stderr or "is no file of this machine" in refused.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_path_may_look_like_a_scheme_and_begin_at_home(tmp_path, rows, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    job = write_job(tmp_path, rows, output={"path": "~/out"})
    assert CliRunner().invoke(commands, ["run", str(job)]).exit_code == 0
    assert (tmp_path / "home" / "out" / "latest.json").exists()
    done = CliRunner().invoke(commands, ["transform", "home/out", "--source", "data", "--to", "a:b/scores"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a:b" / "scores" / "part-00000.parquet").exists()


def test_an_output_that_is_a_file_is_named(tmp_path, rows):
    (tmp_path / "taken").write_text("")
    for path in ("taken", "taken/out"):
        refused = CliRunner().invoke(commands, ["run", str(write_job(tmp_path, rows, output={"path": path}))])
        assert refused.exit_code == 74
        assert f"{tmp_path}/{path}" in refused.stderr
        assert "remove what has the name already" in refused.stderr or "is a file and no directory" in refused.stderr


def test_the_status_of_nothing_is_a_problem(tmp_path):
    answer = CliRunner().invoke(commands, ["status", str(tmp_path / "ouptut"), "--json"])
    assert answer.exit_code == 74
    assert "is no directory; correct the path" in json.loads(answer.stdout)["problems"][0]


def test_a_variable_that_is_no_key_is_refused_by_every_command_that_hears_variables(tmp_path, rows, monkeypatch):
    job = write_job(tmp_path, rows)
    assert CliRunner().invoke(commands, ["run", str(job)]).exit_code == 0
    monkeypatch.setenv("SKPCA_DRFT__MEAN__FAIL", "0.1")
    for command in (
        ("run", str(job)),
        ("transform", str(tmp_path / "out"), "--source", str(tmp_path / "data"), "--to", str(tmp_path / "scores")),
    ):
        refused = CliRunner().invoke(commands, command)
        assert refused.exit_code == 78
        assert "did you mean 'drift'" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_the_smallest_memory_that_a_refusal_names_is_accepted(tmp_path, rows, method):
    job = write_job(tmp_path, rows, method=method)
    refused = skpca("plan", job, "--set", "budget.memory=64MiB")
    named = refused.stderr.split("raise memory_limit to ")[1].split(" bytes")[0]
    assert skpca("plan", job, "--set", f"budget.memory={named}").returncode == 0
    assert skpca("plan", job, "--set", f"budget.memory={int(named) - 1}").returncode == 78


@pytest.mark.parametrize("value", [np.nan, *(pytest.param(x, marks=pytest.mark.slow) for x in (np.inf, -np.inf))])
def test_rows_that_are_not_finite_are_named_and_nothing_is_published(tmp_path, rows, value):
    rows[41, 3] = value
    rows[50, 0] = value
    job = write_job(tmp_path, rows)
    finished = skpca("run", job)
    assert finished.returncode == 65
    assert f'row 41 of {tmp_path}/data/rows.parquet, column "x3"' in finished.stderr
    assert "1 of 2 such rows" in finished.stderr
    assert not (tmp_path / "out" / "latest.json").exists()


def test_a_source_without_rows_is_refused(tmp_path):
    job = write_job(tmp_path, np.empty((0, 4)))
    finished = skpca("run", job)
    assert finished.returncode == 65
    assert "no rows" in finished.stderr


@pytest.mark.slow
def test_a_configuration_that_is_missing_or_no_mapping_is_refused(tmp_path):
    assert skpca("run", tmp_path / "absent.yaml").returncode == 78
    (tmp_path / "list.yaml").write_text("- 1\n")
    assert skpca("run", tmp_path / "list.yaml").returncode == 78
    (tmp_path / "broken.yaml").write_text("source: [")
    assert skpca("run", tmp_path / "broken.yaml").returncode == 78
    (tmp_path / "tagged.yaml").write_text("source: !!python/object/apply:os.system ['touch pwned']")
    assert skpca("run", tmp_path / "tagged.yaml", cwd=tmp_path).returncode == 78
    assert not (tmp_path / "pwned").exists()


def test_readme_fits_a_terminal():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


def test_unknown_options_are_a_usage_error():
    assert skpca("run", "--nope").returncode == 2


def test_output_on_a_read_only_file_system_is_a_storage_error(tmp_path, rows):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    job = write_job(tmp_path, rows)
    mount = tmp_path / "mount"
    mount.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", mount], capture_output=True, check=False)
    if mounted.returncode:
        assert not os.environ.get("SKPCA_TEST_REQUIRE_ALL"), mounted.stderr
        pytest.skip(f"tmpfs cannot be mounted: {mounted.stderr!r}")
    try:
        finished = skpca("run", job, "--set", "output.path=mount/out")
    finally:
        subprocess.run(["umount", mount], check=True)
    assert finished.returncode == 74
    assert "Read-only file system" in finished.stderr


def test_the_shipped_digits_job_gives_scikit_learns_spectrum(tmp_path):
    finished = skpca("run", "pipelines/digits.yaml", "--set", f"output.path={tmp_path / 'out'}")
    assert finished.returncode == 0, finished.stderr
    pixels = pq.read_table(ROOT / "pipelines" / "data" / "digits.parquet")
    rows = np.column_stack([pixels[name].to_numpy() for name in pixels.column_names if name.startswith("px_")])
    rows = rows.astype(float)
    gamma = 1 / (rows.shape[1] * rows.var())
    expected = ReferenceKernelPCA(20, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(rows).eigenvalues_
    found = json.loads((latest_run(tmp_path) / "metrics.json").read_text())["eigenvalues"]
    np.testing.assert_allclose(found, expected, atol=1e-10 * expected[0])
    assert len(finished.stdout.strip().split("\n\n")[-1].splitlines()) == 5


@pytest.mark.slow
def test_a_thousand_million_rows_are_planned_without_reading_them(tmp_path):
    with (tmp_path / "rows.npy").open("wb") as stream:
        shape = (10**9, 64)
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
        try:
            stream.truncate(stream.tell() + 4 * shape[0] * shape[1])  # of holes
        except OSError:
            skip("files of 256 GB, even of holes, are not possible here")
    job = tmp_path / "job.yaml"
    job.write_text("{source: {uri: rows.npy}, kernel: {name: rbf, gamma: 0.1}, output: {path: out}}")
    before = psutil.Process().io_counters().read_chars
    planned = CliRunner().invoke(commands, ["plan", str(job), "--json", "--set", "budget.memory=8GiB"])
    assert planned.exit_code == 0, planned.output
    assert psutil.Process().io_counters().read_chars - before < 2**31  # the machine is measured, too
    plan = json.loads(planned.stdout.splitlines()[-1])["plan"]
    assert (plan["method"], plan["n_samples"], plan["n_features"]) == ("nystroem", *shape)
    assert plan["peak_memory"] < 8 * 2**30
    # a look, the sums, the scores; the last two evaluate each row with each landmark, and these with each other
    assert plan["row_passes"] == 3
    assert plan["kernel_values"] == (2 * shape[0] + plan["n_landmarks"]) * plan["n_landmarks"]
