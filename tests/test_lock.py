import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from scalable_kpca.errors import LockedError, StorageError
from scalable_kpca.workflow import lock as module
from scalable_kpca.workflow.lock import describe_owner, output_lock, release_lock
from scalable_kpca.workflow.owner import owner_is_dead, process_identity
from tests.support import skip


def test_lock_exists_while_held_and_leaves_nothing_behind(tmp_path):
    with output_lock(tmp_path / "LOCK"):
        owner = describe_owner(tmp_path / "LOCK")
        assert owner["pid"] == os.getpid()
        assert not owner_is_dead(owner)
        with pytest.raises(LockedError, match=f"process {os.getpid()} on "), output_lock(tmp_path / "LOCK"):
            pass
        assert describe_owner(tmp_path / "LOCK") == owner
    assert list(tmp_path.iterdir()) == []


def test_lock_is_released_when_the_holder_raises(tmp_path):
    with pytest.raises(ZeroDivisionError), output_lock(tmp_path / "LOCK"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_lock_of_a_dead_process_is_broken(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = process_identity(child.pid)
    child.communicate(b"\n")
    (tmp_path / "LOCK").write_text(json.dumps(owner))
    with output_lock(tmp_path / "LOCK"):
        assert describe_owner(tmp_path / "LOCK")["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_lock_of_a_reused_process_number_or_an_earlier_boot_is_broken(tmp_path):
    alive = process_identity(os.getpid())
    for change in ({"started": alive["started"] - 1000}, {"boot": "another boot"}):
        if "boot" in change and alive["machine"] is None:
            skip("only a machine that knows itself can tell that it was started anew, and no container does")
        (tmp_path / "LOCK").write_text(json.dumps({**alive, **change}))
        with output_lock(tmp_path / "LOCK"):
            pass


FOREIGN = '{"host": "another-host", "boot": "x", "pid": 1, "started": 0}'


@pytest.mark.parametrize("content", ["", "garbage", "[]", FOREIGN])
def test_lock_without_proof_of_death_is_respected(tmp_path, content):
    (tmp_path / "LOCK").write_text(content)
    advice = "remove the lock if that process is certainly gone"
    with pytest.raises(LockedError, match=advice), output_lock(tmp_path / "LOCK"):
        pass
    assert (tmp_path / "LOCK").read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == ["LOCK"]


def test_of_many_processes_started_together_one_holds_the_lock(tmp_path):
    (tmp_path / "LOCK").write_text(json.dumps({**process_identity(os.getpid()), "started": 0}))
    script = (
        "import sys; from pathlib import Path; from scalable_kpca.errors import LockedError\n"
        "from scalable_kpca.workflow.lock import output_lock\n"
        "path = Path(sys.argv[1]); input()\n"
        "try:\n"
        "    with output_lock(path):\n"
        "        (path.parent / 'holders').open('a').write('x'); print('held', flush=True); input()\n"
        "except LockedError:\n"
        "    print('refused', flush=True)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "LOCK")]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    answers = [child.stdout.readline().strip() for child in children]
    for child in children:
        child.communicate("\n")
    assert answers.count("held") == 1
    assert answers.count("refused") == 5


def test_holder_in_another_pid_namespace_is_never_proven_dead(tmp_path):
    alive = process_identity(os.getpid())
    for change in ({"pid": 2**22 + 1}, {"started": 0}):
        owner = {**alive, **change}
        assert owner_is_dead(owner)
        assert not owner_is_dead({**owner, "pid_namespace": "pid:[1]"})
        assert not owner_is_dead({name: value for name, value in owner.items() if name != "pid_namespace"})
    (tmp_path / "LOCK").write_text(json.dumps({**alive, "pid_namespace": "pid:[1]", "started": 0}))
    with pytest.raises(LockedError), output_lock(tmp_path / "LOCK"):
        pass


HOLDER = (
    "import sys; from pathlib import Path; from scalable_kpca.workflow.lock import output_lock\n"
    "with output_lock(Path(sys.argv[1])):\n"
    "    print('held', flush=True); input()\n"
)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs a PID namespace")
def test_lock_is_kept_between_real_pid_namespaces_of_one_host(tmp_path):
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", HOLDER, str(tmp_path / "LOCK")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().strip() == "held"
        with pytest.raises(LockedError, match="process 1 on "), output_lock(tmp_path / "LOCK"):
            pass
        holder.communicate("\n")
    with output_lock(tmp_path / "LOCK"):
        pass


def test_killed_holder_that_nobody_has_waited_for_is_dead(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "LOCK")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline().strip() == "held"
        assert not owner_is_dead(describe_owner(tmp_path / "LOCK"))
        holder.kill()
        deadline = time.monotonic() + 10
        while not owner_is_dead(describe_owner(tmp_path / "LOCK")) and time.monotonic() < deadline:
            time.sleep(0.01)
        with output_lock(tmp_path / "LOCK"):
            assert describe_owner(tmp_path / "LOCK")["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_identities_that_killed_processes_left_are_swept_and_others_stay(tmp_path):
    dead = {**process_identity(os.getpid()), "started": 0}
    identities = [dead, process_identity(os.getpid())]
    contents = {f".LOCK.{number:032x}": json.dumps(identity) for number, identity in enumerate(identities)}
    contents |= {f".LOCK.{2:032x}": FOREIGN, f".LOCK.{3:032x}": "", ".LOCK.dead": json.dumps(dead)}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    (tmp_path / f".LOCK.{4:032x}").mkdir()
    with output_lock(tmp_path / "LOCK"):
        pass
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*contents, f".LOCK.{4:032x}"} - {f".LOCK.{0:032x}"}


def test_another_machine_of_the_same_name_is_not_taken_for_this_one_before_it_was_started_anew():
    own = process_identity(os.getpid())
    assert not owner_is_dead({**own, "boot": "another boot", "machine": "another machine"})
    assert not owner_is_dead({**own, "boot": "another boot", "machine": None})


def test_a_turn_that_does_not_end_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 0.2)
    script = "import fcntl, os, sys\nfcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX)\nprint(1, flush=True)\ninput()"
    command = [sys.executable, "-c", script, str(tmp_path)]
    (tmp_path / "LOCK").write_text(FOREIGN)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        other.stdout.readline()
        with pytest.raises(LockedError, match=r"held by another process of this host for 0\.2 s"):
            release_lock(tmp_path / "LOCK", force=True)
        other.kill()
    release_lock(tmp_path / "LOCK", force=True)
    assert list(tmp_path.iterdir()) == []


def test_directory_in_the_place_of_the_lock_is_named(tmp_path):
    (tmp_path / "LOCK").mkdir()
    with pytest.raises(StorageError, match="LOCK is a directory"), output_lock(tmp_path / "LOCK"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["LOCK"]
