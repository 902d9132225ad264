"""Workers that are started over SSH, by an sshd of this test's own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from tests.cluster.processes import NUMERIC, skpca, wait_until
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job
from tests.support import skip

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIELDS = {**JOBS["tiles in memory, ARPACK"], "tile_rows": 10}
SECTION = yaml.safe_load((ROOT / "cluster" / "ssh" / "section.yaml").read_text())["cluster"]
PATH = f"{os.environ['PATH']}:/usr/sbin"

CONFIGURATION = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/own_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""


@contextmanager
def sshd(folder: Path) -> Iterator[dict[str, object]]:
    """What asyncssh needs to log in; skips where there is no sshd."""
    program = shutil.which("sshd", path=PATH)
    if program is None or os.geteuid() != 0:
        skip("a daemon of SSH needs root and sshd: openssh-server")
    if importlib.util.find_spec("asyncssh") is None:
        skip("asyncssh is not installed")
    for name in ("host_key", "own_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = "".join(f' "{name}={value}"' for name, value in NUMERIC.items())
    lines = [CONFIGURATION.format(port=port, folder=folder), *([f"SetEnv{variables}"] if variables else [])]
    (folder / "sshd_config").write_text("".join(lines))
    Path("/run/sshd").mkdir(exist_ok=True)  # where it becomes another user
    with (folder / "sshd.log").open("w") as log:
        process = subprocess.Popen([program, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    try:
        wait_until(lambda: _answers(port), 30)
        yield {"port": port, "known_hosts": None, "client_keys": [str(folder / "own_key")], "username": "root"}
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_workers_over_ssh_give_the_bits_of_threads(tmp_path):
    assert skpca("run", write_job(tmp_path, FIELDS, output={"path": "reference"})).returncode == 0
    with sshd(tmp_path) as login:
        # the section that users copy, with what is of this machine
        options = {
            **SECTION["options"],
            "hosts": ["127.0.0.1"] * 3,  # the first is for the scheduler
            "connect_options": login,
            "remote_python": sys.executable,
        }
        options["scheduler_options"] |= {"host": "127.0.0.1"}
        options["worker_options"] |= {"nthreads": 1, "memory_limit": "1GB"}
        section = {**SECTION, "options": options, "n_threads": 1}
        done = skpca("run", write_job(tmp_path, FIELDS, cluster=section))
        assert done.returncode == 0, done.stderr
        assert bits_of(latest_run(tmp_path / "out")) == bits_of(latest_run(tmp_path / "reference"))
        assert leftovers(tmp_path / "out") == []
        # what is published with every run says nothing of how to log in
        assert "own_key" not in (latest_run(tmp_path / "out") / "run.json").read_text()

        locked_out = {**options, "connect_options": {**login, "client_keys": []}}
        refused = skpca("run", write_job(tmp_path, FIELDS, seed=1, cluster={**section, "options": locked_out}))
        assert refused.returncode == 69, refused.stderr
        assert "distributed:SSHCluster" in refused.stderr
        assert "Permission denied" in refused.stderr
