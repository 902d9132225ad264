"""What starts jobs by the clock is valid, and does what it says with the exit codes of a job."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recovery.jobs import JOBS, write_job
from tests.support import skip

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.fixture
def path(tmp_path):
    """A directory of programs with the ``skpca`` of this environment."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "skpca").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scalable_kpca.cli "$@"\n')
    (programs / "skpca").chmod(0o755)
    return f"{programs}:{os.environ['PATH']}"


def test_the_units_of_systemd_are_valid(tmp_path):
    if shutil.which("systemd-analyze") is None:
        skip("systemd-analyze is not here")
    names = ["skpca@daily.service", "skpca@daily.timer"]
    for name in names:
        shutil.copy(PIPELINES / "systemd" / name.replace("daily", ""), tmp_path / name)
    finished = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in names)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    said = [line for line in finished.stderr.splitlines() if "skpca@" in line]
    assert (finished.returncode, said) == (0, []), finished.stderr


def test_the_service_restarts_what_was_interrupted_and_nothing_else():
    service = (PIPELINES / "systemd" / "skpca@.service").read_text()
    assert re.findall(r"^(\w*ExitStatus)=(\d+)$", service, re.MULTILINE) == [
        ("SuccessExitStatus", "99"),
        ("RestartForceExitStatus", "75"),
    ]


@pytest.mark.slow
def test_the_line_for_cron_runs_a_job_once_and_is_content_when_nothing_is_to_do(tmp_path, path):
    if shutil.which("flock") is None:
        skip("flock is not here")
    job = write_job(tmp_path, JOBS["stored tiles, LAPACK"])
    for place in ("var/lib/skpca", "var/log"):
        (tmp_path / place).mkdir(parents=True)
    lines = [line for line in (PIPELINES / "cron" / "skpca.cron").read_text().splitlines() if "flock -n" in line]
    assert len(lines) == 2
    for number, line in enumerate(lines):
        command = line.split(" * * * ")[1]
        for place in ("/etc/skpca/daily.yaml", "/var/lib/skpca", "/var/log/skpca.log"):
            command = command.replace(place, str(job if place.endswith("yaml") else tmp_path / place[1:]))
        finished = subprocess.run(["sh", "-c", command], env={**os.environ, "PATH": path}, check=False)
        assert finished.returncode == 0
        log = (tmp_path / "var" / "log" / "skpca.log").read_text().splitlines()
        answers = [json.loads(line) for line in log if line.startswith("{")]
        assert [answer["status"] for answer in answers] == ["done", "unchanged"][: number + 1]
    (tmp_path / "rows" / "part-0.parquet").write_bytes(b"garbage")
    assert subprocess.run(["sh", "-c", command], env={**os.environ, "PATH": path}, check=False).returncode != 0
