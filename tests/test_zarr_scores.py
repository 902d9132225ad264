"""Jobs whose scores go to a zarr group: the same numbers as in Parquet, aligned with the labels, whole or not there."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from scalable_kpca.errors import ConfigError, InvalidInputError, StorageError
from scalable_kpca.source import ROW_DTYPES, ScoreStore, open_stored, rows_of_chunk
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.loading import load_config
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import execute, prepare
from scalable_kpca.workflow.update import update_output
from scalable_kpca.workflow.versions import problems_of
from tests.recovery.jobs import JOBS, bits_of, leftovers, write_job, write_rows

METHODS = {"exact": JOBS["stored tiles, block Krylov"], "nystroem": JOBS["Nyström"]}
ASKED = {"novelty": True, "inverse": True}


def execute_job(folder: Path, method: str, form: str, **more: object):
    output = {"path": f"out-{form}", "format": form}
    job = write_job(folder, METHODS[method], output=output, **{**ASKED, **more})
    return execute(prepare(load_config(job, environment={}), folder))


def table_of(directory: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in sorted(directory.glob("*.parquet"))])


def assert_same(place: Path, parquet: Path, labels: tuple[str, ...] = ("id",)) -> None:
    """The group and the parts beside it hold what the Parquet parts of the other format do, to the last bit."""
    expected, kept = table_of(parquet), table_of(place / "embedding")
    assert kept.column_names == list(labels)
    assert kept.equals(expected.select(list(labels)))
    group = zarr.open_group(str(place / "embedding.zarr"), mode="r")
    names = group.attrs["names"]
    assert names == ["pc_000", "pc_001", "pc_002"]
    assert sorted(group.array_keys()) == ["novelty", "reconstruction", "scores"]
    np.testing.assert_array_equal(group["scores"][...], np.column_stack([expected[name] for name in names]))
    for name in ("novelty", "reconstruction"):
        np.testing.assert_array_equal(group[name][...], expected[name])
    sizes = [pq.read_metadata(part).num_rows for part in sorted((place / "embedding").iterdir())]
    assert group.attrs["boundaries"] == np.cumsum([0, *sizes]).tolist()
    for name, n_dims in (("scores", 2), ("novelty", 1)):
        open_stored(place / "embedding.zarr" / name, ROW_DTYPES, n_dims)  # stored and checked as all arrays of ours


@pytest.mark.parametrize("method", [pytest.param("exact", marks=pytest.mark.slow), "nystroem"])
def test_scores_in_zarr_are_those_in_parquet_of_runs_updates_and_transforms(tmp_path, method):
    runs = {form: execute_job(tmp_path, method, form).run for form in ("parquet", "zarr")}
    assert runs["parquet"].fingerprint != runs["zarr"].fingerprint
    assert_same(runs["zarr"].path, runs["parquet"].path / "embedding")
    assert leftovers(tmp_path / "out-zarr") == []
    assert runs["zarr"].problems() == []
    write_rows(tmp_path / "more" / "part-2.parquet", 9)
    for form in runs:
        transform_source(Output(tmp_path / f"out-{form}"), "more", tmp_path, tmp_path / f"to-{form}")
    assert_same(tmp_path / "to-zarr", tmp_path / "to-parquet")
    if method == "exact":
        return
    done = {form: update_output(Output(tmp_path / f"out-{form}"), "more", tmp_path).run for form in runs}
    assert_same(done["zarr"].path, done["parquet"].path / "embedding")
    back = update_output(Output(tmp_path / "out-zarr"), None, tmp_path, withdraw=["part-2.parquet"]).run
    group = zarr.open_group(str(back.path / "embedding.zarr"), mode="r")
    assert group["scores"].shape == (0, 3)
    assert group.attrs["boundaries"] == [0]
    assert back.problems() == []


@pytest.mark.parametrize("method", ["exact", pytest.param("nystroem", marks=pytest.mark.slow)])
def test_a_run_that_is_made_again_gives_the_same_bits_and_damage_is_repaired(tmp_path, method):
    made = execute_job(tmp_path, method, "zarr")
    bits = bits_of(made.run.path)
    assert any(name.startswith("embedding.zarr/scores/c/") for name in bits)
    assert execute_job(tmp_path, method, "zarr").status == "unchanged"
    chunk = made.run.path / "embedding.zarr" / "scores" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    assert any("embedding.zarr/scores/c/0/0 has " in problem for problem in made.run.problems())
    again = execute_job(tmp_path, method, "zarr")
    assert again.status == "done"
    assert bits_of(again.run.path) == bits


@pytest.mark.slow
def test_scores_of_an_earlier_version_that_are_damaged_are_found(tmp_path):
    base = execute_job(tmp_path, "nystroem", "zarr").run
    write_rows(tmp_path / "more" / "part-2.parquet", 9)
    output = Output(tmp_path / "out-zarr")
    done = update_output(output, "more", tmp_path)
    (base.path / "embedding.zarr" / "novelty" / "c" / "0").write_bytes(b"")
    assert any("embedding.zarr/novelty/c/0 has 0 bytes" in problem for problem in problems_of(output, done.run))


@pytest.mark.slow
def test_pre_images_are_parquet_in_either_case(tmp_path):
    execute_job(tmp_path, "exact", "zarr")
    transform_source(Output(tmp_path / "out-zarr"), "rows", tmp_path, tmp_path / "to", reconstruct=True)
    assert table_of(tmp_path / "to").column_names == ["id", "x0", "x1", "x2"]
    assert not (tmp_path / "to" / "embedding.zarr").exists()


def test_rows_that_are_not_finite_are_named_and_leave_no_group(tmp_path):
    execute_job(tmp_path, "exact", "zarr", health=False)
    write_rows(tmp_path / "bad" / "part-0.parquet", 3)
    table = pq.read_table(tmp_path / "bad" / "part-0.parquet").to_pandas()
    table.loc[4, "x1"] = np.nan
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "bad" / "part-0.parquet")
    with pytest.raises(InvalidInputError, match=r'row 4 .*"x1"'):
        transform_source(Output(tmp_path / "out-zarr"), "bad", tmp_path, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_link_among_the_arrays_is_not_committed_and_a_source_never_reads_them(tmp_path):
    made = execute_job(tmp_path, "exact", "zarr").run
    job = write_job(tmp_path, METHODS["exact"], source={"uri": "out-zarr/runs/*/embedding.zarr/scores"})
    with pytest.raises(ConfigError, match="output"):
        prepare(load_config(job, ["output={path: out-zarr}"], environment={}), tmp_path)
    (made.path / "embedding.zarr" / "more").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="link"):
        made.flushed_results()


# ---------------------------------------------------------------- the store


@pytest.mark.parametrize(
    ("n", "k", "step"),
    [
        *((n, k, step) for n, k in [(0, 3), (1, 1), (7, 0), (150_000, 2)] for step in (1000, 65_536)),
        (45_000, 100, 50_000),
    ],
)
def test_a_store_holds_what_came_whatever_the_pieces(tmp_path, n, k, step):
    scores, novelty = np.arange(float(n * k)).reshape(n, k), np.arange(float(n))
    scores.setflags(write=False)
    store = ScoreStore(tmp_path / "s.zarr", n, k, ["novelty"], {"names": ["a"]})
    for start in range(0, n, step):
        rows = slice(start, start + step)
        store.append(scores[rows], {"novelty": novelty[rows]})
    store.close()
    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="r")
    np.testing.assert_array_equal(group["scores"][...], scores)
    np.testing.assert_array_equal(group["novelty"][...], novelty)
    assert group["scores"].chunks == (max(1, min(n, rows_of_chunk(k))), max(1, k))
    assert group.attrs["names"] == ["a"]


def test_chunks_have_65536_rows_and_at_most_32_mib():
    assert [rows_of_chunk(k) for k in (0, 1, 64)] == [65_536] * 3
    assert rows_of_chunk(65) < 65_536
    assert rows_of_chunk(10**9) == 1
    for k in (65, 1000, 10**5):
        assert 31 * 2**20 < rows_of_chunk(k) * 8 * k <= 32 * 2**20


def test_a_store_of_other_rows_than_announced_is_refused(tmp_path):
    store = ScoreStore(tmp_path / "few.zarr", 5, 1, [], {})
    store.append(np.zeros((4, 1)), {})
    with pytest.raises(InvalidInputError, match="announced 5 rows, and 4"):
        store.close()
    store = ScoreStore(tmp_path / "many.zarr", 5, 1, [], {})
    with pytest.raises(InvalidInputError, match="announced 5 rows, and 6"):
        store.append(np.zeros((6, 1)), {})


def test_another_format_is_refused(tmp_path):
    job = write_job(tmp_path, {})
    with pytest.raises(ValueError, match=r"output\.format: .*'parquet' or 'zarr'"):
        load_config(job, ["output.format=csv"], environment={})
    assert json.loads(job.read_text())["output"] == {"path": "out"}
