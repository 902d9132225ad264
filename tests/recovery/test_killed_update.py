"""Real kill −9 of a Nyström run and of an update, at named points; the old version stays, the same command finishes."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca import load_model
from scalable_kpca.workflow.layout import Output

N_FILES, FILE_ROWS, D = 33, 300, 2  # spans never cross files: 33 of them, two waves
ROWS = N_FILES * FILE_ROWS

# what a process does before it kills itself: the function that is replaced, and how often it still works
POINTS = {
    "before the landmarks are kept": ("scalable_kpca.workflow.streamed.write_record", 0),
    "before the first wave of sums is kept": ("scalable_kpca.nystroem.checkpoint.write_record", 0),
    "after the first wave of sums": ("scalable_kpca.nystroem.checkpoint.write_record", 1),
    "after the sums": ("scalable_kpca.approximate.solve_spectrum", 0),
    "after the model": ("scalable_kpca.workflow.parts.PartWriter.add", 0),
    "in the middle of the scores": ("scalable_kpca.workflow.parts.PartWriter.add", 5),
    "before the commit": ("scalable_kpca.workflow.publishing.Writer.commit", 0),
    "between commit and pointer": ("scalable_kpca.workflow.publishing.Writer.point_to", 0),
}

KILLER = """
import os, signal, sys
from importlib import import_module
place, works = sys.argv[1], int(sys.argv[2])
if place:
    owner, name = place.rsplit(".", 1)
    try:
        owner = import_module(owner)
    except ModuleNotFoundError:
        module, cls = owner.rsplit(".", 1)
        owner = getattr(import_module(module), cls)
    function, calls = getattr(owner, name), iter(range(10**9))
    def killed(*arguments, **options):
        if next(calls) >= works:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    setattr(owner, name, killed)
from scalable_kpca.cli import skpca
skpca(sys.argv[3:])
"""


def command(*arguments, point=None):
    place, works = POINTS[point] if point else ("", 0)
    asked = [sys.executable, "-c", KILLER, place, str(works), *map(str, arguments)]
    return subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)


def write_rows(folder: Path, seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((ROWS, D)).astype(np.float32)
    folder.mkdir()
    table = pa.table({"id": np.arange(ROWS)} | {f"x{column}": rows[:, column] for column in range(D)})
    for file in range(N_FILES):
        pq.write_table(table.slice(file * FILE_ROWS, FILE_ROWS), folder / f"part-{file}.parquet")


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A job, its reference run, new partitions, and a reference update."""
    folder = tmp_path_factory.mktemp("job")
    write_rows(folder / "base", 0)
    write_rows(folder / "new", 1)
    for output in ("reference", "out"):
        config = {
            "source": {"uri": "base/*.parquet", "id": "id"},
            "kernel": {"name": "rbf", "gamma": 0.5},
            "method": "nystroem",
            "nystroem": {"n_landmarks": 30},
            "n_components": 2,
            "output": {"path": output},
        }
        (folder / f"{output}.yaml").write_text(json.dumps(config))
    assert command("run", folder / "reference.yaml").returncode == 0
    shutil.copytree(folder / "reference", folder / "before")
    assert command("update", folder / "reference", "--source", folder / "new").returncode == 0
    return folder


def bits(run: Path) -> dict[str, bytes]:
    names = [run / "metrics.json", *sorted((run / "embedding").iterdir()), *sorted((run / "model").rglob("*"))]
    return {str(file.relative_to(run)): file.read_bytes() for file in names if file.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_run_goes_on_where_it_was_and_gives_the_same_bits(template, point):
    shutil.rmtree(template / "out", ignore_errors=True)
    assert command("run", template / "out.yaml", point=point).returncode == -signal.SIGKILL
    assert not (template / "out" / "latest.json").exists()
    assert command("run", template / "out.yaml").returncode == 0
    run = Output(template / "out").require_latest().path
    assert bits(run) == bits(Output(template / "before").require_latest().path)
    described = json.loads((run / "run.json").read_text())
    resumed = {"after the first wave of sums": 32, "before the landmarks are kept": 0}
    assert described["resumed_spans"] == resumed.get(point, described["resumed_spans"])
    assert list((template / "out").rglob("*.partial")) == []
    assert not (run / "journal").exists()


@pytest.mark.slow
@pytest.mark.parametrize("point", [point for point in POINTS if "landmarks" not in point])
def test_killed_update_leaves_the_old_version_in_force_and_a_rerun_completes(template, point):
    shutil.rmtree(template / "out", ignore_errors=True)
    shutil.copytree(template / "before", template / "out")
    old = Output(template / "out").require_latest()
    before = bits(old.path)
    asked = ("update", template / "out", "--source", template / "new")
    assert command(*asked, point=point).returncode == -signal.SIGKILL
    assert Output(template / "out").require_latest().path == old.path
    assert old.problems() == []
    assert bits(old.path) == before
    assert load_model(old.path / "model").n_samples == ROWS
    finished = command(*asked)
    assert finished.returncode == 0, finished.stderr
    run = Output(template / "out").require_latest()
    assert run.problems() == []
    assert bits(run.path) == bits(Output(template / "reference").require_latest().path)
    assert load_model(run.path / "model").n_samples == 2 * ROWS
    resumed = json.loads((run.path / "run.json").read_text())["resumed_spans"]
    # a partition has one span here: that of the first one is kept, and then the process dies
    assert resumed == {"after the first wave of sums": 1, "before the first wave of sums is kept": 0}.get(
        point, resumed
    )
    assert command(*asked).returncode == 99
