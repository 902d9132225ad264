"""Scheduled jobs say how they ended, in metrics and events; what is wrong with saying it is wrong with nothing else."""

import json
import math
import os
import resource
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from openlineage.client import event_v2, facet_v2
from prometheus_client.parser import text_string_to_metric_families

from scalable_kpca import stopping
from scalable_kpca.cli import skpca
from scalable_kpca.cli.failures import named
from scalable_kpca.errors import ConfigError
from scalable_kpca.workflow import lineage, monitoring
from scalable_kpca.workflow.files import alone_in, append_line, replace_file
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.lineage import Attempt, Written, event_line, named_inputs
from scalable_kpca.workflow.loading import load_config, override_config, read_draft
from scalable_kpca.workflow.prometheus import MEANINGS, N_EIGENVALUES, Ending, metrics_text

D = 3


def write(path: Path, seed: int, n: int = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng(seed).standard_normal((n, D))
    pq.write_table(pa.table({"id": np.arange(n)} | {f"x{c}": rows[:, c] for c in range(D)}), path)
    return path


@pytest.fixture
def job(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "base" / "0.parquet", 0)
    fields = {
        "source": {"uri": "base", "id": "id", "features": "x*"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "method": "nystroem",
        "nystroem": {"n_landmarks": 10},
        "n_components": 3,
        "cluster": {"kind": "synchronous"},
        "budget": {"memory": "3GiB"},
        "output": {"path": "out/daily"},
        "monitor": {"prometheus": "skpca.prom", "openlineage": "skpca.jsonl"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(fields))
    return tmp_path / "job.yaml"


def call(*arguments: object):
    return CliRunner().invoke(skpca, [*map(str, arguments)])


def samples(text: str, **labels: str) -> dict[tuple[str, str], float]:
    """Values by name, and by component or measure where there is one."""
    return {
        (sample.name, sample.labels.get("component") or sample.labels.get("measure") or ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if labels.items() <= sample.labels.items()
    }


def metrics(folder: Path, command: str) -> dict[tuple[str, str], float]:
    return samples((folder / "skpca.prom").read_text(), job="daily", command=command)


def events(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "skpca.jsonl").read_text().splitlines()]


def kinds(folder: Path) -> list[tuple[str, str]]:
    return [(event["job"]["name"], event["eventType"]) for event in events(folder)]


# ---------------------------------------------------------------- jobs


def check_model(found: dict, folder: Path, rows: int | None = None) -> None:
    """Metrics of a model are the numbers of its metrics.json."""
    model = json.loads((Output(folder / "out" / "daily").require_latest().path / "metrics.json").read_text())
    assert found["skpca_rows", ""] == (model["n_samples"] if rows is None else rows)
    assert found["skpca_components", ""] == model["n_components"] == 3
    assert found["skpca_passes", ""] == model["n_passes"]
    assert found["skpca_explained_variance_ratio", ""] == model["explained_variance"]
    assert found["skpca_complete", ""] == model["certificate"]["complete"]
    values = [found["skpca_eigenvalue", f"pc_{component:03d}"] for component in range(3)]
    assert values == model["eigenvalues"]
    for name in ("skpca_duration_seconds", "skpca_peak_memory_bytes"):
        assert found[name, ""] > 0
    assert found["skpca_last_success_timestamp_seconds", ""] == found["skpca_last_run_timestamp_seconds", ""]


def test_run_update_and_transform_say_the_numbers_of_their_model_and_what_they_read_and_wrote(job):
    folder = job.parent
    assert call("run", job).exit_code == 0
    assert metrics(folder, "run")["skpca_exit_code", ""] == 0
    check_model(metrics(folder, "run"), folder)
    assert call("run", job).exit_code == 99
    assert metrics(folder, "run")["skpca_exit_code", ""] == 99
    check_model(metrics(folder, "run"), folder)

    write(folder / "days" / "1.parquet", 1, 40)
    done = call("update", "out/daily", "--source", "days", "--json")
    answer = json.loads(done.stdout.splitlines()[-1])
    found = metrics(folder, "update")
    check_model(found, folder)
    assert found["skpca_landmark_drift_ratio", ""] == max(answer["drift"].values())
    measured = {name: entry["value"] for name, entry in answer["health"].items()}
    assert {measure: value for (name, measure), value in found.items() if name == "skpca_drift"} == measured
    assert "psi" in measured
    assert call("update", "out/daily", "--source", "days").exit_code == 99
    assert metrics(folder, "update")["skpca_exit_code", ""] == 99

    write(folder / "new" / "2.parquet", 2, 30)
    assert call("transform", "out/daily", "--source", "new", "--to", "scores").exit_code == 0
    check_model(metrics(folder, "transform"), folder, rows=30)
    assert metrics(folder, "run")["skpca_exit_code", ""] == 99  # in the same file still

    pairs = [("daily.run", 2), ("daily.update", 2), ("daily.transform", 1)]
    assert kinds(folder) == [(name, kind) for name, n in pairs for _ in range(n) for kind in ("START", "COMPLETE")]
    for start, end in zip(events(folder)[::2], events(folder)[1::2], strict=True):
        assert start["run"]["runId"] == end["run"]["runId"]
        assert start["eventTime"] <= end["eventTime"]
        assert start["inputs"] == end["inputs"]
    assert len({event["run"]["runId"] for event in events(folder)}) == 5
    run, again, update, _, transform = events(folder)[1::2]
    assert run["inputs"][0]["name"] == str(folder / "base" / "0.parquet")
    (output,) = run["outputs"]
    assert output["name"].startswith(str(folder / "out" / "daily" / "runs"))
    assert output["facets"]["schema"]["fields"][0] == {"name": "id", "type": "int64", "fields": []}
    assert [field["name"] for field in output["facets"]["schema"]["fields"]] == ["id", "pc_000", "pc_001", "pc_002"]
    assert output["facets"]["dataSource"]["uri"] == f"file://{output['name']}"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 60
    assert again["outputs"][0]["name"] == output["name"]
    assert again["outputs"][0]["outputFacets"] == {}  # nothing was written
    assert update["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 40
    assert transform["outputs"][0]["name"] == str(folder / "scores")
    assert transform["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 30


def test_a_failed_command_says_its_exit_code_and_message_and_when_it_last_succeeded(job):
    folder = job.parent
    assert call("run", job).exit_code == 0
    success = metrics(folder, "run")["skpca_last_success_timestamp_seconds", ""]
    failed = call("run", job, "--set", "source.uri=nowhere")
    assert failed.exit_code == 65
    found = metrics(folder, "run")
    assert found["skpca_exit_code", ""] == 65
    assert found["skpca_last_success_timestamp_seconds", ""] == success
    assert found["skpca_last_run_timestamp_seconds", ""] > success
    assert ("skpca_rows", "") not in found
    # a key that is no key, and before there is a run
    assert call("run", job, "--set", "kernel.gama=1").exit_code == 78
    assert metrics(folder, "run")["skpca_exit_code", ""] == 78
    other = ("--set", "monitor.prometheus=skpca.prom", "--set", "monitor.openlineage=skpca.jsonl")
    assert call("update", "out/other", "--source", "base", *other).exit_code == 74
    text = (folder / "skpca.prom").read_text()
    assert samples(text, job="other", command="update")["skpca_exit_code", ""] == 74
    assert ("skpca_last_success_timestamp_seconds", "") not in samples(text, job="other")
    write(folder / "days" / "1.parquet", 1)
    assert call("update", "out/daily", "--source", "days", "--set", "drift.fail=1e-9").exit_code == 65

    assert [kind for _, kind in kinds(folder)] == ["START", "COMPLETE", *4 * ["START", "FAIL"]]
    error = events(folder)[3]["run"]["facets"]["errorMessage"]
    assert failed.stderr == f"Error: {error['message']}\n"
    assert error["programmingLanguage"] == "PYTHON"


def test_an_interrupted_command_is_recorded_as_such(job, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scalable_kpca.workflow.stages.execute", interrupted)
    assert call("run", job).exit_code == 75
    assert metrics(job.parent, "run")["skpca_exit_code", ""] == 75
    assert kinds(job.parent) == [("daily.run", "START"), ("daily.run", "ABORT")]
    assert "same command resumes" in events(job.parent)[1]["run"]["facets"]["errorMessage"]["message"]


def test_a_process_that_is_left_in_the_middle_ends_what_is_watched_once(job):
    with monitoring.watching(monitoring.watch_job(read_draft(job)), named) as watch:
        watch.start("f" * 64)
        stopping._tell()
    assert metrics(job.parent, "run")["skpca_exit_code", ""] == 75
    assert [kind for _, kind in kinds(job.parent)] == ["START", "ABORT"]
    stopping._tell()  # nothing is watched any more
    assert len(events(job.parent)) == 2


def test_a_bug_is_recorded_without_its_traceback(job, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("scalable_kpca.workflow.stages.execute", broken)
    assert call("run", job).exit_code == 70
    assert "ZeroDivisionError was not foreseen" in events(job.parent)[1]["run"]["facets"]["errorMessage"]["message"]
    assert "secret" not in (job.parent / "skpca.jsonl").read_text()


def test_an_update_is_watched_as_the_command_line_or_else_the_run_in_force_says(job):
    folder = job.parent
    assert call("run", job, "--set", "monitor.openlineage=null", "--set", "monitor.job=nightly").exit_code == 0
    write(folder / "days" / "1.parquet", 1)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "days").symlink_to(folder / "days")
    os.chdir(folder / "elsewhere")
    asked = ("update", "../out/daily", "--source", "days")
    assert call(*asked).exit_code == 0
    assert samples((folder / "skpca.prom").read_text(), job="nightly", command="update")["skpca_exit_code", ""] == 0
    assert call(*asked, "--set", "monitor.prometheus=own.prom").exit_code == 99
    assert samples(Path("own.prom").read_text(), job="nightly", command="update")["skpca_exit_code", ""] == 99
    assert call(*asked, "--set", "monitor.prometheus=null").exit_code == 99
    assert samples((folder / "skpca.prom").read_text(), job="nightly", command="update")["skpca_exit_code", ""] == 0
    assert call(*asked, "--set", "monitor.prometheus=own.txt").exit_code == 78
    assert not (folder / "skpca.jsonl").exists()


def test_monitoring_changes_no_fingerprint_and_its_places_are_absolute(job):
    assert call("run", job).exit_code == 0
    made = Output(job.parent / "out" / "daily").require_latest()
    assert call("run", job, "--set", "monitor={prometheus: other.prom, job: other, namespace: n}").exit_code == 99
    kept = json.loads((made.path / "run.json").read_text())["config"]["monitor"]
    assert kept["prometheus"] == str(job.parent / "skpca.prom")
    assert kept["openlineage"] == str(job.parent / "skpca.jsonl")
    fields = json.loads((made.path / "run.json").read_text())["config"]
    changed = override_config(fields, ["monitor.prometheus=x.prom"], ("monitor",), {})
    assert changed.monitor.prometheus == str(Path.cwd() / "x.prom")


@pytest.mark.parametrize("section", [{"openlineage": "/root/.bashrc"}, {"prometheus": 3}, [], "x", None])
def test_an_output_cannot_name_files_of_other_kinds(job, section):
    assert call("run", job).exit_code == 0
    description = Output(job.parent / "out" / "daily").require_latest().path / "run.json"
    fields = json.loads(description.read_text())
    description.write_text(json.dumps({**fields, "config": {**fields["config"], "monitor": section}}))
    watch = monitoring.watch_output("update", Output(Path("out/daily")), "base", [])
    assert (watch.section.prometheus, watch.section.openlineage) == (None, None)


def test_a_job_is_called_as_its_output_however_that_is_named(job):
    assert call("run", job, "--set", "output.path=out/daily/.").exit_code == 0
    assert metrics(job.parent, "run")["skpca_exit_code", ""] == 0
    os.chdir("out/daily")
    assert call("update", ".", "--source", "../../base").exit_code == 99
    assert metrics(job.parent, "update")["skpca_exit_code", ""] == 99


@pytest.mark.parametrize(
    "wrong",
    [
        "prometheus=metrics.txt",
        "prometheus=s3://bucket/a.prom",
        "openlineage=.bashrc",
        'openlineage="a\\0.jsonl"',
        "performance_report=page.htm",
        "performance_report=s3://bucket/page.html",
    ],
)
def test_files_of_other_kinds_are_refused_by_name(job, wrong):
    key = wrong.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"monitor\.{key}: must be a file of this machine that is called \*\."):
        load_config(job, [f"monitor.{wrong}"])


@pytest.mark.parametrize(("key", "library"), monitoring.LIBRARIES.items())
def test_a_library_that_is_not_installed_is_named_before_anything_is_done(job, monkeypatch, key, library):
    monkeypatch.setattr(monitoring, "_is_installed", lambda name: name != library)
    report = ("--set", "monitor.performance_report=page.html", "--set", "cluster.kind=local")
    refused = call("run", job, *(report if key == "performance_report" else ()))
    assert refused.exit_code == 78
    assert f"monitor.{key} needs {library}" in refused.stderr
    assert 'pip install "scalable-kpca[monitoring]"' in refused.stderr
    assert sorted(path.name for path in job.parent.iterdir()) == ["base", "job.yaml"]
    with monitoring.watching(monitoring.watch_job(read_draft(job, [f"monitor.{key}=null"])), named):
        pass


@pytest.mark.parametrize("kind", ["threads", "synchronous"])
def test_a_performance_report_of_tasks_without_a_scheduler_is_refused_before_anything_is_done(job, kind):
    asked = ("--set", "monitor.performance_report=page.html", "--set", f"cluster.kind={kind}")
    refused = call("run", job, *asked, "--set", "monitor.prometheus=null", "--set", "monitor.openlineage=null")
    assert refused.exit_code == 78
    assert refused.stderr == (
        f"Error: {job}: monitor.performance_report is of tasks on a Dask scheduler, and cluster.kind is {kind}; set "
        "cluster.kind to local or another one, or leave the report out (monitor.performance_report: null).\n"
    )
    assert sorted(path.name for path in job.parent.iterdir()) == ["base", "job.yaml"]
    assert call("run", job, *asked, "--set", "monitor.performance_report=null").exit_code == 0


def test_an_output_asks_for_no_performance_report(job):
    own = load_config(job, ["cluster.kind=local", "monitor.performance_report=page.html"])
    assert own.monitor.performance_report == str(job.parent / "page.html")
    fields = own.model_dump(by_alias=True)
    assert override_config(fields, (), ("monitor",), {}).monitor.performance_report is None
    asked = override_config(fields, ["monitor.performance_report=own.html"], ("monitor",), {})
    assert asked.monitor.performance_report == str(Path.cwd() / "own.html")
    assert call("run", job).exit_code == 0
    description = Output(job.parent / "out" / "daily").require_latest().path / "run.json"
    described = json.loads(description.read_text())
    described["config"]["monitor"]["performance_report"] = "/root/page.html"
    description.write_text(json.dumps(described))
    watch = monitoring.watch_output("update", Output(Path("out/daily")), "base", [])
    assert watch.section.performance_report is None


def test_the_libraries_are_imported_only_when_they_are_asked_for(job):
    code = (
        "import sys; from pathlib import Path; from scalable_kpca.workflow import loading, monitoring\n"
        f"draft = loading.read_draft(Path({str(job)!r}), ['monitor={{}}'])\n"
        "with monitoring.watching(monitoring.watch_job(draft), None) as watch: watch.start('f' * 64)\n"
        "assert {'prometheus_client', 'openlineage', 'requests'}.isdisjoint(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---------------------------------------------------------------- failures of monitoring itself


def test_a_place_that_cannot_be_written_is_a_warning_and_nothing_else(job, caplog):
    folder = job.parent
    places = ("--set", "monitor.prometheus=gone/a.prom", "--set", "monitor.openlineage=gone/a.jsonl")
    assert call("run", job, *places).exit_code == 0
    warned = [record.message for record in caplog.records]
    assert any("gone/a.prom was not written: No such file or directory" in text for text in warned)
    assert any("gone/a.jsonl was not written" in text for text in warned)
    assert call("run", job, *places, "--set", "source.uri=nowhere").exit_code == 65
    # a directory, a link and a pipe of the name are left as they are
    (folder / "a.prom").mkdir()
    (folder / "a.prom" / "kept").touch()
    os.mkfifo(folder / "a.jsonl")
    (folder / "b.prom").symlink_to(folder / "victim.prom")
    (folder / "b.jsonl").symlink_to(folder / "victim.jsonl")
    for name in "ab":
        named = ("--set", f"monitor.prometheus={name}.prom", "--set", f"monitor.openlineage={name}.jsonl")
        caplog.clear()
        assert call("run", job, *named).exit_code == 99
        assert len(caplog.records) >= 2
    assert (folder / "a.prom" / "kept").exists()
    assert (folder / "b.prom").is_symlink()
    assert not list(folder.glob("victim*"))
    assert not list(folder.glob(".*.new"))


def test_a_directory_that_takes_no_new_file_is_a_warning(job, caplog):
    (job.parent / "ro").symlink_to("/proc/self")  # which refuses root, too
    places = ("--set", "monitor.prometheus=ro/a.prom", "--set", "monitor.openlineage=ro/a.jsonl")
    assert call("run", job, *places).exit_code == 0
    warned = "\n".join(record.message for record in caplog.records)
    assert "ro/a.prom was not written" in warned
    assert "ro/a.jsonl was not written" in warned


def test_metrics_that_are_there_and_are_none_are_replaced(job):
    for content in (b"\xff\xfe", b"not a metric at all{", b'skpca_exit_code{job="x"} 1\n', b"other_metric 3\n"):
        (job.parent / "skpca.prom").write_bytes(content)
        monitoring.watch_job(read_draft(job)).end(70, "")
        text = (job.parent / "skpca.prom").read_text()
        assert samples(text) == metrics(job.parent, "run")


def test_a_run_whose_numbers_are_damaged_still_says_how_it_ended(job):
    watch = monitoring.watch_job(read_draft(job))
    (job.parent / "metrics.json").write_text("{")
    watch.answer |= {"run": str(job.parent), "embedding": str(job.parent / "none"), "status": "done"}
    watch.end(0, "")
    assert metrics(job.parent, "run")["skpca_exit_code", ""] == 0
    assert [kind for _, kind in kinds(job.parent)] == ["START", "COMPLETE"]


# ---------------------------------------------------------------- files


def test_a_reader_never_sees_half_a_file(tmp_path):
    place, texts = tmp_path / "a.prom", [str(digit) * 100_000 for digit in range(2)]
    replace_file(place, texts[0])
    stop, seen = threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            seen.add(place.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(50):
        replace_file(place, texts[turn % 2])
    stop.set()
    reader.join()
    assert seen <= set(texts)
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]


def test_what_cannot_be_written_whole_leaves_what_was_there(tmp_path):
    """As on a full disk: a limit of the size of files, in a process of its own."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from scalable_kpca.workflow.files import append_line, replace_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "prom, lines = Path('a.prom'), Path('a.jsonl')\n"
        "replace_file(prom, 'old'); append_line(lines, '{}')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "for write, place in ((replace_file, prom), (append_line, lines)):\n"
        "    try: write(place, 'x' * 5000)\n"
        "    except OSError: continue\n"
        "    sys.exit('written')\n"
    )
    assert hasattr(resource, "RLIMIT_FSIZE")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, timeout=60)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.prom": "old", "a.jsonl": "{}\n"}


def test_a_line_that_broke_off_does_not_break_the_next_one(tmp_path):
    place = tmp_path / "a.jsonl"
    append_line(place, "1")
    with place.open("a") as stream:
        stream.write('{"half')
    append_line(place, "2")
    append_line(place, "3")
    assert place.read_text() == '1\n{"half\n2\n3\n'


def test_lines_of_several_writers_do_not_mix(tmp_path):
    place = tmp_path / "a.jsonl"
    writers = [
        threading.Thread(target=lambda letter: [append_line(place, letter * 9000) for _ in range(20)], args=[letter])
        for letter in "abc"
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(place.read_text().splitlines()) == sorted(letter * 9000 for letter in "abc" for _ in range(20))


def test_a_place_that_somebody_holds_is_written_to_after_a_second_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("scalable_kpca.workflow.files.LOCK_SECONDS", 0.05)
    with alone_in(tmp_path), alone_in(tmp_path):
        replace_file(tmp_path / "a.prom", "there")
    assert (tmp_path / "a.prom").read_text() == "there"


# ---------------------------------------------------------------- metrics


def ending(**changes: object) -> Ending:
    return Ending(**({"exit_code": 0, "ended": 1e9, "seconds": 2.5} | changes))  # type: ignore[arg-type]


def test_hostile_names_are_escaped_and_come_back():
    job = 'a"b\\c\nskpca_exit_code{job="x"} 5\n# HELP é'
    text = metrics_text(job, "run", ending())
    again = metrics_text(job, "update", ending(exit_code=70), text)
    assert samples(again, job=job, command="run")["skpca_exit_code", ""] == 0
    assert samples(again, job=job, command="update")["skpca_exit_code", ""] == 70
    assert len(samples(again)) == len(samples(again, job=job))


def test_every_metric_has_a_meaning_and_a_unit_as_prometheus_wants_it():
    model = {
        "n_samples": 7,
        "n_components": 200,
        "n_passes": 4,
        "explained_variance": None,
        "certificate": {"complete": True},
        "eigenvalues": [1.0] * 200,
    }
    text = metrics_text(
        "j",
        "update",
        ending(peak_memory=5, model=model, drift={"mean": math.inf, "psi": 0.1}, landmark_drift=[1.0, math.inf]),
    )
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == set(MEANINGS)
    for name, family in families.items():
        assert (family.type, family.documentation) == ("gauge", MEANINGS[name])
        assert not name.endswith("_total")  # nothing here only grows
    assert 'skpca_drift{command="update",job="j",measure="mean"} +Inf' in text
    assert 'skpca_landmark_drift_ratio{command="update",job="j"} +Inf' in text
    assert math.isnan(samples(text)["skpca_explained_variance_ratio", ""])
    assert len(families["skpca_eigenvalue"].samples) == N_EIGENVALUES


def test_a_failure_keeps_when_it_last_succeeded_through_any_number_of_failures():
    text = metrics_text("j", "run", ending(ended=5.0))
    for ended in (6.0, 7.0):
        text = metrics_text("j", "run", ending(exit_code=75, ended=ended), text)
    assert samples(text)["skpca_last_success_timestamp_seconds", ""] == 5
    assert samples(text)["skpca_last_run_timestamp_seconds", ""] == 7


# ---------------------------------------------------------------- events


def rebuilt(line: str) -> event_v2.RunEvent:
    """An event through the library's own model, which checks times, identifiers and names of fields."""
    fields = json.loads(line)
    classes = {
        "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
        "dataSource": facet_v2.datasource_dataset.DatasourceDatasetFacet,
        "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
        "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
    }

    def facets(found: dict) -> dict:
        made = {}
        for name, facet in found.items():
            own = {key: value for key, value in facet.items() if not key.startswith("_")}
            made[name] = classes[name](**own, producer=facet["_producer"])
            assert made[name]._schemaURL == facet["_schemaURL"]
        return made

    def dataset(kind: type, found: dict, key: str):
        return kind(found["namespace"], found["name"], facets(found[key]), facets=facets(found["facets"]))

    assert fields.pop("schemaURL").endswith("#/$defs/RunEvent")
    return event_v2.RunEvent(
        **fields
        | {
            "eventType": event_v2.RunState(fields["eventType"]),
            "run": event_v2.Run(fields["run"]["runId"], facets(fields["run"]["facets"])),
            "job": event_v2.Job(**fields["job"]),
            "inputs": [dataset(event_v2.InputDataset, found, "inputFacets") for found in fields["inputs"]],
            "outputs": [dataset(event_v2.OutputDataset, found, "outputFacets") for found in fields["outputs"]],
        }
    )


def test_events_are_events_of_the_library(tmp_path):
    attempt = Attempt("space", 'job "é"\n', "run", "f" * 64, 10**18)
    written = Written(tmp_path, [("id", "int64"), ("pc_000", "double")], (5, 600, 1))
    line = event_line("FAIL", attempt, 10**18, [tmp_path / "a b%\udc80.parquet"], written, "no\nroom")
    assert "\n" not in line
    event = rebuilt(line)
    assert event.eventType is event_v2.RunState.FAIL
    assert event.eventTime == "2001-09-09T01:46:40.000+00:00"
    assert event.producer == lineage.producer() == event.inputs[0].facets["dataSource"]._producer
    assert event.producer.startswith("pkg:pypi/scalable-kpca@")
    assert event.inputs[0].facets["dataSource"].uri == f"{tmp_path.as_uri()}/a%20b%25%80.parquet"
    assert event.job.name == 'job "é"\n.run'
    assert event.run.facets["errorMessage"].message == "no\nroom"
    assert rebuilt(event_line("START", attempt, 10**18, [])).outputs == []
    (found,) = rebuilt(event_line("START", attempt, 10**18, named_inputs(["s3://bucket/days/1.parquet"]))).inputs
    assert (found.namespace, found.name) == ("s3://bucket", "days/1.parquet")


def test_a_run_id_belongs_to_a_fingerprint_and_an_attempt():
    ids = {
        Attempt("n", "j", command, fingerprint, started).run_id
        for command in ("run", "update")
        for fingerprint in ("", "a")
        for started in (1, 2)
    }
    assert len(ids) == 8
    assert {uuid.UUID(name).version for name in ids} == {5}
    assert Attempt("n", "j", "run", "a", 1).run_id in ids


def test_more_than_a_hundred_inputs_are_the_directory_that_they_share(tmp_path):
    files = [tmp_path / f"day={day}" / f"{day}.parquet" for day in range(101)]
    assert named_inputs(files[:100]) == files[:100]
    assert named_inputs(files) == [tmp_path]
    assert named_inputs([]) == []
    objects = [f"s3://bucket/days/{number}.parquet" for number in range(101)]
    assert [str(found) for found in named_inputs(objects[:100])] == objects[:100]
    assert [str(found) for found in named_inputs(objects)] == ["s3://bucket/days"]
