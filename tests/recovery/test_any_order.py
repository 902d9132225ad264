"""Runs, kills, damage, full disks, changed inputs and second runs in any order: what can be read is always right."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from scalable_kpca.errors import StorageError
from scalable_kpca.workflow.layout import Output
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job, write_rows
from tests.recovery.zygote import Ended, Zygote
from tests.support import tmpfs

EXAMPLES = int(os.environ.get("SKPCA_TEST_ORDERS", "200"))
PARTS = 4  # that may run side by side
STEPS = 50
DISK = 24 * 2**20  # bytes of the file system: some fifty runs
INPUTS = range(3)
KINDS: dict[str, dict[str, Any]] = {
    "stored": {**JOBS["stored tiles, block Krylov"], "keep": 3},
    "wider": {**JOBS["stored tiles, block Krylov"], "n_components": 4, "keep": "results"},
    "landmarks": {**JOBS["Nyström"], "keep": 4},
}
jobs, inputs = st.sampled_from(sorted(KINDS)), st.sampled_from(INPUTS)


def make(folder: Path, version: int) -> None:
    """Both input files in a version; sizes and times are the same in all of them."""
    for part in (0, 1):
        path = folder / "rows" / f"part-{part}.parquet"
        fresh = path.with_suffix(".fresh")
        write_rows(fresh, 10 * version + part + 1, 23 - 6 * part)
        with path.open("r+b" if path.exists() else "wb") as stream:  # in place
            stream.write(fresh.read_bytes())
            stream.truncate()
        fresh.unlink()
        os.utime(path, (1, 1))


class Orders(RuleBasedStateMachine):
    """One output, and everything that happens to it."""

    home: ClassVar[Path]  # of inputs and jobs
    disk: ClassVar[Path]  # of the output
    zygotes: ClassVar[tuple[Zygote, Zygote]]
    references: ClassVar[dict[tuple[int, str], tuple[str, dict[str, str], list[bytes]]]]
    by_name: ClassVar[dict[str, dict[str, str]]]

    def __init__(self) -> None:
        super().__init__()
        self.folder, self.out, self.ballast = self.home / "case", self.disk / "out", self.disk / "ballast"
        self.version, self.is_full = 0, False
        self.teardown()

    def teardown(self) -> None:
        self.ballast.unlink(missing_ok=True)
        for place in (self.folder, self.out):
            shutil.rmtree(place, ignore_errors=True)

    @initialize(version=inputs)
    def start(self, version: int) -> None:
        self.folder.mkdir()
        self.version = version
        make(self.folder, version)
        for name, fields in KINDS.items():
            job = write_job(self.folder, fields, output={"path": str(self.out)})
            job.rename(self.folder / f"{name}.yaml")

    def command(self, job: str) -> tuple[str, ...]:
        return "run", str(self.folder / f"{job}.yaml"), "--json"

    def judge(self, job: str, ended: Ended) -> None:
        assert ended.code in (0, 99, *((74,) if self.is_full else ())), ended
        if ended.code != 74:
            run = latest_run(self.out)
            assert bits_of(run) == self.references[self.version, job][1]
            # what another job was killed in may still be finished by its own command
            unfinished = [other.path.name for other in Output(self.out).runs() if not other.is_committed]
            others = [other.path.name for other in Output(self.out).runs() if other.path != run]
            allowed = others
            if '"status": "done"' in ended.output:
                allowed = unfinished if KINDS[job]["keep"] == "results" else []
                assert set(unfinished) <= set(allowed)
            if ended.code == 99 and self.is_full:
                return  # what a killed one left is not removed then: a lock would have to be written
            assert [name for name in leftovers(self.out) if not any(other in name for other in allowed)] == []

    @rule(job=jobs)
    def run(self, job: str) -> None:
        self.judge(job, self.zygotes[0].run(*self.command(job), watched=self.out))

    @rule(job=jobs, at=st.integers(1, 300))
    def run_and_die(self, job: str, at: int) -> None:
        ended = self.zygotes[0].run(*self.command(job), watched=self.out, kill_at=at)
        if ended.code != -9:
            self.judge(job, ended)

    @rule(job=jobs, other=jobs)
    def run_two(self, job: str, other: str) -> None:
        for zygote, name in zip(self.zygotes, (job, other), strict=True):
            zygote.begin(*self.command(name), watched=self.out)
        ends = [zygote.end() for zygote in self.zygotes]
        codes = {ended.code for ended in ends}
        assert codes <= {0, 75, 99, *((74,) if self.is_full else ())}, ends
        assert codes != {75}, ends

    @rule(version=inputs)
    def change_input(self, version: int) -> None:
        self.version = version
        make(self.folder, version)

    @rule(
        which=st.integers(0, 10**6), how=st.sampled_from(["flip", "truncate", "extend", "zero", "delete", "directory"])
    )
    def damage(self, which: int, how: str) -> None:
        # a lock that cannot be read is respected, however dead its owner is: a test of its own
        files = sorted(path for path in self.out.rglob("*") if path.is_file() and "LOCK" not in path.name)
        if not files:
            return
        file = files[which % len(files)]
        content = bytearray(file.read_bytes())
        if how == "flip" and content:
            content[which % len(content)] ^= 1 << which % 8
        changed = {"truncate": content[: len(content) // 2], "extend": content + b"x", "zero": bytes(len(content))}
        if how in ("delete", "directory"):
            file.unlink()
            if how == "directory":
                file.mkdir()
        else:
            with contextlib.suppress(OSError):  # of a full disk
                file.write_bytes(changed.get(how, content))

    @rule(left=st.integers(0, 200))
    def fill(self, left: int) -> None:
        """Leave so many KiB of the disk."""
        self.ballast.unlink(missing_ok=True)
        free = shutil.disk_usage(self.disk).free
        size = max(0, free - left * 1024)
        with self.ballast.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, max(1, size))
        self.is_full = True

    @rule()
    def make_room(self) -> None:
        self.ballast.unlink(missing_ok=True)
        self.is_full = False

    @rule()
    def verify(self) -> None:
        assert self.zygotes[0].run("verify", str(self.out)).code in (0, 74)

    @rule()
    def transform(self) -> None:
        scored = self.folder / "scored"
        shutil.rmtree(scored, ignore_errors=True)
        source = self.home / "new" / "part-0.parquet"
        ended = self.zygotes[0].run("transform", str(self.out), "--source", str(source), "--to", str(scored))
        assert ended.code in (0, 74), ended
        if ended.code == 0:
            found = [(scored / "part-00000.parquet").read_bytes()]
            name = latest_run(self.out).name
            assert found in [scores for fingerprint, _, scores in self.references.values() if fingerprint == name]

    @invariant()
    def what_can_be_read_is_right(self) -> None:
        if not self.out.is_dir():
            return
        try:
            run = Output(self.out).latest()
        except StorageError:
            return
        if run is not None and not run.problems():
            assert bits_of(run.path) == self.by_name[run.fingerprint]


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A small file system in memory."""
    place = tmp_path_factory.mktemp("disk")
    with tmpfs(place, f"size={DISK}"):
        yield place


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_in_any_order_results_that_can_be_read_are_right(disk, tmp_path, part):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    write_rows(tmp_path / "new" / "part-0.parquet", 99, 7)
    with Zygote(tmp_path / "first") as first, Zygote(tmp_path / "second") as second:
        Orders.home, Orders.disk, Orders.zygotes = tmp_path, disk, (first, second)
        Orders.references, Orders.by_name = {}, {}
        for version in INPUTS:
            folder = tmp_path / f"version-{version}"
            folder.mkdir()
            make(folder, version)
            for name, fields in KINDS.items():
                job = write_job(folder, fields)
                assert first.run("run", str(job)).code == 0
                run, scored = latest_run(folder / "out"), folder / f"scored-{name}"
                new = str(tmp_path / "new" / "part-0.parquet")
                assert first.run("transform", str(folder / "out"), "--source", new, "--to", str(scored)).code == 0
                Orders.references[version, name] = (
                    run.name,
                    bits_of(run),
                    [(scored / "part-00000.parquet").read_bytes()],
                )
                Orders.by_name[run.name] = bits_of(run)
        assert len(Orders.by_name) == len(INPUTS) * len(KINDS)
        machine = seed(part)(type(f"Orders{part}", (Orders,), {})) if EXAMPLES == 200 else Orders
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=EXAMPLES // PARTS,
                stateful_step_count=STEPS,
                deadline=None,
                phases=(Phase.explicit, Phase.reuse, Phase.generate),  # fifty steps are read faster than made fewer
                suppress_health_check=list(HealthCheck),
            ),
        )
