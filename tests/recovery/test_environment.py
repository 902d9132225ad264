"""Full, tiny and read-only file systems, too few addresses and too few open files: a named end, and then the same bits.

Every refusal here is the system's own. What a run says of it is one line, with an exit code that says whose turn it is;
what was in force before stays in force; and when the limit is gone the same command gives the bits of a run without it.
"""

import base64
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job, write_rows
from tests.recovery.zygote import Ended, Zygote
from tests.support import tmpfs

PAGE = os.sysconf("SC_PAGE_SIZE")
ROOMY = "size=64m,nr_inodes=2000"
KINDS = ["stored tiles, block Krylov", "tiles in memory, ARPACK", "Nyström", "update"]
SHARES = (10, 50, 90, 99)  # percent of what a run takes
NOTE_BYTES = 1500  # of a column that goes along: no estimate counts it
PROGRESS = re.compile(r"(rows|look|tiles|start|accumulate|score|pass \d+): \d+ of \d+$")
DRIFT = re.compile(r".* drift\.warn is ")
AGAIN = "and run the same command again: nothing finished is done twice."


@pytest.fixture(scope="module")
def zygote(tmp_path_factory):
    with Zygote(tmp_path_factory.mktemp("zygote")) as process:
        yield process


class Disk:
    """A tmpfs whose size, number of files and writability can be changed."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def set(self, options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", f"remount,{options}", "none", str(self.place)]
        subprocess.run(command, check=True, capture_output=True)

    def used(self) -> dict[str, int]:
        """Pages and files that are in use."""
        state = os.statvfs(self.place)
        return {"pages": state.f_blocks - state.f_bfree, "files": state.f_files - state.f_ffree}

    def allow(self, unit: str, number: int) -> None:
        """Let it hold so many pages or files, and as many of the other as ever needed."""
        self.set(f"size={number * PAGE},nr_inodes=2000" if unit == "pages" else f"size=64m,nr_inodes={number}")

    def fill(self, unit: str, leave: int) -> None:
        """Let somebody else have all pages or files but a few of those that are left."""
        (self.place / "ballast").mkdir()
        state = os.statvfs(self.place)
        if unit == "pages":
            (self.place / "ballast" / "0").write_bytes(bytes((state.f_bavail - leave) * state.f_frsize))
        else:
            for number in range(state.f_favail - leave):
                (self.place / "ballast" / str(number)).touch()

    def free(self) -> None:
        shutil.rmtree(self.place / "ballast")


@pytest.fixture
def disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    with tmpfs(place, ROOMY):
        yield Disk(place)


@dataclass(repr=False)
class Job:
    """A command on an output that holds an earlier good run, and what it gives without limits."""

    zygote: Zygote
    output: Path
    command: list[str]
    earlier: Path  # the run in force before
    earlier_bits: dict[str, str]
    bits: dict[str, str]  # of the run in force after
    before: Path  # the output as it was

    def reset(self) -> None:
        shutil.rmtree(self.output)
        shutil.copytree(self.before, self.output, symlinks=True)

    def run(self, **options) -> Ended:
        return self.zygote.run(*self.command, **options)

    def assert_earlier(self) -> None:
        """The earlier run is in force as if nothing had been tried."""
        assert latest_run(self.output) == self.earlier
        assert bits_of(self.earlier) == self.earlier_bits

    def assert_finishes(self) -> None:
        """The same command does it now, and leaves nothing behind."""
        again = self.run()
        assert again.code == 0, again.errors
        assert bits_of(latest_run(self.output)) == self.bits
        assert leftovers(self.output) == []


def add_notes(folder: Path, numbers: range) -> None:
    """A column of text that does not compress, in files of rows."""
    for number in numbers:
        file = folder / f"part-{number}.parquet"
        table, rng = pq.read_table(file), np.random.default_rng(number)
        notes = [base64.b85encode(rng.bytes(NOTE_BYTES)).decode() for _ in range(len(table))]
        pq.write_table(table.append_column("note", pa.array(notes)), file)


def make_job(zygote: Zygote, folder: Path, output: Path, kind: str) -> Job:
    fields = {"output": {"path": str(output)}}
    fields["source"] = {"uri": "rows/*.parquet", "id": "id", "features": ["x*"], "passthrough": ["note"]}
    job = write_job(folder, JOBS["Nyström" if kind == "update" else kind], **fields)
    add_notes(folder / "rows", range(2))
    first = zygote.run("run", str(job))
    assert first.code == 0, first.errors
    command = ["run", str(job), "--set", "kernel.gamma=0.4"]  # other tiles on the same rows
    if kind == "update":
        write_rows(folder / "more" / "part-2.parquet", 2)
        add_notes(folder / "more", range(2, 3))
        command = ["update", str(output), "--source", str(folder / "more")]
    earlier, before = latest_run(output), folder / "before"
    shutil.copytree(output, before)
    earlier_bits = bits_of(earlier)
    whole = zygote.run(*command)
    assert whole.code == 0, whole.errors
    return Job(zygote, output, command, earlier, earlier_bits, bits_of(latest_run(output)), before)


def error_of(ended: Ended, code: int) -> str:
    """The one line that a command says of how it ended, beside how far it had come."""
    assert ended.code == code, ended
    lines = [line for line in ended.errors.splitlines() if line and not PROGRESS.match(line) and not DRIFT.match(line)]
    assert len(lines) == 1, ended.errors
    assert lines[0].startswith("Error: "), lines
    assert "Traceback" not in ended.errors
    return lines[0].removeprefix("Error: ")


# ---------------------------------------------------------------- full

FULL = r" failed: No space left on device( \(.*\))?; "
REFUSED = re.compile(
    r".*/runs/\w{64} has \d+(\.\d+ kiB| B) free, the .* need \d+\.\d+ kiB; make room or choose another"
)
STOPPED = re.compile(r"(locking|writing|creating) .*/out.*" + FULL + "make room, " + AGAIN)
NO_FILES = re.compile(
    r".*/runs/\w{64} has room for \d+ more files \(inodes\), and up to \d+ are needed; remove files or"
)
NO_FILE = re.compile(r"(locking|writing|creating) .*/out.*" + FULL + "remove files: it has no inodes left, " + AGAIN)


def limited(job: Job, disk: Disk, unit: str, share: int, messages: tuple[re.Pattern, ...]) -> re.Pattern:
    """Run a job where it finds a share of the pages or files that it takes; the pattern of what it says of that."""
    after = disk.used()[unit]
    job.reset()
    before = disk.used()[unit]
    disk.allow(unit, before + (after - before) * share // 100)
    ended = job.run()
    message = error_of(ended, 74)
    found = [pattern for pattern in messages if pattern.match(message)]
    assert len(found) == 1, message
    job.assert_earlier()
    disk.set(ROOMY)
    job.assert_finishes()
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_run_without_room_ends_by_name_and_is_finished_when_there_is_room(zygote, tmp_path, disk, kind):
    job = make_job(zygote, tmp_path, disk.place / "out", kind)
    ways = {share: limited(job, disk, "pages", share, (REFUSED, STOPPED)) for share in SHARES}
    assert ways[99] == STOPPED  # notes are not counted, so that the room looks large enough


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_run_without_inodes_ends_by_name_and_is_finished_when_there_are_some(zygote, tmp_path, disk, kind):
    job = make_job(zygote, tmp_path, disk.place / "out", kind)
    for share in (5, 90):
        limited(job, disk, "files", share, (NO_FILES, NO_FILE))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Nyström", "stored tiles, LAPACK"])
def test_run_that_finds_no_room_is_refused_before_it_writes_rows(zygote, tmp_path, disk, kind):
    job = make_job(zygote, tmp_path, disk.place / "out", kind)
    assert limited(job, disk, "pages", 5, (REFUSED, STOPPED)) == REFUSED
    assert limited(job, disk, "files", 10, (NO_FILES, NO_FILE)) == NO_FILES


# where the disk fills, how many pages or files are left there, and what is being written when there are no more
FULL_AT = {
    "stored tiles, block Krylov": {
        "/tiles/c/1/2": (0, r"writing tile \(\d, \d\) of .*/gram\.zarr"),
        "/journal/000002": (0, r"writing pass \d to .*/journal"),
        "/model/arrays.zarr/eigenvectors/": (0, r"writing the model to .*/model"),
        "/model/model.json": (2, r"writing .*/embedding/part-00000\.parquet"),
        "/.COMMIT.json": (0, r"writing .*/runs/\w{64}\S*"),
    },
    "Nyström": {
        "/journal/landmarks": (0, r"writing .*/runs/\w{64}\S*"),
        "/journal/sums": (0, r"writing sums over \d+ rows to .*/journal/sums\.npz"),
    },
    "update": {
        "/contributions/": (0, r"writing sums over \d+ rows to .*/contributions/\w{64}\.npz"),
        "/model/model.json": (2, r"writing .*/embedding/part-00000\.parquet"),
    },
}


def filled_in_the_middle(job: Job, disk: Disk, place: str, unit: str, leave: int) -> str:
    """What a run says that finds no room from one of its files on; it ends well when there is some."""
    job.reset()
    message = error_of(job.run(watched=job.output, stop_on=place, meanwhile=lambda: disk.fill(unit, leave)), 74)
    job.assert_earlier()
    disk.free()
    job.assert_finishes()
    return message


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["pages", "files"])
@pytest.mark.parametrize("kind", FULL_AT)
def test_disk_that_fills_while_a_run_works_is_named_with_what_was_being_written(zygote, tmp_path, disk, kind, unit):
    job = make_job(zygote, tmp_path, disk.place / "out", kind)
    remedy = {"pages": "make room", "files": "remove files: it has no inodes left"}[unit]
    for place, (leave, what) in FULL_AT[kind].items():
        message = filled_in_the_middle(job, disk, place, unit, leave)
        assert re.match(f"{what}{FULL}{remedy}, {AGAIN}", message), message


@pytest.mark.parametrize("unit", ["pages", "files"])
def test_disk_that_fills_before_the_pointer_moves_leaves_the_earlier_run_in_force(zygote, tmp_path, disk, unit):
    job = make_job(zygote, tmp_path, disk.place / "out", "Nyström")
    message = filled_in_the_middle(job, disk, "/.latest.json", unit, 0)
    assert (STOPPED if unit == "pages" else NO_FILE).match(message), message


# ---------------------------------------------------------------- files of a limited size


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stored tiles, block Krylov", "update"])
def test_files_that_may_not_be_so_large_are_named_with_the_limit(zygote, tmp_path, kind):
    job = make_job(zygote, tmp_path, tmp_path / "out", kind)
    largest = max(file.stat().st_size for file in latest_run(job.output).rglob("*") if file.is_file())
    for limit in (largest // 8, largest - 1):
        job.reset()
        message = error_of(job.run(RLIMIT_FSIZE=limit), 74)
        assert re.match(r"(writing|locking) .* failed: File too large", message), message
        assert message.endswith(f"; let files be larger than {limit} bytes (ulimit -f), {AGAIN}")
        job.assert_earlier()
        job.assert_finishes()


# ---------------------------------------------------------------- read-only

READ_ONLY = re.compile(r".*/out.* failed: Read-only file system( \(.*\))?; mount the file system for writing or choose")


@pytest.mark.parametrize("kind", ["Nyström", pytest.param("stored tiles, block Krylov", marks=pytest.mark.slow)])
def test_read_only_output_is_read_by_every_reader_and_named_by_every_writer(zygote, tmp_path, disk, kind):
    job = make_job(zygote, tmp_path, disk.place / "out", kind)
    job.reset()
    disk.set("ro")
    message = error_of(job.run(), 74)
    assert READ_ONLY.match(message), message
    unchanged = job.command[:2]
    assert zygote.run(*unchanged, "--json").code == 99
    output, scores = str(job.output), tmp_path / "scores"
    for command in (["status", output], ["verify", output]):
        assert zygote.run(*command).code == 0
    new = str(tmp_path / "rows")
    assert zygote.run("transform", output, "--source", new, "--to", str(scores)).code == 0
    assert sum(pq.read_table(part).num_rows for part in scores.glob("*.parquet")) == 40
    inside = zygote.run("transform", output, "--source", new, "--to", str(job.output / "scores"))
    assert READ_ONLY.match(error_of(inside, 74))
    job.assert_earlier()
    disk.set("rw")
    job.assert_finishes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "place"),
    [("tiles in memory, ARPACK", "/journal/000003"), ("update", "/.metrics.json"), ("update", "/.latest.json")],
)
def test_output_that_becomes_read_only_is_named_and_goes_on_when_it_can(zygote, tmp_path, disk, kind, place):
    job = make_job(zygote, tmp_path, disk.place / "out", kind)
    job.reset()
    message = error_of(job.run(watched=job.output, stop_on=place, meanwhile=lambda: disk.set("ro")), 74)
    assert READ_ONLY.match(message), message
    job.assert_earlier()
    disk.set("rw")
    job.assert_finishes()


# ---------------------------------------------------------------- few addresses

FEW_ADDRESSES = re.compile(
    r"ulimit -[vd] allows this process \d+ MiB of addresses, and this (command|plan) needs \d+ MiB: \d+ MiB of memory, "
    r"and what libraries and threads set aside; raise it \(ulimit -[vd] (\d+)\)"
)


def run_with_addresses(kib: int, *arguments: str, kind: str = "v") -> Ended:
    """A command in a process of its own, which begins with the limit."""
    command = f"ulimit -{kind} {kib} && exec {shlex.join([sys.executable, '-m', 'scalable_kpca.cli', *arguments])}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=100)
    return Ended(ended.returncode, 0, ended.stdout, ended.stderr)


def accepted(message: str) -> int:
    """The smallest limit that a message names, KiB."""
    found = FEW_ADDRESSES.match(message)
    assert found, message
    return int(found[2])


def test_command_with_too_few_addresses_to_start_says_how_many_it_needs(tmp_path):
    job = write_job(tmp_path, JOBS["Nyström"])
    for mib, kind in ((64, "v"), (256, "v"), (640, "v"), (256, "d")):
        message = error_of(run_with_addresses(mib * 1024, "run", str(job), kind=kind), 78)
        assert message.startswith(f"ulimit -{kind} allows this process {mib} MiB of addresses, and this command needs")
        assert accepted(message) > 640 * 1024
    assert not (tmp_path / "out").exists()


def write_larger_job(folder: Path, kind: str) -> Path:
    """One whose tasks take so much that a process which starts may still be too small for them."""
    fields = {name: value for name, value in JOBS[kind].items() if name != "tile_rows"}
    for seed in range(2):
        write_rows(folder / "rows" / f"part-{seed}.parquet", seed, 900)
    return write_job(folder, fields, cluster={"kind": "threads", "n_threads": 2})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stored tiles, LAPACK", "Nyström"])
def test_plan_with_too_few_addresses_names_a_number_that_is_accepted_and_the_bits_are_the_same(zygote, tmp_path, kind):
    job, output = write_larger_job(tmp_path, kind), tmp_path / "out"
    assert zygote.run("run", str(job)).code == 0
    bits = bits_of(latest_run(output))
    shutil.rmtree(output)
    started = accepted(error_of(run_with_addresses(2**16, "run", str(job)), 78))
    refused = error_of(run_with_addresses(started, "run", str(job)), 78)
    assert "budget.memory or cluster.n_threads lower" in refused
    assert not output.exists()
    enough = accepted(refused)
    ended = run_with_addresses(enough, "run", str(job))
    assert ended.code == 0, ended.errors
    assert bits_of(latest_run(output)) == bits
    assert leftovers(output) == []


@pytest.mark.slow
def test_processes_with_any_number_of_addresses_end_well_or_by_name(tmp_path):
    job, output = write_job(tmp_path, JOBS["stored tiles, block Krylov"], cluster={"kind": "threads"}), tmp_path / "out"
    codes = {}
    for mib in range(100, 1101, 200):
        ended = run_with_addresses(mib * 1024, "run", str(job))
        codes[mib] = ended.code
        if ended.code != 0:
            accepted(error_of(ended, 78))
        shutil.rmtree(output, ignore_errors=True)
    assert codes[100] == 78
    assert codes[1100] == 0


def test_addresses_that_a_process_has_in_use_already_are_counted(zygote, tmp_path):
    job = write_job(tmp_path, JOBS["Nyström"])
    message = error_of(zygote.run("run", str(job), RLIMIT_AS=2**30), 78)  # fewer than its libraries have by then
    assert accepted(message) > 2**20
    assert zygote.run("run", str(job), RLIMIT_AS=2**40).code == 0


@pytest.mark.slow
def test_memory_budget_that_is_not_given_is_a_share_of_what_the_limit_leaves(tmp_path):
    job, kib = write_job(tmp_path, JOBS["Nyström"], budget={}), 1536 * 1024
    ended = run_with_addresses(kib, "plan", str(job), "--json")
    assert ended.code == 0, ended.errors
    planned = ended.answer["plan"]
    assert planned["peak_memory"] <= planned["memory_limit"] < 0.6 * (kib * 1024 - 480 * 2**20)  # libraries take more


# ---------------------------------------------------------------- few open files

N_FILES = 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stored tiles, block Krylov", "Nyström"])
def test_few_open_files_are_enough_for_many_partitions(zygote, tmp_path, kind):
    for seed in range(N_FILES):
        write_rows(tmp_path / "rows" / f"part-{seed}.parquet", seed, 2)
    fields = {name: value for name, value in JOBS[kind].items() if name != "tile_rows"}
    job, output = write_job(tmp_path, fields, cluster={"kind": "threads", "n_threads": 2}), tmp_path / "out"
    bits = []
    for limit in (256, 64):
        ended = zygote.run("run", str(job), RLIMIT_NOFILE=limit)
        assert ended.code == 0, ended.errors
        bits.append(bits_of(latest_run(output)))
        shutil.rmtree(output)
    assert bits[0] == bits[1]
    assert sum(name.startswith("embedding/") for name in bits[0]) == N_FILES


@pytest.mark.slow
def test_worker_processes_do_with_256_open_files(zygote, tmp_path):
    job, output = write_job(tmp_path, JOBS["stored tiles, block Krylov"]), tmp_path / "out"
    assert zygote.run("run", str(job)).code == 0
    bits = bits_of(latest_run(output))
    shutil.rmtree(output)
    local = ["--set", "cluster.kind=local", "--set", "cluster.n_workers=2", "--set", "cluster.n_threads=1"]
    ended = zygote.run("run", str(job), *local, RLIMIT_NOFILE=256)
    assert ended.code == 0, ended.errors
    assert bits_of(latest_run(output)) == bits


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stored tiles, block Krylov", "Nyström"])
def test_too_few_open_files_are_named_with_the_limit_and_the_same_command_ends_well_with_more(zygote, tmp_path, kind):
    job = make_job(zygote, tmp_path, tmp_path / "out", kind)
    codes = set()
    for limit in (10, 12, 16, 20):
        job.reset()
        ended = job.run(RLIMIT_NOFILE=limit)
        codes.add(ended.code)
        if ended.code == 0:
            assert bits_of(latest_run(job.output)) == job.bits
            continue
        assert ended.code == 75, ended
        message = ended.errors.splitlines()[-1]  # asyncio says more where it cannot open what wakes it up
        assert re.match("Error: .* failed: Too many open files", message), message
        assert message.endswith(f"; let more than {limit} files be open (ulimit -n), {AGAIN}"), message
        job.assert_earlier()
        job.assert_finishes()
    assert codes == {0, 75}
