"""Streams that are closed, places that are locked up, signals that come twice, commands that are given again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scalable_kpca.workflow.layout import Output
from tests.cluster.processes import begin, skpca, wait_until
from tests.recovery.damage import flip
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, n_tiles, write_job, write_rows
from tests.support import matching, skip

STORED, NYSTROEM = JOBS["stored tiles, block Krylov"], JOBS["Nyström"]
COMMAND = f"{sys.executable} -m scalable_kpca.cli"


def shell(text: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=120, check=False, **options)


def assert_no_bug(finished: subprocess.CompletedProcess[str], *codes: int) -> None:
    assert finished.returncode in codes, finished.stderr
    assert "Traceback" not in finished.stderr
    assert "bug" not in finished.stderr


# ---------------------------------------------------------------- two at a time


@pytest.mark.slow
def test_two_transforms_to_one_place_are_never_mixed(tmp_path):
    job, out, to = write_job(tmp_path, NYSTROEM), tmp_path / "out", tmp_path / "to"
    assert skpca("run", job).returncode == 0
    for seed, n_files in ((5, 60), (6, 90)):
        for part in range(n_files):
            write_rows(tmp_path / f"many-{seed}" / f"part-{part}.parquet", seed, 20)

    def scoring() -> list[Path]:
        return list(tmp_path.glob(".to.*.new"))

    first = begin("transform", out, "--source", tmp_path / "many-5", "--to", to)
    (staging,) = wait_until(scoring)
    wait_until(lambda: len(list(staging.iterdir())) > 5)
    first.send_signal(signal.SIGSTOP)
    second = skpca("transform", out, "--source", tmp_path / "many-6", "--to", to)
    first.send_signal(signal.SIGCONT)
    assert_no_bug(second, 0)
    assert_no_bug(first.finish(), 74)
    assert {tuple(sorted(set(pq.read_table(part)["id"].to_pylist()))) for part in to.glob("*.parquet")} == {
        tuple(range(6000, 6020))
    }
    assert len(list(to.glob("*.parquet"))) == 90
    assert scoring() == []


@pytest.mark.slow
def test_what_a_killed_transform_left_goes_with_the_next_and_nothing_else(tmp_path):
    job, out, to = write_job(tmp_path, NYSTROEM), tmp_path / "out", tmp_path / "to"
    assert skpca("run", job).returncode == 0
    for part in range(60):
        write_rows(tmp_path / "many" / f"part-{part}.parquet", 5, 20)
    (tmp_path / ".to.new").mkdir()
    (tmp_path / ".to.new" / "mine").write_text("years of work")
    killed = begin("transform", out, "--source", tmp_path / "many", "--to", to)
    wait_until(lambda: matching(tmp_path, ".to.?*.new/part-*"))
    killed.kill()
    killed.finish()
    assert not to.exists()
    assert_no_bug(skpca("transform", out, "--source", tmp_path / "many", "--to", to), 0)
    assert [path.name for path in tmp_path.glob(".to*")] == [".to.new"]
    assert (tmp_path / ".to.new" / "mine").read_text() == "years of work"


@pytest.mark.slow
def test_those_that_lose_a_race_leave_no_run_behind(tmp_path):
    job, out = write_job(tmp_path, NYSTROEM), tmp_path / "out"
    assert skpca("run", job).returncode == 0
    for seed in (5, 6, 7):
        write_rows(tmp_path / f"day-{seed}.parquet", seed)
    updates = [begin("update", out, "--source", tmp_path / f"day-{seed}.parquet") for seed in (5, 6, 7)]
    codes = [update.finish().returncode for update in updates]
    assert set(codes) <= {0, 75}
    assert all(run.is_committed for run in Output(out).runs())


# ---------------------------------------------------------------- versions that go on with each other


@pytest.fixture
def updated(tmp_path):
    """An output of a base and updates by three days; the versions, the base first."""

    def make(**fields: object) -> tuple[Path, list[Path]]:
        job, out = write_job(tmp_path, {**NYSTROEM, **fields}), tmp_path / "out"
        assert skpca("run", job).returncode == 0
        versions = [latest_run(out)]
        for day in (5, 6):
            write_rows(tmp_path / f"day-{day}.parquet", day, 10)
            assert skpca("update", out, "--source", tmp_path / f"day-{day}.parquet").returncode == 0
            versions.append(latest_run(out))
        write_rows(tmp_path / "day-7.parquet", 7, 10)
        return out, versions

    return make


@pytest.mark.slow
def test_a_version_whose_scores_are_damaged_is_not_made_again_without_them(tmp_path, updated):
    out, (base, first, second) = updated(keep=2)
    before = {run: bits_of(run) for run in (base, second)}
    with (first / "embedding" / "part-00000.parquet").open("ab") as stream:
        stream.write(b"x")
    refused = skpca("update", out, "--withdraw", "day-6.parquet")  # which leads back to that version
    assert_no_bug(refused, 74)
    assert "embedding/part-00000.parquet has " in refused.stderr
    assert {run: bits_of(run) for run in (base, second)} == before
    assert skpca("verify", out).returncode == 74
    # the way that the error names
    assert skpca("run", tmp_path / "job.yaml").returncode == 0
    for day in (5, 6):
        assert skpca("update", out, "--source", tmp_path / f"day-{day}.parquet").returncode == 0
    assert skpca("verify", out).returncode == 0
    assert latest_run(out) == second
    assert {run: bits_of(run) for run in (base, second)} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.json", "COMMIT.json"])
@pytest.mark.parametrize("damage", ["damaged", "deleted"])
def test_no_run_is_removed_while_a_version_does_not_say_what_it_goes_on_with(tmp_path, updated, name, damage):
    out, versions = updated(keep=1)
    if damage == "deleted":
        (versions[1] / name).unlink()
    else:
        flip(0.5)(versions[1] / name)
    verified = skpca("verify", out)
    assert_no_bug(verified, 74)
    assert name in verified.stdout
    assert_no_bug(skpca("update", out, "--source", tmp_path / "day-7.parquet"), 74)
    assert all((version / "embedding").is_dir() for version in versions)


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
def test_damaged_sums_of_an_earlier_update_are_not_committed_as_sound(tmp_path, updated, is_there):
    out, versions = updated()
    (sums, *_) = sorted((versions[2] / "contributions").iterdir())
    flip(0.5)(sums)
    if not is_there:
        (tmp_path / "day-5.parquet").rename(tmp_path / "elsewhere")
    refused = skpca("update", out, "--source", tmp_path / "day-7.parquet")
    assert_no_bug(refused, 74)
    assert f"contributions/{sums.name}" in refused.stderr
    assert latest_run(out) == versions[2]


@pytest.mark.slow
def test_a_partition_that_is_replaced_stays_when_the_same_command_is_given_again(tmp_path, updated):
    out, _ = updated()
    shutil.copy(tmp_path / "day-7.parquet", tmp_path / "day-5.parquet")
    command = ("update", out, "--source", tmp_path / "day-5.parquet", "--withdraw", "day-5.parquet")
    assert skpca(*command).returncode == 0
    run = latest_run(out)
    for _ in range(2):
        assert skpca(*command).returncode == 99
        assert latest_run(out) == run
    assert len(json.loads((run / "ledger.json").read_text())["partitions"]) == 4
    assert skpca("update", out, "--withdraw", "day-5.parquet").returncode == 0  # alone, it says something else
    assert len(json.loads((latest_run(out) / "ledger.json").read_text())["partitions"]) == 3


# ---------------------------------------------------------------- the system


@pytest.fixture
def unprivileged():
    """What takes from root the right to read everything."""
    drop = "-dac_override,-dac_read_search"
    command = f"setpriv --bounding-set={drop} --inh-caps={drop}" if os.geteuid() == 0 else ""
    if shell(f"{command} true").returncode:
        skip("setpriv is not here")
    return f"{command} {COMMAND}"


@pytest.mark.slow
def test_what_may_not_be_read_is_named_and_not_made_again(tmp_path, unprivileged):
    job, out, to = write_job(tmp_path, STORED), tmp_path / "out", tmp_path / "to"
    assert skpca("run", job).returncode == 0
    run = latest_run(out)
    reference, committed = bits_of(run), (run / "COMMIT.json").stat().st_mtime_ns
    for place in (out / "runs", run, run / "COMMIT.json", run / "model" / "model.json", out / "latest.json"):
        mode = place.stat().st_mode
        place.chmod(0)
        for command in (f"run {job}", f"verify {out}", f"transform {out} --source {tmp_path}/rows --to {to}"):
            finished = shell(f"{unprivileged} {command}")
            assert_no_bug(finished, 74)
            assert "Permission denied" in finished.stdout + finished.stderr
            assert str(place) in finished.stdout + finished.stderr
        place.chmod(mode)
    assert bits_of(run) == reference
    assert (run / "COMMIT.json").stat().st_mtime_ns == committed
    for name in ("gram.zarr/zarr.json", "labels/KEY.json", "rows.zarr/c/0/0"):
        copy = tmp_path / "copy"
        shutil.copytree(out, copy)
        (copy / "runs" / run.name / name).chmod(0)
        finished = shell(f"{unprivileged} run {job} --set n_components=2 --set output.path=copy")
        assert_no_bug(finished, 0)  # another run, which does without
        assert "damaged" not in finished.stderr
        assert (copy / "runs" / run.name / name).exists()
        shutil.rmtree(copy)
    source = tmp_path / "rows" / "part-0.parquet"
    source.chmod(0)
    refused = shell(f"{unprivileged} run {job}")
    assert_no_bug(refused, 65, 74)
    assert str(source) in refused.stderr
    source.chmod(0o600)


@pytest.mark.slow
def test_a_bad_sector_in_the_rows_of_another_run_does_not_matter(tmp_path):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    assert skpca("run", job).returncode == 0
    chunk = latest_run(out) / "rows.zarr" / "c" / "0" / "0"
    # a file that opens and whose first byte is an input/output error: nothing is mapped at address 0
    if shell(f"mount --bind /proc/{os.getpid()}/mem {chunk}").returncode:
        skip("files cannot be mounted here")
    try:
        with pytest.raises(OSError, match="Input/output error"):
            chunk.read_bytes()
        assert_no_bug(skpca("run", job, "--set", "n_components=2"), 0)
    finally:
        subprocess.run(["umount", str(chunk)], check=True)


@pytest.mark.slow
def test_closed_and_full_streams_do_not_fail_a_job(tmp_path):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    assert shell(f"{COMMAND} run {job} 2>&-").returncode == 0
    reference = bits_of(latest_run(out))
    for streams in ("2>/dev/full", ">&- 2>&-", "<&-", "| head -c 1", "--json | true"):
        shutil.rmtree(out)
        finished = shell(f"set -o pipefail; {COMMAND} run {job} {streams}")
        assert_no_bug(finished, 0)
        assert bits_of(latest_run(out)) == reference
    for command in (f"status {out}", f"verify {out} --json", f"plan {job}", "schema"):
        finished = shell(f"{COMMAND} {command} >/dev/full")
        assert_no_bug(finished, 74)
        assert "standard output cannot be written: No space left on device" in finished.stderr
        assert_no_bug(shell(f"set -o pipefail; {COMMAND} {command} | true"), 0)


@pytest.mark.slow
def test_impossible_places_are_refused_in_words(tmp_path):
    job, out = write_job(tmp_path, NYSTROEM), tmp_path / "out"
    assert skpca("run", job).returncode == 0
    long = 300 * "x"
    for arguments in (
        ("run", job, "--set", f"output.path={long}"),
        ("run", job, "--set", f"source.uri={long}"),
        ("run", job, "--set", r'output.path="a\0b"'),
        ("run", job, "--set", r'source.uri="a\0b"'),
        ("run", "/dev/zero"),
        ("update", out, "--source", long),
        ("update", out, "--source", ""),
        ("update", out, "--source", "https://user:geheim@host/x"),
        ("transform", out, "--source", "https://user:geheim@host/x", "--to", "to"),
        ("transform", out, "--source", "", "--to", "to"),
        ("transform", out, "--source", tmp_path / "rows", "--to", tmp_path / long),
        ("transform", out, "--source", tmp_path / "rows", "--to", out / "runs" / "x"),
        ("run", job, "--set", "source.uri=s3://AKIA:ge/heim@bucket/x"),
    ):
        finished = skpca(*arguments)
        assert_no_bug(finished, 65, 74, 78)
        assert "heim" not in finished.stderr
    gone = tmp_path / "gone"
    gone.mkdir()
    assert_no_bug(shell(f"cd {gone}; rmdir {gone}; {COMMAND} update {out} --source x"), 65, 74)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 0.001, 0.01, 0.03])
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)])
def test_a_second_signal_changes_nothing(tmp_path, numbers, seconds):
    job, out = write_job(tmp_path, {**STORED, "tile_rows": 3}), tmp_path / "out"
    for _ in range(4):
        running = begin("run", job)
        wait_until(lambda: n_tiles(out))
        running.send_signal(numbers[0])
        time.sleep(seconds)
        running.send_signal(numbers[1])
        finished = running.finish()
        assert finished.returncode == 75, finished.stderr
        assert "Traceback" not in finished.stderr
        assert not (out / "LOCK").exists()
        shutil.rmtree(out)


@pytest.mark.slow
def test_what_is_not_ours_in_an_output_stays(tmp_path):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    mine = [out / ".precious.new" / "file", out / ".notes.new", out / ".LOCK.old" / "file", out / "LOCKSMITH"]
    for file in mine:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("years of work")
    for components in (2, 3):
        assert_no_bug(skpca("run", job, "--set", f"n_components={components}"), 0)
    assert [file.read_text() for file in mine] == 4 * ["years of work"]


@pytest.mark.slow
def test_the_state_of_an_output_is_told_while_its_pointer_is_damaged(tmp_path):
    job, out = write_job(tmp_path, STORED), tmp_path / "out"
    assert skpca("run", job).returncode == 0
    (out / "latest.json").write_text("{")
    finished = skpca("status", out, "--json")
    assert_no_bug(finished, 74)
    answer = json.loads(finished.stdout)
    assert answer["lock"] == "free"
    assert "committed" in answer.values()
    assert str(out / "latest.json") in answer["problems"][0]
    assert skpca("run", job).returncode == 0
    assert skpca("status", out).returncode == 0
    assert leftovers(out) == []
