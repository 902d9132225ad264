"""The page about a run: whole in itself, true to its numbers, and safe whatever the run holds."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import scalable_kpca.plots.canvas as canvas
from scalable_kpca.cli import skpca
from scalable_kpca.errors import ConfigError, StorageError
from scalable_kpca.machine import peak_memory
from scalable_kpca.markup import Html, html, number, percent, spell
from scalable_kpca.workflow import page_figures, page_plan
from scalable_kpca.workflow.account import read_account
from scalable_kpca.workflow.checks import check_separate
from scalable_kpca.workflow.colouring import ABSENT, MOST_GROUPS, OTHERS, colouring_of
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.files import replace_page, write_json
from scalable_kpca.workflow.inspect import inspect_output, verify_output
from scalable_kpca.workflow.layout import WRITES, Output
from scalable_kpca.workflow.page import write_page
from scalable_kpca.workflow.page_facts import certificate
from scalable_kpca.workflow.page_figures import passes, scores
from scalable_kpca.workflow.page_plan import plan_and_actual
from scalable_kpca.workflow.score_sample import choose_colour, read_sample
from scalable_kpca.workflow.stages import execute, prepare
from scalable_kpca.workflow.update import update_output

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>$title&amp;'
ROWS = 40

# what a page may consist of: nothing here runs, and nothing fetches
TAGS = re.findall(
    r"\w+",
    "html head meta link title style body header main section h1 h2 h3 p ul li dl dt dd em strong small bdi code pre "
    "details summary data time figure figcaption div span table caption thead tbody tr th td "
    "svg g path defs use rect clippath",
)


def write_rows(folder, name, rows, **labels):
    folder.mkdir(exist_ok=True)
    columns = {"id": np.arange(len(rows)), **labels} | {f"x{i}": rows[:, i] for i in range(rows.shape[1])}
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def settings(**changes):
    return {
        "source": {"uri": "data/*.parquet", "id": "id", "features": "x*"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "n_components": 3,
        "method": "exact",
        "cluster": {"kind": "synchronous"},
        "output": {"path": "out"},
        **changes,
    }


def run(folder, **changes):
    return execute(prepare(Config.model_validate(settings(**changes)), folder)).run


def rows_of(seed, n_rows=ROWS):
    return np.random.default_rng(seed).normal(size=(n_rows, 2))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with an exact run whose labels are hostile, and its page."""
    folder = tmp_path_factory.mktemp("exact")
    write_rows(folder / "data", "rows", rows_of(0), **{HOSTILE: [f"{row % 3} {HOSTILE}" for row in range(ROWS)]})
    source = {"uri": "data/*.parquet", "id": "id", "features": "x*", "passthrough": HOSTILE}
    run(folder, source=source, novelty=True)
    write_page(Output(folder / "out"))
    return folder


@pytest.fixture(scope="module")
def updated(tmp_path_factory):
    """A folder with a Nyström run that an update went on with, and its page."""
    folder = tmp_path_factory.mktemp("updated")
    write_rows(folder / "data", "first", rows_of(1))
    write_rows(folder / "days", "second", rows_of(2, 10) + 2)
    run(folder, method="nystroem", nystroem={"n_landmarks": 8})
    shutil.copytree(folder / "out", folder / "base")
    update_output(Output(folder / "out"), "days/*.parquet", folder)
    write_page(Output(folder / "out"))
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture
def words_only(monkeypatch):
    """Pages without drawings, which take most of the time, for tests that are about words."""
    for module in (page_figures, page_plan):
        monkeypatch.setattr(module, "svg_of", lambda *_, **__: "<svg></svg>")


def page_of(folder):
    return (folder / "out" / "report.html").read_text(encoding="utf-8")


def in_force(folder):
    return Output(folder / "out").require_latest()


def change(folder, name, **fields):
    """Replace fields of a result, and commit it as a run that had written them would have."""
    run = in_force(folder)
    write_json(run.path / name, json.loads((run.path / name).read_text()) | fields)
    commit(run)


def commit(run):
    write_json(run.path / "COMMIT.json", {"fingerprint": run.fingerprint, "fence": 1, "files": run.flushed_results()})


class Seen(HTMLParser):
    """Tags, attributes, identifiers and words of a page, and its numbers by where they are from."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.identifiers, self.numbers = set(), set(), [], []
        self.words, self._number = "", None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        fields = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(fields)
        if "id" in fields:
            self.identifiers.append(fields["id"])
        self._number = (fields.get("data-key"), fields["value"]) if tag == "data" else None

    def handle_data(self, data):
        self.words += data
        if self._number is not None:
            self.numbers.append((*self._number, data))
            self._number = None


# ---------------------------------------------------------------- whole in itself


def test_a_page_asks_nobody_for_anything(finished, updated):
    for page in (page_of(finished), page_of(updated)):
        assert "http:" not in page.replace("http-equiv", "")
        assert "https:" not in page
        seen = Seen(page)
        assert seen.tags <= set(TAGS)
        assert not {name for name in seen.attributes if name.startswith("on") or name in ("src", "action", "srcset")}
        assert set(re.findall(r"href=\"(.)", page)) <= {"#", "d"}  # inside the page, and an empty icon
        assert "@import" not in page
        assert set(re.findall(r"url\((.)", page)) <= {"#"}
        assert "default-src 'none'" in page


def test_identifiers_are_there_once_and_what_is_referred_to_is_there(finished):
    page = page_of(finished)
    identifiers = Seen(page).identifiers
    assert len(set(identifiers)) == len(identifiers)
    referred = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert referred
    assert referred <= set(identifiers)


def test_hostile_names_and_values_are_words_and_nothing_else(finished):
    page, seen = page_of(finished), Seen(page_of(finished))
    assert HOSTILE in seen.words
    assert f"2 {HOSTILE}"[:80] in seen.words
    assert "<script" not in page
    assert "<img" not in page


def test_every_figure_says_what_it_shows(finished, updated):
    for page in (page_of(finished), page_of(updated)):
        figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
        assert len(figures) >= 3
        for figure in figures:
            assert len(re.search(r'role="img" aria-label="([^"]+)"', figure)[1]) > 30
            assert re.search(r"<figcaption>.{20,}</figcaption>", figure, re.DOTALL)
            assert "currentColor" in figure


def test_the_same_run_gives_the_same_bytes_whatever_the_settings_of_matplotlib(finished, tmp_path):
    import matplotlib as mpl

    with mpl.rc_context({"axes.linewidth": 7, "text.color": "red", "svg.fonttype": "none"}):
        write_page(Output(finished / "out"), tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page_of(finished)


# ---------------------------------------------------------------- true


def looked_up(value, key):
    for part in key.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_every_number_of_a_page_is_that_of_the_run(finished, updated, method):
    folder = finished if method == "exact" else updated
    path = in_force(folder).path
    metrics, description = (json.loads((path / name).read_text()) for name in ("metrics.json", "run.json"))
    keys = set()
    for key, value, words in Seen(page_of(folder)).numbers:
        assert words.strip()
        if key is None:
            continue
        keys.add(key)
        if key.startswith("drift:"):
            expected = metrics["drift"][key.removeprefix("drift:")]
        elif key.startswith("health:"):
            path, measure = key.removeprefix("health:").rsplit(":", 1)
            expected = metrics["health"][path][measure]["value"]
        elif key.startswith("run:"):
            expected = looked_up(description, key.removeprefix("run:"))
        else:
            expected = looked_up(metrics, key)
        assert json.loads(value) == expected, key
    assert {"n_samples", "n_features", "eigenvalues.0", "eigenvalues.2", "certificate.missed_bound"} <= keys
    assert {"run:seconds", "run:peak_memory", "explained_variance", "kernel.gamma"} <= keys
    own = {"n_passes", "run:plan.seconds", "run:plan.peak_memory", "certificate.total_variance"}
    assert (own if method == "exact" else {"certificate.trace_residual", "relative_residual"}) <= keys


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_a_page_says_how_much_of_the_scores_pca_has(finished, updated, method):
    folder = finished if method == "exact" else updated / "base"
    output = Output(folder / "out" if method == "exact" else folder)
    metrics = json.loads((output.require_latest().path / "metrics.json").read_text())
    write_page(output, page := folder / "beside.html")
    seen = Seen(page.read_text(encoding="utf-8"))
    assert "Beside PCA: linear functions of the features make" in seen.words
    numbers = {key: json.loads(value) for key, value, _ in seen.numbers if key}
    assert numbers["linear_share.linear"] == metrics["linear_share"]["linear"]
    # two features: there are no more principal components than all
    assert "linear_share.leading" not in numbers
    assert 0.2 < numbers["linear_share.linear"] < 0.95, "three components of an rbf kernel are not linear"


@pytest.mark.usefixtures("words_only")
def test_of_more_features_than_components_a_page_says_what_the_first_of_pca_have(copy):
    change(copy, "metrics.json", n_features=9, linear_share={"linear": 0.75, "leading": 0.5})
    write_page(Output(copy / "out"))
    words = "".join(Seen(page_of(copy)).words.split())
    assert "make75.00%ofthevarianceofthesescores(50.00%fromthefirst3principalcomponents).Therest,25.00%,is" in words


def test_an_update_says_nothing_of_pca(updated):
    assert json.loads((in_force(updated).path / "metrics.json").read_text())["linear_share"] is None
    assert "Beside PCA" not in Seen(page_of(updated)).words


def test_an_update_shows_its_own_rows_and_says_so(updated):
    seen, path = Seen(page_of(updated)), str((updated / "days" / "second.parquet").resolve())
    assert "These are the scores of the 10 rows that this update has added" in seen.words
    assert "An update keeps no plan" in seen.words
    assert f"drift:{path}" in {key for key, _, _ in seen.numbers}
    assert "second.parquet" in seen.words
    assert "this update" in seen.words


@pytest.mark.usefixtures("words_only")
def test_what_is_unlike_the_fit_is_marked_with_its_column(updated, tmp_path):
    metrics = json.loads((Output(updated / "out").require_latest().path / "metrics.json").read_text())
    path = str((updated / "days" / "second.parquet").resolve())
    assert set(metrics["health"]) == {path}
    keys = {key for key, _, _ in Seen(page_of(updated)).numbers}
    assert {f"health:{path}:{measure}" for measure in metrics["health"][path]} <= keys
    folder = Path(shutil.copytree(updated, tmp_path / "copy"))
    entries = {"mean": {"value": 7.5, "where": "<x0>"}, "psi": {"value": 0.0, "where": "pc_001"}}
    change(folder, "metrics.json", health={path: entries | {"outside": {"value": None, "where": "x1"}}})
    write_page(Output(folder / "out"))
    page = page_of(folder)
    assert re.search(
        r"<strong><data [^>]*>7\.5</data></strong> <small>above <data .*?</data></small> <small>&lt;x0&gt;</small>",
        page,
    )
    assert re.search(r"<strong><em>not finite</em></strong> <small>above .*?</small> <small>x1</small>", page)
    assert "pc_001</small>" not in page
    assert "<em>psi</em>: population stability index of its scores; the limit is <data" in page


@pytest.mark.usefixtures("words_only")
def test_drift_beyond_its_threshold_is_marked(updated, tmp_path):
    folder = Path(shutil.copytree(updated, tmp_path / "copy"))
    change(folder, "metrics.json", drift={str((updated / "days" / "second.parquet").resolve()): None})
    write_page(Output(folder / "out"))
    assert "<strong><em>not finite</em></strong> <small>above" in page_of(folder)


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize(
    ("drift", "psi", "words"),
    [
        (1.0, 0.0, "No new partition is above a limit of drift or health."),
        (99.0, 0.0, "1 of 1 new partitions is above a limit of drift or health: second.parquet."),
        (1.0, None, "1 of 1 new partitions is above a limit of drift or health: second.parquet."),
    ],
)
def test_a_page_says_first_which_partitions_are_above_a_limit(updated, tmp_path, drift, psi, words):
    folder = Path(shutil.copytree(updated, tmp_path / "copy"))
    path = str((updated / "days" / "second.parquet").resolve())
    change(folder, "metrics.json", drift={path: drift}, health={path: {"psi": {"value": psi, "where": "pc_000"}}})
    write_page(Output(folder / "out"))
    lead = re.search(r'<p class="lead">(.*?)</p>', page_of(folder), re.DOTALL)[1]
    assert words in Seen(lead).words


@pytest.mark.usefixtures("words_only")
def test_only_the_first_of_many_partitions_above_a_limit_are_named(updated, tmp_path):
    folder = Path(shutil.copytree(updated, tmp_path / "copy"))
    change(folder, "metrics.json", drift={f"days/{day}.parquet": 99.0 for day in range(5)}, health={})
    write_page(Output(folder / "out"))
    words = Seen(page_of(folder)).words
    assert "5 of 5 new partitions are above a limit of drift or health: 0.parquet, 1.parquet, 2.parquet, …" in words


@pytest.mark.usefixtures("words_only")
def test_a_base_run_has_no_new_partitions_to_judge(updated, tmp_path):
    write_page(Output(updated / "base"), tmp_path / "base.html")
    assert "above a limit" not in Seen((tmp_path / "base.html").read_text(encoding="utf-8")).words


def test_long_names_of_files_and_columns_wrap_inside_their_table(updated):
    page = page_of(updated)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    for selector in ("th .name", "td small"):
        rule = re.search(rf"^{selector} {{(.*?)}}", style, re.DOTALL | re.MULTILINE)[1]
        assert {"white-space: normal", "overflow-wrap: anywhere"} <= {part.strip() for part in rule.split(";")}
    assert re.search(r'<th scope="row"><span class="name" title="[^"]*second.parquet">second.parquet</span></th>', page)


@pytest.mark.usefixtures("words_only")
def test_an_update_that_only_takes_away_has_no_scores_and_says_so(updated, tmp_path):
    folder = Path(shutil.copytree(updated, tmp_path / "copy"))
    update_output(Output(folder / "out"), None, folder, withdraw=["second.parquet"])
    write_page(Output(folder / "out"))
    seen = Seen(page_of(folder))
    assert "There are no scores to be shown" in seen.words
    assert "This update took away: second.parquet" in seen.words


@pytest.mark.usefixtures("words_only")
def test_a_page_of_a_base_run_lists_its_partitions(updated, tmp_path):
    write_page(Output(updated / "base"), tmp_path / "base.html")
    seen = Seen((tmp_path / "base.html").read_text(encoding="utf-8"))
    assert "first.parquet" in seen.words
    assert {"run:plan.n_landmarks", "certificate.n_landmarks"} <= {key for key, _, _ in seen.numbers}


@pytest.mark.parametrize(
    ("n_rows", "n_components", "words"),
    [(1, 1, "Scores on the only component; 1 row."), (12, 1, "Scores on the only component; 12 rows.")],
)
def test_one_component_is_a_histogram(tmp_path, n_rows, n_components, words):
    write_rows(tmp_path / "data", "rows", rows_of(3, n_rows))
    run(tmp_path, n_components=n_components, novelty=True)
    write_page(Output(tmp_path / "out"))
    assert words in Seen(page_of(tmp_path)).words


def test_rows_that_are_all_the_same_have_no_components_and_a_page(tmp_path):
    write_rows(tmp_path / "data", "rows", np.ones((6, 2)))
    run(tmp_path, n_components=None, novelty=True)
    write_page(Output(tmp_path / "out"))
    seen = Seen(page_of(tmp_path))
    assert json.loads((in_force(tmp_path).path / "metrics.json").read_text())["n_components"] == 0
    assert "there are no components" in seen.words
    assert "There are no scores to be shown" in seen.words


def test_numbers_that_are_not_finite_are_said_to_be_so(copy):
    certificate = json.loads((in_force(copy).path / "metrics.json").read_text())["certificate"]
    certificate |= {"missed_bound": None, "eigenvalue_bounds": [None, None, None], "total_variance": None}
    change(copy, "metrics.json", certificate=certificate, eigenvalues=[None, 2.0, 0.0], explained_variance=None)
    change(copy, "run.json", seconds=None, residuals_by_pass=[[None, None], [1.0, None]])
    write_page(Output(copy / "out"))
    words = Seen(page_of(copy)).words
    assert "Every other eigenvalue is at most not finite" in words
    assert "have no bound" in words


def test_the_curve_of_residuals_is_there_where_a_solver_has_measured_them(copy):
    assert passes(read_account(in_force(copy))) == ""
    change(copy, "run.json", residuals_by_pass=[[1e-2, 1e-3], [1e-5, 1e-6], [1e-9, 0.0]])
    assert "Residual norms of the wanted pairs" in passes(read_account(in_force(copy)))


def test_a_run_says_how_much_memory_its_process_had(finished):
    recorded = json.loads((in_force(finished).path / "run.json").read_text())["peak_memory"]
    assert 2**24 < recorded <= peak_memory()


def test_a_run_of_an_earlier_version_has_a_page_without_what_it_did_not_record(copy):
    path = in_force(copy).path / "run.json"
    description = json.loads(path.read_text())
    write_json(path, {name: value for name, value in description.items() if name != "peak_memory"})
    commit(in_force(copy))
    assert "not recorded" in plan_and_actual(read_account(in_force(copy)))


def test_where_nothing_is_certified_no_bound_is_stated(updated, tmp_path):
    folder = Path(shutil.copytree(updated, tmp_path / "copy"))
    known = json.loads((in_force(folder).path / "metrics.json").read_text())["certificate"]
    change(folder, "metrics.json", certificate=known | {"certified": False, "completeness": "nothing is known"})
    words = certificate(read_account(in_force(folder)))
    assert "nothing is certified" in words
    assert "nothing is known." in words
    assert "at most" not in words
    assert "larger" not in words


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("name", ["metrics.json", "run.json", "embedding/part-00000.parquet"])
@pytest.mark.usefixtures("words_only")
def test_what_is_not_as_committed_is_not_believed(copy, name):
    before = page_of(copy)
    damaged = in_force(copy).path / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    answer = CliRunner().invoke(skpca, ["report", str(copy / "out")])
    assert answer.exit_code == 74
    assert name in answer.stderr
    assert page_of(copy) == before


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("metrics.json", {"eigenvalues": [1.0]}),
        ("metrics.json", {"eigenvalues": ["<b>", 1.0, 1.0]}),
        ("metrics.json", {"n_samples": -1}),
        ("metrics.json", {"n_components": 2}),
        ("metrics.json", {"certificate": None}),
        ("metrics.json", {"linear_share": {"linear": "all", "leading": 1.0}}),
        ("run.json", {"config": []}),
        ("run.json", {"versions": {"numpy": ["1"]}}),
        ("run.json", {"plan": {"seconds": "soon"}}),
    ],
)
def test_fields_of_the_wrong_kind_are_refused_by_name(copy, name, fields):
    change(copy, name, **fields)
    with pytest.raises(StorageError, match=rf"{name} is damaged.*repairs it"):
        read_account(in_force(copy))


def test_a_configuration_however_deep_is_read_or_refused_by_name(copy):
    path = in_force(copy).path / "run.json"
    description = json.loads(path.read_text())
    description["config"]["more"] = "nested"
    refused = []
    for depth in (10, *range(900, 1000, 20), 5000):
        path.write_text(json.dumps(description).replace('"nested"', depth * "[" + depth * "]"))
        commit(in_force(copy))
        try:
            read_account(in_force(copy))
        except StorageError as error:
            assert "nested too deeply" in str(error)  # noqa: PT017 - some depths are read
            refused.append(depth)
    assert 10 not in refused
    assert 5000 in refused


def test_what_no_encoding_has_and_no_axis_holds_is_written_all_the_same(copy):
    metrics = json.loads((in_force(copy).path / "metrics.json").read_text())
    vast = metrics["certificate"] | {"eigenvalue_bounds": [1e308] * 3, "explained_variance_ratio": [1e308] * 3}
    change(
        copy,
        "metrics.json",
        certificate=vast,
        eigenvalues=[1e308, 1e-300, -1.0],
        linear_share={"linear": 1e308, "leading": None},
        kernel={"name": "\ud800", "a": 10**307},
    )
    plan = {"seconds": 1e-300, "peak_memory": 1, "expected_passes": 1}
    change(copy, "run.json", host="\udcff", peak_memory=10**307, plan=plan, residuals_by_pass=[[1e308], [1e-308]])
    write_page(Output(copy / "out"))
    assert "? kernel" in Seen(page_of(copy)).words


def test_a_file_that_no_run_has_committed_is_not_read(copy):
    (in_force(copy).path / "ledger.json").write_text("{}")
    assert read_account(in_force(copy)).ledger is None


@pytest.mark.usefixtures("words_only")
def test_scores_of_another_kind_are_refused(copy):
    path = in_force(copy).path / "embedding" / "part-00000.parquet"
    for table in (
        pa.table({"pc_000": ["a"], "pc_001": [1.0], "novelty": [0.0]}),
        pa.table({"pc_000": [None], "pc_001": [1.0], "novelty": [0.0]}),
        pa.table({"pc_000": [1.0], "novelty": [0.0]}),
        pa.table([[1.0]] * 4, names=["pc_000", "pc_000", "pc_001", "novelty"]),
    ):
        pq.write_table(table, path)
        commit(in_force(copy))
        with pytest.raises(StorageError, match=r"part-00000\.parquet"):
            write_page(Output(copy / "out"))
    path.write_bytes(b"PAR1 and nothing else")
    commit(in_force(copy))
    with pytest.raises(StorageError, match=r"no part that skpca writes"):
        write_page(Output(copy / "out"))


def test_scores_that_are_not_finite_are_left_out_and_counted(copy):
    values = [0.0, 1.0, np.nan, np.inf, 1e300]
    table = pa.table({"pc_000": values, "pc_001": [1.0] * 5, "novelty": values})
    pq.write_table(table, in_force(copy).path / "embedding" / "part-00000.parquet")
    commit(in_force(copy))
    write_page(Output(copy / "out"))
    assert "2 rows (3 more are not finite)" in Seen(page_of(copy)).words


COMMANDS = [
    (["report", "out", "--colour", "absent"], 78, "no column of numbers or texts"),
    (["report", "out", "--to", "page.txt"], 78, "does not end in .html"),
    (["report", "out", "--to", "out/LOCK"], 78, "does not end in .html"),
    (["report", "out", "--to", "out/runs/page.html"], 78, "lies among the runs"),
    (["report", "out", "--to", "absent/page.html"], 74, "No such file"),
    (["report", "out", "--to", "data"], 2, "is a directory"),
    (["report", "data"], 74, "holds no finished run"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), COMMANDS)
@pytest.mark.usefixtures("words_only")
def test_what_cannot_be_ends_with_its_exit_code_and_writes_nothing(copy, monkeypatch, arguments, code, words):
    monkeypatch.chdir(copy)
    before = sorted(copy.rglob("*"))
    answer = CliRunner().invoke(skpca, arguments)
    assert answer.exit_code == code, answer.output
    assert words in answer.stderr
    assert sorted(copy.rglob("*")) == before


def test_without_matplotlib_the_remedy_is_named(finished, monkeypatch):
    monkeypatch.setattr(canvas.importlib.util, "find_spec", lambda _: None)
    answer = CliRunner().invoke(skpca, ["report", str(finished / "out")])
    assert answer.exit_code == 78
    assert 'pip install "scalable-kpca[report]"' in answer.stderr


def test_a_directory_is_never_replaced_by_a_page(copy):
    (copy / "out" / "report.html").unlink()
    (copy / "out" / "report.html").mkdir()
    (copy / "out" / "report.html" / "mine").touch()
    with pytest.raises(StorageError, match=r"report\.html"):
        replace_page(copy / "out" / "report.html", "a page")
    assert (copy / "out" / "report.html" / "mine").exists()
    assert [path.name for path in (copy / "out").iterdir() if path.name.startswith(".")] == []


# ---------------------------------------------------------------- beside the rest


@pytest.mark.usefixtures("words_only")
def test_the_command_answers_in_one_line_and_its_page_is_its_owners(copy):
    (copy / "out" / "report.html").unlink()
    answer = CliRunner().invoke(skpca, ["report", str(copy / "out"), "--json"])
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    page = Path(found["page"])
    assert page == copy / "out" / "report.html"
    assert found["bytes"] == page.stat().st_size
    assert found["colour"] == HOSTILE
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    page.chmod(0o644)
    write_page(Output(copy / "out"))
    assert stat.S_IMODE(page.stat().st_mode) == 0o644


def test_other_commands_pass_a_page_over_and_leave_it(copy):
    before = page_of(copy)
    assert verify_output(Output(copy / "out")).problems == []
    assert inspect_output(Output(copy / "out")).problems == []
    (copy / "out" / ".report.html.1.new").write_text("of a command that was killed")
    source = {"uri": "data/*.parquet", "id": "id", "features": "x*", "passthrough": HOSTILE}
    again = execute(prepare(Config.model_validate(settings(source=source, novelty=True)), copy))
    assert again.status == "unchanged"
    assert page_of(copy) == before
    assert not (copy / "out" / ".report.html.1.new").exists()


def test_a_source_that_would_read_the_page_is_refused(tmp_path):
    assert "report.html" in WRITES
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "report.parquet").touch()
    with pytest.raises(ConfigError, match="choose another output"):
        check_separate("output.path", tmp_path / "out", WRITES, "*/report.*", tmp_path)


# ---------------------------------------------------------------- samples and colours


def write_scores(folder, n_rows, part=0, seed=0, **more):
    rng = np.random.default_rng(seed)
    table = pa.table({**more, "pc_000": rng.normal(size=n_rows), "pc_001": np.arange(float(n_rows))})
    folder.mkdir(exist_ok=True)
    path = folder / f"part-{part:05d}.parquet"
    pq.write_table(table, path, row_group_size=1000)
    return path


def test_a_sample_is_drawn_once_each_over_all_parts_and_by_its_seed(tmp_path):
    parts = [write_scores(tmp_path, n_rows, part) for part, n_rows in enumerate((70_000, 0, 30))]
    drawn = [read_sample(parts, ["pc_001"], novelty=False, colour=None, size=500, seed=s) for s in (0, 0, 1)]
    assert [found.n_rows for found in drawn] == [70_030] * 3
    places = drawn[0].scores[:, 0]
    assert len(np.unique(places)) == len(places) == 500
    assert places.max() > 60_000  # beyond the first batch
    np.testing.assert_array_equal(places, drawn[1].scores[:, 0])
    assert not np.array_equal(places, drawn[2].scores[:, 0])
    everything = read_sample(parts, ["pc_001"], novelty=False, colour=None, size=70_030)
    np.testing.assert_array_equal(everything.scores[:, 0], [*range(70_000), *range(30)])


def test_values_stand_beside_the_scores_of_their_rows(tmp_path):
    n_rows = 40_000
    part = write_scores(tmp_path, n_rows, **{"a.b": [f"row {row}" for row in range(n_rows)], "a": np.arange(n_rows)})
    for name in ("a.b", "a"):
        found = read_sample([part], ["pc_001"], novelty=False, colour=name, size=300)
        rows = [int(str(value).removeprefix("row ")) for value in found.values]
        assert rows == found.scores[:, 0].tolist()


def test_the_first_fit_column_colours_the_rows(tmp_path):
    names = [f"n{row}" for row in range(50)]
    lists = pa.array([[1]] * 50)
    empty = write_scores(tmp_path, 0, 0, many=[], few=[], number=[], list=[])
    part = write_scores(tmp_path, 50, 1, many=names, few=["a", None] * 25, number=range(50), list=lists)
    for candidates, expected in (
        (["many", "few", "number"], "few"),
        (["number", "few"], "number"),
        (["list", "many"], None),
        (["absent"], None),
    ):
        assert choose_colour([empty, part], None, candidates) == expected
    assert choose_colour([empty, part], "many", []) == "many"
    assert choose_colour([empty], "many", []) is None
    with pytest.raises(ConfigError, match="there are 'many', 'few'"):
        choose_colour([part], "list", [])


def test_colours_are_groups_of_few_values_and_a_scale_of_many_numbers():
    few = colouring_of([10, 9, None, 9])
    assert few.names == ("9", "10", ABSENT)
    assert few.groups.tolist() == [1, 0, 2, 0]
    many = colouring_of([f"n{row}" for row in range(30)] + ["n7"] * 5)
    assert len(many.names) == MOST_GROUPS
    assert many.names[-1] == OTHERS
    assert "n7" in many.names
    scale = colouring_of([*range(100), None, float("inf")])
    assert scale.groups is None
    assert np.isnan(scale.shades[-2:]).all()
    assert (scale.shades[0], scale.shades[99]) == (0, 1)
    assert colouring_of([True, False]).names == ("False", "True")


@pytest.mark.parametrize("colour", ["kind", "weight", None])
def test_many_rows_are_counted_in_hexagons(finished, tmp_path, colour):
    n_rows = 6000
    part = write_scores(tmp_path, n_rows, kind=[f"kind {row % 12}" for row in range(n_rows)], weight=np.arange(n_rows))
    sample = read_sample([part], ["pc_000", "pc_001"], novelty=False, colour=colour)
    found = scores(read_account(in_force(finished)), sample, colour)
    assert "each hexagon counts rows" in found
    assert len(found) < 400_000
    assert (OTHERS in found) is (colour == "kind")
    assert ("linear-gradient" in found) is (colour == "weight")


@pytest.mark.slow
def test_memory_does_not_depend_on_the_number_of_rows(tmp_path):
    program = """
import sys
from pathlib import Path
from scalable_kpca.machine import peak_memory
from scalable_kpca.workflow.score_sample import read_sample
part = [Path(sys.argv[1])]
read_sample(part, ["pc_000", "pc_001"], novelty=False, colour="kind")
print(peak_memory())
"""
    peaks = []
    for n_rows in (200_000, 4_000_000):
        part = tmp_path / f"{n_rows}.parquet"
        column = np.arange(float(n_rows))
        kinds = pa.array(np.arange(n_rows) % 7).cast(pa.string())
        pq.write_table(pa.table({"kind": kinds, "pc_000": column, "pc_001": column}), part, row_group_size=2**16)
        command = [sys.executable, "-c", program, str(part)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        peaks.append(int(answer.stdout))
    # the larger file has 64 MB of scores
    assert peaks[1] - peaks[0] < 2**24


# ---------------------------------------------------------------- words


def test_every_field_of_a_template_is_escaped_and_none_is_a_template():
    assert html("<b>$text</b>", text="<i>$text</i>") == "<b>&lt;i&gt;$text&lt;/i&gt;</b>"
    assert html("<b>$text</b>", text=Html("<i></i>")) == "<b><i></i></b>"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (1797, "1\u202f797"),
        (0.0, "0"),
        (2.0, "2"),
        (106.53127, "106.5"),
        (12345.6, "12\u202f346"),
        (9.99996, "10"),
        (-0.00431609, "−0.004316"),
        (2.83e-10, "2.83\u202f×\u202f10⁻¹⁰"),
        (5e-324, "4.941\u202f×\u202f10⁻³²⁴"),
        (1.5e20, "1.5\u202f×\u202f10²⁰"),
        (10**30, "1\u202f×\u202f10³⁰"),
    ],
)
def test_numbers_are_spelled_for_people(value, words):
    assert spell(value) == words
    assert json.dumps(value) in number(value)


def test_a_share_that_is_not_all_is_not_said_to_be_all():
    assert "100.00" not in percent(0.9999999)
    assert ">100.00\u202f%<" in percent(1.0)
    assert ">62.6\u202f%<" not in percent(0.62597)
    assert ">1\u202f×\u202f10⁻⁷\u202f%<" in percent(1e-9)
    assert "not finite" in percent(None)
