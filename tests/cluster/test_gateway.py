"""Workers that a gateway of dask starts: its server and its local backend as processes of their own."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.cluster.processes import NUMERIC, skpca, wait_until
from tests.recovery.jobs import JOBS, bits_of, latest_run, leftovers, write_job
from tests.support import skip

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIELDS = {**JOBS["stored tiles, block Krylov"], "tile_rows": 10}

CONFIGURATION = """\
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.DaskGateway.address = "127.0.0.1:{api}"
c.Proxy.address = "127.0.0.1:{web}"
c.LocalBackend.clusters_directory = "{folder}/clusters"
c.ClusterConfig.scheduler_cmd = ["{python}", "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = ["{python}", "-m", "distributed.cli.dask_worker"]
c.ClusterConfig.environment = {environment}
"""


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """Its address; skips where it is not installed."""
    for package in ("dask_gateway", "dask_gateway_server"):
        if importlib.util.find_spec(package) is None:
            skip(f"{package} is not installed")
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        api, web = (free.getsockname()[1] for free in sockets)
    names = {"api": api, "web": web, "folder": folder, "python": sys.executable}
    names["environment"] = {"PYTHONPATH": str(ROOT), **NUMERIC}
    (folder / "gateway.py").write_text(CONFIGURATION.format(**names))
    (folder / "clusters").mkdir()
    program = Path(sys.executable).parent / "dask-gateway-server"
    with (folder / "gateway.log").open("w") as log:
        process = subprocess.Popen(
            [program, "--config", folder / "gateway.py"], stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        wait_until(lambda: _answers(web) and _answers(api), 60)
        yield f"http://127.0.0.1:{web}"
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_workers_of_a_gateway_give_the_bits_of_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "dask"))  # where the library writes its defaults
    assert skpca("run", write_job(tmp_path, FIELDS, output={"path": "reference"})).returncode == 0
    with gateway(tmp_path) as address:
        section = {"kind": "gateway", "options": {"address": address}, "scale": 2, "wait_for": 2, "wait": 90}
        done = skpca("run", write_job(tmp_path, FIELDS, cluster=section))
        assert done.returncode == 0, done.stderr + (tmp_path / "gateway.log").read_text()[-3000:]
    assert bits_of(latest_run(tmp_path / "out")) == bits_of(latest_run(tmp_path / "reference"))
    assert leftovers(tmp_path / "out") == []


def test_a_gateway_that_is_away_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "dask"))
    if importlib.util.find_spec("dask_gateway") is None:
        skip("dask_gateway is not installed")
    section = {"kind": "gateway", "options": {"address": "http://127.0.0.1:1"}}
    away = skpca("run", write_job(tmp_path, FIELDS, cluster=section))
    assert away.returncode == 69, away.stderr
    assert "dask_gateway:GatewayCluster(address) could not be started" in away.stderr
