"""Objects of S3 are read where they are: the same rows, bits and errors as of files, with few requests."""

import json
import pickle
import socket
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from scalable_kpca import faults
from scalable_kpca.cli import skpca
from scalable_kpca.errors import BusyError, ConfigError, InvalidInputError, StorageError
from scalable_kpca.faults import classify
from scalable_kpca.objects import ReplacedObjectError, StoredObject, buckets, is_object, open_object
from scalable_kpca.source import fetching, open_source
from scalable_kpca.source.location import find_files, would_find
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.files import file_states
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.scoring import transform_source
from scalable_kpca.workflow.stages import execute, outline, prepare
from scalable_kpca.workflow.update import update_output
from tests.s3 import N_FEATURES, N_ROWS, content_of, digests, put_days


def config(uri: str, method: str = "nystroem", output: str = "out", **changes: object) -> Config:
    fields = {
        "source": {"uri": uri, "id": "id", "features": "x*"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "method": method,
        "nystroem": {"n_landmarks": 20},
        "n_components": 3,
        "cluster": {"kind": "synchronous"},
        "output": {"path": output},
    }
    return Config.model_validate(fields | changes)


def run(folder: Path, uri: str, **changes: object):
    return execute(prepare(config(uri, **changes), folder)).run


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_a_run_on_objects_gives_the_bits_of_one_on_files(method, server, tmp_path):
    put_days(server, (1, 2, 3), tmp_path / "days")
    local = run(tmp_path, "days", method=method)
    remote = run(tmp_path, "s3://bucket/days", method=method, output="remote")
    assert remote.fingerprint == local.fingerprint
    assert digests(remote) == digests(local)
    assert len(digests(local)) > 4


@pytest.mark.parametrize("uri", ["s3://bucket/days", "s3://bucket/days/", "s3://bucket/days/part-*.parquet"])
def test_parts_are_in_natural_order_and_hidden_ones_left_out_as_of_directories(uri, server, tmp_path):
    put_days(server, range(2, 12))
    for hidden in ("days/_temporary/part-1.parquet", "days/.part-1.parquet", "days-of-others/part-1.parquet"):
        server.put("bucket", hidden, b"no table")
    found = [str(file) for file in find_files(uri, tmp_path)]
    assert found == [f"s3://bucket/days/part-{day}.parquet" for day in range(2, 12)]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("s3://bucket/*/part-1.parquet", ["a/part-1.parquet", "b/part-1.parquet"]),
        (
            "s3://bucket/**/*.parquet",
            ["a/part-1.parquet", "a/part-12.parquet", "b/c/part-1.parquet", "b/part-1.parquet"],
        ),
        ("s3://bucket/a/part-1?.parquet", ["a/part-12.parquet"]),
        ("s3://bucket/a/part-1.parquet", ["a/part-1.parquet"]),
        ("s3://bucket/odd/day=1/a b[1]#%20.parquet", ["odd/day=1/a b[1]#%20.parquet"]),
    ],
)
def test_globs_match_keys_piece_by_piece(glob, expected, server, tmp_path):
    for key in ("a/part-1.parquet", "a/part-12.parquet", "b/part-1.parquet", "b/c/part-1.parquet"):
        server.put("bucket", key, b"")
    server.put("bucket", "odd/day=1/a b[1]#%20.parquet", b"")
    odd = {str(file) for file in find_files("s3://bucket/odd", tmp_path)}
    found = {str(file) for file in find_files(glob, tmp_path)} - (odd if "**" in glob else set())
    assert found == {f"s3://bucket/{key}" for key in expected}


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("s3://bucket/m/*.parquet", ["m/1.parquet"]),
        ("s3://bucket/m/**/*.parquet", ["m/1.parquet", "m/day=2/2.parquet"]),
        ("s3://bucket/m/_temporary/**/*.parquet", ["m/_temporary/0/5.parquet"]),
        ("s3://bucket/m/.*", ["m/.6.parquet"]),
    ],
)
def test_globs_mean_hidden_objects_only_where_they_say_so(glob, expected, server, tmp_path):
    keys = ["m/1.parquet", "m/day=2/2.parquet", "m/.6.parquet", "m/_temporary/0/5.parquet"]
    for key in keys:
        server.put("bucket", key, b"")
    assert [str(file) for file in find_files(glob, tmp_path)] == [f"s3://bucket/{key}" for key in expected]
    found = [would_find(glob, StoredObject("bucket", key)) for key in keys]
    assert found == [key in expected for key in keys]


def test_objects_of_a_prefix_are_of_one_kind(server, tmp_path):
    server.put("bucket", "days/1.PARQUET", content_of(1))
    server.put("bucket", "days/notes.txt", b"left out")
    assert [file.name for file in find_files("s3://bucket/days", tmp_path)] == ["1.PARQUET"]
    assert would_find("s3://bucket/days", StoredObject("bucket", "days/2.PARQUET"))
    assert not would_find("s3://bucket/days", StoredObject("bucket", "days/2.json"))
    server.put("bucket", "days/more/2.csv", b"id,x")
    with pytest.raises(InvalidInputError, match=r"1 Parquet and 1 CSV files.* such as s3://bucket/days/\*\.parquet\."):
        find_files("s3://bucket/days/", tmp_path)


def test_updates_and_scores_come_from_objects_too(server, tmp_path):
    put_days(server, (1, 2, 3, 4), tmp_path / "days")
    for output, base in (("local", str(tmp_path / "days")), ("remote", "s3://bucket/days")):
        run(tmp_path, f"{base}/part-[12].parquet", output=output)
        done = update_output(Output(tmp_path / output), f"{base}/part-3.parquet", tmp_path)
        assert [part.path for part in done.added] == [f"{base}/part-3.parquet"]
        assert update_output(Output(tmp_path / output), f"{base}/part-3.parquet", tmp_path).status == "unchanged"
        transform_source(Output(tmp_path / output), f"{base}/part-4.parquet", tmp_path, tmp_path / f"to-{output}")
    local, remote = (Output(tmp_path / output).require_latest() for output in ("local", "remote"))
    assert digests(remote, "metrics.json") == digests(local, "metrics.json")
    ours, theirs = (sorted((tmp_path / f"to-{output}").glob("*.parquet")) for output in ("local", "remote"))
    assert [file.read_bytes() for file in theirs] == [file.read_bytes() for file in ours]
    # one that came with the base run is read again to be taken away
    done = update_output(Output(tmp_path / "remote"), None, tmp_path, withdraw=["part-2.parquet"])
    assert [part.path for part in done.withdrawn] == ["s3://bucket/days/part-2.parquet"]


def test_a_span_of_one_row_group_asks_for_no_other(server, tmp_path):
    rows = np.random.default_rng(0).normal(size=(40_000, N_FEATURES))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"x{c}": rows[:, c] for c in range(N_FEATURES)}), sink, row_group_size=10_000)
    content = sink.getvalue().to_pybytes()
    server.put("bucket", "wide.parquet", content)
    source = open_source("s3://bucket/wide.parquet", tmp_path, features=["x0", "x1"])
    spans = source.spans(10_000)
    assert len(spans) == 4
    server.requests.clear()
    (batch,) = spans[2].batches(10_000)
    np.testing.assert_array_equal(batch.rows, rows[20_000:30_000, :2])
    footer, *pieces = server.got()
    assert footer.n_bytes <= 2**16
    assert len(pieces) == 1  # both columns, which are beside one another
    assert sum(request.n_bytes for request in pieces) < len(content) / 4


def test_a_large_row_group_is_read_in_shares_and_never_held(server, tmp_path, monkeypatch):
    server.put("bucket", "one.parquet", content_of(1))
    whole = open_source("s3://bucket/one.parquet", tmp_path, features=["x*"]).spans(N_ROWS)
    expected = np.concatenate([batch.rows for batch in whole[0].batches(N_ROWS)])
    monkeypatch.setattr(fetching, "FETCH_BYTES", 900)
    monkeypatch.setattr(fetching, "SMALLEST_BYTES", 256)
    server.requests.clear()
    (batch,) = whole[0].batches(N_ROWS)
    np.testing.assert_array_equal(batch.rows, expected)
    assert max(request.n_bytes for request in server.got()[1:]) <= 900
    assert whole[0].held_bytes >= 900


def test_spans_are_small_and_read_in_any_process(server, tmp_path):
    put_days(server, (1,))
    (span,) = open_source("s3://bucket/days", tmp_path, id_columns=["id"]).spans(N_ROWS)
    sent = pickle.dumps(span)
    assert len(sent) < 1000
    (batch,) = pickle.loads(sent).batches(N_ROWS, "all")
    assert batch.labels["id"][3].as_py() == "day 1 row 3"


def test_row_groups_that_are_held_together_are_asked_for_together(server, tmp_path, monkeypatch):
    server.put("bucket", "four.parquet", content_of(1, row_group_size=20))
    (span,) = open_source("s3://bucket/four.parquet", tmp_path).spans(N_ROWS)
    (expected,) = span.batches(N_ROWS)
    for groups_at_once in (1, 2, 4):
        monkeypatch.setattr(fetching, "FETCH_BYTES", groups_at_once * max(span.fetched))
        server.requests.clear()
        (batch,) = span.batches(N_ROWS)
        np.testing.assert_array_equal(batch.rows, expected.rows)
        assert len(server.got()) <= 1 + 2 * 4 // groups_at_once  # the footer, and the columns in at most two pieces
    assert [list(run) for run in fetching.fetch_runs(3, [fetching.FETCH_BYTES, 1, 1])] == [[3], [4, 5]]


def test_keys_of_directories_are_labels_of_objects_too(server, tmp_path):
    server.put("bucket", "days/day=2026-01-02/a.parquet", content_of(1))
    source = open_source("s3://bucket/days", tmp_path, id_columns=["id"], partition=["day"])
    assert next(source.batches()).labels["day"][0].as_py() == "2026-01-02"


def test_a_server_that_is_busy_is_asked_again(server, tmp_path):
    put_days(server, (1,))
    server.refusals = [(503, "SlowDown")] * 3
    source = open_source("s3://bucket/days", tmp_path, id_columns=["id"])
    server.refusals = [(503, "SlowDown")] * 3
    assert sum(len(batch.rows) for batch in source.batches()) == N_ROWS
    assert server.refusals == []


def test_a_content_that_breaks_off_is_asked_for_again_or_is_a_matter_of_time(server, tmp_path):
    put_days(server, (1,))
    source = open_source("s3://bucket/days", tmp_path, id_columns=["id"])
    server.cuts = 1
    assert sum(len(batch.rows) for batch in source.batches()) == N_ROWS
    server.cuts = 1000
    with pytest.raises(BusyError, match=r"part-1\.parquet"):
        source.fingerprint()


@pytest.mark.slow
def test_a_run_that_gave_up_on_a_busy_server_is_finished_by_the_same_command(server, tmp_path):
    put_days(server, (1, 2))
    job = prepare(config("s3://bucket/days"), tmp_path)
    server.refusals = [(503, "SlowDown")] * 1000
    with pytest.raises(BusyError):
        execute(job)
    server.refusals = []
    assert execute(job).run.fingerprint == job.fingerprint


def test_a_task_is_tried_again_when_its_requests_have_been(server, tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "LONGEST_WAIT", 0.01)
    put_days(server, (1,))
    (span,) = open_source("s3://bucket/days", tmp_path, id_columns=["id"]).spans(N_ROWS)
    server.refusals = [(503, "SlowDown")] * 6  # one request is made four times
    (batch,) = faults.attempt(lambda: list(span.batches(N_ROWS)))
    assert len(batch.rows) == N_ROWS
    assert server.refusals == []


def write_config(folder: Path, uri: str) -> str:
    (folder / "job.yaml").write_text(json.dumps(config(uri).model_dump(mode="json", exclude_none=True)))
    return str(folder / "job.yaml")


@pytest.mark.parametrize(
    ("status", "code", "expected", "words"),
    [
        (503, "SlowDown", 75, "503 Service Unavailable; see"),
        (500, "InternalError", 75, "run the same command again"),
        (403, "AccessDenied", 74, "is not allowed"),
        (401, "InvalidToken", 74, "is not allowed"),
    ],
)
def test_refusals_end_a_command_with_the_exit_code_of_their_kind(status, code, expected, words, server, tmp_path):
    put_days(server, (1,))
    server.refusals = [(status, code)] * 1000
    done = CliRunner().invoke(skpca, ["run", write_config(tmp_path, "s3://bucket/days/*.parquet")])
    assert done.exit_code == expected, done.output
    assert words in done.output
    assert "s3://bucket/days" in done.output
    assert "unspoken" not in done.output
    assert not (tmp_path / "out" / "latest.json").exists()


@pytest.mark.usefixtures("server")
def test_a_server_that_is_not_there_is_a_matter_of_time(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        buckets._open_store.cache_clear()
        with pytest.raises(
            BusyError, match=r"reading s3://bucket/days failed.*error sending request; see that"
        ) as caught:
            find_files("s3://bucket/days", tmp_path)
    assert classify(pickle.loads(pickle.dumps(caught.value))) == "transient"


def test_an_endpoint_that_is_not_encrypted_has_to_be_allowed(server, tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    buckets._open_store.cache_clear()
    with pytest.raises(StorageError, match="AWS_ALLOW_HTTP=true") as caught:
        find_files("s3://bucket/days", tmp_path)
    assert classify(caught.value) == "permanent"
    assert server.requests == []


@pytest.mark.usefixtures("server")
def test_an_endpoint_that_is_no_address_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    buckets._open_store.cache_clear()
    with pytest.raises(ConfigError, match="AWS_ENDPOINT_URL is no address"):
        find_files("s3://bucket/days", tmp_path)


@pytest.mark.parametrize(
    "uri", ["s3://bucket/nights", "s3://nowhere/days", "s3://bucket/days/*.csv", "s3:///days", "s3://b b/d"]
)
def test_what_is_not_there_is_bad_input_as_of_files(uri, server, tmp_path):
    put_days(server, (1,))
    with pytest.raises(InvalidInputError, match="s3://"):
        find_files(uri, tmp_path)


def test_an_object_that_goes_while_it_is_used_is_named(server, tmp_path):
    put_days(server, (1,))
    source = open_source("s3://bucket/days", tmp_path, id_columns=["id"])
    server.objects.clear()
    with pytest.raises(StorageError, match=r"s3://bucket/days/part-1\.parquet: there is no such object") as caught:
        list(source.batches())
    assert classify(caught.value) == "damage"  # as of a file
    assert file_states(source.paths) == []


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-100], lambda _: b"", lambda content: content[:4] + b"?" * 900]
)
def test_a_damaged_object_is_named_by_its_uri(damage, server, tmp_path):
    server.put("bucket", "days/part-1.parquet", damage(content_of(1)))
    with pytest.raises(InvalidInputError, match=r"^s3://bucket/days/part-1\.parquet is not a Parquet file"):
        open_source("s3://bucket/days", tmp_path)


def test_pages_that_do_not_decode_name_their_object(server, tmp_path):
    content = content_of(1)
    server.put("bucket", "days/part-1.parquet", content[:4] + b"\xff" * 596 + content[600:])
    with pytest.raises(InvalidInputError, match=r"s3://bucket/days/part-1\.parquet cannot be read as it was"):
        list(open_source("s3://bucket/days", tmp_path, id_columns=["id"]).batches())


def test_an_object_that_is_replaced_while_it_is_read_is_noticed_at_once(server):
    put_days(server, (1,))
    stream = open_object("s3://bucket/days/part-1.parquet")
    assert stream.read(4) == b"PAR1"
    before = file_states(["s3://bucket/days/part-1.parquet"])
    server.put("bucket", "days/part-1.parquet", content_of(2))
    with pytest.raises(OSError, match="replaced"):
        stream.read(4)
    assert file_states(["s3://bucket/days/part-1.parquet"]) != before


@pytest.mark.parametrize("method", ["exact", pytest.param("nystroem", marks=pytest.mark.slow)])
def test_a_run_whose_object_changes_publishes_nothing_and_names_it(method, server, tmp_path):
    put_days(server, (1, 2))
    job = prepare(config("s3://bucket/days", method=method), tmp_path)
    server.put("bucket", "days/part-2.parquet", content_of(3))
    with pytest.raises(InvalidInputError, match=r"s3://bucket/days/part-2\.parquet is not what this run"):
        execute(job)
    assert Output(tmp_path / "out").latest() is None


@pytest.mark.parametrize("name", ["rows.csv", "rows.arrow", "rows.npy", "rows.h5", "rows.zarr"])
def test_other_kinds_are_refused_by_name(name, server, tmp_path):
    server.put("bucket", name, b"1,2")
    for opening in (lambda job: outline(job, tmp_path), lambda job: prepare(job, tmp_path)):
        with pytest.raises(InvalidInputError, match=rf"s3://bucket/{name} is \.\w+, .*copy it to a local disk"):
            opening(Config.model_validate({"source": {"uri": f"s3://bucket/{name}"}, "output": {"path": "out"}}))


def test_a_plan_reads_footers_only(server, tmp_path):
    put_days(server, (1, 2))
    planned = outline(config("s3://bucket/days"), tmp_path)
    assert planned.source.n_samples == 2 * N_ROWS
    assert len(server.got()) == 2


def test_without_obstore_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"scalable-kpca\[s3\]"):
        find_files("s3://bucket/days", tmp_path)


def test_keys_come_from_a_credentials_file_where_the_environment_has_none(server, tmp_path, monkeypatch):
    put_days(server, (1,))
    place = tmp_path / "credentials"
    place.write_text("[default]\naws_access_key_id = nobody\n[mine]\naws_access_key_id=me\naws_secret_access_key=a%b\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(place))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    buckets._open_store.cache_clear()
    find_files("s3://bucket/days", tmp_path)
    assert {request.credential for request in server.requests} == {"me"}
    place.write_text("aws_secret_access_key=unspoken")
    buckets._open_store.cache_clear()
    with pytest.raises(ConfigError, match="no credentials file") as caught:
        find_files("s3://bucket/days", tmp_path)
    assert "unspoken" not in str(caught.value)


def test_a_part_knows_whether_it_is_local(server, tmp_path):
    put_days(server, (1,))
    (part,) = open_source("s3://bucket/days", tmp_path, id_columns=["id"]).parts
    assert part.uri == part.path == "s3://bucket/days/part-1.parquet"
    assert is_object(part.uri)
    assert not is_object(str(tmp_path))
    assert str(StoredObject.of(part.uri)) == part.uri


@pytest.mark.slow
def test_worker_processes_read_objects_by_their_own_stores(server, tmp_path):
    put_days(server, (1, 2, 3), tmp_path / "days")
    cluster = {"kind": "local", "n_workers": 2, "n_threads": 1}
    remote = run(tmp_path, "s3://bucket/days", output="remote", cluster=cluster)
    assert digests(remote) == digests(run(tmp_path, "days"))


@pytest.mark.slow
def test_moto_gives_the_same_bits_and_errors(moto, tmp_path):
    folder = tmp_path / "days"
    folder.mkdir()
    for day in (2, 10, 3):
        (folder / f"part-{day}.parquet").write_bytes(content_of(day))
        moto.put(f"days/part-{day}.parquet", content_of(day))
    assert digests(run(tmp_path, "s3://bucket/days", output="remote")) == digests(run(tmp_path, "days"))
    stream = open_object("s3://bucket/days/part-2.parquet")
    moto.put("days/part-2.parquet", content_of(4))
    with pytest.raises(ReplacedObjectError):
        stream.read()
    for uri in ("s3://bucket/nights", "s3://nowhere/days"):
        with pytest.raises(InvalidInputError, match=uri):
            find_files(uri, tmp_path)
