"""Results on S3: published whole, by one writer, found again from any machine, and nothing is lost on the way."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from scalable_kpca.cli import skpca
from scalable_kpca.errors import BusyError, ConfigError, LockedError, StorageError
from scalable_kpca.objects import StoredObject, replace_object
from scalable_kpca.workflow import lease, mirror, remote_writer
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.owner import process_identity
from scalable_kpca.workflow.stages import execute, prepare
from tests.s3 import content_of, put_days

OUT = "s3://bucket/out"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A lease that is known to be free after a second."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.05)


def fields(output: str, method: str = "nystroem", uri: str = "s3://bucket/days", **changes: object) -> dict:
    return {
        "source": {"uri": uri, "id": "id", "features": "x*"},
        "kernel": {"name": "rbf", "gamma": 0.3},
        "method": method,
        "nystroem": {"n_landmarks": 20},
        "n_components": 3,
        "cluster": {"kind": "synchronous"},
        "output": {"path": output},
    } | changes


def job(folder: Path, output: str = OUT, work: str = "work", form: str = "parquet", **changes: object):
    described = fields(output, **changes)
    described["output"]["format"] = form
    if output.startswith("s3://"):
        described["output"] = {**described["output"], "work": work}
    return prepare(Config.model_validate(described), folder)


def invoke(*arguments: str):
    """Exit code, answer and all text of a command."""
    done = CliRunner().invoke(skpca, [*arguments, "--json"])
    lines = done.stdout.splitlines()
    return done.exit_code, json.loads(lines[-1]) if lines else {}, done.output


def write_job(folder: Path, **changes: object) -> str:
    described = fields(OUT, **changes)
    described["output"] = {"work": "work", **described["output"], **changes.get("output", {})}
    (folder / "job.yaml").write_text(json.dumps(described))
    return str(folder / "job.yaml")


def pointer(server) -> dict:
    return json.loads(server.objects["bucket/out/latest.json"])


def results(server) -> dict[str, bytes]:
    """Objects of the run in force, but what says of paths and seconds."""
    root = f"bucket/out/{pointer(server)['path']}/"
    left_out = ("run.json", "ledger.json", "COMMIT.json")
    named = {name.removeprefix(root): server.objects[name] for name in server.names(root)}
    return {name: content for name, content in named.items() if name not in left_out}


def local_results(run) -> dict[str, bytes]:
    committed = [entry["path"] for entry in json.loads((run.path / "COMMIT.json").read_text())["files"]]
    return {name: (run.path / name).read_bytes() for name in committed if name not in ("run.json", "ledger.json")}


def writers(server) -> set[str]:
    """Places of runs, as ``<fingerprint>/<writer>``."""
    return {"/".join(name.split("/")[3:5]) for name in server.names("bucket/out/runs/")}


@pytest.mark.parametrize("method", ["exact", "nystroem"])
@pytest.mark.parametrize("form", ["parquet", "zarr"])
def test_results_on_s3_are_those_of_a_directory(method, form, server, tmp_path):
    put_days(server, (1, 2, 3))
    local = execute(job(tmp_path, "local", method=method, form=form))
    done = execute(job(tmp_path, method=method, form=form))
    assert done.status == "done"
    assert results(server) == local_results(local.run)
    assert pointer(server)["run"] == done.run.fingerprint == local.run.fingerprint
    assert len(writers(server)) == 1


@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_another_machine_finds_what_was_published_and_has_nothing_to_do(method, server, tmp_path):
    put_days(server, (1, 2))
    execute(job(tmp_path, method=method))
    before = dict(server.objects)
    done = execute(job(tmp_path, work="elsewhere", method=method))
    assert done.status == "unchanged"
    assert done.fit is None
    assert local_results(done.run) == results(server)
    assert server.objects == before
    server.requests.clear()
    assert execute(job(tmp_path, work="elsewhere", method=method)).status == "unchanged"
    assert server.wrote() == []
    assert not [request for request in server.got() if "/embedding/" in request.key]  # it is there: not brought again


def test_every_command_takes_an_output_on_s3(server, tmp_path):
    put_days(server, (1, 2))
    server.put("bucket", "later/part-3.parquet", content_of(3))
    work = ("--work", str(tmp_path / "work"))
    assert invoke("status", OUT, *work)[1]["in force"] == "none"
    code, answer, _ = invoke("run", write_job(tmp_path))
    assert code == 0
    assert answer["published"] == f"{OUT}/{pointer(server)['path']}"
    assert invoke("run", write_job(tmp_path))[0] == 99
    code, answer, _ = invoke("update", OUT, "--source", "s3://bucket/later", *work)
    assert (code, answer["rows"], answer["published"]) == (0, 80, f"{OUT}/{pointer(server)['path']}")
    assert invoke("update", OUT, "--source", "s3://bucket/later", *work)[0] == 99
    code, answer, _ = invoke("transform", OUT, "--source", "s3://bucket/later", "--to", "s3://bucket/scores", *work)
    assert (code, answer["rows"], answer["embedding"]) == (0, 80, "s3://bucket/scores")
    assert server.objects["bucket/scores/_SUCCESS"] == b""
    code, answer, _ = invoke("status", OUT, *work)
    assert (code, answer["in force"], answer["lock"]) == (0, pointer(server)["run"], "free")
    assert invoke("verify", OUT, *work)[:2] == (
        0,
        {"run": pointer(server)["run"], "results": "as committed", "problems": []},
    )
    code, answer, _ = invoke("report", OUT, *work)
    assert code == 0
    assert server.objects["bucket/out/report.html"] == Path(answer["page"]).read_bytes()
    assert invoke("unlock", OUT, *work)[0] == 99
    local = tmp_path / "scores"
    assert invoke("transform", OUT, "--source", "s3://bucket/later", "--to", str(local), *work)[0] == 0
    assert {f"bucket/scores/{file.name}" for file in local.iterdir()} | {"bucket/scores/_SUCCESS"} == set(
        server.names("bucket/scores/")
    )
    for file in local.iterdir():
        assert server.objects[f"bucket/scores/{file.name}"] == file.read_bytes()


def test_an_update_from_another_machine_goes_on_with_what_was_published(server, tmp_path):
    put_days(server, (1, 2))
    server.put("bucket", "later/part-3.parquet", content_of(3))
    server.put("bucket", "later/part-4.parquet", content_of(4))
    invoke("run", write_job(tmp_path))
    first = pointer(server)
    for number, machine in ((3, "one"), (4, "two")):
        work = ("--work", str(tmp_path / machine))
        code, answer, text = invoke("update", OUT, "--source", f"s3://bucket/later/part-{number}.parquet", *work)
        assert code == 0, text
        assert answer["rows"] == 80
    assert pointer(server)["fence"] == first["fence"] + 2
    assert len(writers(server)) == 3
    assert invoke("verify", OUT, "--work", str(tmp_path / "three"))[0] == 0
    # the base, as it was configured, is what the versions come from
    assert invoke("run", write_job(tmp_path))[1]["status"] == "unchanged"


def test_of_two_writers_at_once_one_is_told_to_wait(server, tmp_path):
    put_days(server, (1, 2))
    first, second = job(tmp_path, work="one"), job(tmp_path, work="two")
    inside, may_go_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        inside.set()
        may_go_on.wait(30)

    outcome = []
    running = threading.Thread(target=lambda: outcome.append(execute(first, hold)))
    running.start()
    assert inside.wait(30)
    time.sleep(0.3)  # the owner, whose process is this one, renews it meanwhile
    with pytest.raises(LockedError, match=r"s3://bucket/out/LOCK is held by process \d+ on .* alive"):
        execute(second)
    may_go_on.set()
    running.join()
    assert outcome[0].status == "done"
    assert execute(job(tmp_path, work="two")).status == "unchanged"


def test_a_lease_that_is_not_renewed_is_taken_and_who_wakes_up_publishes_nothing(server, tmp_path, monkeypatch):
    put_days(server, (1, 2))
    sleeper, second = job(tmp_path, work="one"), job(tmp_path, work="two")
    taken = []

    def sleep(_: object) -> None:
        """The first one's host stands still: it renews nothing, and the second one runs from beginning to end."""
        if not taken:
            taken.append(True)
            taken.append(execute(second))

    monkeypatch.setattr(lease, "RENEW_SECONDS", 3600.0)
    with pytest.raises(LockedError, match="nothing is published"):
        execute(sleeper, sleep)
    assert taken[1].status == "done"
    assert pointer(server)["run"] == taken[1].run.fingerprint
    assert {name for name in writers(server) if name in pointer(server)["path"]}
    published = results(server)
    assert execute(job(tmp_path, work="one")).status == "unchanged"
    assert results(server) == published


def test_the_pointer_decides_when_two_publish_at_the_same_moment(server, tmp_path, monkeypatch):
    put_days(server, (1, 2))
    prepared = [job(tmp_path, work="one"), job(tmp_path, work="two")]
    monkeypatch.setattr(lease.Lease, "require", lambda _: None)  # both believe that they hold it
    monkeypatch.setattr(lease.Lease, "confirm", lambda _: None)
    monkeypatch.setattr(lease, "_acquire", lambda *_: "")
    together, ends = threading.Barrier(2), []
    original = remote_writer.RemoteWriter.point_to

    def point_to(self, *arguments):
        together.wait(30)
        original(self, *arguments)

    monkeypatch.setattr(remote_writer.RemoteWriter, "point_to", point_to)

    def work(one) -> None:
        try:
            ends.append(execute(one).status)
        except LockedError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=work, args=(one,)) for one in prepared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(end == "done" for end in ends) == [False, True]
    assert any("was written by another run" in end for end in ends)


def test_a_lock_of_a_dead_process_of_this_host_is_taken_at_once(server, tmp_path, monkeypatch):
    put_days(server, (1,))
    dead = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    owner = process_identity(dead.pid)
    dead.communicate()
    monkeypatch.setattr(lease, "LEASE_SECONDS", 3600.0)
    content = json.dumps({"owner": owner, "written": "x"}).encode()
    replace_object(StoredObject.of(f"{OUT}/LOCK"), content, None)
    assert execute(job(tmp_path)).status == "done"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"owner": 3}', b'{"owner": {"host": "elsewhere", "pid": 3}}'])
def test_a_lock_of_somebody_else_is_waited_for_and_taken(content, server, tmp_path):
    put_days(server, (1,))
    server.put("bucket", "out/LOCK", content)
    with pytest.raises(LockedError, match="--force"):
        lease.free_lease(StoredObject.of(f"{OUT}/LOCK"))
    assert execute(job(tmp_path)).status == "done"


def test_a_lock_can_be_freed_by_hand(server):
    put_days(server, (1,))
    owner = {"host": "elsewhere", "pid": 3}
    server.put("bucket", "out/LOCK", json.dumps({"owner": owner, "written": ""}).encode())
    assert "elsewhere" in invoke("status", OUT)[1]["lock"]
    assert invoke("unlock", OUT)[0] == 75
    assert invoke("unlock", OUT, "--force")[:2] == (0, {"status": "done", "owner": owner})
    assert invoke("status", OUT)[1]["lock"] == "free"
    assert invoke("unlock", OUT)[0] == 99


COMMAND = [sys.executable, "-m", "scalable_kpca.cli", "run"]


@pytest.mark.slow
@pytest.mark.parametrize("n_writes", [1, 3, 8, -3, -2, -1])
def test_a_run_that_is_killed_while_it_publishes_is_finished_by_the_next(n_writes, server, tmp_path, monkeypatch):
    """At its n-th write, counted from the end where n is negative; the last one gives the lock back."""
    monkeypatch.setattr(lease, "RENEW_SECONDS", 3600.0)
    put_days(server, (1, 2))
    whole = execute(job(tmp_path, method="exact", work="whole"))
    expected, n_all = local_results(whole.run), len(server.wrote())
    for name in server.names("bucket/out"):
        del server.objects[name]
    at, process = n_writes if n_writes > 0 else n_all + 1 + n_writes, []
    server.requests.clear()

    def kill(request):
        if request.method in ("PUT", "POST") and len(server.wrote()) >= at:
            process[0].send_signal(signal.SIGKILL)
            process[0].wait()

    config = write_job(tmp_path, method="exact")
    server.judge = kill
    process.append(subprocess.Popen([*COMMAND, config], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    assert process[0].wait() == -signal.SIGKILL, process[0].stderr.read()
    process[0].stderr.close()
    server.judge = None
    code, _, text = invoke("run", config)
    assert code in (0, 99), text
    assert results(server) == expected
    assert len(writers(server)) == 1  # what was left of the first one is gone
    # whoever only finds that all is there needs no lock
    assert code == 99 or json.loads(server.objects["bucket/out/LOCK"])["owner"] is None


def test_a_run_gets_over_a_server_that_refuses_now_and_then(server, tmp_path):
    put_days(server, (1, 2))
    local = execute(job(tmp_path, "local", method="exact"))
    refused = set()

    def judge(request):
        """Whatever is asked for, the first time."""
        asked = (request.method, request.key)
        if asked in refused:
            return None
        refused.add(asked)
        return (503, "SlowDown")

    server.judge = judge
    code, _, text = invoke("run", write_job(tmp_path, method="exact"))
    server.judge = None
    assert code == 0, text
    assert {"GET", "HEAD", "PUT"} <= {method for method, _ in refused}
    assert results(server) == local_results(local.run)


def test_a_server_that_refuses_every_result_ends_a_run_and_the_next_one_only_publishes(server, tmp_path):
    put_days(server, (1, 2))
    server.judge = lambda request: (503, "SlowDown") if "/runs/" in request.key and request.method == "PUT" else None
    code, _, text = invoke("run", write_job(tmp_path, method="exact"))
    assert code == 75, text
    assert "writing s3://bucket/out/runs/" in text
    assert "bucket/out/latest.json" not in server.objects
    server.judge = None
    code, answer, _ = invoke("run", write_job(tmp_path, method="exact"))
    assert (code, answer["status"]) == (0, "restored")  # the fit was there
    assert results(server)


@pytest.mark.parametrize(("status", "code", "expected"), [(403, "AccessDenied", 74), (404, "NoSuchBucket", 74)])
def test_a_place_that_may_not_be_written_is_named(status, code, expected, server, tmp_path):
    put_days(server, (1, 2))
    server.judge = lambda request: (status, code) if request.method == "PUT" else None
    found, _, text = invoke("run", write_job(tmp_path))
    assert found == expected
    assert "s3://bucket/out/LOCK" in text
    assert "unspoken" not in text


def test_a_pointer_that_was_written_though_no_answer_came_counts(server):
    put_days(server, (1,))
    place, content = StoredObject.of(f"{OUT}/latest.json"), b'{"mine": 1}'
    server.put("bucket", "out/latest.json", content)
    assert replace_object(place, content, None)  # as when a first attempt was stored and its answer got lost
    assert server.objects["bucket/out/latest.json"] == content
    with pytest.raises(OSError, match="replaced"):
        replace_object(place, b'{"other": 1}', None)


def test_a_store_without_conditional_writes_is_refused(server, tmp_path):
    put_days(server, (1,))
    server.knows_conditions = False
    with pytest.raises(StorageError, match="writes objects whatever the condition"):
        execute(job(tmp_path))
    assert "bucket/out/latest.json" not in server.objects


def test_what_is_missing_there_is_published_again(server, tmp_path):
    put_days(server, (1, 2))
    execute(job(tmp_path))
    published = results(server)
    for name in server.names(f"bucket/out/{pointer(server)['path']}/embedding/"):
        del server.objects[name]
    assert invoke("verify", OUT)[0] == 74
    done = execute(job(tmp_path))
    assert done.status == "restored"
    assert results(server) == published
    assert len(writers(server)) == 1
    assert invoke("verify", OUT)[0] == 0


def test_what_was_removed_there_is_not_in_force_here(server, tmp_path):
    put_days(server, (1, 2))
    execute(job(tmp_path))
    for name in server.names("bucket/out"):
        del server.objects[name]
    assert (
        invoke("transform", OUT, "--source", "s3://bucket/days", "--to", "x", "--work", str(tmp_path / "work"))[0] == 74
    )
    assert execute(job(tmp_path)).status == "restored"


def test_damage_there_is_found_by_whoever_brings_it(server, tmp_path):
    put_days(server, (1, 2))
    execute(job(tmp_path))
    (name,) = [name for name in server.names("bucket/out") if name.endswith("part-00000.parquet")]
    server.objects[name] = server.objects[name][:-1] + b"!"
    code, _, text = invoke("verify", OUT, "--work", str(tmp_path / "work"))
    assert code == 74
    assert f"s3://{name} differs from what was committed" in text
    with pytest.raises(StorageError, match="differs from what was committed"):
        execute(job(tmp_path, work="elsewhere"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"run": "x", "path": "y"}'])
def test_a_damaged_pointer_is_an_error_with_its_name(content, server, tmp_path):
    put_days(server, (1, 2))
    execute(job(tmp_path))
    server.put("bucket", "out/latest.json", content)
    with pytest.raises(StorageError, match=r"s3://bucket/out/latest\.json is damaged"):
        execute(job(tmp_path))
    assert "PROBLEM" in CliRunner().invoke(skpca, ["status", OUT]).output


def test_a_pointer_leads_to_a_run_of_its_own_output_only(server, tmp_path):
    put_days(server, (1, 2))
    execute(job(tmp_path))
    found = pointer(server)
    writer = found["path"].rpartition("/")[2]
    for path in (f"runs/{found['run']}/../../secret", f"/runs/{found['run']}/{writer}", f"runs/{'0' * 64}/{writer}"):
        server.put("bucket", "out/latest.json", json.dumps({**found, "path": path}).encode())
        with pytest.raises(StorageError, match="is damaged"):
            execute(job(tmp_path))


def test_hostile_commit_lists_write_nowhere_else(server, tmp_path):
    put_days(server, (1, 2))
    execute(job(tmp_path))
    name = f"bucket/out/{pointer(server)['path']}/COMMIT.json"
    listed = json.loads(server.objects[name])
    listed["files"].append({"path": "model/../../../../stolen", "bytes": 1, "sha256": "0" * 64})
    server.objects[name] = json.dumps(listed).encode()
    assert execute(job(tmp_path, work="elsewhere")).status == "done"  # what is there is not whole
    assert not list(tmp_path.rglob("stolen"))
    assert len(writers(server)) == 1


def test_keep_removes_there_what_it_removes_here(server, tmp_path):
    put_days(server, (1, 2))
    for gamma, keep in ((0.1, "all"), (0.2, "all"), (0.3, 2), (0.4, 2)):
        execute(job(tmp_path, kernel={"name": "rbf", "gamma": gamma}, keep=keep, work=f"work {gamma}"))
    assert len(writers(server)) == 2  # though each machine knew its own run only
    assert invoke("verify", OUT)[0] == 0
    last = execute(job(tmp_path, kernel={"name": "rbf", "gamma": 0.3}, keep=1))
    assert last.status == "done"
    assert len(writers(server)) == 1


@pytest.mark.slow
def test_keep_leaves_what_versions_go_on_with(server, tmp_path):
    put_days(server, (1, 2))
    server.put("bucket", "later/part-3.parquet", content_of(3))
    invoke("run", write_job(tmp_path, keep=1))
    code, _, text = invoke("update", OUT, "--source", "s3://bucket/later")
    assert code == 0, text
    assert len(writers(server)) == 2
    assert invoke("verify", OUT)[0] == 0


@pytest.fixture
def versions(server, tmp_path):
    """A base and two versions that updates made of it, all from one machine; their fingerprints."""
    put_days(server, (1, 2))
    invoke("run", write_job(tmp_path))
    found = [pointer(server)["run"]]
    for number in (3, 4):
        server.put("bucket", f"later/part-{number}.parquet", content_of(number))
        work = ("--work", str(tmp_path / "work"))
        assert invoke("update", OUT, "--source", f"s3://bucket/later/part-{number}.parquet", *work)[0] == 0
        found.append(pointer(server)["run"])
    return found


def lose_scores(server, fingerprint: str) -> list[str]:
    """Remove an object of scores of a run; the names of the others."""
    name = next(name for name in server.names(f"bucket/out/runs/{fingerprint}/") if "/embedding/" in name)
    del server.objects[name]
    return server.names(f"bucket/out/runs/{fingerprint}/")


def test_a_version_that_lost_an_object_is_not_removed_for_that(server, tmp_path, versions):
    left = lose_scores(server, versions[1])
    execute(job(tmp_path, kernel={"name": "rbf", "gamma": 0.1}, keep=2, work="elsewhere"))  # this one and the last
    assert server.names(f"bucket/out/runs/{versions[1]}/") == left
    assert server.names(f"bucket/out/runs/{versions[0]}/")  # the base, which cannot be known to be of no use


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "update"])
def test_a_version_that_lost_an_object_is_published_again_by_who_has_it(command, server, tmp_path, versions):
    lose_scores(server, versions[1])
    assert invoke("verify", OUT)[0] == 74
    if command == "run":
        code, answer, text = invoke("run", write_job(tmp_path))
        assert (code, answer["status"]) == (99, "unchanged"), text
    else:
        server.put("bucket", "later/part-5.parquet", content_of(5))
        work = ("--work", str(tmp_path / "work"))
        assert invoke("update", OUT, "--source", "s3://bucket/later/part-5.parquet", *work)[0] == 0
    assert invoke("verify", OUT)[0] == 0


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"previous": ["x"]}'])
def test_nothing_is_removed_where_a_run_does_not_say_what_it_goes_on_with(content, server, tmp_path, versions):
    (name,) = [name for name in server.names(f"bucket/out/runs/{versions[1]}/") if name.endswith("/run.json")]
    before = writers(server)
    if content is None:
        del server.objects[name]
    else:
        server.objects[name] = content
    with remote_writer.remote_writing(mirror.output_at(OUT, tmp_path, "work")) as writer:
        writer.retain(99, 1)
    assert writers(server) == before


def test_numbers_of_writers_go_on_where_the_pointer_is_gone(server, tmp_path):
    put_days(server, (1,))
    for gamma in (0.1, 0.2):
        execute(job(tmp_path, kernel={"name": "rbf", "gamma": gamma}))
    assert pointer(server)["fence"] == 2
    del server.objects["bucket/out/latest.json"]
    execute(job(tmp_path, kernel={"name": "rbf", "gamma": 0.3}, work="elsewhere"))
    assert pointer(server)["fence"] == 3


def held(server) -> lease.Lease:
    server.buckets.add("bucket")
    token = "mine"
    place = StoredObject.of(f"{OUT}/LOCK")
    return lease.Lease(place, token, lease._acquire(place, token))


def test_a_lease_that_another_has_taken_is_lost(server, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 3600.0)
    mine = held(server)
    mine.require()
    server.put("bucket", "out/LOCK", b'{"owner": {"host": "elsewhere"}, "token": "theirs"}')
    mine.require()  # taken for granted, for so long as nobody could have taken it
    for ask in (mine.confirm, mine.require):
        with pytest.raises(LockedError, match="was taken by another process"):
            ask()
    mine.release()
    assert b"theirs" in server.objects["bucket/out/LOCK"]


def test_a_lease_that_was_not_renewed_for_long_is_not_taken_for_granted(server, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 3600.0)
    mine = held(server)
    time.sleep(0.8)
    server.judge = lambda _: (503, "SlowDown")
    with pytest.raises(LockedError, match="cannot be renewed"):
        mine.require()
    server.judge = None
    mine.require()
    mine.release()


def test_a_renewal_that_was_stored_though_no_answer_came_is_ours(server, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 3600.0)
    mine = held(server)
    server.put("bucket", "out/LOCK", b'{"owner": {"host": "me"}, "token": "mine", "written": "unanswered"}')
    mine.confirm()
    mine.release()
    assert json.loads(server.objects["bucket/out/LOCK"])["owner"] is None


def test_a_writer_that_lost_its_lease_removes_nothing(server, tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 3600.0)
    put_days(server, (1, 2))
    for gamma in (0.1, 0.2):
        execute(job(tmp_path, kernel={"name": "rbf", "gamma": gamma}))
    with remote_writer.remote_writing(mirror.output_at(OUT, tmp_path, "work")) as late:
        theirs = f"bucket/out/runs/{pointer(server)['run']}/3-{'0' * 32}/model/model.json"
        server.objects[theirs] = b"half uploaded"
        before = writers(server)
        late.sweep(2)  # of a later writer: not touched in any case
        assert writers(server) == before
        server.put("bucket", "out/LOCK", b'{"owner": {"host": "elsewhere"}, "token": "theirs"}')
        late.sweep(99)
        late.retain(99, 1)
        assert writers(server) == before


def test_what_is_no_place_of_a_writer_is_left_alone(server, tmp_path):
    put_days(server, (1,))
    other = f"bucket/out/runs/{'0' * 64}/gram.zarr/zarr.json"
    server.objects[other] = b"{}"
    execute(job(tmp_path, keep=1))
    assert other in server.objects


def test_what_is_here_stays_until_all_of_another_is_here(server, tmp_path):
    put_days(server, (1, 2))
    mine = execute(job(tmp_path))
    assert execute(job(tmp_path, work="elsewhere")).status == "unchanged"
    named = json.loads((mine.run.path / "run.json").read_text()) | {"note": "another writer"}
    (mine.run.path / "run.json").write_text(json.dumps(named))
    commit = json.loads((mine.run.path / "COMMIT.json").read_text())
    (mine.run.path / "COMMIT.json").write_text(json.dumps(commit | {"fence": 7}))  # another commit list than there
    files = {file: file.read_bytes() for file in mine.run.path.rglob("*") if file.is_file()}
    server.judge = lambda request: (
        (503, "SlowDown") if request.key.endswith(".parquet") and "/embedding/" in request.key else None
    )
    with pytest.raises(BusyError):
        mirror.refresh(mirror.output_at(OUT, tmp_path, "work"))
    assert {file: file.read_bytes() for file in mine.run.path.rglob("*") if file.is_file()} == files


def test_a_working_directory_belongs_to_one_output(server, tmp_path):
    put_days(server, (1,))
    execute(job(tmp_path))
    with pytest.raises(ConfigError, match="is the working directory of"):
        execute(job(tmp_path, "s3://bucket/other"))
    execute(job(tmp_path, "plain"))
    with pytest.raises(ConfigError, match="holds results of its own"):
        execute(job(tmp_path, work="plain"))
    with pytest.raises(ConfigError, match="is the working directory of"):
        execute(job(tmp_path, "work"))
    with pytest.raises(ConfigError, match="is a directory itself"):
        prepare(Config.model_validate(fields("plain") | {"output": {"path": "plain", "work": "x"}}), tmp_path)


@pytest.mark.parametrize(
    ("uri", "output"),
    [
        ("s3://bucket/out/days", "s3://bucket/out"),
        ("s3://bucket/out", "s3://bucket/out"),
        ("s3://bucket/days", "s3://bucket/days/out"),
        ("s3://bucket/**/*.parquet", "s3://bucket/out"),
        ("s3://bucket", "s3://bucket/out"),
    ],
)
def test_a_source_and_results_in_one_another_are_refused(uri, output, server, tmp_path):
    put_days(server, (1,))
    server.put("bucket", "out/days/part-1.parquet", content_of(1))
    with pytest.raises(ConfigError, match="lie in one another"):
        job(tmp_path, output, uri=uri)


@pytest.mark.parametrize("uri", ["s3://bucket/*.parquet", "s3://bucket/days-1", "s3://bucket/d*/*.parquet"])
def test_a_source_beside_the_results_is_none_of_them(uri, server, tmp_path):
    server.put("bucket", "part-1.parquet", content_of(1))
    server.put("bucket", "days-1/part-1.parquet", content_of(1))
    for _ in range(2):
        done = execute(job(tmp_path, "s3://bucket/days", uri=uri))
    assert done.status == "unchanged"


def test_a_run_in_a_bucket_itself(server, tmp_path):
    put_days(server, (1,))
    server.buckets.add("results")
    assert execute(job(tmp_path, "s3://results")).status == "done"
    assert "results/latest.json" in server.objects
    assert execute(job(tmp_path, "s3://results", work="elsewhere")).status == "unchanged"


def test_a_server_that_does_not_answer_is_no_problem_of_an_output(server, tmp_path):
    put_days(server, (1, 2))
    invoke("run", write_job(tmp_path))
    server.judge = lambda _: (503, "SlowDown")
    for command in ("status", "verify"):
        code, _, text = invoke(command, OUT)
        assert code == 75, f"{command}: {text}"
    server.judge = None
    assert invoke("status", OUT)[0] == 0


def test_scores_that_fail_leave_nothing_and_occupied_places_are_refused(server, tmp_path):
    put_days(server, (1, 2))
    invoke("run", write_job(tmp_path))
    scores = ("transform", OUT, "--source", "s3://bucket/days", "--to")
    server.judge = lambda request: (
        (503, "SlowDown") if request.key.endswith("part-00001.parquet") and request.method == "PUT" else None
    )
    code, _, text = invoke(*scores, "s3://bucket/scores")
    server.judge = None
    assert code == 75, text
    assert server.names("bucket/scores") == []
    server.put("bucket", "scores/mine", b"mine")
    code, _, text = invoke(*scores, "s3://bucket/scores")
    assert (code, server.names("bucket/scores")) == (74, ["bucket/scores/mine"])
    assert "s3://bucket/scores holds objects" in text
    server.put("bucket", "other/_STARTED", b"")
    code, _, text = invoke(*scores, "s3://bucket/other")
    assert (code, server.names("bucket/other")) == (74, ["bucket/other/_STARTED"])
    for place in (f"{OUT}/scores", OUT, "s3://bucket/days/scores", "s3://name:secret@bucket/x"):
        code, _, text = invoke(*scores, place)
        assert code == 78, text
        assert "secret" not in text


def test_a_plan_brings_nothing(server, tmp_path):
    put_days(server, (1, 2))
    invoke("run", write_job(tmp_path))
    server.requests.clear()
    assert invoke("plan", write_job(tmp_path))[0] == 0
    assert not [request for request in server.requests if request.key.startswith("out")]


def test_the_default_working_directory_is_one_for_each_output(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second = (mirror.output_at(f"s3://bucket/{name}/out", Path()).path for name in "ab")
    assert first != second
    assert first.is_relative_to(tmp_path / "cache")
    put_days(server, (1,))
    done = execute(prepare(Config.model_validate(fields(OUT)), tmp_path))
    assert done.run.path.is_relative_to(tmp_path / "cache")


@pytest.mark.slow
def test_moto_takes_source_and_results(moto, tmp_path):
    days = tmp_path / "days"
    days.mkdir()
    for day in (2, 10, 3):
        (days / f"part-{day}.parquet").write_bytes(content_of(day))
        moto.put(f"days/part-{day}.parquet", content_of(day))
    moto.put("later/part-4.parquet", content_of(4))
    for method in ("exact", "nystroem"):
        local = execute(job(tmp_path, f"local {method}", method=method, uri="days"))
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        assert execute(job(tmp_path, method=method)).status == "done"
        found = execute(job(tmp_path, method=method, work=f"elsewhere {method}"))
        assert found.status == "unchanged"
        assert local_results(found.run) == local_results(local.run)
    assert invoke("verify", OUT)[0] == 0
    assert invoke("update", OUT, "--source", "s3://bucket/later")[0] == 0
    assert invoke("transform", OUT, "--source", "s3://bucket/later", "--to", "s3://bucket/scores")[0] == 0
    with pytest.raises(OSError, match="replaced"):
        replace_object(StoredObject.of(f"{OUT}/latest.json"), b"{}", None)
    with pytest.raises(OSError, match="replaced"):
        replace_object(StoredObject.of(f"{OUT}/latest.json"), b"{}", '"0123"')


@pytest.mark.slow
def test_moto_takes_source_tiles_and_results_together(moto, tmp_path):
    rows = (2, 10, 3)
    days = tmp_path / "days"
    days.mkdir()
    for day in rows:
        (days / f"part-{day}.parquet").write_bytes(content_of(day))
        moto.put(f"days/part-{day}.parquet", content_of(day))
    same = {"method": "exact", "gram": "zarr", "tile_rows": 64, "solver": {"name": "block_krylov"}}
    local = execute(job(tmp_path, "local", uri="days", **same))
    described = fields(OUT, **same)
    described["output"] |= {"work": "work", "tiles": "s3://bucket/tiles", "format": "parquet"}
    done = execute(prepare(Config.model_validate(described), tmp_path))
    assert done.run.fingerprint == local.run.fingerprint
    assert done.fit.build_counts.computed == local.fit.build_counts.computed == 10
    assert local_results(done.run) == local_results(local.run)
    assert not (done.run.path / "gram.zarr").exists()
    # another machine finds the tiles: of another number of components nothing is evaluated
    again = execute(
        prepare(
            Config.model_validate(
                described | {"n_components": 2, "output": described["output"] | {"work": "elsewhere"}}
            ),
            tmp_path,
        )
    )
    assert (again.fit.build_counts.computed, again.fit.build_counts.read) == (0, 10)
