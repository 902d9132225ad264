"""Outputs from somebody else: no name in them leads out, and nothing outside is read, hashed, written or removed."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca.documents import MAX_JSON_BYTES
from scalable_kpca.errors import InvalidInputError, StorageError
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.files import file_digest, read_json, remove_tree, write_json
from scalable_kpca.workflow.inspect import inspect_output, verify_output
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.ledger import Ledger
from scalable_kpca.workflow.page import write_page
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import execute, prepare
from scalable_kpca.workflow.update import update_output
from tests.security.hostile import out_of_reach, untouched

KINDS = ("exact", "nystroem")


def settings(method):
    return {
        "source": {"uri": "data/*.parquet", "id": "id", "features": "x*"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "n_components": 2,
        "method": method,
        "nystroem": {"n_landmarks": 8},
        "cluster": {"kind": "synchronous"},
        "output": {"path": method},
    } | ({"gram": "zarr", "tile_rows": 16} if method == "exact" else {})


def write_day(folder, day):
    rows = np.random.default_rng(day).normal(size=(40, 2))
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": range(40), "x0": rows[:, 0], "x1": rows[:, 1]}), folder / f"day-{day}.parquet")


def run(folder, method):
    return execute(prepare(Config.model_validate(settings(method)), folder))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a source, an exact output and an updated Nyström output."""
    folder = tmp_path_factory.mktemp("finished")
    write_day(folder / "data", 1)
    write_day(folder / "more", 2)
    for method in KINDS:
        run(folder, method)
    update_output(Output(folder / "nystroem"), "more/*.parquet", folder)
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "copy"))


@pytest.fixture
def outside(tmp_path, finished):
    """A place that is none of the output's business, and looks as if it were."""
    place = tmp_path / "outside"
    shutil.copytree(Output(finished / "exact").require_latest().path, place / ("0" * 64))
    (place / "secret.txt").write_text("a secret")
    return place


def in_force(folder, method="exact"):
    return Output(folder / method).require_latest().path


def attempts(folder, method):
    """Everything that reads or goes on with an output: the named errors of those that are refused."""
    output, errors = Output(folder / method), []
    for attempt in (
        lambda: inspect_output(output),
        lambda: verify_output(output),
        lambda: transform_source(output, "data/*.parquet", folder, folder / "scores"),
        lambda: write_page(output, folder / "scores.html"),
        lambda: update_output(output, None, folder, withdraw=["day-2.parquet"]),
        lambda: run(folder, method),
    ):
        try:
            attempt()
        except (StorageError, InvalidInputError, ValueError) as error:
            errors.append(error)
        shutil.rmtree(folder / "scores", ignore_errors=True)
        (folder / "scores.html").unlink(missing_ok=True)
    return errors


# ---------------------------------------------------------------- names

OUTSIDE = "../../outside/" + 64 * "0"
POINTERS = [
    OUTSIDE,
    "../" + 64 * "0",
    "..",
    ".",
    "",
    "/",
    "0" * 63,
    "A" * 64,
    "0" * 64 + "\n",
    "٠" * 64,
    0,
    None,
    ["0"],
]


@pytest.mark.parametrize("name", POINTERS, ids=repr)
def test_a_pointer_to_anything_but_a_run_is_refused(copy, outside, name):
    (copy / "exact" / "latest.json").write_text(json.dumps({"run": name}))
    with out_of_reach(outside), untouched(copy):
        with pytest.raises(StorageError, match=r"latest\.json does not name a committed run; run the job again"):
            verify_output(Output(copy / "exact"))
        report = inspect_output(Output(copy / "exact"))
    assert "latest.json does not name a committed run; run the job again" in report.problems[0]
    assert report.facts["in force"] == "none"


def test_a_run_is_named_by_its_digits_only(copy):
    with pytest.raises(StorageError, match="64 hexadecimal digits"):
        Output(copy / "exact").run(OUTSIDE)
    (copy / "exact" / "runs" / "lost+found").mkdir()
    assert [found.path for found in Output(copy / "exact").runs()] == [in_force(copy)]


def entry(path="metrics.json", size=1, digest="0" * 64):
    return {"path": path, "bytes": size, "sha256": digest}


SECRET = 8, hashlib.sha256(b"a secret").hexdigest()  # whoever knows what is in a file can give its digest
ENTRIES = [
    [entry(str(Path(os.sep, "etc", "hostname")))],
    [entry("../../../../outside/secret.txt", *SECRET)],
    [entry("model/../../../../../outside/secret.txt", *SECRET)],
    [entry("model/./model.json")],
    [entry("model//model.json")],
    [entry("model/")],
    [entry(".")],
    [entry("")],
    [entry("..")],
    [entry("model\0")],
    [entry("model\ud800")],
    [entry("model")],
    [entry("COMMIT.json")],
    [entry("journal/000001.npz")],
    [entry("model/" + "a" * 5000)],
    [entry(), entry()],
    [entry(size=-1)],
    [entry(size=True)],
    [entry(size=1.0)],
    [entry(size="1")],
    [entry(digest="0" * 63)],
    [entry(digest=None)],
    [entry(path=None)],
    [entry(path=["model"])],
    [{}],
    ["metrics.json"],
    [None],
    "metrics.json",
    5,
    None,
]


@pytest.mark.parametrize("entries", ENTRIES, ids=lambda entries: repr(entries)[:60])
def test_a_commit_list_with_anything_but_files_of_results_is_a_problem_and_is_not_followed(copy, outside, entries):
    place = in_force(copy)
    (place / "COMMIT.json").write_text(json.dumps({"fingerprint": place.name, "files": entries}))
    with out_of_reach(outside), untouched(copy):
        assert len(verify_output(Output(copy / "exact")).problems) == 1


OWN = ["../../../../outside/secret.txt", "/etc/hostname", "contributions/../model/model.json", "journal/x.npz", "", 5]


@pytest.mark.parametrize("own", OWN, ids=repr)
def test_a_ledger_whose_sums_are_elsewhere_is_damaged(copy, outside, own):
    place = in_force(copy, "nystroem")
    fields = json.loads((place / "ledger.json").read_text())
    assert Ledger.read(place).partitions[-1].own is not None
    fields["partitions"][-1]["own"] = own
    (place / "ledger.json").write_text(json.dumps(fields))
    commit = json.loads((place / "COMMIT.json").read_text())
    for listed in commit["files"]:
        if listed["path"] == "ledger.json":  # whoever writes to an output can make its digests fit
            listed |= {"bytes": (place / "ledger.json").stat().st_size, "sha256": file_digest(place / "ledger.json")}
    (place / "COMMIT.json").write_text(json.dumps(commit))
    with out_of_reach(outside), untouched(copy):
        assert verify_output(Output(copy / "nystroem")).problems == []
        for names in (["day-1.parquet"], ["day-2.parquet"]):
            with pytest.raises(StorageError, match="missing or damaged"):
                update_output(Output(copy / "nystroem"), None, copy, withdraw=names)


@pytest.mark.parametrize(
    "changes",
    [{"path": 5}, {"fingerprint": "../x"}, {"rows": -1}, {"rows": "1"}, {"residual": "1"}, {"more": 1}],
    ids=str,
)
def test_a_ledger_with_other_fields_is_damaged(copy, changes):
    place = in_force(copy, "nystroem")
    fields = json.loads((place / "ledger.json").read_text())
    fields["partitions"][0] |= changes
    (place / "ledger.json").write_text(json.dumps(fields))
    with pytest.raises(StorageError, match=r"ledger\.json is missing or damaged"):
        Ledger.read(place)


# ---------------------------------------------------------------- links

PIECES = {
    "exact": [
        *(
            "../../runs",
            ".",
            "COMMIT.json",
            "run.json",
            "metrics.json",
            "model",
            "model/arrays.zarr",
            "model/model.json",
        ),
        *("model/arrays.zarr/rows/c", "embedding", "embedding/part-00000.parquet", "rows.zarr", "rows.zarr/c/0/0"),
        *("labels", "labels/KEY.json", "labels/part-00000.parquet", "plan.json"),
        *("gram.zarr", "gram.zarr/zarr.json", "gram.zarr/tiles/c/0", "gram.zarr/tiles/c/0/1", "gram.zarr/row_sums/c/0"),
    ],
    "nystroem": ["ledger.json", "contributions", "contributions/*.npz"],
}


@pytest.mark.parametrize("committed", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "piece"), [(method, piece) for method in KINDS for piece in PIECES[method]])
def test_what_a_link_in_an_output_leads_to_is_never_read_or_changed(copy, tmp_path, method, piece, committed):
    base = in_force(copy, method)
    if not committed:
        (copy / method / "latest.json").unlink()
        if piece != "COMMIT.json":
            (base / "COMMIT.json").unlink()
    place = next(base.glob(piece)) if "*" in piece else Path(os.path.normpath(base / piece))
    target = tmp_path / "outside" / "target"
    target.parent.mkdir()
    place.rename(target)
    place.symlink_to(target)
    with out_of_reach(target.parent):
        attempts(copy, method)


@pytest.mark.parametrize(
    "piece", ["model", "embedding", "metrics.json", "gram.zarr", "labels", "journal", "../../runs"]
)
def test_a_link_in_the_place_of_a_piece_of_a_run_is_named_and_nothing_changes(copy, outside, piece):
    place = Path(os.path.normpath(in_force(copy) / piece))
    remove_tree(place)
    place.symlink_to(outside / ("0" * 64) / "model")
    with out_of_reach(outside), untouched(copy / "exact"):
        errors = attempts(copy, "exact")
    assert len(errors) == 6
    assert all(f"{place} is a link, which is not followed; remove the link and run again" in str(e) for e in errors)


def test_a_link_among_results_is_not_committed(copy, outside):
    place = in_force(copy, "nystroem") / "contributions" / "more.npz"
    place.symlink_to(outside / "secret.txt")
    with out_of_reach(outside), pytest.raises(StorageError, match=r"more\.npz is a link, which is not committed"):
        Output(copy / "nystroem").require_latest().flushed_results()


def test_another_run_behind_a_link_gives_nothing_away(copy, outside):
    (copy / "exact" / "runs" / ("0" * 64)).symlink_to(outside / ("0" * 64))
    (in_force(copy) / "COMMIT.json").unlink()
    with out_of_reach(outside), pytest.raises(StorageError, match="is a link, which is not followed"):
        run(copy, "exact")


def test_removing_a_link_removes_the_link_only(tmp_path, outside):
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with out_of_reach(outside):
        for name in ("link", "dangling"):
            remove_tree(tmp_path / name)
            assert not (tmp_path / name).is_symlink()


def test_a_link_with_the_name_of_a_file_in_the_making_is_not_written_through(tmp_path, outside):
    for name in (f".latest.json.{os.getpid()}.new", "latest.json"):
        (tmp_path / name).symlink_to(outside / "secret.txt")
    with out_of_reach(outside):
        write_json(tmp_path / "latest.json", {"run": "0"})
    assert read_json(tmp_path / "latest.json") == {"run": "0"}
    assert not (tmp_path / "latest.json").is_symlink()


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize("name", ["latest.json", "COMMIT.json", "ledger.json", "run.json"])
@pytest.mark.parametrize(
    "text", [b"[" * 10**5, b'{"run": 1e999}', b'{"a": 1, "a": 2}', b"9" * 5000, None], ids=range(5)
)
def test_json_of_a_run_that_is_not_plain_is_damage_and_named(copy, name, text):
    place = (copy / "nystroem" if name == "latest.json" else in_force(copy, "nystroem")) / name
    if text is None:
        with place.open("r+b") as stream:
            stream.truncate(MAX_JSON_BYTES + 1)
    else:
        place.write_bytes(text)
    with untouched(copy), pytest.raises(StorageError, match=rf"{name} is damaged"):
        read_json(place)
    with untouched(copy), pytest.raises(StorageError, match=r"damaged|differs|bytes"):
        update_output(Output(copy / "nystroem"), None, copy, withdraw=["day-2.parquet"])


def test_numbers_that_json_does_not_have_are_written_as_null(tmp_path):
    write_json(tmp_path / "any.json", {"a": [float("nan"), (1.5, float("-inf"))], "b": 2})
    assert read_json(tmp_path / "any.json") == {"a": [None, [1.5, None]], "b": 2}


def test_json_that_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(StorageError, match=f"at most {MAX_JSON_BYTES} are read again; use fewer, larger parts"):
        write_json(tmp_path / "any.json", "a" * MAX_JSON_BYTES)
    assert list(tmp_path.iterdir()) == []
