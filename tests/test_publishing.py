"""Who may put results in force, what is kept of an output afterwards, and how a lock is given back."""

import hashlib
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scalable_kpca.errors import InvalidInputError, LockedError, StorageError
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.loading import load_config
from scalable_kpca.workflow.lock import output_lock
from scalable_kpca.workflow.owner import process_identity
from scalable_kpca.workflow.publishing import writing
from scalable_kpca.workflow.stages import execute, prepare
from scalable_kpca.workflow.update import update_output
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job, write_rows
from tests.recovery.zygote import Zygote
from tests.support import matching

STORED = JOBS["stored tiles, block Krylov"]
NYSTROEM = JOBS["Nyström"]


def run_job(job: Path, *overrides: str) -> Path:
    return execute(prepare(load_config(job, overrides), job.parent)).run.path


def skpca(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scalable_kpca.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def take_away(output: Path) -> None:
    """What a person does who believes that the owner of the lock is dead."""
    (output / "LOCK").unlink()


# ---------------------------------------------------------------- fences


def test_each_writer_has_a_higher_number_than_whoever_published_before(tmp_path):
    job = write_job(tmp_path, STORED)
    runs = [run_job(job, f"n_components={k}") for k in (1, 2, 3)]
    numbers = [json.loads((run / "COMMIT.json").read_text())["fence"] for run in runs]
    assert numbers == [1, 2, 3]
    assert json.loads((tmp_path / "out" / "latest.json").read_text())["fence"] == 3
    run_job(job, "n_components=1")  # restored, by a writer of its own
    assert json.loads((tmp_path / "out" / "latest.json").read_text()) == {"run": runs[0].name, "fence": 4}


@pytest.mark.parametrize("pointer", ["gone", "damaged"])
def test_a_lost_pointer_does_not_set_the_numbers_back(tmp_path, pointer):
    job, place = write_job(tmp_path, STORED), tmp_path / "out" / "latest.json"
    run_job(job, "n_components=1")
    run_job(job, "n_components=2")
    place.unlink() if pointer == "gone" else place.write_text("{")
    run_job(job, "n_components=3")
    assert json.loads(place.read_text())["fence"] == 3


def test_a_writer_whose_lock_was_taken_away_publishes_nothing(tmp_path):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    run = run_job(job)
    output = Output(out)
    with writing(output, output.run(run.name)) as sleeper:
        take_away(out)
        with writing(output, output.run(run.name)) as owner:
            for forbidden in (sleeper.withdraw, sleeper.commit, sleeper.point_to):
                with pytest.raises(LockedError, match="was taken away from this process"):
                    forbidden(output.run(run.name))
            owner.point_to(output.run(run.name))
        with pytest.raises(LockedError, match="was taken away"):
            sleeper.require()
    assert output.latest() is not None
    assert leftovers(out) == []


def test_a_writer_that_slept_while_another_published_is_refused_by_its_number(tmp_path):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    run = Output(out).run(run_job(job).name)
    output = Output(out)
    with writing(output, run) as sleeper:
        own = (out / "LOCK").rename(out / "moved")  # by hand, and put back later
        with writing(output, run) as owner:
            owner.point_to(run)
        own.rename(out / "LOCK")
        with pytest.raises(LockedError, match="was written by another run, number 2, while this one, number 2, slept"):
            sleeper.point_to(run)


@pytest.mark.parametrize(("is_lost", "error", "words"), [
    (True, LockedError, "was taken away from this process"),
    (False, StorageError, "half written"),
])  # fmt: skip
def test_a_write_that_fails_since_the_lock_was_lost_says_that_it_was_lost(tmp_path, is_lost, error, words):
    output = Output(tmp_path / "out")
    run = output.run(run_job(write_job(tmp_path, STORED)).name)

    def fail():
        with writing(output, run):
            if is_lost:
                output.lock.unlink()
            raise StorageError("what was half written is gone")

    with pytest.raises(error, match=words):
        fail()


@pytest.mark.slow
def test_a_run_that_was_stopped_and_lost_its_lock_leaves_the_other_runs_results_alone(tmp_path):
    """SIGSTOP in the middle, the lock removed by force, the same job by another process, SIGCONT."""
    job = write_job(tmp_path, {**STORED, "tile_rows": 2})
    out = tmp_path / "out"
    command = [sys.executable, "-m", "scalable_kpca.cli", "run", str(job)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(matching(out, "runs/*/gram.zarr/row_sums/c/*/*/0")) < 40 and time.monotonic() < deadline:
        time.sleep(0.001)
    first.send_signal(signal.SIGSTOP)
    try:
        assert skpca("unlock", out).returncode == 75
        assert skpca("unlock", out, "--force").returncode == 0
        assert skpca("run", job).returncode == 0
        bits, pointer = bits_of(latest_run(out)), (out / "latest.json").read_bytes()
    finally:
        first.send_signal(signal.SIGCONT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 75, errors
    assert "was taken away from this process" in errors
    assert (bits_of(latest_run(out)), (out / "latest.json").read_bytes()) == (bits, pointer)
    assert skpca("verify", out).returncode == 0


# ---------------------------------------------------------------- retention


def names(output: Path) -> set[str]:
    return {run.name for run in (output / "runs").iterdir()}


def test_keep_results_removes_rows_tiles_and_journals_of_committed_runs_only(tmp_path):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    first = run_job(job, "n_components=1")
    unfinished = out / "runs" / ("f" * 64) / "gram.zarr"
    unfinished.mkdir(parents=True)
    second = run_job(job, "n_components=2", "keep=results")
    results = {"model", "embedding", "metrics.json", "run.json", "profile.json", "COMMIT.json"}
    assert {path.name for path in first.iterdir()} == results
    assert {path.name for path in second.iterdir()} == results
    assert unfinished.is_dir()
    assert skpca("verify", out).returncode == 0
    assert execute(prepare(load_config(job, ["n_components=2"]), job.parent)).status == "unchanged"


def test_keep_a_number_keeps_the_last_runs_that_were_published(tmp_path):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    runs = [run_job(job, f"n_components={k}") for k in (1, 2, 3)]
    (out / "runs" / ("f" * 64)).mkdir()
    last = run_job(job, "n_components=4", "keep=2")
    assert names(out) == {runs[2].name, last.name}
    assert latest_run(out) == last
    assert Output(out).run(runs[2].name).problems() == []


def test_keep_all_is_the_default(tmp_path):
    job = write_job(tmp_path, STORED)
    first, second = (run_job(job, f"n_components={k}") for k in (1, 2))
    assert names(tmp_path / "out") == {first.name, second.name}
    assert (second / "gram.zarr").is_dir()  # taken over from the first


def test_an_update_keeps_the_runs_that_hold_the_scores_it_goes_on_with(tmp_path):
    job, out = write_job(tmp_path, NYSTROEM), tmp_path / "out"
    unrelated, base = run_job(job, "n_components=1"), run_job(job)
    kept = {base.name}
    for seed in (2, 3):
        write_rows(tmp_path / f"more-{seed}" / f"part-{seed}.parquet", seed)
        done = update_output(Output(out), f"more-{seed}", tmp_path, overrides=["keep=1"])
        kept.add(done.run.fingerprint)
        assert names(out) == kept
    assert unrelated.name not in kept


# ---------------------------------------------------------------- the directory and its lock


def test_run_directories_are_private(tmp_path):
    run = run_job(write_job(tmp_path, STORED))
    assert [stat.S_IMODE(place.stat().st_mode) for place in (run, run.parent)] == [0o700, 0o700]


def test_unlock_removes_the_lock_of_a_dead_process_and_nothing_else(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (tmp_path / "LOCK").write_text(json.dumps(process_identity(child.pid)))
        refused = skpca("unlock", tmp_path)
        assert refused.returncode == 75
        assert f"held by process {child.pid} on {socket.gethostname()}, whose death is not proven" in refused.stderr
        child.communicate(b"\n")
    assert skpca("unlock", tmp_path).returncode == 0
    again = skpca("unlock", tmp_path, "--json")
    assert (again.returncode, json.loads(again.stdout)) == (99, {"status": "unchanged", "owner": None})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["garbage", '{"host": "another-host", "pid": 1}', "[" * 100_000])
def test_unlock_by_force_removes_what_cannot_be_proven(tmp_path, content):
    (tmp_path / "LOCK").write_text(content)
    assert skpca("unlock", tmp_path).returncode == 75
    assert skpca("unlock", tmp_path, "--force").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_a_link_is_nobodys_and_its_target_is_not_touched(tmp_path):
    out, target = tmp_path / "out", tmp_path / "target"
    out.mkdir()
    dead = json.dumps({**process_identity(os.getpid()), "started": 0})
    target.write_text(dead)
    (out / "LOCK").symlink_to(target)
    with pytest.raises(LockedError, match="process \\? on an unknown host"), output_lock(out / "LOCK"):
        pass
    assert skpca("unlock", out, "--force").returncode == 0
    assert target.read_text() == dead
    assert not (out / "LOCK").is_symlink()


def test_a_lock_that_would_never_end_to_be_read_is_refused(tmp_path):
    os.mkfifo(tmp_path / "LOCK")
    with (
        pytest.raises(StorageError, match="is no file, and the lock is a file of that name"),
        output_lock(tmp_path / "LOCK"),
    ):
        pass


# ---------------------------------------------------------------- together


@pytest.mark.slow
def test_of_two_runs_started_together_one_proceeds_and_the_other_names_it(tmp_path):
    """Fifty times: exit codes 0 and 75, or 0 and 99 where the second one came after the first had ended."""
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    seen = []
    for name in "ab":
        (tmp_path / name).mkdir()
    with Zygote(tmp_path / "a") as first, Zygote(tmp_path / "b") as second:
        for turn in range(50):
            for process in (first, second):
                process.begin("run", str(job), "--set", f"seed={turn}", "--json")
            winner, other = sorted([first.end(), second.end()], key=lambda ended: ended.code)
            assert (winner.code, other.code) in ((0, 75), (0, 99)), (turn, winner, other)
            if other.code == 75:
                seen.append(turn)
                assert "is being written by process " in other.errors
                assert f" on {socket.gethostname()} (lock " in other.errors
            assert Output(out).require_latest().problems() == []
            assert leftovers(out) == []
    assert len(seen) >= 10  # they did meet


@pytest.mark.slow
def test_a_reader_that_follows_the_pointer_sees_whole_results_only(tmp_path):
    job, out, stop = write_job(tmp_path, STORED), tmp_path / "out", tmp_path / "stop"
    run_job(job, "seed=0")
    reader = (
        "import sys, pathlib; from scalable_kpca.workflow.layout import Output; from scalable_kpca import load_model\n"
        "out, stop, n, seen = Output(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]), 0, set()\n"
        "while not stop.exists():\n"
        "    run = out.require_latest(); problems = run.problems(); assert not problems, problems\n"
        "    load_model(run.path / 'model'); n += 1; seen.add(run.fingerprint)\n"
        "print(n, len(seen))\n"
    )
    command = [sys.executable, "-c", reader, str(out), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        for turn in range(40):
            run_job(job, f"seed={turn % 7}", f"n_components={turn % 3 + 1}")
        stop.touch()
        output, errors = watching.communicate(timeout=60)
    assert watching.returncode == 0, errors
    n_read, n_runs = map(int, output.split())
    assert n_read >= 20
    assert n_runs >= 5


# ---------------------------------------------------------------- order of writes


def test_results_reach_the_disk_before_their_list_and_the_list_before_the_pointer(tmp_path, monkeypatch):
    job, order = write_job(tmp_path, STORED), []
    flush, replace = os.fsync, Path.replace

    def flushed(descriptor: int) -> None:
        order.append(("flushed", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        flush(descriptor)

    def replaced(path: Path, target: Path) -> Path:
        order.append(("named", str(target)))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", replaced)
    run = run_job(job)
    listed, pointed = (
        order.index(("named", str(place))) for place in (run / "COMMIT.json", run.parents[1] / "latest.json")
    )
    assert listed < pointed
    before = {path for what, path in order[:listed] if what == "flushed"}
    entries = json.loads((run / "COMMIT.json").read_text())["files"]
    assert len(entries) > 10
    for entry in entries:
        file = run / entry["path"]
        flushed_as = {str(file), str(file.with_name(f".{file.name}.{os.getpid()}.new"))}
        assert flushed_as & before, file
        assert str(file.parent) in before
    between = {path for what, path in order[listed:pointed] if what == "flushed"}
    assert str(run) in between  # the name of the list, too
    assert ("flushed", str(run.parents[1])) in order[pointed:]


# ---------------------------------------------------------------- what is read again


def test_verification_evaluates_tiles_again_and_names_one_that_is_not_of_these_rows(tmp_path):
    job, out = write_job(tmp_path, {**STORED, "kernel": {"name": "linear"}}), tmp_path / "out"
    run = run_job(job)
    report = json.loads(skpca("verify", out, "--json").stdout)
    assert report["problems"] == []
    assert report["recomputed"] == "6 of 6 tiles, taken at random, are the same"
    # whole, with its checksum and its sums, but of other rows
    other = tmp_path / "other"
    write_rows(other / "rows" / "part-0.parquet", 7, 23)
    write_rows(other / "rows" / "part-1.parquet", 8, 17)
    strange = run_job(write_job(other, {**STORED, "kernel": {"name": "linear"}}))
    for piece in ("tiles/c/0/1", "row_sums/c/0/1/0", "row_sums/c/1/0/0"):
        (run / "gram.zarr" / piece).write_bytes((strange / "gram.zarr" / piece).read_bytes())
    finished = skpca("verify", out, "--json")
    (problem,) = json.loads(finished.stdout)["problems"]
    assert finished.returncode == 74
    assert "tile (0, 1) of " in problem
    assert "is not the kernel of the rows: it is off by " in problem


def first_feature(path: Path) -> float:
    return pq.read_table(path)["x0"][0].as_py()


def test_an_input_that_changed_in_place_with_its_size_and_its_times_is_another_input(tmp_path):
    job, path = write_job(tmp_path, STORED), tmp_path / "rows" / "part-0.parquet"
    first, state = run_job(job), path.stat()
    content = bytearray(path.read_bytes())
    start = content.index(struct.pack("<d", first_feature(path)))
    content[start + 3] ^= 1
    with path.open("r+b") as stream:
        stream.write(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    second = run_job(job)
    assert second != first
    assert latest_run(tmp_path / "out") == second


def test_an_input_that_changes_during_a_run_is_named_and_nothing_is_published(tmp_path):
    job = write_job(tmp_path, STORED)
    prepared = prepare(load_config(job), job.parent)
    write_rows(tmp_path / "rows" / "part-1.parquet", 5, 17)
    with pytest.raises(InvalidInputError, match=f"{tmp_path / 'rows' / 'part-1.parquet'} is not what this run was"):
        execute(prepared)
    assert not (tmp_path / "out" / "latest.json").exists()


@pytest.mark.parametrize(
    ("key", "uri"),
    [
        ("source.uri", "s3://name:hunter2@bucket/rows.parquet"),
        ("output.path", "s3://name:hunter2@bucket/out"),
        ("cluster.address", "tls://name:hunter2@host:8786"),
        ("cluster.address", "tcp://hunter2@host:8786"),
    ],
)
def test_secrets_in_uris_are_refused_and_not_repeated(tmp_path, key, uri):
    refused = skpca("run", write_job(tmp_path, STORED), "--set", f"{key}={uri}")
    assert refused.returncode == 78
    assert f"{key}: a name or password is in the URI" in refused.stderr
    assert "hunter2" not in refused.stdout + refused.stderr


def test_an_update_takes_no_scheduler_from_the_output(tmp_path):
    """What a scheduler sends is executed, and an output may have been written by somebody else."""
    job, out = write_job(tmp_path, NYSTROEM), tmp_path / "out"
    run = run_job(job)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        description = json.loads((run / "run.json").read_text())
        port = listening.getsockname()[1]
        description["config"]["cluster"] = {"kind": "address", "address": f"tcp://127.0.0.1:{port}"}
        (run / "run.json").write_text(json.dumps(description))
        commit = json.loads((run / "COMMIT.json").read_text())
        for entry in commit["files"]:
            if entry["path"] == "run.json":
                content = (run / "run.json").read_bytes()
                entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (run / "COMMIT.json").write_text(json.dumps(commit))
        write_rows(tmp_path / "more" / "part-2.parquet", 2)
        assert update_output(Output(out), "more", tmp_path).status == "done"
        with pytest.raises(BlockingIOError):
            listening.accept()
