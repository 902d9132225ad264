import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from scalable_kpca.errors import LockedError
from scalable_kpca.workflow.lock import describe_owner, output_lock, owner_is_dead


def identity_of(process: psutil.Process) -> dict:
    """What a lock held by `process` says, on this host and boot."""
    with tempfile.TemporaryDirectory() as folder, output_lock(Path(folder) / "LOCK"):
        own = describe_owner(Path(folder) / "LOCK")
    return {**own, "pid": process.pid, "started": process.create_time()}


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
    owner = identity_of(psutil.Process(child.pid))
    child.communicate(b"\n")
    (tmp_path / "LOCK").write_text(json.dumps(owner))
    with output_lock(tmp_path / "LOCK"):
        assert describe_owner(tmp_path / "LOCK")["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_lock_of_a_reused_process_number_or_an_earlier_boot_is_broken(tmp_path):
    alive = identity_of(psutil.Process())
    for change in ({"started": alive["started"] - 1000}, {"boot": "another boot"}):
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
    (tmp_path / "LOCK").write_text(json.dumps({**identity_of(psutil.Process()), "boot": "another boot"}))
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
