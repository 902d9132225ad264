"""New partitions join a Nyström model by their sums, old ones are never read again, withdrawn ones are taken away."""

import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from scalable_kpca.approximate import solve_model
from scalable_kpca.cli import skpca
from scalable_kpca.errors import ConfigError, InvalidInputError, LockedError, StorageError
from scalable_kpca.model import load_model
from scalable_kpca.nystroem import Accumulators, accumulate
from scalable_kpca.source import ArrayRows, RowsSpan
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.inspect import verify_output
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.lock import output_lock
from scalable_kpca.workflow.stages import Outcome, execute, prepare
from scalable_kpca.workflow.update import Update, update_output

N_ROWS, N_FEATURES, N_LANDMARKS = 60, 3, 20


def rows_of(day: int, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(day).normal(size=(N_ROWS, N_FEATURES)) + shift


def write_day(folder: Path, day: int, rows: np.ndarray | None = None, name: str | None = None) -> Path:
    """Parquet file of one day, whose ids and notes say which day and row they are of."""
    rows = rows_of(day) if rows is None else rows
    ids = [f"day {day} row {row}" for row in range(len(rows))]
    table = pa.table({"note": ids, "id": ids} | {f"x{column}": rows[:, column] for column in range(N_FEATURES)})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / (name or f"day-{day}.parquet"))
    return folder / (name or f"day-{day}.parquet")


def settings(**changes: object) -> dict[str, object]:
    return {
        "source": {"uri": "base/*.parquet", "id": "id", "features": "x*", "passthrough": "note"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "method": "nystroem",
        "nystroem": {"n_landmarks": N_LANDMARKS},
        "n_components": 4,
        "dtype": "float64",
        "cluster": {"kind": "synchronous"},
        "budget": {"memory": "3GiB"},
        "output": {"path": "out"},
        **changes,
    }


def run(folder: Path, **changes: object) -> Outcome:
    return execute(prepare(Config.model_validate(settings(**changes)), folder))


def update(folder: Path, uri: str | None = None, *withdraw: str) -> Update:
    return update_output(Output(folder / "out"), uri, folder, withdraw=withdraw)


@pytest.fixture
def base(tmp_path) -> Path:
    """Folder with a base run of the days 1 to 3."""
    for day in (1, 2, 3):
        write_day(tmp_path / "base", day)
    run(tmp_path)
    return tmp_path


def in_force(folder: Path) -> Path:
    return Output(folder / "out").require_latest().path


def fitted_at_once(basis, days: list[np.ndarray]):
    """Model of all rows in one go, by the same landmarks."""
    rows = np.concatenate(days)
    return solve_model(basis, accumulate(RowsSpan(ArrayRows(rows), 0, len(rows)), basis, 50), 4)


def table_of(run: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in sorted((run / "embedding").iterdir())])


def scores_of(table: pa.Table) -> np.ndarray:
    return np.column_stack([table[name].to_numpy() for name in table.column_names if name.startswith("pc_")])


def same_model(found, expected) -> None:
    # sums in another grouping differ by n·eps relative to them, n = 2000 at most
    tolerance = 1e-10 * expected.eigenvalues[0]
    assert found.n_samples == expected.n_samples
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=0, atol=tolerance)
    assert abs(found.certificate.trace_residual - expected.certificate.trace_residual) < tolerance
    rows = rows_of(99)
    np.testing.assert_allclose(found.scores(rows), expected.scores(rows), rtol=0, atol=1e-8)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in (folder / "out").rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


# ---------------------------------------------------------------- added


def test_a_model_with_fewer_landmarks_than_components_grows_too(tmp_path):
    for day in (1, 2):
        write_day(tmp_path / "base", day)
    # three features: no more than three landmarks explain a linear kernel, and the fourth component is zero
    run(tmp_path, kernel={"name": "linear"}, nystroem={"n_landmarks": N_LANDMARKS, "landmarks": "rpcholesky"})
    update(tmp_path, str(write_day(tmp_path / "new", 3)))
    model = load_model(in_force(tmp_path) / "model")
    assert model.basis.n_landmarks == 3
    assert model.n_samples == 3 * N_ROWS
    assert model.eigenvalues[3] == 0.0 < model.eigenvalues[2]


@pytest.mark.slow
def test_thirty_days_added_one_by_one_are_all_at_once(base):
    for day in range(4, 31):
        assert update(base, str(write_day(base / "new", day))).status == "done"
        (base / "new" / f"day-{day}.parquet").unlink()  # nothing may want to read it again
    model = load_model(in_force(base) / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(day) for day in range(1, 31)]))
    ledger = json.loads((in_force(base) / "ledger.json").read_text())
    assert [Path(entry["path"]).name for entry in ledger["partitions"]] == [
        f"day-{day}.parquet" for day in range(1, 31)
    ]
    assert [entry["own"] is None for entry in ledger["partitions"]] == [True] * 3 + [False] * 27
    assert verify_output(Output(base / "out")).problems == []


def test_scores_of_an_update_are_those_of_the_new_rows_by_the_new_model(base):
    write_day(base / "new", 4)
    write_day(base / "new", 5, rows_of(5)[:17])
    done = update(base, "new/*.parquet")
    table, model = table_of(done.run.path), load_model(done.run.path / "model")
    assert table.column_names == ["id", "note", "pc_000", "pc_001", "pc_002", "pc_003"]
    expected = [f"day 4 row {row}" for row in range(N_ROWS)] + [f"day 5 row {row}" for row in range(17)]
    assert table["id"].to_pylist() == table["note"].to_pylist() == expected
    rows = np.concatenate([rows_of(4), rows_of(5)[:17]])
    np.testing.assert_allclose(scores_of(table), model.scores(rows), rtol=0, atol=1e-12)


def test_a_source_with_old_and_new_files_adds_the_new_ones_and_numbers_their_parts_from_zero(base):
    first = in_force(base)
    for day in (10, 4):
        write_day(base / "base", day)
    done = update(base, "base/*.parquet")
    assert [Path(part.path).name for part in done.added] == ["day-4.parquet", "day-10.parquet"]
    assert [path.name for path in sorted((done.run.path / "embedding").iterdir())] == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    assert table_of(done.run.path)["id"].to_pylist()[::N_ROWS] == ["day 4 row 0", "day 10 row 0"]
    description = json.loads((done.run.path / "run.json").read_text())
    assert description["previous"] == first.name
    assert [Path(path).name for path in description["added"]] == ["day-4.parquet", "day-10.parquet"]


def test_the_same_day_twice_changes_nothing_and_exits_99(base):
    day = write_day(base / "new", 4)
    assert update(base, str(day)).status == "done"
    before = contents(base)
    again = CliRunner().invoke(skpca, ["update", str(base / "out"), "--source", str(day), "--json"])
    assert again.exit_code == 99, again.output
    assert json.loads(again.stdout.splitlines()[-1])["status"] == "unchanged"
    shutil.copy(day, base / "new" / "the same day by another name.parquet")
    assert update(base, "new/*.parquet").status == "unchanged"
    assert update(base, "base/*.parquet").status == "unchanged"
    assert contents(base) == before


def test_one_content_twice_in_a_source_is_added_once(base):
    shutil.copy(write_day(base / "new", 4), base / "new" / "day-5.parquet")
    done = update(base, "new/*.parquet")
    assert [Path(part.path).name for part in done.added] == ["day-4.parquet"]
    assert len(table_of(done.run.path)) == N_ROWS
    assert load_model(done.run.path / "model").n_samples == 4 * N_ROWS


def test_the_order_of_days_changes_the_name_of_a_run_and_no_number(base):
    days = [write_day(base / "new", day) for day in (4, 5)]
    shutil.copytree(base / "out", base / "other")
    for day in days:
        update(base, str(day))
    for day in reversed(days):
        done = update_output(Output(base / "other"), str(day), base)
    assert done.run.fingerprint != in_force(base).name
    same_model(load_model(done.run.path / "model"), load_model(in_force(base) / "model"))


def test_files_without_rows_are_passed_over_and_may_have_rows_later(base):
    write_day(base / "new", 4, np.empty((0, N_FEATURES)))
    assert update(base, "new/*.parquet").status == "unchanged"
    write_day(base / "new", 5)
    assert [Path(part.path).name for part in update(base, "new/*.parquet").added] == ["day-5.parquet"]
    write_day(base / "new", 4)
    assert update(base, "new/*.parquet").status == "done"


def test_a_file_without_rows_in_the_base_run_may_have_rows_later(tmp_path):
    write_day(tmp_path / "base", 1)
    late = write_day(tmp_path / "base", 2, np.empty((0, N_FEATURES)))
    run(tmp_path)
    write_day(tmp_path / "base", 2)
    done = update(tmp_path, str(late))
    assert [part.path for part in done.added] == [str(late)]


def test_rows_that_are_not_finite_are_named_and_nothing_is_published(base):
    rows = rows_of(4)
    rows[7, 1] = np.nan
    before = in_force(base)
    with pytest.raises(InvalidInputError, match=r'row 7 of .*/new/day-4\.parquet, column "x1"'):
        update(base, str(write_day(base / "new", 4, rows)))
    assert in_force(base) == before
    done = update(base, str(write_day(base / "new", 4)))
    model = load_model(done.run.path / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(day) for day in range(1, 5)]))


def test_other_contents_by_a_known_name_are_refused_until_the_old_ones_are_withdrawn(base):
    day = write_day(base / "new", 4)
    update(base, str(day))
    before = in_force(base)
    write_day(base / "new", 4, rows_of(44))
    with pytest.raises(InvalidInputError, match=r"day-4\.parquet is in the model with other contents.*--withdraw"):
        update(base, str(day))
    # also by another way to the same file
    with pytest.raises(InvalidInputError, match="with other contents"):
        update(base, "base/../new/day-4.parquet")
    assert in_force(base) == before
    done = update(base, str(day), "day-4.parquet")
    model = load_model(done.run.path / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(day) for day in (1, 2, 3, 44)]))
    assert table_of(done.run.path)["id"].to_pylist()[0] == "day 4 row 0"


def test_ids_of_later_days_have_the_type_of_the_base_run_or_are_refused(tmp_path):
    def write(name: str, ids: pa.Array) -> None:
        rows = rows_of(len(name))[: len(ids)]
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": ids, "note": ids} | {f"x{i}": rows[:, i] for i in range(rows.shape[1])}), path)

    write("base/day-1.parquet", pa.array(range(40), pa.int64()))
    run(tmp_path)
    write("new/day-02.parquet", pa.array(range(20), pa.int32()))
    write("new/day-003.parquet", pa.nulls(20))
    done = update(tmp_path, "new/*.parquet")
    kinds = {pq.read_schema(part).field("id").type for part in (done.run.path / "embedding").iterdir()}
    assert kinds == {pa.int64()}
    before = in_force(tmp_path)
    write("more/day-0004.parquet", pa.array([f"x{row}" for row in range(20)]))
    with pytest.raises(InvalidInputError, match=r'"id" is int64 in .*part-00000\.parquet and string in .*day-0004'):
        update(tmp_path, "more/*.parquet")
    assert in_force(tmp_path) == before


# ---------------------------------------------------------------- withdrawn


def test_a_day_that_came_by_an_update_is_withdrawn_by_its_own_sums(base, caplog):
    for day in (4, 5):
        file = write_day(base / "new", day)
        update(base, str(file))
        file.unlink()
    with caplog.at_level(logging.WARNING):
        done = update(base, None, "day-4.parquet")
    assert "stay landmarks" in caplog.text
    model = load_model(done.run.path / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(day) for day in (1, 2, 3, 5)]))
    assert [path.stem for path in (done.run.path / "contributions").iterdir()] == [
        entry["fingerprint"] for entry in json.loads((done.run.path / "ledger.json").read_text())["partitions"][3:]
    ]
    assert list((done.run.path / "embedding").iterdir()) == []
    assert verify_output(Output(base / "out")).problems == []


def test_a_day_of_the_base_run_is_read_again_to_be_withdrawn(base):
    done = update(base, None, "day-2.parquet")
    model = load_model(done.run.path / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(1), rows_of(3)]))


@pytest.mark.parametrize("spoil", [lambda file: file.unlink(), lambda file: write_day(file.parent, 2, rows_of(22))])
def test_a_day_of_the_base_run_that_is_gone_or_differs_cannot_be_withdrawn(base, spoil, caplog):
    before = in_force(base)
    spoil(base / "base" / "day-2.parquet")
    with pytest.raises(InvalidInputError, match=r"day-2\.parquet came with the base run"):
        update(base, None, "day-2.parquet")
    assert in_force(base) == before
    assert "is withdrawn" not in caplog.text


def test_a_day_that_is_withdrawn_and_offered_with_the_same_contents_stays(base, caplog):
    update(base, str(write_day(base / "new", 4)))
    before = in_force(base)
    for _ in range(2):
        done = update(base, "new/*.parquet", "day-4.parquet")
        assert (done.status, done.withdrawn, done.added) == ("unchanged", (), ())
        assert in_force(base) == before
    assert "the same contents: it stays" in caplog.text
    # also under another name, and beside what is new
    write_day(base / "more", 4, name="again.parquet")
    write_day(base / "more", 5)
    done = update(base, "more/*.parquet", "day-4.parquet")
    assert [Path(part.path).name for part in done.added] == ["day-5.parquet"]
    model = load_model(done.run.path / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(day) for day in (1, 2, 3, 4, 5)]))


def test_a_day_that_was_withdrawn_is_added_by_a_source_that_has_it_and_stays(base):
    day = write_day(base / "new", 4)
    update(base, str(day))
    with_it = in_force(base)
    update(base, None, "day-4.parquet")
    assert update(base, str(day), "day-4.parquet").status == "restored"
    assert update(base, str(day), "day-4.parquet").status == "unchanged"
    assert in_force(base) == with_it


def test_names_that_are_not_one_partition_are_refused(base):
    with pytest.raises(ConfigError, match="names 0 partitions"):
        update(base, None, "day-9.parquet")
    update(base, str(write_day(base / "new", 4, name="day-1.parquet")))
    with pytest.raises(ConfigError, match="names 2 partitions"):
        update(base, None, "day-1.parquet")
    assert [part.path for part in update(base, None, str(base / "new" / "day-1.parquet")).withdrawn] == [
        str(base / "new" / "day-1.parquet")
    ]


def test_a_day_that_is_named_twice_is_withdrawn_once(base):
    file = write_day(base / "new", 4)
    update(base, str(file))
    done = update(base, None, "day-4.parquet", str(file), "day-4.parquet")
    assert [part.path for part in done.withdrawn] == [str(file)]
    model = load_model(done.run.path / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(day) for day in (1, 2, 3)]))


def test_the_last_row_cannot_be_withdrawn(base):
    before = in_force(base)
    with pytest.raises(ConfigError, match="every partition would be withdrawn"):
        update(base, None, "day-1.parquet", "day-2.parquet", "day-3.parquet")
    assert in_force(base) == before


# ---------------------------------------------------------------- drift


def test_drift_is_the_ratio_of_what_the_landmarks_leave_out(base):
    done = update(base, str(write_day(base / "new", 4, rows_of(4, shift=1.0))))
    model = load_model(done.run.path / "model")

    def left_out(rows: np.ndarray) -> float:
        between = np.exp(-0.3 * ((rows[:, None] - model.basis.landmarks[None]) ** 2).sum(axis=2))
        among = np.exp(-0.3 * ((model.basis.landmarks[:, None] - model.basis.landmarks[None]) ** 2).sum(axis=2))
        return 1 - np.trace(between @ np.linalg.solve(among, between.T)) / len(rows)

    expected = left_out(rows_of(4, shift=1.0)) / left_out(np.concatenate([rows_of(day) for day in (1, 2, 3)]))
    found = json.loads((done.run.path / "metrics.json").read_text())["drift"]
    assert list(found) == [str(base / "new" / "day-4.parquet")]
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-9)


def test_drift_beyond_a_threshold_warns_and_beyond_another_fails(base, caplog):
    far = write_day(base / "new", 4, rows_of(4, shift=3.0))
    done = update(base, str(far))
    assert done.drift[str(far)] > 2.0
    assert "day-4.parquet: the landmarks leave out" in caplog.text
    caplog.clear()
    assert update(base, str(write_day(base / "new", 5))).status == "done"
    assert caplog.text == ""

    changes: dict[str, object] = {"drift": {"warn": 1.5, "fail": 2.0}, "output": {"path": "strict"}}
    run(base, **changes)
    before = Output(base / "strict").require_latest().path
    failed = CliRunner().invoke(skpca, ["update", str(base / "strict"), "--source", str(far)])
    assert failed.exit_code == 65, failed.output
    for words in ("day-4.parquet", f"{done.drift[str(far)]:.3g} times", "drift.fail is 2", "nothing is published"):
        assert words in failed.output
    assert Output(base / "strict").require_latest().path == before
    assert verify_output(Output(base / "strict")).problems == []


def test_drift_of_rows_that_rounding_hides_is_no_drift(tmp_path, caplog):
    rows = np.repeat(rows_of(1)[:5], 8, axis=0)  # fewer places than landmarks: nothing is left out
    write_day(tmp_path / "base", 1, rows)
    run(tmp_path)
    done = update(tmp_path, str(write_day(tmp_path / "new", 2, rows[::-1])))
    assert all(ratio <= 2 for ratio in done.drift.values())
    assert caplog.text == ""


# ---------------------------------------------------------------- beside `skpca run`


def test_run_of_the_base_job_leaves_later_updates_in_force(base):
    write_day(base / "new", 4)
    update(base, "new/*.parquet")
    before = contents(base)
    again = run(base)
    assert (again.status, again.run.path, again.added, again.withdrawn) == ("unchanged", in_force(base), 1, 0)
    job = base / "job.yaml"
    job.write_text(json.dumps(settings()))
    answer = CliRunner().invoke(skpca, ["run", str(job)])
    assert answer.exit_code == 99
    assert "with 1 partition added by updates and 0 withdrawn" in answer.output
    assert contents(base) == before


def test_run_of_the_base_job_says_that_a_day_of_it_was_withdrawn(base):
    write_day(base / "base", 9, rows_of(9)[:0])  # has never been in the model
    run(base)
    update(base, None, "day-2.parquet")
    (base / "job.yaml").write_text(json.dumps(settings()))
    answer = CliRunner().invoke(skpca, ["run", str(base / "job.yaml")])
    assert answer.exit_code == 99
    assert "with 0 partitions added by updates and 1 withdrawn" in answer.output


def test_other_settings_or_another_base_make_a_base_of_their_own(base):
    write_day(base / "new", 4)
    updated = update(base, "new/*.parquet").run
    other = run(base, n_components=2)
    assert (other.status, in_force(base)) == ("done", other.run.path)
    write_day(base / "base", 2, rows_of(22))
    changed = run(base)
    assert (changed.status, in_force(base)) == ("done", changed.run.path)
    assert changed.run.path != updated.path
    done = update(base, "new/*.parquet")
    assert load_model(done.run.path / "model").basis.digest != load_model(updated.path / "model").basis.digest


def test_an_update_that_was_made_before_is_put_back_in_force(base):
    write_day(base / "new", 4)
    first = update(base, "new/*.parquet")
    update(base, None, "day-4.parquet")
    again = update(base, "new/*.parquet")
    assert (again.status, again.run.path, in_force(base)) == ("restored", first.run.path, first.run.path)
    assert [part.path for part in again.added] == [part.path for part in first.added]
    update(base, None, "day-4.parquet")
    asked = ["update", str(base / "out"), "--source", str(base / "new"), "--set", "drift.fail=0.01"]
    assert CliRunner().invoke(skpca, asked).exit_code == 65
    assert in_force(base) != first.run.path


def test_an_exact_run_cannot_be_updated(tmp_path):
    write_day(tmp_path / "base", 1)
    run(tmp_path, method="exact")
    with pytest.raises(ConfigError, match=r"is exact.*method: nystroem"):
        update(tmp_path, str(write_day(tmp_path / "new", 2)))


def test_an_update_waits_for_nobody(base):
    day = write_day(base / "new", 4)
    with output_lock(Output(base / "out").lock), pytest.raises(LockedError):
        update(base, str(day))
    assert update(base, str(day)).status == "done"


def test_a_source_around_the_output_is_refused(base):
    inside = write_day(base / "out", 4)
    with pytest.raises(ConfigError, match=r"OUTPUT=.* lie in one another"):
        update(base, str(inside))


def test_an_update_needs_a_source_or_a_name(base):
    assert CliRunner().invoke(skpca, ["update", str(base / "out")]).exit_code == 2


def test_bare_arrays_are_added_too(tmp_path):
    for day in (1, 2):
        np.save(tmp_path / f"day-{day}.npy", rows_of(day).astype(np.float32))
    run(tmp_path, source={"uri": "day-1.npy"}, dtype="auto")
    done = update(tmp_path, "day-2.npy")
    model, table = load_model(done.run.path / "model"), table_of(done.run.path)
    assert table["row"].to_pylist() == list(range(N_ROWS))
    assert model.n_samples == 2 * N_ROWS
    np.testing.assert_allclose(scores_of(table), model.scores(rows_of(2).astype(np.float32)), rtol=0, atol=1e-6)


def test_a_damaged_contribution_is_made_from_its_file_again(base):
    update(base, str(write_day(base / "new", 4)))
    (own,) = (in_force(base) / "contributions").iterdir()
    content = bytearray(own.read_bytes())
    content[len(content) // 2] ^= 1
    own.write_bytes(content)
    done = update(base, None, "day-4.parquet")
    model = load_model(done.run.path / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(day) for day in (1, 2, 3)]))


def test_a_file_that_changes_while_it_is_read_publishes_nothing_and_leaves_nothing_to_go_on_from(base, monkeypatch):
    day, before = write_day(base / "new", 4), in_force(base)
    original = day.read_bytes()
    save = Accumulators.__add__

    def changing(self, other):
        write_day(base / "new", 4, rows_of(44))
        return save(self, other)

    with monkeypatch.context() as patch:
        patch.setattr(Accumulators, "__add__", changing)
        with pytest.raises(InvalidInputError, match="changed while it was read"):
            update(base, str(day))
    assert in_force(base) == before
    day.write_bytes(original)
    done = update(base, str(day))
    model = load_model(done.run.path / "model")
    same_model(model, fitted_at_once(model.basis, [rows_of(day) for day in (1, 2, 3, 4)]))


def test_settings_of_drift_may_change_with_an_update_and_stay_changed(base):
    far = str(write_day(base / "new", 4, rows_of(4, shift=3.0)))
    asked = ["update", str(base / "out"), "--source", far, "--set"]
    assert CliRunner().invoke(skpca, [*asked, "drift.fail=2"]).exit_code == 65
    found = CliRunner().invoke(skpca, [*asked, "drift.warn=null"])
    assert found.exit_code == 0, found.output
    assert "drift.warn" not in found.stderr
    assert "accumulate" not in found.stderr, "the sums that were refused are there, and are no worse for it"
    kept = json.loads((in_force(base) / "run.json").read_text())["config"]["drift"]
    assert (kept["warn"], kept["fail"]) == (None, None)
    for setting, words in (("n_components=2", "skpca run"), ("drift.warm=2", "did you mean 'warn'")):
        refused = CliRunner().invoke(skpca, [*asked, setting])
        assert refused.exit_code == 78
        assert words in refused.output


@pytest.mark.parametrize("file", ["model/model.json", "ledger.json", "run.json"])
def test_a_damaged_version_is_not_built_on_and_its_base_can_be_put_back(base, file):
    day, first = write_day(base / "new", 4), in_force(base)
    damaged = update(base, str(day)).run
    content = bytearray((damaged.path / file).read_bytes())
    content[len(content) // 2] ^= 1
    (damaged.path / file).write_bytes(content)
    another = write_day(base / "new", 5)
    with pytest.raises(StorageError, match=r"differs from what was committed; `skpca run`"):
        update(base, str(another))
    assert run(base).status == "restored"
    assert in_force(base) == first
    assert update(base, str(day)).status == "done"
    assert in_force(base) == damaged.path
    assert verify_output(Output(base / "out")).problems == []


def test_sums_of_earlier_updates_are_shared_between_runs_where_there_are_links(base, monkeypatch):
    first = update(base, str(write_day(base / "new", 4)))
    (own,) = (first.run.path / "contributions").iterdir()
    second = update(base, str(write_day(base / "new", 5)))
    assert (second.run.path / "contributions" / own.name).samefile(own)

    link = os.link

    def refuse(source, destination):
        if Path(source).suffix == ".npz":
            raise OSError("too many links")
        link(source, destination)

    monkeypatch.setattr("os.link", refuse)
    third = update(base, str(write_day(base / "new", 6)))
    copy = third.run.path / "contributions" / own.name
    assert not copy.samefile(own)
    assert copy.read_bytes() == own.read_bytes()
    assert len(list(copy.parent.iterdir())) == 3


def test_a_journal_that_a_crash_after_the_publication_left_goes_with_the_next_update(base):
    day = write_day(base / "new", 4)
    update(base, str(day))
    (in_force(base) / "journal").mkdir()
    assert update(base, str(day)).status == "unchanged"
    assert not (in_force(base) / "journal").exists()


@pytest.mark.slow
def test_updates_on_worker_processes_give_the_bits_of_one_thread(base):
    write_day(base / "new", 4)
    shutil.copytree(base / "base", base / "elsewhere" / "base")
    local = {"kind": "local", "n_workers": 2, "n_threads": 1}
    assert run(base / "elsewhere", cluster=local).status == "done"
    found = [update(base, "new/*.parquet"), update_output(Output(base / "elsewhere" / "out"), "new/*.parquet", base)]
    one, other = (load_model(done.run.path / "model") for done in found)
    np.testing.assert_array_equal(one.sums.gram, other.sums.gram)
    assert table_of(found[0].run.path) == table_of(found[1].run.path)
