"""Jobs that say beside the scores how novel each row is."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalable_kpca.errors import ConfigError
from scalable_kpca.model import load_model
from scalable_kpca.novelty import novelty, training_novelty
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.loading import load_config
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import execute, prepare
from scalable_kpca.workflow.update import update_output
from tests.recovery.jobs import JOBS, latest_run, write_job, write_rows

EXACT, NYSTROEM = JOBS["stored tiles, block Krylov"], JOBS["Nyström"]
CLUSTERS = [
    {"kind": "synchronous"},
    {"kind": "threads", "n_threads": 2},
    pytest.param({"kind": "local", "n_workers": 2}, marks=pytest.mark.slow),
]


def run_job(folder: Path, fields: dict[str, object], **more: object) -> Path:
    job = write_job(folder, {"novelty": True, **fields}, **more)
    return execute(prepare(load_config(job), folder)).run.path


def table_of(directory: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in sorted(directory.glob("*.parquet"))])


def rows_of(folder: Path, glob: str) -> np.ndarray:
    table = pa.concat_tables([pq.read_table(part) for part in sorted(folder.glob(glob))])
    return np.column_stack([table[f"x{column}"].to_numpy() for column in range(3)])


def assert_novelty(table: pa.Table, expected: np.ndarray) -> None:
    assert table.column_names == ["id", "pc_000", "pc_001", "pc_002", "novelty"]
    np.testing.assert_array_equal(table["novelty"].to_numpy(), expected)
    assert expected.min() >= 0
    assert expected.max() > 0.1


def test_an_exact_run_and_transform_write_novelty(tmp_path):
    run = run_job(tmp_path, EXACT)
    model = load_model(run / "model")
    assert_novelty(table_of(run / "embedding"), training_novelty(model))
    write_rows(tmp_path / "new" / "part-0.parquet", 9)
    transform_source(Output(tmp_path / "out"), "new", tmp_path, tmp_path / "to")
    assert_novelty(table_of(tmp_path / "to"), novelty(model, rows_of(tmp_path, "new/*")))


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster["kind"])
def test_a_nystroem_run_an_update_and_transform_write_novelty(tmp_path, cluster):
    run = run_job(tmp_path, NYSTROEM, cluster=cluster)
    expected = novelty(load_model(run / "model"), rows_of(tmp_path, "rows/*"))
    # batches are cut in another way here: products of other shapes round in another way
    found = table_of(run / "embedding")
    np.testing.assert_allclose(found["novelty"].to_numpy(), expected, rtol=0, atol=1e-13)
    assert expected.max() > 0.1

    write_rows(tmp_path / "more" / "part-2.parquet", 9)
    done = update_output(Output(tmp_path / "out"), "more", tmp_path)
    assert done.status == "done"
    model, new = load_model(done.run.path / "model"), rows_of(tmp_path, "more/*")
    np.testing.assert_allclose(
        table_of(done.run.path / "embedding")["novelty"].to_numpy(), novelty(model, new), rtol=0, atol=1e-13
    )
    transform_source(Output(tmp_path / "out"), "more", tmp_path, tmp_path / "to")
    assert_novelty(table_of(tmp_path / "to"), novelty(model, new))


def test_scores_are_the_same_bits_with_novelty_beside_them(tmp_path):
    for folder, fields in (("exact", EXACT), ("nystroem", NYSTROEM)):
        runs = [run_job(tmp_path / folder / str(wanted), {**fields, "novelty": wanted}) for wanted in (False, True)]
        assert runs[0].name != runs[1].name
        without, beside = (table_of(run / "embedding") for run in runs)
        assert "novelty" not in without.column_names
        assert beside.select(without.column_names[:1]).equals(without.select(without.column_names[:1]))
        for name in without.column_names[1:]:
            # one more column in the product of a Nyström projection may be summed in another order
            np.testing.assert_allclose(beside[name].to_numpy(), without[name].to_numpy(), rtol=0, atol=1e-13)


def test_a_column_of_that_name_is_refused_where_it_would_be_there_twice(tmp_path):
    write_rows(tmp_path / "rows" / "part-0.parquet", 0)
    table = pq.read_table(tmp_path / "rows" / "part-0.parquet")
    pq.write_table(table.append_column("novelty", table["x0"]), tmp_path / "rows" / "part-0.parquet")
    source = {"uri": "rows/part-0.parquet", "id": "id", "features": "x*", "passthrough": "novelty"}
    with pytest.raises(
        ConfigError, match=r"columns novelty of source\.id, source\.passthrough and source\.partition have"
    ):
        run_job(tmp_path, EXACT, source=source)
    run = run_job(tmp_path, {**EXACT, "novelty": False}, source=source)
    assert json.loads((run / "run.json").read_text())["config"]["novelty"] is False
    assert run == latest_run(tmp_path / "out")
