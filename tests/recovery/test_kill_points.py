"""SIGKILL before every change of a file in turn, and the same command again: the same bits, and nothing done twice."""

import json
import os
import shutil
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, n_committed, write_job, write_rows
from tests.recovery.zygote import Zygote

# every k-th point here, every one by SKPCA_TEST_KILL_EVERY=1
EVERY = int(os.environ.get("SKPCA_TEST_KILL_EVERY", "5"))
LAST = 12

# the same with more files: a map from scores to rows in the model, and scores in a zarr group
MORE = {"inverse": True, "novelty": True, "output": {"path": "out", "format": "zarr"}}
KINDS = JOBS | {f"{name}, map and zarr": JOBS[name] | MORE for name in ("tiles in memory, ARPACK", "Nyström")}

pytestmark = pytest.mark.timeout(300 if EVERY >= 5 else 3600)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    with Zygote(tmp_path_factory.mktemp("zygote")) as process:
        yield process


def points(changes: int, offset: int) -> list[int]:
    """Every so many changes, and each of the last ones: commit, pointer, journal, lock."""
    return sorted({*range(1 + offset % EVERY, changes + 1, EVERY), *range(changes - LAST, changes + 1)})


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_run_killed_before_any_change_of_a_file_is_finished_by_the_same_command(zygote, tmp_path, name):
    job, output = write_job(tmp_path, KINDS[name]), tmp_path / "out"
    whole = zygote.run("run", str(job), "--json", watched=output)
    assert whole.code == 0, whole.errors
    reference, n_tiles = bits_of(latest_run(output)), n_committed(output)
    killed = points(whole.changes, len(name))
    for kill_at in killed:
        shutil.rmtree(output)
        ended = zygote.run("run", str(job), "--json", watched=output, kill_at=kill_at)
        assert ended.code == -signal.SIGKILL, (kill_at, ended)
        before, was_published = n_committed(output), (output / "latest.json").exists()
        again = zygote.run("run", str(job), "--json", watched=output)
        assert again.code == (99 if was_published else 0), (kill_at, again)
        run = latest_run(output)
        assert bits_of(run) == reference, kill_at
        assert leftovers(output) == [], kill_at
        if not was_published and again.answer["status"] == "done" and KINDS[name].get("gram") == "zarr":
            computed, read = tiles_of(run)  # none is read where the whole pass is replayed from its log
            assert computed == n_tiles - before, kill_at
            assert read in ((before, 0) if before == n_tiles else (before,)), kill_at
    print(f"{len(killed)} kill points of {whole.changes}")  # noqa: T201


def tiles_of(run: Path) -> tuple[int, int]:
    tiles = json.loads((run / "run.json").read_text())["tiles"]
    assert tiles["repaired"] == 0
    return tiles["computed"], tiles["read"]


@pytest.mark.slow
def test_a_killed_run_is_finished_after_another_job_has_taken_over_its_rows_and_tiles(zygote, tmp_path):
    job, output = write_job(tmp_path, JOBS["stored tiles, block Krylov"]), tmp_path / "out"
    whole = zygote.run("run", str(job), "--json", watched=output)
    reference = bits_of(latest_run(output))
    for kill_at in points(whole.changes, 0)[::3]:
        shutil.rmtree(output)
        ended = zygote.run("run", str(job), "--json", watched=output, kill_at=kill_at)
        assert ended.code == -signal.SIGKILL, (kill_at, ended)
        assert zygote.run("run", str(job), "--set", "n_components=2").code == 0, kill_at
        again = zygote.run("run", str(job), "--json")
        assert again.code == 0, (kill_at, again)
        assert bits_of(latest_run(output)) == reference, kill_at
        assert leftovers(output) == [], kill_at


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Nyström", "Nyström, map and zarr"])
def test_an_update_killed_before_any_change_of_a_file_is_finished_by_the_same_command(zygote, tmp_path, name):
    job, output, base = write_job(tmp_path, KINDS[name]), tmp_path / "out", tmp_path / "base"
    assert zygote.run("run", str(job)).code == 0
    write_rows(tmp_path / "more" / "part-2.parquet", 2)
    command = ["update", str(output), "--source", str(tmp_path / "more"), "--withdraw", "part-1.parquet", "--json"]
    output.rename(base)
    shutil.copytree(base, output)
    whole = zygote.run(*command, watched=output)
    assert whole.code == 0, whole.errors
    reference = bits_of(latest_run(output))
    killed = points(whole.changes, 0)
    for kill_at in killed:
        shutil.rmtree(output)
        shutil.copytree(base, output)
        earlier = latest_run(output)
        ended = zygote.run(*command, watched=output, kill_at=kill_at)
        assert ended.code == -signal.SIGKILL, (kill_at, ended)
        assert bits_of(earlier) == bits_of(base / "runs" / earlier.name)
        was_published = latest_run(output) != earlier
        again = zygote.run(*command, watched=output)
        assert again.code == (99 if was_published else 0), (kill_at, again)
        assert bits_of(latest_run(output)) == reference, kill_at
        assert leftovers(output) == [], kill_at
    print(f"{len(killed)} kill points of {whole.changes}")  # noqa: T201


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "n_copies"), [("all", 2), ("results", 0)])
def test_a_run_on_text_killed_before_any_change_of_a_file_leaves_no_half_copy(zygote, tmp_path, keep, n_copies):
    job = write_job(tmp_path, JOBS["Nyström"], source={"uri": "rows", "id": "id"}, keep=keep)
    for file in sorted((tmp_path / "rows").iterdir()):
        csv.write_csv(pq.read_table(file), file.with_suffix(".csv"))
        file.unlink()
    output = tmp_path / "out"
    whole = zygote.run("run", str(job), "--json", watched=output)
    assert whole.code == 0, whole.errors
    reference = bits_of(latest_run(output))
    for kill_at in points(whole.changes, 0):
        shutil.rmtree(output)
        ended = zygote.run("run", str(job), "--json", watched=output, kill_at=kill_at)
        assert ended.code == -signal.SIGKILL, (kill_at, ended)
        again = zygote.run("run", str(job), "--json", watched=output)
        assert again.code in (0, 99), (kill_at, again)
        assert bits_of(latest_run(output)) == reference, kill_at
        assert leftovers(output) == [], kill_at
        assert len(list((output / "tables").iterdir())) == n_copies, kill_at
