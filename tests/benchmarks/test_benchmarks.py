"""Every benchmark works and its results are right, at sizes where its seconds mean nothing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.spatial.distance import cdist

from tests.benchmarks import __main__ as program
from tests.benchmarks.bare import bare_kernel_pca
from tests.benchmarks.charts import Chart, Curve, Panel, draw_charts
from tests.benchmarks.children import Measurement
from tests.benchmarks.datasets import DATASETS
from tests.benchmarks.findings import Findings, Row
from tests.benchmarks.landmarks import best_residuals
from tests.benchmarks.manifold import BLOCK, GAMMA, manifold
from tests.benchmarks.markdown import page
from tests.benchmarks.rows import ROWS
from tests.benchmarks.streams import last_progress, wrong_ids
from tests.benchmarks.verdicts import Verdict, agreement, exponent, ratio
from tests.support import centred

ROOT = Path(__file__).parents[2]
TINY = dict.fromkeys(ROWS, 400) | {"growth": 1600}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_benchmark_runs_and_its_results_agree_with_its_peers(name, tmp_path):
    results, rendered = tmp_path / "results.json", tmp_path / "benchmarks.md"
    command = [sys.executable, "-m", "tests.benchmarks", name, f"--n={TINY[name]}", "--repeats=1"]
    command += [f"--json={results}", f"--markdown={rendered}", f"--scratch={tmp_path}"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # exit status 1 stands for a subject that failed or for eigenvalues that disagree
    assert finished.returncode == 0, finished.stderr
    (row,) = json.loads(results.read_text())["rows"].values()
    assert row["error"] is None
    assert {"processor", "cores", "memory", "python", "numpy", "scipy", "blas"} <= set(row["machine"])
    assert row["commit"]
    assert row["date"]
    assert row["measurements"]
    for found in row["measurements"]:
        assert 0 < found["seconds"][0] < found["process_seconds"][0]
        assert 10e6 < found["peak_memory"] < 10e9  # bytes: an interpreter, not kilobytes, not the machine
    assert any(verdict["bound"] is not None for verdict in row["verdicts"]) or name == "million"
    assert all(verdict["met"] for verdict in row["verdicts"] if verdict["is_correctness"])
    text = rendered.read_text()
    assert f"## {name}: " in text
    assert f"Repeat: `python -m tests.benchmarks {name} --n {TINY[name]}`" in text
    for private in (str(ROOT), str(tmp_path)):
        assert private not in text + results.read_text()
    for chart in row["charts"]:
        assert f"](figures/{chart['name']}.svg)" in text
        assert (tmp_path / "figures" / f"{chart['name']}.svg").exists()


def test_bare_threads_find_the_eigenvalues_of_the_definition():
    X = manifold(700)
    X.flags.writeable = False
    expected = np.linalg.eigvalsh(centred(np.exp(-GAMMA * cdist(X, X, "sqeuclidean"))))[:-6:-1]
    found, passes, residual = bare_kernel_pca(X, 5, GAMMA, 2)
    # entries are good to a few float32 eps, relative to 1; a residual of 1e-6 is squared over the gap
    np.testing.assert_allclose(found, expected, atol=1e-6 * expected[0])
    assert passes <= 8
    assert residual <= 1e-6


def test_rows_are_the_same_whatever_number_is_asked_for():
    few, many = manifold(BLOCK - 5), manifold(BLOCK + 3)
    np.testing.assert_array_equal(few, many[: len(few)])
    for first, n in ((7, 20), (BLOCK - 2, 4), (BLOCK, 3), (5, BLOCK - 2)):
        np.testing.assert_array_equal(manifold(n, first=first), many[first : first + n])
    assert few.dtype == np.float32
    assert abs(few.std() - many.std()) < 0.01


@pytest.mark.parametrize(
    ("verdict", "met", "margin"),
    [
        (Verdict("", 7.5, "≥", 6), True, 0.25),
        (Verdict("", 3.0, "≥", 6), False, -0.5),
        (Verdict("", 0.9, "≤", 1.2), True, 0.25),
        (Verdict("", 1.5, "≤", 1.2), False, -0.25),
        (Verdict("", 6, "≥", 6), True, 0),
        (Verdict("", float("nan"), "≤", 1.2), False, None),
        (Verdict("", None, "≤", 1.2), None, None),
        (Verdict("", 7.5), None, None),
    ],
)
def test_target_is_met_or_missed_by_its_share(verdict, met, margin):
    assert verdict.met is met
    if margin is None:
        assert verdict.margin is None or np.isnan(verdict.margin)
    else:
        assert verdict.margin == pytest.approx(margin)


def test_ratio_is_of_medians_and_its_spread_is_over_rounds():
    slow = Measurement("slow", [{"seconds": s} for s in (6.0, 8.0, 30.0)])
    fast = Measurement("fast", [{"seconds": s} for s in (2.0, 4.0, 3.0)])
    found = ratio("", slow, fast)
    assert found.measured == pytest.approx(8 / 3)
    assert found.spread == (2.0, 10.0)


def test_exponent_is_the_power_of_the_size():
    assert exponent((1, 2, 4), (3, 12, 48)) == pytest.approx(2)
    assert exponent((1, 2, 4), (-1, 0, 5)) is None


@pytest.fixture
def one_row(monkeypatch):
    """A program of one row whose findings the test decides, with no child process."""

    def set_findings(*verdicts, n=100):
        run = Measurement("subject", [{"seconds": 1.0, "process_seconds": 2.0, "peak_memory": 10**8}])
        row = Row("a row", n, 1, lambda _: Findings([run], verdicts))
        machine = dict.fromkeys(("processor", "system", "python", "numpy", "scipy", "scikit_learn", "blas"), "x")
        surroundings = {"machine": {**machine, "cores": 2, "memory": 2**33}, "package": "1", "commit": "abc"}
        monkeypatch.setattr(program, "ROWS", {"exact-100k": row})
        monkeypatch.setattr(program, "describe_surroundings", lambda: surroundings)

    return set_findings


def test_wrong_eigenvalues_fail_the_program_and_slow_ones_do_not(one_row, tmp_path, capsys):
    path = tmp_path / "results.json"
    one_row(Verdict("speed", 1.0, "≥", 6, "×"), agreement("eigenvalues", [2.0, 1.0], [2.0, 1.0]))
    assert program.main(["exact-100k", f"--json={path}"]) == 0
    assert "missed by 83%" in capsys.readouterr().out
    one_row(agreement("eigenvalues", [2.0, 1.0], [2.0, 1.00001]))
    assert program.main(["exact-100k", f"--json={path}"]) == 1
    assert "**disagree**" in capsys.readouterr().out
    assert "Results disagree in 1 places" in page(json.loads(path.read_text()))


def test_target_is_not_judged_at_another_size(one_row, capsys):
    one_row(Verdict("speed", 9.0, "≥", 6, "×"))
    program.main(["exact-100k", "--n=50"])
    assert "not judged at n = 50" in capsys.readouterr().out


def test_other_rows_of_the_document_stay_and_the_page_shows_all(one_row, tmp_path):
    path = tmp_path / "results.json"
    one_row(Verdict("speed", 9.0, "≥", 6, "×"))
    program.main(["exact-100k", f"--json={path}"])
    program.ROWS["growth"] = program.ROWS["exact-100k"]
    program.main(["growth", f"--json={path}"])
    program.main([f"--json={path}", f"--markdown={tmp_path / 'page.md'}"])
    text = (tmp_path / "page.md").read_text()
    assert "2 of 2 targets are met" in text
    assert text.index("## exact-100k: a row") < text.index("## growth: a row")


CHART = Chart("curves", "in words", "size", "share", [Panel("panel", [Curve("one", [1, 10], [1.0, 1e-3])])])


def test_the_same_numbers_are_the_same_picture(tmp_path):
    pytest.importorskip("matplotlib")
    document = {"rows": {"a": {"charts": [CHART.to_json()]}, "older": {}}}
    for folder in ("first", "second"):
        draw_charts(document, tmp_path / folder)
    first, second = ((tmp_path / folder / "curves.svg").read_bytes() for folder in ("first", "second"))
    assert first == second
    assert first.startswith(b"<?xml")


def test_picture_stays_as_it_is_without_matplotlib(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draw_charts({"rows": {"a": {"charts": [CHART.to_json()]}}}, tmp_path)
    assert "curves.svg is left as it is" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("look: 3 of 9\nlook: 9 of 9\nscore: 9 of 9\n", {"look": [9, 9], "score": [9, 9]}),
        ("landmarks=uniform: 9 of 9 rows, and more\nlook: 9 of 9", {"look": [9, 9]}),
        ("look: 9 of 9\nlook: 3 of 9", {"look": [-1, 9]}),
        ("look: 12 of 9", {"look": [-1, 9]}),
        ("look: 3 of 9\nlook: 12 of 12", {"look": [-1, 12]}),
        ("look: 3 of 9\nlook: 4 of 9", {"look": [4, 9]}),
    ],
)
def test_progress_that_goes_back_or_beyond_is_seen(text, expected):
    assert last_progress(text) == expected


def test_lost_repeated_and_misplaced_ids_are_counted(tmp_path):
    def write(name, ids, scores):
        pq.write_table(pa.table({"id": ids, "pc_0": scores}), tmp_path / name)

    write("part-0.parquet", [0, 1, 2], [0.0, 1.0, 2.0])
    write("part-1.parquet", [3, 4], [0.0, 1.0])
    assert wrong_ids(tmp_path, 5) == 0
    assert wrong_ids(tmp_path, 7) == 2
    write("part-1.parquet", [4, 3], [0.0, 1.0])
    assert wrong_ids(tmp_path, 5) == 2
    write("part-1.parquet", [3, 4], [0.0, float("nan")])
    assert wrong_ids(tmp_path, 5) == 1
    write("part-1.parquet", [2, 3, 4], [0.0, 1.0, 2.0])
    assert wrong_ids(tmp_path, 5) == 4


@pytest.mark.parametrize("name", DATASETS)
def test_best_residual_is_that_of_the_leading_eigenvalues(name):
    n, sizes = 500, [5, 20, 40]
    X = DATASETS[name].rows(n)
    values = np.linalg.eigvalsh(np.exp(-DATASETS[name].gamma * cdist(X, X, "sqeuclidean")))[::-1]
    expected = np.array([values[m:].sum() / n for m in sizes])
    found = best_residuals(X, DATASETS[name].gamma, sizes)
    # never below; four products leave a few hundredths of what is left where the spectrum is flat
    assert (found >= expected - 1e-12).all()
    assert (found <= 1.05 * expected).all()


@pytest.mark.parametrize("arguments", [["no-such-row"], []])
def test_program_says_what_rows_there_are(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        program.main(arguments)
    assert "row" in capsys.readouterr().err
