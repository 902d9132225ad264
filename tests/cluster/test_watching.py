"""What others see of a run on a cluster: dask's performance report, and the metrics that workers serve."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest
from distributed import Client
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.processes import Cluster, begin, skpca, wait_until
from tests.recovery.jobs import JOBS, bits_of, latest_run, n_tiles, write_job

pytestmark = pytest.mark.slow

STORED = {**JOBS["stored tiles, block Krylov"], "tile_rows": 10}
LOCAL = {"kind": "local", "n_workers": 2, "n_threads": 1}
OLD = "the report of another run"


def reported(page: Path) -> dict[str, int]:
    """Numbers of a report's summary, whose page is whole."""
    text = page.read_text()
    assert text.rstrip().endswith("</html>")
    assert "Dask Performance Report" in text
    assert not re.search(r'<script[^>]+src=|<link rel="stylesheet"', text)  # it is whole by itself
    return {name: int(re.search(rf"{name}: (\d+)", text)[1]) for name in ("number of tasks", "Workers")}


def workers_of(output: Path) -> list[dict]:
    return json.loads((latest_run(output) / "run.json").read_text())["workers"]


def left_beside(page: Path) -> list[str]:
    return [path.name for path in page.parent.iterdir() if path.name.endswith(".new")]


# ---------------------------------------------------------------- performance report


def test_a_report_tells_of_the_tasks_and_of_what_they_were_at_and_changes_no_bit(tmp_path):
    assert skpca("run", write_job(tmp_path, STORED, output={"path": "reference"})).returncode == 0
    page = tmp_path / "page.html"
    page.write_text(OLD)
    job = write_job(tmp_path, STORED, cluster=LOCAL, monitor={"performance_report": "page.html"})
    done = skpca("run", job)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    found = reported(page)
    assert found["Workers"] == 2
    assert found["number of tasks"] >= sum(worker["tasks"] for worker in workers_of(tmp_path / "out")) > 10
    assert "_attempt_alike" in page.read_text()  # of the profile: which of our functions ran
    assert left_beside(page) == []
    assert bits_of(latest_run(tmp_path / "out")) == bits_of(latest_run(tmp_path / "reference"))

    page.write_text(OLD)
    assert skpca("run", job).returncode == 99
    assert page.read_text() == OLD  # there were no tasks


def test_an_update_reports_where_its_own_command_asks_for_that(tmp_path):
    write_job(tmp_path, JOBS["Nyström"])
    for name in ("first", "later"):
        (tmp_path / name).mkdir()
    (tmp_path / "rows" / "part-0.parquet").rename(tmp_path / "first" / "0.parquet")
    (tmp_path / "rows" / "part-1.parquet").rename(tmp_path / "later" / "1.parquet")
    job = write_job(
        tmp_path,
        JOBS["Nyström"],
        source={"uri": "first", "id": "id"},
        cluster=LOCAL,
        monitor={"performance_report": "page.html"},
    )
    assert skpca("run", job).returncode == 0
    page = tmp_path / "page.html"
    assert reported(page)["Workers"] == 2
    page.write_text(OLD)
    update = ("update", tmp_path / "out", "--source", tmp_path / "later", "--set", "drift.warn=99")
    assert skpca(*update).returncode == 0  # on threads, and what the output says of a report is not heard
    assert page.read_text() == OLD
    own = tmp_path / "own.html"
    asked = ("--set", f"monitor.performance_report={own}")
    refused = skpca(*update, *asked)
    assert refused.returncode == 78
    assert "cluster.kind is threads" in refused.stderr
    away = ("update", tmp_path / "out", "--withdraw", "1.parquet", *asked, "--set", f"cluster={json.dumps(LOCAL)}")
    done = skpca(*away)
    assert done.returncode == 0, done.stderr
    assert reported(own)["Workers"] == 2
    scored = skpca("transform", tmp_path / "out", "--source", tmp_path / "later", "--to", tmp_path / "scores", *asked)
    assert scored.returncode == 78
    assert "transform has none: rows are scored in this process" in scored.stderr
    assert page.read_text() == OLD


def test_a_report_that_cannot_be_written_is_a_warning_and_a_scheduler_that_draws_none_is_refused(tmp_path):
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text("import sys\nsys.modules['bokeh'] = None\n")
    without = {"PYTHONPATH": os.pathsep.join([str(tmp_path / "without"), str(Path(__file__).parents[2])])}
    (tmp_path / "taken.html").mkdir()
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(1)
        section = {"kind": "address", "address": cluster.address}
        for place, reason in (("taken.html", "directory"), ("gone/page.html", "No such file or directory")):
            job = write_job(tmp_path, STORED, seed=len(place), cluster=section, monitor={"performance_report": place})
            done = skpca("run", job)
            assert done.returncode == 0, done.stderr
            assert re.search(rf"{place} was not written: .*{reason}; the job itself is not touched", done.stderr)
        assert left_beside(tmp_path / "taken.html") == []
        good = write_job(tmp_path, STORED, seed=99, cluster=section, monitor={"performance_report": "page.html"})
        assert skpca("run", good).returncode == 0
        assert reported(tmp_path / "page.html")["Workers"] == 1
    (tmp_path / "other").mkdir()
    with Cluster(tmp_path / "other", environment=without) as cluster:
        cluster.start_workers(1)
        section = {"kind": "address", "address": cluster.address}
        job = write_job(
            tmp_path, STORED, output={"path": "new"}, cluster=section, monitor={"performance_report": "page.html"}
        )
        refused = skpca("run", job)
    assert refused.returncode == 78, refused.stderr
    assert f"that at {section['address']} has no bokeh" in refused.stderr
    assert "tiles: " not in refused.stderr  # nothing has been computed


def test_of_a_run_that_fails_there_is_a_report_and_of_one_that_is_stopped_the_old_one_stays(tmp_path):
    page = tmp_path / "page.html"
    fields = {**STORED, "cluster": LOCAL, "monitor": {"performance_report": "page.html"}}
    gives_up = {"name": "block_krylov", "max_passes": 1, "tol": 1e-14}
    failed = skpca("run", write_job(tmp_path, fields, solver=gives_up, output={"path": "failed"}))
    assert failed.returncode == 65, failed.stderr
    assert "in max_passes=1 passes" in failed.stderr
    assert reported(page)["number of tasks"] > 10
    page.write_text(OLD)
    running = begin("run", write_job(tmp_path, fields, tile_rows=1))
    wait_until(lambda: n_tiles(tmp_path / "out") or running.poll() is not None)
    running.send_signal(signal.SIGTERM)
    stopped = running.finish()
    assert stopped.returncode == 75, stopped.stderr
    assert page.read_text() == OLD
    assert left_beside(page) == []


# ---------------------------------------------------------------- metrics


def scraped(url: str) -> dict[str, float]:
    """Sums over labels of what a page of metrics says."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


@pytest.mark.parametrize("name", ["tiles in memory, ARPACK", "Nyström"])
def test_prometheus_finds_at_each_worker_what_the_run_says_of_it(tmp_path, name):
    with Cluster(tmp_path) as cluster:
        cluster.start_workers(2)
        section = {"kind": "address", "address": cluster.address, "wait_for": 2}
        done = skpca("run", write_job(tmp_path, JOBS[name], cluster=section))
        assert done.returncode == 0, done.stderr
        with Client(cluster.address, set_as_default=False) as client:
            found = client.scheduler_info(n_workers=-1)
        pages = {
            address: scraped(f"http://127.0.0.1:{worker['services']['dashboard']}/metrics")
            for address, worker in found["workers"].items()
        }
        scheduler = scraped(f"http://127.0.0.1:{found['services']['dashboard']}/metrics")
    assert scheduler["dask_scheduler_workers"] == 2
    workers = workers_of(tmp_path / "out")
    assert {worker["address"] for worker in workers} == set(pages)
    assert sum(worker["tasks"] for worker in workers) > 4
    for worker in workers:
        page = pages[worker["address"]]
        assert page["dask_worker_threads"] == 1
        assert page.get("skpca_worker_tasks_total", 0) == worker["tasks"]
        assert page.get("skpca_worker_task_seconds_total", 0) == pytest.approx(worker["seconds"], abs=1e-3)
