"""Stored tiles lie on S3 too: the same bits as on a disk, nothing committed is made again, few requests."""

import json
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner
from obstore.store import S3Store
from pydantic import ValidationError
from zarr.storage import ObjectStore

from scalable_kpca import faults
from scalable_kpca.cli import skpca
from scalable_kpca.engine import open_engine
from scalable_kpca.errors import BusyError, ConfigError, CorruptTileError, IncompleteGramError, StorageError
from scalable_kpca.gram import StoredGram, TileCounts, chunk_objects, create_tiles, find_tiles, store
from scalable_kpca.kernels import RBF
from scalable_kpca.objects import UPLOAD_BYTES, StoredObject, reading, writing_object
from scalable_kpca.source import ArrayRows
from scalable_kpca.tiling import Tiling
from scalable_kpca.workflow.checks import check_budget
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.inspect import inspect_output, verify_output
from scalable_kpca.workflow.layout import Output
from scalable_kpca.workflow.stages import execute, outline, prepare
from tests.object_server import Request
from tests.s3 import digests
from tests.support import tmpfs

N_ROWS, T = 80, 16
N_TILES = 15
PLACE = "s3://bucket/tiles"
TILING = Tiling(50, 16)  # 10 tiles
STORE = StoredObject.of("s3://bucket/some/gram.zarr")


@pytest.fixture
def bucket(server):
    """An empty bucket of the small server."""
    server.buckets.add("bucket")
    return server


@pytest.fixture
def folder(tmp_path):
    rows = np.random.default_rng(5).normal(size=(N_ROWS, 3))
    pq.write_table(pa.table({f"x{column}": rows[:, column] for column in range(3)}), tmp_path / "rows.parquet")
    return tmp_path


def fields_of(output="out", tiles=PLACE, **changes):
    return {
        "source": {"uri": "rows.parquet"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "method": "exact",
        "gram": "zarr",
        "tile_rows": T,
        "n_components": 3,
        "solver": {"name": "block_krylov"},
        "cluster": {"kind": "synchronous"},
        "output": {"path": output, "tiles": tiles},
    } | changes


def run(folder: Path, output="out", tiles=PLACE, **changes):
    return execute(prepare(Config.model_validate(fields_of(output, tiles, **changes)), folder))


def open_store(engine, place=STORE, fingerprint="f", tiling=TILING):
    X = np.random.default_rng(7).standard_normal((tiling.n_samples, 3))
    tiles = create_tiles(place, tiling, "float64", fingerprint, {"kernel": RBF(0.3).to_json()})
    return StoredGram(ArrayRows(X), RBF(0.3), tiles, engine), tiles


@pytest.fixture
def engine():
    with open_engine("synchronous") as opened:
        yield opened


def bits(result):
    return result.product.tobytes(), result.row_sums.tobytes()


@dataclass
class Judge:
    """Refuses some requests, and counts those that write something below ``row_sums/c``."""

    refuse: object
    n_requests: int = 0
    commits: list[str] = field(default_factory=list)

    def __call__(self, request: Request):
        self.n_requests += 1
        if request.method == "PUT" and "/row_sums/c/" in request.key:
            self.commits.append(request.key)
        return self.refuse(self, request)


# ---------------------------------------------------------------- the same as on a disk


@pytest.mark.parametrize("solver", ["block_krylov", "arpack", "dense"])
def test_a_run_with_its_tiles_on_s3_gives_the_bits_of_one_on_a_disk(solver, bucket, folder):
    local = run(folder, "local", None, solver={"name": solver})
    remote = run(folder, "remote", solver={"name": solver})
    assert remote.run.fingerprint == local.run.fingerprint
    assert digests(remote.run) == digests(local.run)
    assert len(digests(local.run)) > 4
    assert not (remote.run.path / "gram.zarr").exists()
    (name,) = {"/".join(key.split("/")[:4]) for key in bucket.names()}
    assert name.startswith("bucket/tiles/")
    assert name.endswith("/gram.zarr")
    for file in (local.run.path / "gram.zarr" / "tiles" / "c").glob("*/*"):
        assert bucket.objects[f"{name}/{file.relative_to(local.run.path / 'gram.zarr')}"] == file.read_bytes()


def test_zarr_opens_the_store_where_it_is(bucket, folder):
    local = run(folder, "local", None)
    run(folder, "remote")
    prefix = next(key for key in bucket.names() if key.endswith("gram.zarr/zarr.json"))
    prefix = prefix.removeprefix("bucket/").removesuffix("/zarr.json")
    remote = zarr.open_group(ObjectStore(S3Store("bucket", prefix=prefix), read_only=True), mode="r")
    there = zarr.open_group(str(local.run.path / "gram.zarr"), mode="r")
    assert dict(remote.attrs) == dict(there.attrs)
    for name in ("tiles", "row_sums"):
        np.testing.assert_array_equal(remote[name][...], there[name][...])
        assert str(remote[name].metadata) == str(there[name].metadata)  # NaN is not itself
    assert np.isfinite(remote["tiles"][:16, 16:]).all()


def test_handles_are_small_and_read_in_any_process(bucket, engine, tmp_path):
    gram, tiles = open_store(engine)
    local, _ = open_store(engine, tmp_path / "gram.zarr")
    assert bits(gram.build()) == bits(local.build())
    sent = pickle.dumps(tiles)
    assert len(sent) < 500
    np.testing.assert_array_equal(pickle.loads(sent).read_checked(1, 2), local.to_array()[16:32, 32:48])
    assert find_tiles(STORE) == tiles
    assert find_tiles(StoredObject.of("s3://bucket/other/gram.zarr")) is None
    assert len(bucket.names()) == 3 + 10 + 16


# ---------------------------------------------------------------- what has been made is not made again


def test_any_run_of_the_same_rows_and_kernel_goes_on_with_the_same_tiles(bucket, folder):
    assert run(folder, "first").fit.build_counts == TileCounts(computed=N_TILES)
    before = dict(bucket.objects)
    assert run(folder, "second", n_components=2).fit.build_counts == TileCounts(read=N_TILES)
    assert bucket.objects == before
    other = run(folder, "second", kernel={"name": "rbf", "gamma": 0.4})
    assert other.fit.build_counts == TileCounts(computed=N_TILES)
    assert len(bucket.objects) == 2 * len(before)


def test_a_build_that_was_killed_goes_on_where_it_was(bucket, folder):
    (folder / "job.yaml").write_text(json.dumps(fields_of()))
    command = [sys.executable, "-m", "scalable_kpca.cli", "run", str(folder / "job.yaml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)) as child:

        def kill(judge, _):
            if len(judge.commits) == 12:
                os.kill(child.pid, signal.SIGKILL)
                return 503, "SlowDown"
            return None

        bucket.judge = Judge(kill)
        assert child.wait(60) == -signal.SIGKILL
    bucket.judge = None
    progress = inspect_output(Output(folder / "out"))
    (said,) = [value for name, value in progress.facts.items() if name.startswith("run ")]
    (store,) = [key.removesuffix("/zarr.json") for key in bucket.names() if key.endswith("gram.zarr/zarr.json")]
    committed = [
        key for key in bucket.names(f"{store}/row_sums/c/") if int(key.split("/")[-3]) <= int(key.split("/")[-2])
    ]
    assert 0 < len(committed) < N_TILES
    assert said == f"in progress, {len(committed)} of {N_TILES} tiles in s3://{store}"
    done = run(folder)
    assert done.fit.build_counts == TileCounts(computed=N_TILES - len(committed), read=len(committed))
    assert digests(done.run) == digests(run(folder, "local", None).run)


def damage(change):
    def apply(objects, key):
        objects[key] = change(objects[key])

    return apply


def remove(objects, key):
    del objects[key]


def flip(content):
    return content[:40] + bytes([content[40] ^ 4]) + content[41:]


@pytest.mark.parametrize(
    ("piece", "how", "repaired"),
    [
        ("tiles/c/1/2", damage(flip), 1),
        ("tiles/c/1/2", damage(lambda content: content[:-5]), 1),
        ("tiles/c/1/2", damage(lambda _: b""), 1),
        ("tiles/c/1/2", remove, 1),
        ("row_sums/c/1/2/0", damage(flip), 1),
        ("row_sums/c/1/2/0", damage(lambda _: b""), 1),
        ("row_sums/c/1/2/0", damage(lambda content: content + b"x"), 1),
        ("row_sums/c/1/2/0", remove, 0),
        ("row_sums/c/2/1/0", remove, 1),
    ],
)
def test_what_is_damaged_or_gone_is_made_again_and_nothing_else(piece, how, repaired, bucket, engine):
    gram, tiles = open_store(engine)
    built = bits(gram.build())
    before = dict(bucket.objects)
    how(bucket.objects, f"bucket/{STORE.key}/{piece}")
    with pytest.raises((CorruptTileError, IncompleteGramError), match=r"\(1, 2\)"):
        gram.multiply(np.ones((50, 1)))
    again = gram.build()
    assert again.counts == TileCounts(computed=1, read=9, repaired=repaired)
    assert bits(again) == built
    assert bucket.objects == before
    assert tiles.missing() == ()


def test_a_tile_that_is_written_anew_while_it_is_read_is_refused(bucket, engine, monkeypatch):
    small_pieces(monkeypatch, 2**16)
    gram, tiles = open_store(engine, tiling=Tiling(300, 300))
    gram.build()
    key = f"bucket/{STORE.key}/tiles/c/0/0"
    strips = tiles.strips(0, 0)
    next(strips)
    bucket.objects[key] = flip(bucket.objects[key])
    with pytest.raises(BusyError, match=r"tiles/c/0/0 was written anew") as caught:
        list(strips)
    assert faults.classify(caught.value) == "transient"


@pytest.mark.parametrize(("status", "error"), [(503, BusyError), (403, StorageError)])
@pytest.mark.parametrize("piece", ["/tiles/c/1/2", "/row_sums/c/1/2/0"])
def test_what_may_not_be_read_is_no_damage_and_stays(piece, status, error, bucket, engine, monkeypatch):
    monkeypatch.setattr(faults, "LONGEST_WAIT", 0.01)
    gram, _ = open_store(engine)
    gram.build()
    before = dict(bucket.objects)
    bucket.judge = Judge(lambda _, request: (status, "Refused") if request.key.endswith(piece) else None)
    for make in (lambda: gram.multiply(np.ones((50, 1))), gram.build):
        with pytest.raises(error) as caught:
            make()
        assert not isinstance(caught.value, CorruptTileError)
    assert bucket.objects == before
    bucket.judge = None
    assert gram.build().counts == TileCounts(read=10)


def test_a_buffer_may_be_used_again_as_soon_as_it_is_written(bucket):
    buffer = np.empty(1000, np.uint8)
    with writing_object(STORE) as stream:
        for value in range(5):
            buffer[:] = value
            stream.write(buffer.data)
    assert bucket.objects[f"bucket/{STORE.key}"] == np.repeat(np.arange(5, dtype=np.uint8), 1000).tobytes()


def test_swapped_tiles_are_caught_by_their_sums(bucket, engine):
    gram, _ = open_store(engine)
    gram.build()
    one, other = (f"bucket/{STORE.key}/tiles/c/{at}" for at in ("0/1", "1/2"))
    bucket.objects[one], bucket.objects[other] = bucket.objects[other], bucket.objects[one]
    with pytest.raises(CorruptTileError, match="sums differ"):
        gram.multiply(np.ones((50, 1)))
    assert gram.build().counts == TileCounts(computed=2, read=8, repaired=2)


# ---------------------------------------------------------------- requests


def small_pieces(monkeypatch, n_bytes):
    for module in (reading, chunk_objects):
        monkeypatch.setattr(module, "READ_BYTES", n_bytes)


def test_a_pass_asks_for_each_tile_in_few_pieces_and_holds_none_whole(bucket, engine, monkeypatch):
    tiling = Tiling(600, 300)  # three tiles of 720 004 bytes
    gram, _ = open_store(engine, tiling=tiling)
    gram.build()
    piece = 2**18
    small_pieces(monkeypatch, piece)
    bucket.requests.clear()
    product = gram.multiply(np.ones((600, 2)))
    pieces = [request for request in bucket.got() if "/tiles/" in request.key]
    assert [request.n_bytes for request in pieces] == 3 * [piece, piece, 300 * 300 * 8 + 4 - 2 * piece]
    heads = [request for request in bucket.requests if request.method == "HEAD"]
    sums = [request for request in bucket.got() if "/row_sums/" in request.key]
    assert len(heads) == 3
    assert len(sums) == 3 + 2 * 3  # whether it is committed, then its two sums
    assert len(bucket.requests) == len(pieces) + len(heads) + len(sums)
    assert product.counts == TileCounts(read=3)


def test_small_strips_come_together_in_one_request(bucket, engine, monkeypatch):
    tiling = Tiling(600, 600)  # 2 880 004 bytes, strips of 1.2 MB
    gram, _ = open_store(engine, tiling=tiling)
    gram.build()
    for piece, n_requests in ((2**23, 1), (2_000_000, 2)):
        small_pieces(monkeypatch, piece)
        bucket.requests.clear()
        gram.multiply(np.ones((600, 1)))
        sizes = [request.n_bytes for request in bucket.got() if "/tiles/" in request.key]
        assert len(sizes) == n_requests
        assert sum(sizes) == 600 * 600 * 8 + 4


def test_what_is_missing_is_found_by_one_listing(bucket, engine):
    gram, tiles = open_store(engine)
    assert len(tiles.missing()) == 10
    gram.build()
    for key in ("row_sums/c/0/3/0", "row_sums/c/2/2/0"):
        del bucket.objects[f"bucket/{STORE.key}/{key}"]
    bucket.requests.clear()
    assert tiles.missing() == ((0, 3), (2, 2))
    assert {request.key for request in bucket.requests} == {""}
    with pytest.raises(IncompleteGramError, match="8 of 10"):
        gram.multiply(np.ones((50, 1)))


def test_a_busy_server_is_asked_again_through_a_whole_run(bucket, folder, monkeypatch):
    monkeypatch.setattr(faults, "LONGEST_WAIT", 0.01)
    expected = digests(run(folder, "local", None).run)
    bucket.judge = Judge(lambda judge, _: (503, "SlowDown") if judge.n_requests % 4 == 0 else None)
    done = run(folder)
    assert bucket.judge.n_requests > 100
    assert digests(done.run) == expected


def test_a_run_that_gave_up_is_finished_by_the_same_command_and_makes_nothing_twice(bucket, folder, monkeypatch):
    monkeypatch.setattr(faults, "LONGEST_WAIT", 0.01)
    (folder / "job.yaml").write_text(json.dumps(fields_of()))

    def refuse(judge, request):
        return (503, "SlowDown") if len(judge.commits) > 10 and request.method == "PUT" else None

    bucket.judge = Judge(refuse)
    given_up = CliRunner().invoke(skpca, ["run", str(folder / "job.yaml")])
    assert given_up.exit_code == 75, given_up.output
    bucket.judge = None
    n_missing = len(find_store(bucket).missing())
    assert 0 < n_missing < N_TILES
    assert run(folder).fit.build_counts == TileCounts(computed=n_missing, read=N_TILES - n_missing)


def find_store(bucket):
    (name,) = [key for key in bucket.names() if key.endswith("gram.zarr/zarr.json")]
    return find_tiles(StoredObject.of(f"s3://{name.removesuffix('/zarr.json')}"))


# ---------------------------------------------------------------- whose store it is


def test_a_store_of_other_contents_is_refused_and_left_alone(bucket, engine):
    open_store(engine)[0].build()
    before = dict(bucket.objects)
    with pytest.raises(StorageError, match=r"s3://bucket/some/gram\.zarr belongs to fingerprint f .*this job is g"):
        open_store(engine, fingerprint="g")
    assert bucket.objects == before


@pytest.mark.parametrize("member", ["zarr.json", "tiles/zarr.json", "row_sums/zarr.json"])
@pytest.mark.parametrize("text", [b"", b"{}", b'{"zarr_format": 3', b"\xff"])
def test_damaged_descriptions_are_named_and_left_alone(member, text, bucket, engine):
    open_store(engine)
    bucket.objects[f"bucket/{STORE.key}/{member}"] = text
    before = dict(bucket.objects)
    store._open.cache_clear()  # as a process that comes to it
    with pytest.raises(StorageError, match=rf"gram\.zarr is not .*{member}.*remove it"):
        open_store(engine)
    assert bucket.objects == before


def test_a_description_that_is_refused_for_now_is_no_damage(bucket, engine):
    open_store(engine)
    store._open.cache_clear()
    bucket.judge = Judge(lambda _, request: (503, "SlowDown") if request.method == "GET" else None)
    with pytest.raises(BusyError):
        open_store(engine)


def test_the_group_is_described_last_and_only_where_it_is_not_yet(bucket, engine):
    open_store(engine)
    wrote = [request.key.removeprefix(f"{STORE.key}/") for request in bucket.wrote()]
    assert wrote[-1] == "zarr.json"
    assert set(wrote) == {"zarr.json", "tiles/zarr.json", "row_sums/zarr.json"}
    # another creator found none either, and comes second
    place = chunk_objects.ChunkObjects(STORE)
    place.create({"zarr.json": b"other"})
    assert bucket.objects[f"bucket/{STORE.key}/zarr.json"] != b"other"


def test_two_that_build_at_once_give_the_same_bits_and_one_store(bucket, engine, tmp_path):
    expected = bits(open_store(engine, tmp_path / "gram.zarr")[0].build())

    def build(_):
        with open_engine("synchronous") as own:
            return bits(open_store(own)[0].build())

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(build, range(2))) == [expected, expected]
    gram, tiles = open_store(engine)
    assert tiles.missing() == ()
    assert gram.build().counts == TileCounts(read=10)
    assert len(bucket.objects) == 3 + 10 + 16


# ---------------------------------------------------------------- jobs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": {"path": "out", "tiles": "/scratch/tiles"}}, "is no s3://BUCKET/PREFIX"),
        ({"output": {"path": "out", "tiles": "gs://bucket/tiles"}}, "gs:// is no place that is known"),
        ({"output": {"path": "out", "tiles": "s3:///tiles"}}, "names no bucket"),
        ({"output": {"path": "out", "tiles": "s3://me:secret@bucket/tiles"}}, "name or password"),
        ({"gram": "auto"}, "set gram: zarr"),
        ({"gram": "memory"}, "set gram: zarr"),
        ({"method": "nystroem"}, "a Nyström fit stores none"),
        ({"solver": {"max_passes": 0}}, "a Nyström fit stores none"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        Config.model_validate(fields_of() | changes)


def test_landmarks_that_passes_refine_use_stored_tiles(bucket, folder):
    changes = {"method": "nystroem", "nystroem": {"n_landmarks": 20}, "solver": {"max_passes": 2}}
    remote = run(folder, "remote", **changes)
    assert remote.fit.build_counts == TileCounts(computed=N_TILES)
    assert digests(remote.run) == digests(run(folder, "local", None, **changes).run)
    assert bucket.names("bucket/tiles/")


def test_plans_say_where_tiles_go_or_that_there_are_none(folder):
    reasons = outline(Config.model_validate(fields_of()), folder).plan.reasons
    assert any("tiles go to s3://bucket/tiles" in reason for reason in reasons)
    np.lib.format.open_memmap(folder / "many.npy", "w+", "float32", (1_000_000, 2))
    many = fields_of(source={"uri": "many.npy"}, method="auto", tile_rows=None, solver={})
    planned = outline(Config.model_validate(many), folder).plan
    assert planned.method == "nystroem"
    assert any("output.tiles=s3://bucket/tiles is not used" in reason for reason in planned.reasons)


def test_tiles_on_s3_take_none_of_the_disk(folder):
    budget = {"disk": 80_000}  # for rows and journal; tiles are 30 kB more
    job = outline(Config.model_validate(fields_of(budget=budget)), folder)
    check_budget(job.config, job.plan, job.source)
    job = outline(Config.model_validate(fields_of(tiles=None, budget=budget)), folder)
    with pytest.raises(ConfigError, match=r"budget\.disk"):
        check_budget(job.config, job.plan, job.source)


@pytest.mark.usefixtures("bucket")
def test_a_disk_without_room_for_tiles_takes_a_job_whose_tiles_are_on_s3(folder):
    rows = np.random.default_rng(5).normal(size=(600, 3))
    pq.write_table(pa.table({f"x{column}": rows[:, column] for column in range(3)}), folder / "rows.parquet")
    (folder / "disk").mkdir()
    with tmpfs(folder / "disk", "size=1500k"):  # tiles of 300 rows are 2.2 MB
        with pytest.raises(StorageError, match="make room"):
            run(folder, "disk/local", None, tile_rows=300)
        assert run(folder, "disk/remote", tile_rows=300).fit.build_counts == TileCounts(computed=3)


@pytest.mark.slow
def test_a_run_keeps_to_its_memory_while_it_sends_and_reads_large_tiles(bucket, folder):
    rows = np.random.default_rng(5).normal(size=(8192, 16))
    pq.write_table(pa.table({f"x{column}": rows[:, column] for column in range(16)}), folder / "rows.parquet")
    cluster, budget = {"kind": "threads", "n_threads": 2}, {"memory": "700MiB"}
    fields = fields_of(tile_rows=4096, dtype="float32", cluster=cluster, budget=budget)  # three tiles of 64 MiB
    (folder / "job.yaml").write_text(json.dumps(fields))
    command = [sys.executable, "-m", "scalable_kpca.cli", "run", str(folder / "job.yaml")]
    subprocess.run(command, check=True, env=dict(os.environ), capture_output=True)
    description = json.loads((Output(folder / "out").require_latest().path / "run.json").read_text())
    assert description["peak_memory"] <= description["plan"]["peak_memory"] <= 700 * 2**20
    moved = [request for request in bucket.requests if "/tiles/c/" in request.key and request.method in ("GET", "PUT")]
    sizes = [request.n_bytes for request in moved if request.n_bytes]
    assert max(sizes) <= 8 * 2**20
    assert min(size for size in sizes if size > 1000) >= 4 * 2**20 - 1000  # nine pieces of a tile, or thirteen parts


def test_memory_for_what_is_sent_is_in_the_plan(folder):
    peaks = [outline(Config.model_validate(fields_of(tiles=tiles)), folder).plan.peak_memory for tiles in (PLACE, None)]
    assert peaks[0] - peaks[1] == UPLOAD_BYTES == 15 * 2**20  # one thread


@pytest.mark.usefixtures("server")
def test_a_bucket_that_is_not_there_is_refused_before_rows_are_copied(folder):
    with pytest.raises(StorageError, match="no such object or bucket"):
        run(folder)
    assert not list(folder.glob("out/runs/*/rows.zarr"))


def test_tiles_go_when_a_run_is_published_unless_everything_is_kept(bucket, folder):
    kept = run(folder, "all")
    assert kept.status == "done"
    assert len(bucket.names("bucket/tiles/")) == 3 + N_TILES + 25
    bucket.put("bucket", "tiles/of-others", b"1")
    results = run(folder, "results", keep="results")
    assert bucket.names() == ["bucket/tiles/of-others"]
    assert not (results.run.path / "tiles.json").exists()
    assert verify_output(Output(folder / "results")).problems == []
    run(folder, "one", keep=1)
    assert bucket.names() == ["bucket/tiles/of-others"]


def test_tiles_that_may_not_be_removed_are_said_and_the_run_is_published(bucket, folder, caplog):
    bucket.judge = Judge(lambda _, request: (403, "AccessDenied") if request.query == "delete" else None)
    done = run(folder, keep="results")
    assert done.status == "done"
    assert Output(folder / "out").latest() == done.run
    assert "could not all be removed" in caplog.text
    assert "s3://bucket/tiles/" in caplog.text
    assert find_store(bucket).missing() == ()


def test_verify_reads_tiles_where_they_are_and_says_where(bucket, folder):
    run(folder)
    store = find_store(bucket)
    report = verify_output(Output(folder / "out"))
    assert report.problems == []
    assert report.facts["tiles"] == f"{N_TILES} of {N_TILES} sound"
    assert report.facts["tiles are in"] == store.path
    assert report.facts["recomputed"].startswith("8 of 8")
    assert inspect_output(Output(folder / "out")).facts["tiles"] == store.path
    key = f"{store.path.removeprefix('s3://')}/tiles/c/1/2"
    bucket.objects[key] = flip(bucket.objects[key])
    assert "damaged, made again when needed: (1, 2)" in verify_output(Output(folder / "out")).facts["tiles"]
    for method in ("GET", "HEAD"):  # of a tile's sums or pieces alone, or of everything
        bucket.judge = Judge(lambda _, request, method=method: (503, "SlowDown") if refuses(request, method) else None)
        report = verify_output(Output(folder / "out"))
        assert report.facts["tiles"].startswith("not looked at")
        assert report.problems == []


def refuses(request, method):
    return "/tiles/c/" in request.key if method == "HEAD" else request.method == method


@pytest.mark.parametrize("text", ["{", "[]", '{"place": "/etc"}', '{"place": "s3:///x"}', '{"place": 3}'])
def test_a_run_that_does_not_say_where_its_tiles_are_is_no_surprise(text, bucket, folder):
    done = run(folder)
    (done.run.path / "tiles.json").write_text(text)
    assert "tiles" in inspect_output(Output(folder / "out")).facts
    assert verify_output(Output(folder / "out")).facts["tiles"].startswith("of no use")
    assert bucket.names()


def test_a_job_that_was_broken_off_can_have_its_tiles_on_the_disk(bucket, folder):
    bucket.judge = Judge(lambda judge, _: (403, "AccessDenied") if len(judge.commits) > 10 else None)
    with pytest.raises(StorageError, match="not allowed"):
        run(folder)
    (said,) = folder.glob("out/runs/*/tiles.json")
    local = run(folder, tiles=None)
    assert local.run.path == said.parent
    assert local.fit.build_counts == TileCounts(computed=N_TILES)
    assert not said.exists()
    assert verify_output(Output(folder / "out")).facts["tiles"] == f"{N_TILES} of {N_TILES} sound"


# ---------------------------------------------------------------- a server that knows all of S3


@pytest.mark.slow
def test_moto_keeps_tiles_and_workers_find_them_by_their_own_stores(moto, folder):
    cluster = {"kind": "local", "n_workers": 2, "n_threads": 1}
    local = run(folder, "local", None, cluster=cluster)
    remote = run(folder, "remote", cluster=cluster)
    assert digests(remote.run) == digests(local.run)
    assert remote.fit.build_counts == TileCounts(computed=N_TILES)
    again = run(folder, "again", cluster=cluster)
    assert again.fit.build_counts == TileCounts(read=N_TILES)
    place = StoredObject.of(json.loads((again.run.path / "tiles.json").read_text())["place"])
    tiles = find_tiles(place)
    assert tiles.missing() == ()
    moto.delete(f"{place.key}/tiles/c/0/3")
    moto.put(f"{place.key}/row_sums/c/2/1/0", b"no sums")
    with pytest.raises(CorruptTileError):
        tiles.read_checked(0, 3)
    last = run(folder, "last", keep="results", n_components=2)
    assert last.fit.build_counts == TileCounts(computed=2, read=N_TILES - 2, repaired=2)
    assert list(moto.list("tiles").collect()) == []


@pytest.mark.slow
def test_moto_takes_chunks_in_parts(moto, engine):
    tiling = Tiling(1200, 1200)  # 11.5 MB: two parts
    gram, tiles = open_store(engine, tiling=tiling)
    built = gram.build(np.ones((1200, 1)))
    assert bits(gram.multiply(np.ones((1200, 1)))) == bits(built)
    assert moto.head(f"{STORE.key}/tiles/c/0/0")["size"] == 1200**2 * 8 + 4
    assert tiles.missing() == ()
