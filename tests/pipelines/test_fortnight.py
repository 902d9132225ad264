"""Two weeks of a scheduled job and what happens in them: each day's output is that of a computation from scratch."""

import json
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from sklearn.metrics.pairwise import rbf_kernel

from scalable_kpca.cli import skpca
from scalable_kpca.model import load_model
from scalable_kpca.workflow.inspect import verify_output
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.ledger import Ledger
from tests.recovery.jobs import bits_of, latest_run
from tests.recovery.test_killed_update import command

pytestmark = pytest.mark.slow

K, GAMMA, N_ROWS = 3, 0.15, 80
NUMERIC, KINDS = ["a", "b", "c"], ["x", "y", "z"]
DONE, NOTHING, BAD, AGAIN = 0, 99, 65, 75


def day_of(seed: int, n: int = N_ROWS) -> pd.DataFrame:
    """Rows of a day, some of them with a hole."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((n, 3)) * [1, 5, 0.1] + [10, 0, 3], columns=NUMERIC)
    frame.loc[rng.random(n) < 0.05, "b"] = np.nan
    frame["kind"] = rng.choice(KINDS, n)
    frame.insert(0, "id", [f"day {seed} row {row}" for row in range(n)])
    return frame


class Fortnight:
    """A job, its files, and what should have come of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder, folder / "out"
        self.present: dict[str, pd.DataFrame] = {}  # files that are in the model
        for number in range(3):
            self.deliver(f"base-{number}", day_of(100 + number), "history")
            self.present[f"base-{number}"] = day_of(100 + number)
        job = {
            "source": {
                "uri": "history/*.parquet",
                "id": "id",
                "features": NUMERIC,
                "categorical": "kind",
                "nulls": "drop",
                "standardize": True,
            },
            "kernel": {"name": "rbf", "gamma": GAMMA},
            "method": "nystroem",
            "nystroem": {"n_landmarks": 40},
            "n_components": K,
            "dtype": "float64",
            "novelty": True,
            "drift": {"mean": {"fail": 2.0}, "missing": {"fail": 0.5}},
            "cluster": {"kind": "synchronous"},
            "budget": {"memory": "1GiB"},
            "output": {"path": "out"},
        }
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        assert self.skpca("run", folder / "job.yaml") == DONE
        self.base = load_model(latest_run(self.output) / "model")
        self.check([])  # the base itself

    def deliver(self, name: str, frame: pd.DataFrame | pa.Table, place: str = "days") -> Path:
        """A file arrives."""
        path = self.folder / place / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, path)
        return path

    def skpca(self, *arguments: object) -> int:
        done = CliRunner().invoke(skpca, [str(argument) for argument in arguments], catch_exceptions=False)
        self.said = done.stderr
        return done.exit_code

    def update(self, *more: str) -> int:
        """What the clock starts every day."""
        return self.skpca("update", self.output, "--source", f"{self.folder}/days/*.parquet", *more)

    def good_day(self, names: list[str], frames: list[pd.DataFrame], *more: str) -> None:
        """Files that have arrived are added, and the output of the day is right."""
        assert self.update(*more) == DONE, self.said
        self.present |= dict(zip(names, frames, strict=True))
        self.check(names)
        assert self.update() == NOTHING

    def bad_day(self, *words: str) -> None:
        """What has arrived is refused, and nothing is changed, however often it is tried."""
        before = bits_of(latest_run(self.output))
        for _ in range(2):
            assert self.update() == BAD
            for word in words:
                assert word in self.said
            assert bits_of(latest_run(self.output)) == before
        assert verify_output(Output(self.output)).problems == []

    def features(self, frame: pd.DataFrame) -> np.ndarray:
        """Features by pandas, with the numbers of the base."""
        base = pd.concat([self.folder_frame(f"base-{number}") for number in range(3)])
        numbers = (frame[NUMERIC] - base[NUMERIC].mean()) / base[NUMERIC].std(ddof=0)
        return np.column_stack([numbers, *((frame["kind"] == kind).to_numpy(float) for kind in KINDS)])

    def folder_frame(self, name: str) -> pd.DataFrame:
        return pq.read_table(self.folder / "history" / f"{name}.parquet").to_pandas().dropna()

    def check(self, names: list[str]) -> None:
        """Eigenvalues, scores and novelty of the day against dense algebra on all rows that are in the model."""
        run = latest_run(self.output)
        rows = {name: self.features(frame.dropna()) for name, frame in self.present.items()}
        landmarks = self.base.basis.landmarks
        omega, U = np.linalg.eigh(rbf_kernel(landmarks, gamma=GAMMA))
        keep = omega > 1e-12 * omega[-1]
        P = U[:, keep] / np.sqrt(omega[keep])
        everything = rbf_kernel(np.concatenate(list(rows.values())), landmarks, gamma=GAMMA) @ P
        mean = everything.mean(axis=0)
        values, vectors = np.linalg.eigh((everything - mean).T @ (everything - mean))
        values, vectors = values[::-1][:K], vectors[:, ::-1][:, :K]
        model = load_model(run / "model")
        assert model.n_samples == len(everything)
        np.testing.assert_allclose(model.eigenvalues, values, rtol=1e-9)

        ledger = {Path(part.path).stem for part in Ledger.read(run).partitions}
        assert ledger == set(self.present)
        found = pa.concat_tables([pq.read_table(part) for part in sorted((run / "embedding").glob("*.parquet"))])
        names = names or list(self.present)
        frames = [self.present[name].dropna() for name in names]
        assert found["id"].to_pylist() == [name for frame in frames for name in frame["id"]]
        own = rbf_kernel(np.concatenate([rows[name] for name in names]), landmarks, gamma=GAMMA) @ P - mean
        scores = np.column_stack([found[f"pc_{k:03d}"] for k in range(K)])
        expected = own @ vectors
        signs = np.sign((scores * expected).sum(axis=0))
        np.testing.assert_allclose(scores, expected * signs, atol=1e-8)
        assert found["novelty"].to_numpy().min() >= 0


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Fortnight:
    return Fortnight(tmp_path_factory.mktemp("fortnight"))


@pytest.mark.timeout(600)
def test_two_weeks(job):  # one story: each day begins where the day before ended
    days = {number: day_of(number) for number in range(1, 15)}

    for number in (1, 2):
        job.deliver(f"day-{number}", days[number])
        job.good_day([f"day-{number}"], [days[number]])

    # day 3 is late: the clock finds nothing, and the day after brings both
    assert job.update() == NOTHING
    for number in (3, 4):
        job.deliver(f"day-{number}", days[number])
    job.good_day(["day-3", "day-4"], [days[3], days[4]])

    # day 5, and day 2 once more under another name: it is in the model already
    job.deliver("day-2-again", days[2])
    job.deliver("day-5", days[5])
    job.good_day(["day-5"], [days[5]])

    # day 4 is delivered again with other contents: refused, until it is said that they replace it
    corrected = day_of(44)
    job.deliver("day-4", corrected)
    job.bad_day("day-4.parquet is in the model with other contents", "--withdraw day-4.parquet")
    job.good_day(["day-4"], [corrected], "--withdraw", "day-4.parquet")

    # day 6 has lost a column; what comes in its place has one more, and integers for numbers
    job.deliver("day-6", days[6].drop(columns=["b"]))
    job.bad_day('day-6.parquet has no column "b"')
    days[6] = days[6].assign(a=days[6]["a"].round().astype(int), note="new")
    job.deliver("day-6", days[6])
    job.good_day(["day-6"], [days[6]])

    # days of garbage: infinite, from another world, empty of values, of an unknown kind, cut off
    holes = np.where(np.arange(N_ROWS) % 5 > 0, np.nan, 0)
    for garbage, *words in (
        (days[7].assign(c=np.inf), 'day-7.parquet, column "c" is inf'),
        (days[7].assign(a=days[7]["a"] + 1000), 'day-7.parquet, "a"', "drift.mean.fail is 2"),
        (days[7].assign(b=holes), 'day-7.parquet, "b"', "drift.missing.fail is 0.5"),
        (days[7].assign(kind="w"), "day-7.parquet, column \"kind\" is 'w'", "source.unknown"),
    ):
        job.deliver("day-7", garbage)
        job.bad_day(*words)
    path = job.deliver("day-7", days[7])
    path.write_bytes(path.read_bytes()[:-100])
    job.bad_day("day-7.parquet")
    job.deliver("day-7", days[7])
    job.good_day(["day-7"], [days[7]])

    # day 8: the machine goes down in the middle; the clock starts the same command again
    job.deliver("day-8", days[8])
    asked = ("update", job.output, "--source", f"{job.folder}/days/*.parquet")
    before = latest_run(job.output)
    for point in ("after the sums", "after the model", "before the commit", "between commit and pointer"):
        assert command(*asked, point=point).returncode == -signal.SIGKILL
        assert latest_run(job.output) == before
    job.good_day(["day-8"], [days[8]])

    # a backfill: three days from before the base, in any order, and the days that were missing
    for number in (12, 9, 11):
        job.deliver(f"old-{number}", day_of(200 + number))
    job.good_day(["old-9", "old-11", "old-12"], [day_of(200 + number) for number in (9, 11, 12)])
    for number in range(9, 15):
        job.deliver(f"day-{number}", days[number])
        job.good_day([f"day-{number}"], [days[number]])
    metrics = json.loads((latest_run(job.output) / "metrics.json").read_text())
    assert metrics["n_samples"] == sum(len(frame.dropna()) for frame in job.present.values())
    assert verify_output(Output(job.output)).problems == []
