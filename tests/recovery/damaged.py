"""Outputs to be damaged, and what has to come of that: a named error or exact repair, never wrong numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalable_kpca.errors import KernelPCAError
from scalable_kpca.model import load_model
from tests.recovery.damage import Damage
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job, write_rows
from tests.recovery.zygote import Ended, Zygote

__all__ = ["Damaged", "contents", "finished_run", "remove", "runs_of", "updated_run"]

SCALE = {"kernel": {"name": "rbf", "gamma": "scale"}}  # depends on what is kept of the rows

NAMED = {65, 74, 75, 78}
DONE = {0, 99}
SECONDS = 60  # of processor time: whoever takes longer hangs


@dataclass(repr=False)
class Damaged:
    """An output in some state, what finishes it, and what has to come of it."""

    zygote: Zygote
    output: Path
    commands: list[list[str]]
    results: dict[str, dict[str, str]]  # bits of every run, by its name
    final: str  # name of the run in force in the end
    scores: dict[str, bytes]  # of new rows, by the name of the run in force

    def __post_init__(self) -> None:
        self.finished, self.state, self.another = (
            self.output.with_name(name) for name in ("finished", "state", "another")
        )
        self.new = self.output.with_name("new")
        self.output.rename(self.finished)

    def prepare(self, point: str | None) -> None:
        """Bring the output in the state in which a kill of the last command leaves it."""
        for place in (self.output, self.state, self.another):
            shutil.rmtree(place, ignore_errors=True)
        if point is None:
            shutil.copytree(self.finished, self.state)
            return
        for command in self.commands[:-1]:
            assert self.zygote.run(*command).code == 0
        assert self.zygote.run(*self.commands[-1], watched=self.output, kill_on=point).code == -9
        self.output.rename(self.state)

    def put_beside(self, another: Path) -> None:
        """The output of another job in the same state, under the same names."""
        shutil.copytree(another, self.another)
        for ours, theirs in zip(runs_of(self.state), runs_of(self.another), strict=True):
            theirs.rename(theirs.with_name(ours.name))

    def command(self, *arguments: str) -> Ended:
        return self.zygote.run(*arguments, RLIMIT_CPU=SECONDS)

    def problems(self, damage: Damage) -> list[str]:
        """What is wrong with what comes of a damage; each a sentence."""
        elsewhere = self.output.with_name("elsewhere")
        for place in (self.output, elsewhere):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.state, self.output)
        elsewhere.mkdir()
        damage.do(self.output, elsewhere, self.another)
        aside = contents(elsewhere)
        found = [*self._read(), *self._finish(damage)]
        if contents(elsewhere) != aside:
            found.append("what a link leads to was changed")
        return [f"{damage}: {problem}" for problem in found]

    def _read(self) -> Iterator[str]:
        """Readers change nothing, and say the truth or what is wrong."""
        before, to = contents(self.output), self.output.with_name("scores")
        commands = {
            "status": ["status", str(self.output)],
            "verify": ["verify", str(self.output)],
            "transform": ["transform", str(self.output), "--source", str(self.new), "--to", str(to)],
        }
        for name, command in commands.items():
            ended = self.command(*command)
            yield from unnamed(name, ended)
            if name == "verify" and ended.code == 0 and not self._is_right():
                yield "verify finds nothing wrong, and the results are not what they were"
            if name == "transform" and ended.code == 0 and scores_of(to) != self.scores[latest_run(self.output).name]:
                yield "transform gives other scores"
        shutil.rmtree(to, ignore_errors=True)
        if contents(self.output) != before:
            yield "readers changed something"
        for run in runs_of(self.output):
            try:
                load_model(run / "model")
            except KernelPCAError:
                pass
            except Exception as error:
                yield f"loading a model raises {error!r}"

    def _finish(self, damage: Damage) -> Iterator[str]:
        """The same commands repair, or say what stands in their way; without that they do."""
        before, place = contents(self.output), self.output / damage.name
        for attempt in range(2):
            for command in self.commands:
                ended = self.command(*command)
                yield from unnamed(command[0], ended)
                if ended.code in DONE and not self._is_right():
                    yield f"{command[0]} ends with {ended.code}, and the results are not what they were"
                if ended.code not in DONE:
                    break
            else:
                break
            if str(damage.name) not in ended.errors or attempt == 1:
                yield f"{command[0]} ends with {ended.code} again, or without a name: {ended.errors}"
                return
            after = contents(self.output)
            lost = [name for name in before if name not in after and not is_within(name, damage.name)]
            if lost:
                yield f"an error that is to be put right by hand has cost {lost}"
            remove(place)
        if latest_run(self.output).name != self.final:
            yield "another run than that before is in force"
        for name, bits in self.results.items():
            if not is_same(bits_of(self.output / "runs" / name), bits, in_force=name == self.final):
                yield f"results of {name[:8]} are not what they were"
        # nobody knows who wrote a damaged identity, and whether that process lives
        left = [name for name in leftovers(self.output) if not (name == damage.name and name.startswith(".LOCK."))]
        if left:
            yield f"{left} are left over"

    def _is_right(self) -> bool:
        run = latest_run(self.output)
        return bits_of(run) == self.results[run.name]


def is_same(found: dict[str, str], wanted: dict[str, str], *, in_force: bool) -> bool:
    """Whether results are what they were; of a run that was updated only the scores, which are there."""
    if in_force:
        return found == wanted
    names = {name for name in wanted if name.startswith("embedding")}
    return all(found.get(name) == wanted[name] for name in names)


def is_within(name: str, damaged: str) -> bool:
    return name == damaged or name.startswith(f"{damaged}/") or "LOCK" in name or name.endswith(".new")


def unnamed(name: str, ended: Ended) -> Iterator[str]:
    if ended.code not in DONE | NAMED:
        yield f"{name} ends with {ended.code}: {ended.errors[-2000:]}"
    elif "Traceback" in ended.errors or "not foreseen" in ended.errors:
        yield f"{name} shows a traceback: {ended.errors[-2000:]}"


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder; links are not followed."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


def scores_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.parquet")))


def runs_of(output: Path) -> list[Path]:
    """Runs in the order in which they were made."""
    return sorted((output / "runs").glob("*"), key=lambda run: len(list((run / "contributions").glob("*.npz"))))


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def transformed(zygote: Zygote, output: Path) -> bytes:
    to = output.with_name("scores")
    ended = zygote.run("transform", str(output), "--source", str(output.with_name("new")), "--to", str(to))
    assert ended.code == 0, ended.errors
    scores = scores_of(to)
    shutil.rmtree(to)
    return scores


def finished_run(zygote: Zygote, folder: Path, seed: int, fields: dict[str, Any]) -> Damaged:
    """A job that has been run, on rows of a seed."""
    for part in (0, 1):
        write_rows(folder / "rows" / f"part-{part}.parquet", 10 * seed + part, 20)
    write_rows(folder / "new" / "part.parquet", 9)
    job, output = write_job(folder, fields, **SCALE), folder / "out"
    ended = zygote.run("run", str(job))
    assert ended.code == 0, ended.errors
    run = latest_run(output)
    results, scores = {run.name: bits_of(run)}, {run.name: transformed(zygote, output)}
    return Damaged(zygote, output, [["run", str(job)]], results, run.name, scores)


def updated_run(zygote: Zygote, folder: Path, seed: int) -> Damaged:
    """A Nyström job that has been run, and updated by two partitions, one after the other."""
    made = finished_run(zygote, folder, seed, JOBS["Nyström"])
    made.finished.rename(made.output)
    for part in (2, 3):
        write_rows(folder / f"more-{part}" / f"part-{part}.parquet", 10 * seed + part, 20)
        made.commands.append(["update", str(made.output), "--source", str(folder / f"more-{part}")])
        assert zygote.run(*made.commands[-1]).code == 0
        run = latest_run(made.output)
        made.results[run.name], made.scores[run.name] = bits_of(run), transformed(zygote, made.output)
        made.final = run.name
    made.output.rename(made.finished)
    return made
