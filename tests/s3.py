"""Servers of objects for tests, as fixtures: a small one that counts and refuses, and moto; tables to put there."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store

from scalable_kpca.objects import buckets
from tests.object_server import serve_objects
from tests.support import skip

N_ROWS, N_FEATURES = 80, 3
PATIENCE = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=2),
    "backoff": {"init_backoff": timedelta(milliseconds=2), "max_backoff": timedelta(milliseconds=10), "base": 2},
}


@pytest.fixture
def server(monkeypatch, tmp_path):
    with serve_objects() as running:
        variables = {
            "AWS_ENDPOINT_URL": running.address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "unspoken",
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-credentials"),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        monkeypatch.setattr(buckets, "RETRY", PATIENCE)
        buckets._open_store.cache_clear()
        yield running
        buckets._open_store.cache_clear()


@pytest.fixture
def moto(monkeypatch, server):
    """A server that knows all of S3, in a process of its own, in the place of the small one; an empty bucket."""
    server.objects.clear()
    if find_spec("moto") is None:
        skip('moto is not installed: pip install ".[dev]"')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
    ) as process:
        try:
            for _ in range(300):
                if process.poll() is not None:
                    skip("moto.server does not start")
                try:
                    ask(f"{address}/moto-api/")
                    break
                except OSError:
                    time.sleep(0.1)
            ask(f"{address}/bucket", "PUT")
            monkeypatch.setenv("AWS_ENDPOINT_URL", address)
            buckets._open_store.cache_clear()
            yield S3Store("bucket")
        finally:
            process.terminate()


def ask(url: str, method: str = "GET") -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10) as answer:
        answer.read()


def content_of(day: int, **options: object) -> bytes:
    rows = np.random.default_rng(day).normal(size=(N_ROWS, N_FEATURES))
    columns = {"id": [f"day {day} row {row}" for row in range(N_ROWS)]}
    table = pa.table(columns | {f"x{column}": rows[:, column] for column in range(N_FEATURES)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def put_days(server, days, folder: Path | None = None) -> None:
    """Objects ``days/part-N.parquet`` of a bucket, and the same files in a folder."""
    for day in days:
        server.put("bucket", f"days/part-{day}.parquet", content_of(day))
        if folder is not None:
            folder.mkdir(exist_ok=True)
            (folder / f"part-{day}.parquet").write_bytes(content_of(day))


def digests(run_directory, *spoken: str) -> dict[str, str]:
    """Of every committed result that says nothing of paths and seconds."""
    committed = json.loads((run_directory.path / "COMMIT.json").read_text())["files"]
    with_paths = ("run.json", "ledger.json", *spoken)
    return {entry["path"]: entry["sha256"] for entry in committed if entry["path"] not in with_paths}
