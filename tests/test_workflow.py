"""A run publishes what belongs to its input, is repaired by the same command, and refuses what would harm it."""

import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner

from scalable_kpca import machine, plan
from scalable_kpca.cli.failures import NamedErrors
from scalable_kpca.disk import tree_bytes
from scalable_kpca.errors import ConfigError, InvalidInputError, StorageError
from scalable_kpca.workflow import checks, planned, stages
from scalable_kpca.workflow.checks import check_budget, journal_bytes
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.doctor import examine_machine
from scalable_kpca.workflow.engines import settings_of
from scalable_kpca.workflow.inspect import verify_output
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.loading import load_config
from scalable_kpca.workflow.lock import output_lock
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import Outcome, execute, prepare
from tests.support import matching

N_ROWS, TILE_ROWS = 40, 16  # three block rows, six tiles

as_root = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a tmpfs")


def write_source(folder: Path, version: int = 0, n_rows: int = N_ROWS) -> None:
    """Two Parquet files whose ids say which version of the source they are from."""
    rows = np.random.default_rng(version).normal(size=(n_rows, 3))
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for part, wanted in enumerate((slice(0, n_rows // 4), slice(n_rows // 4, n_rows))):
        ids = [f"v{version} row {row}" for row in range(n_rows)[wanted]]
        columns = {"id": ids, "kind": ids} | {f"x{column}": rows[wanted, column] for column in range(3)}
        pq.write_table(pa.table(columns), folder / "data" / f"part-{part}.parquet")


def settings(**changes: object) -> dict[str, object]:
    return {
        "source": {"uri": "data/*.parquet", "id": "id", "features": "x*"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "n_components": 4,
        "gram": "zarr",
        "tile_rows": TILE_ROWS,
        "cluster": {"kind": "synchronous"},
        "output": {"path": "out"},
        **changes,
    }


def run(folder: Path, **changes: object) -> Outcome:
    return execute(prepare(Config.model_validate(settings(**changes)), folder))


def write_config(folder: Path, **changes: object) -> Path:
    path = folder / "job.yaml"
    path.write_text(json.dumps(settings(**changes)))
    return path


def skpca(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scalable_kpca.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def embedding(outcome: Outcome) -> pa.Table:
    parts = sorted((outcome.run.path / "embedding").iterdir())
    return pa.concat_tables([pq.read_table(part) for part in parts])


def scores(outcome: Outcome) -> np.ndarray:
    table = embedding(outcome)
    return np.column_stack([table[name].to_numpy() for name in table.column_names if name.startswith("pc_")])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def garble(file: Path) -> None:
    file.write_text("{")


def replace_by_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def uncommit(outcome: Outcome) -> None:
    """The state of a run that was killed just before it was committed."""
    (outcome.run.path / "COMMIT.json").unlink()
    (outcome.run.path.parents[1] / "latest.json").unlink()


@contextmanager
def small_disk(place: Path, size: str):
    """A file system of its own on `place`."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this process may not mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


# ---------------------------------------------------------------- ids and scores belong together


def test_ids_beside_scores_are_those_of_the_same_version_of_the_source(tmp_path):
    outcomes = []
    for version in range(6):
        write_source(tmp_path, version)
        outcomes.append(run(tmp_path))
    fewer = run(tmp_path, n_components=2)
    for version, outcome in [*enumerate(outcomes), (5, fewer)]:
        assert embedding(outcome)["id"].to_pylist() == [f"v{version} row {row}" for row in range(N_ROWS)]
    assert fewer.fit.build_counts.computed == 0
    np.testing.assert_allclose(scores(fewer), scores(outcomes[5])[:, :2], atol=1e-12)


def test_labels_of_another_version_in_the_place_of_the_right_ones_are_not_used(tmp_path):
    write_source(tmp_path, 1)
    other = run(tmp_path)
    write_source(tmp_path, 2)
    outcome = run(tmp_path)
    uncommit(outcome)
    remove(outcome.run.path / "labels")
    (other.run.path / "labels").rename(outcome.run.path / "labels")
    again = run(tmp_path)
    assert embedding(again)["id"].to_pylist() == [f"v2 row {row}" for row in range(N_ROWS)]


@pytest.mark.parametrize("piece", ["labels", "rows.zarr"])
def test_rows_and_labels_are_taken_over_together_or_not_at_all(tmp_path, piece):
    write_source(tmp_path)
    first = run(tmp_path)
    remove(first.run.path / piece)
    second = run(tmp_path, n_components=2)
    np.testing.assert_allclose(scores(second), scores(first)[:, :2], atol=1e-12)
    assert embedding(second)["id"].equals(embedding(first)["id"])
    assert second.fit.build_counts.computed == 0  # the tiles are still the same


# ---------------------------------------------------------------- a source that changes


@pytest.mark.parametrize("n_rows", [N_ROWS, N_ROWS + 4])
def test_source_that_changes_between_plan_and_copy_publishes_nothing(tmp_path, n_rows):
    write_source(tmp_path, 0)
    prepared = prepare(Config.model_validate(settings()), tmp_path)
    write_source(tmp_path, 1, n_rows)
    with pytest.raises(InvalidInputError, match="the source changed while it was read"):
        execute(prepared)
    assert Output(tmp_path / "out").latest() is None
    assert list((tmp_path / "out").rglob("COMMIT.json")) == []
    assert list((tmp_path / "out").rglob("rows.zarr")) == []
    write_source(tmp_path, 0)
    assert embedding(execute(prepared))["id"][0].as_py() == "v0 row 0"


def test_source_that_loses_a_file_after_the_plan_has_changed(tmp_path):
    write_source(tmp_path)
    prepared = prepare(Config.model_validate(settings()), tmp_path)
    (tmp_path / "data" / "part-1.parquet").unlink()
    with pytest.raises(InvalidInputError, match="the source changed while it was read"):
        execute(prepared)


# ---------------------------------------------------------------- repair

RESULT_FILES = [
    "COMMIT.json",
    "metrics.json",
    "run.json",
    "embedding/part-00001.parquet",
    "model/model.json",
    "model/arrays.zarr/zarr.json",
]


@pytest.mark.slow
@pytest.mark.parametrize("file", RESULT_FILES)
@pytest.mark.parametrize("spoil", [remove, empty, replace_by_directory])
def test_run_in_force_with_a_damaged_result_is_repaired_by_the_same_job(tmp_path, file, spoil):
    write_source(tmp_path)
    first = run(tmp_path)
    expected = scores(first)
    spoil(first.run.path / file)
    again = run(tmp_path)
    assert again.status == "done"
    assert again.fit.build_counts.computed == 0
    assert verify_output(Output(tmp_path / "out")).problems == []
    assert np.array_equal(scores(again), expected)
    assert run(tmp_path).status == "unchanged"


@pytest.mark.slow
def test_flipped_bit_in_a_result_is_found_and_repaired_with_exit_code_0(tmp_path):
    write_source(tmp_path)
    job = write_config(tmp_path)
    assert skpca("run", job).returncode == 0
    flip(next((tmp_path / "out").glob("runs/*/embedding/part-00000.parquet")))
    assert skpca("verify", tmp_path / "out").returncode == 74
    repaired = skpca("run", job)
    assert repaired.returncode == 0, repaired.stderr
    assert "differs from what was committed" in repaired.stderr
    assert skpca("verify", tmp_path / "out").returncode == 0
    assert skpca("run", job).returncode == 99


def test_damaged_run_that_is_no_longer_in_force_is_repaired_before_it_is_put_back(tmp_path):
    write_source(tmp_path)
    first = run(tmp_path)
    run(tmp_path, n_components=2)
    remove(first.run.path / "metrics.json")
    assert run(tmp_path).status == "done"
    assert verify_output(Output(tmp_path / "out")).problems == []


@pytest.mark.parametrize("piece", ["gram.zarr/tiles/c/0/1", "gram.zarr/zarr.json", "rows.zarr/c/1/0", "labels"])
def test_missing_work_in_progress_is_no_problem_of_a_committed_run(tmp_path, piece):
    write_source(tmp_path)
    first = run(tmp_path)
    remove(first.run.path / piece)
    assert run(tmp_path).status == "unchanged"
    assert verify_output(Output(tmp_path / "out")).problems == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("piece", "spoils"),
    [
        ("labels/part-00000.parquet", (remove, empty, flip)),
        ("labels/KEY.json", (remove, garble, empty)),
        ("labels", (remove,)),
        ("rows.zarr/c/1/0", (remove, empty, flip)),
        ("rows.zarr/zarr.json", (remove, garble)),
        ("gram.zarr/zarr.json", (remove, garble, empty)),
        ("gram.zarr/tiles/zarr.json", (remove, garble)),
        ("gram.zarr/row_sums/zarr.json", (remove, garble)),
        ("gram.zarr/tiles/c/1/2", (remove, flip)),
    ],
)
def test_damaged_work_of_an_uncommitted_run_is_made_again(tmp_path, piece, spoils):
    write_source(tmp_path)
    expected = run(tmp_path)
    before = embedding(expected)
    for spoil in spoils:
        uncommit(Outcome(expected.run, "done", None, 0))
        spoil(expected.run.path / piece)
        again = run(tmp_path)
        assert again.status == "done"
        assert embedding(again).equals(before)
        repaired = {"gram.zarr/tiles/c/1/2": 1}.get(piece, 6 if piece.startswith("gram") else 0)
        assert again.fit.build_counts.computed == repaired


@pytest.mark.slow
def test_older_configuration_is_put_back_in_force_with_exit_code_0(tmp_path):
    write_source(tmp_path)
    job = write_config(tmp_path)
    assert skpca("run", job).returncode == 0
    first = Output(tmp_path / "out").latest()
    assert skpca("run", job, "--set", "n_components=2").returncode == 0
    back = skpca("run", job, "--json")
    assert back.returncode == 0
    assert json.loads(back.stdout.splitlines()[-1])["status"] == "restored"
    assert "in force again" in back.stderr
    assert Output(tmp_path / "out").latest() == first
    assert skpca("run", job).returncode == 99


def leave_journal(outcome: Outcome) -> Path:
    """The state of a run that was killed between its publication and the removal of its journal."""
    journal = outcome.run.path / "journal"
    journal.mkdir()
    (journal / "000001.npz").write_bytes(b"a pass")
    return journal


def test_journal_that_a_crash_after_the_publication_left_goes_with_the_next_run(tmp_path):
    write_source(tmp_path)
    first = run(tmp_path)
    journal = leave_journal(first)
    with output_lock(tmp_path / "out" / "LOCK"):
        assert run(tmp_path).status == "unchanged"  # whoever works there is not disturbed
    assert journal.exists()
    assert run(tmp_path).status == "unchanged"
    assert not journal.exists()
    run(tmp_path, n_components=2)
    leave_journal(first)
    assert run(tmp_path).status == "restored"
    assert not journal.exists()
    assert verify_output(Output(tmp_path / "out")).problems == []


def test_package_without_metadata_runs_and_says_that_its_version_is_unknown(tmp_path, monkeypatch):
    def version(name):
        if name == "scalable-kpca":
            raise PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(machine, "version", version)
    monkeypatch.setattr(importlib.metadata, "version", version)
    write_source(tmp_path)
    outcome = run(tmp_path)
    versions = json.loads((outcome.run.path / "run.json").read_text())["versions"]
    assert (versions["scalable-kpca"], versions["numpy"]) == ("unknown", "1")
    assert examine_machine().facts["scalable-kpca"] == "unknown"
    assert plan(20, 2).n_samples == 20


# ---------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("uri", "output", "refused"),
    [
        ("data", "data/out", True),
        ("data", "data/deep/out", True),
        ("data", "data", True),
        ("data", "data/_out", False),
        ("data", "out", False),
        ("data/**/*.parquet", "data/out", True),
        ("data/**/*.parquet", "data/_out", True),
        ("data/*", "data/out", True),
        ("data/*.parquet", "data/out.parquet", True),
        ("data/*.parquet", "data/out", False),
        ("data/*/*.parquet", "data/day=3", False),
        ("data/*/*/*/*/*.parquet", "data/out", True),
        ("data/*/*/*", "data/out", True),
        ("data/part-*.parquet", ".", True),
        ("data/part-0.parquet", "data", True),
        ("data/part-0.parquet", "data/out", False),
        ("../here/data", "data/out", True),
        ("link", "data/out", True),
        ("data", "link/out", True),
    ],
)
def test_output_that_a_later_reading_of_the_source_could_find_is_refused(tmp_path, uri, output, refused):
    here = tmp_path / "here"
    write_source(here)
    depth = uri.count("*/") if "**" not in uri else 0
    if depth:
        shutil.copy(here / "data" / "part-0.parquet", here / "part-0.parquet")
        place = here.joinpath("data", *"abcdef"[:depth])
        place.mkdir(parents=True)
        (here / "part-0.parquet").rename(place / "part-0.parquet")
    (here / "link").symlink_to(here / "data")
    wanted = {"uri": uri, "id": "id", "features": "x*"}
    config = Config.model_validate(settings(source=wanted, output={"path": output}))
    if refused:
        with pytest.raises(ConfigError, match="choose another output"):
            prepare(config, here)
    else:
        outcome = execute(prepare(config, here))
        assert execute(prepare(config, here)).status == "unchanged"
        assert outcome.status == "done"


@pytest.mark.parametrize(
    ("uri", "to", "refused"), [("new", "new/scores", True), ("new/*.parquet", "new/scores", False)]
)
def test_scores_are_not_written_where_the_new_rows_are_sought(tmp_path, uri, to, refused):
    write_source(tmp_path)
    run(tmp_path)
    (tmp_path / "data").rename(tmp_path / "new")
    output = Output(tmp_path / "out")
    if refused:
        with pytest.raises(ConfigError, match="choose another output"):
            transform_source(output, uri, tmp_path, tmp_path / to)
    else:
        assert transform_source(output, uri, tmp_path, tmp_path / to)[0] == N_ROWS


# ---------------------------------------------------------------- disk


@as_root
@pytest.mark.slow
def test_disk_is_needed_only_for_what_is_still_to_be_written(tmp_path):
    n_rows = 400
    disk = tmp_path / "disk"
    changes = {"output": {"path": "disk/out"}, "tile_rows": 50}
    with small_disk(disk, "4M"):
        write_source(tmp_path, n_rows=n_rows)
        job = write_config(tmp_path, **changes)
        filler = disk / "filler"

        def fill(leave: int) -> None:
            filler.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - leave)))

        fill(leave=500_000)  # the tiles alone take 720 kB
        assert skpca("plan", job).returncode == 0
        refused = skpca("run", job)
        assert refused.returncode == 74
        assert "make room" in refused.stderr
        filler.unlink()
        assert skpca("run", job).returncode == 0
        fill(leave=500_000)
        assert skpca("run", job).returncode == 99
        finished = skpca("run", job, "--set", "n_components=2")  # takes rows and tiles over
        assert finished.returncode == 0, finished.stderr


def test_budget_of_disk_counts_for_new_runs_only_and_its_number_is_accepted(tmp_path):
    write_source(tmp_path)
    with pytest.raises(ConfigError, match=r"budget\.disk=1kiB cannot hold .* raise it to") as caught:
        run(tmp_path, budget={"disk": "1kiB"})
    assert not (tmp_path / "out").exists()
    named = int(str(caught.value).rstrip(".").rsplit(" ", 1)[1])
    with pytest.raises(ConfigError):
        run(tmp_path, budget={"disk": named - 1})
    assert run(tmp_path, budget={"disk": named}).status == "done"
    assert run(tmp_path, budget={"disk": "1kiB"}).status == "unchanged"


@pytest.mark.parametrize("solver", ["dense", "block_krylov", "arpack", "power"])
def test_budget_and_room_count_a_journal_as_large_as_it_becomes(tmp_path, monkeypatch, solver):
    write_source(tmp_path)
    changes = {"solver": {"name": solver}}
    prepared = prepare(Config.model_validate(settings(**changes)), tmp_path)
    plan, rows = prepared.plan, N_ROWS * 3 * 8
    needed = 2 * rows + plan.gram_bytes + journal_bytes(plan)
    with pytest.raises(ConfigError, match=f"of rows, tiles and journal; raise it to {needed}"):
        run(tmp_path, budget={"disk": needed - 1}, **changes)
    free = needed + 16 * N_ROWS * plan.n_components - 1  # the file system must take eigenvectors and scores too
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(StorageError, match="free, the rows, tiles, journal, model and scores to be written need"):
        execute(prepared)
    free += 1
    monkeypatch.setattr(stages, "remove_tree", lambda _: None)  # the journal stays to be looked at
    outcome = execute(prepared)
    records = list((outcome.run.path / "journal").iterdir())
    assert len(records) <= plan.expected_passes
    described = 2048  # names, dtypes, digests and checksums of a record
    assert 0 < tree_bytes(outcome.run.path / "journal") <= journal_bytes(plan) + described * len(records)


def test_tiles_are_planned_for_a_disk_that_the_journal_fits_on_too(tmp_path, monkeypatch):
    write_source(tmp_path)
    asked = []

    def stand_in(*arguments, disk_limit, calibrate, **choices):
        asked.append((disk_limit, calibrate))
        found = plan(*arguments, disk_limit=disk_limit, **choices)
        return replace(found, gram="zarr" if disk_limit >= tiles else "recompute", gram_bytes=tiles)

    tiles, rows = 10_000, 2 * N_ROWS * 3 * 8
    journal = journal_bytes(prepare(Config.model_validate(settings()), tmp_path).plan)
    monkeypatch.setattr(planned, "plan", stand_in)
    for spare, home in ((journal, "zarr"), (journal - 1, "recompute")):
        asked.clear()
        config = Config.model_validate(settings(gram="auto", budget={"disk": rows + tiles + spare}))
        prepared = prepare(config, tmp_path)
        assert prepared.plan.gram == home
        check_budget(config, prepared.plan, prepared.source)
    assert asked == [(tiles + journal - 1, "large"), (tiles - 1, "never")]


@pytest.mark.slow
@as_root
def test_output_that_has_become_read_only_is_a_storage_error(tmp_path):
    disk = tmp_path / "disk"
    with small_disk(disk, "8M"):
        write_source(tmp_path)
        job = write_config(tmp_path, output={"path": "disk/out"})
        assert skpca("run", job).returncode == 0
        next(disk.glob("out/runs/*/COMMIT.json")).unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        finished = skpca("run", job)
    assert finished.returncode == 74, finished.stderr
    assert "Read-only file system" in finished.stderr
    assert "Traceback" not in finished.stderr


# ---------------------------------------------------------------- exit codes


def test_error_that_nobody_foresaw_exits_70_with_its_traceback_and_asks_for_a_report():
    group = NamedErrors("group")

    @group.command()
    def divide() -> None:
        click.echo(1 // 0)

    result = CliRunner().invoke(group, ["divide"])
    assert result.exit_code == 70
    assert "ZeroDivisionError: integer division or modulo by zero" in result.stderr
    assert "in divide" in result.stderr
    assert "this is a bug in skpca" in result.stderr
    assert "report it" in result.stderr


@pytest.mark.parametrize("arguments", [["absent"], ["divide", "--nonsense"]])
def test_usage_errors_still_exit_2(arguments):
    group = NamedErrors("group")
    group.command("divide")(lambda: None)
    assert CliRunner().invoke(group, arguments).exit_code == 2


def test_signals_are_as_they_were_after_a_command():
    before = signal.getsignal(signal.SIGTERM)
    group = NamedErrors("group")
    group.command("divide")(lambda: click.echo(signal.getsignal(signal.SIGTERM) is before))
    assert CliRunner().invoke(group, ["divide"]).output == "False\n"
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("spoil", [remove, garble, empty])
def test_transform_with_a_damaged_description_of_the_run_is_a_storage_error(tmp_path, spoil):
    write_source(tmp_path)
    outcome = run(tmp_path)
    spoil(outcome.run.path / "run.json")
    with pytest.raises(StorageError, match=r"run\.json"):
        transform_source(Output(tmp_path / "out"), "data/*.parquet", tmp_path, tmp_path / "new")


def test_columns_with_the_names_of_scores_are_refused_in_the_plan(tmp_path):
    write_source(tmp_path)
    for file in (tmp_path / "data").iterdir():
        pq.write_table(pq.read_table(file).rename_columns(["id", "pc_003", "x0", "x1", "x2"]), file)
    source = {"uri": "data", "id": "id", "features": "x*", "passthrough": "pc_003"}
    for n_components in (4, 0.5, None):
        config = Config.model_validate(settings(source=source, n_components=n_components))
        with pytest.raises(ConfigError, match=r"columns pc_003 of .* have the names of scores"):
            prepare(config, tmp_path)
    assert embedding(run(tmp_path, source=source, n_components=3)).column_names[:3] == ["id", "pc_003", "pc_000"]


def test_failed_transform_leaves_nothing(tmp_path):
    write_source(tmp_path)
    run(tmp_path)
    file = tmp_path / "data" / "part-1.parquet"
    table = pq.read_table(file)
    pq.write_table(table.set_column(2, "x0", pa.array([np.nan] * len(table))), file)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(InvalidInputError, match="NaN"):
        transform_source(Output(tmp_path / "out"), "data", tmp_path, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_bare_arrays_of_any_name_are_fitted_and_scored(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 3))
    zarr.create_array(str(tmp_path / "matrix"), shape=X.shape, chunks=(8, 3), dtype="float64")[...] = X
    outcome = run(tmp_path, source={"uri": "matrix"})
    assert embedding(outcome)["row"].to_pylist() == list(range(20))
    assert transform_source(Output(tmp_path / "out"), "matrix", tmp_path, tmp_path / "new")[0] == 20
    np.testing.assert_allclose(pq.read_table(tmp_path / "new")["pc_000"].to_numpy(), scores(outcome)[:, 0], atol=1e-12)


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("kernel.gama=1", r"did you mean 'gamma'\?$"),
        (
            "budget.memory=lots",
            r"job\.yaml: budget\.memory: 'lots' is not a size; give bytes or text such as \"4GiB\"\.$",
        ),
        ("budget.disk=-1", r"budget\.disk: -1 is not a size"),
        ("budget.disk=true", r"budget\.disk: a truth value means nothing here, found True\.$"),
        ("n_components=true", r"n_components: a truth value means nothing here, found True\.$"),
        ("n_components=yes", r"n_components: a truth value"),
        ("kernel.gamma=on", r"kernel\.gamma: a truth value"),
        ("seed=false", r"seed: a truth value"),
        ("n_components=0", r"n_components"),
    ],
)
def test_errors_of_a_configuration_name_the_key_and_end_once(tmp_path, override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(write_config(tmp_path), [override])


def test_numbers_as_yaml_writes_them_are_numbers(tmp_path):
    config = load_config(write_config(tmp_path), ["solver.tol=1e-6", "budget.memory=4GiB", "n_components=0.5"])
    assert (config.solver.tol, config.budget.memory, config.n_components) == (1e-6, "4GiB", 0.5)


# ---------------------------------------------------------------- schedulers


@contextmanager
def scheduler(n_workers: int):
    """A real Dask scheduler with worker processes on the loopback interface: its address and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-m", "dask"]
    options = ["--host", "127.0.0.1", "--port", address.rsplit(":", 1)[1], "--no-dashboard"]
    processes = [subprocess.Popen([*dask, "scheduler", *options], **quiet)]
    worker = [*dask, "worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    processes += [subprocess.Popen(worker, **quiet) for _ in range(n_workers)]
    try:
        wait_until(lambda: accepts(address), 30)
        yield address, processes[0]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def accepts(address: str) -> bool:
    host, port = address.removeprefix("tcp://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def wait_until(reached, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.mark.slow
def test_scheduler_killed_in_mid_run_exits_69_and_the_same_command_finishes(tmp_path):
    write_source(tmp_path, n_rows=600)
    job = write_config(tmp_path, tile_rows=15)
    with scheduler(1) as (address, process):
        command = [sys.executable, "-m", "scalable_kpca.cli", "run", str(job), "--scheduler", address]
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: len(matching(tmp_path, "out/runs/*/gram.zarr/row_sums/c/*/*/0")) > 20, 60)
        process.kill()
        _, stderr = started.communicate(timeout=100)
    assert started.returncode == 69, stderr
    assert f"lost the connection to the Dask scheduler at {address}" in stderr
    assert "Traceback" not in stderr
    assert "tiles: 820 of 820" not in stderr
    assert not (tmp_path / "out" / "LOCK").exists()
    finished = skpca("run", job, "--json")
    assert finished.returncode == 0, finished.stderr
    result = json.loads((Output(tmp_path / "out").latest().path / "run.json").read_text())
    assert result["tiles"]["read"] > 5


@pytest.mark.slow
def test_scheduler_without_workers_exits_69_after_the_time_to_wait(tmp_path):
    write_source(tmp_path)
    job = write_config(tmp_path)
    with scheduler(0) as (address, _):
        finished = skpca("run", job, "--scheduler", address, "--set", "cluster.wait=0.5")
    assert finished.returncode == 69
    assert f"the Dask scheduler at {address} has no worker after 0.5 s" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert settings_of(Config.model_validate(settings()).cluster).seconds == 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("nonsense", 78, "cluster.address=nonsense is no address"),
        ("nowhere://here:1", 78, "cluster.address=nowhere://here:1 is no address"),
        ("tcp://127.0.0.1:1", 69, "no Dask scheduler answers at tcp://127.0.0.1:1"),
        pytest.param(
            *("tcp://no.such.host.invalid:1", 69, "no Dask scheduler answers at tcp://no.such.host.invalid:1"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_address_of_no_scheduler_is_refused_with_one_line(tmp_path, address, code, words):
    write_source(tmp_path)
    finished = skpca("run", write_config(tmp_path), "--scheduler", address)
    assert finished.returncode == code
    assert words in finished.stderr
    assert len(finished.stderr.splitlines()) == 1


@pytest.mark.slow
def test_sigterm_ends_a_run_below_the_dask_command_with_75(tmp_path):
    write_source(tmp_path, n_rows=600)
    job = write_config(tmp_path, tile_rows=15)
    command = [sys.executable, "-m", "dask", "skpca", "run", str(job)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(matching(tmp_path, "out/runs/*/gram.zarr/row_sums/c/*/*/0")) > 20, 60)
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75, stderr
    assert "the same command resumes" in stderr
    assert not (tmp_path / "out" / "LOCK").exists()


@pytest.mark.slow
def test_sizes_are_counted_while_another_process_removes_files(tmp_path):
    """As two runs of one output do: one plans, and counts what earlier work takes, while the other one tidies up."""
    program = (
        "import shutil, sys; from pathlib import Path\n"
        "place = Path(sys.argv[1])\n"
        "while not (place / 'end').exists():\n"
        "    for name in range(40):\n"
        "        (place / 'a' / str(name)).mkdir(parents=True); (place / 'a' / str(name) / 'x').write_bytes(b'1234')\n"
        "    shutil.rmtree(place / 'a')\n"
    )
    (tmp_path / "stays").write_bytes(b"12345")
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as busy:
        deadline, sizes = time.monotonic() + 3, set()
        try:
            while time.monotonic() < deadline:
                sizes.add(tree_bytes(tmp_path))
        finally:
            (tmp_path / "end").touch()
    assert busy.returncode == 0
    assert len(sizes) >= 3  # it was counted at different moments
    assert min(sizes) >= 5
