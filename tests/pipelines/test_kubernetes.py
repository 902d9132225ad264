"""The CronJob is what Kubernetes reads, and its shell script does what it says with exit codes and signals."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.pipelines.daily import FAR, PIPELINES, daily_job
from tests.support import skip

JOB = yaml.safe_load((PIPELINES / "kubernetes" / "cronjob.yaml").read_text())
SPEC = JOB["spec"]["jobTemplate"]["spec"]
POD = SPEC["template"]["spec"]
(CONTAINER,) = POD["containers"]
RETRIED = {69, 74, 75, 137, 143}


@pytest.fixture
def programs(tmp_path):
    """A path of programs, the first of which is called skpca and is this script."""
    (tmp_path / "programs").mkdir()

    def write(script):
        (tmp_path / "programs" / "skpca").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "programs" / "skpca").chmod(0o755)
        return f"{tmp_path / 'programs'}:{os.environ['PATH']}"

    return write


def command(data=Path("/data"), output=Path("/output")):
    """What the container runs, with other places for its volumes."""
    (script,) = CONTAINER["args"]
    script = script.replace("/data/", f"{data}/").replace("/output/", f"{output}/")
    return [*CONTAINER["command"], script]


def test_the_job_is_valid_to_the_last_key():
    try:
        import kubernetes_validate
    except ImportError:
        skip("kubernetes_validate is not installed")
    kubernetes_validate.validate(JOB, "1.34", strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(JOB | {"spec": JOB["spec"] | {"concurencyPolicy": "Forbid"}}, "1.34", strict=True)


def test_one_writer_and_no_way_out_of_the_container():
    assert (JOB["spec"]["concurrencyPolicy"], POD["restartPolicy"]) == ("Forbid", "Never")
    assert SPEC["podReplacementPolicy"] == "Failed"
    assert POD["terminationGracePeriodSeconds"] >= 30
    assert POD["securityContext"]["runAsNonRoot"]
    assert not POD["automountServiceAccountToken"]
    assert not POD["enableServiceLinks"]
    own = CONTAINER["securityContext"]
    assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)
    assert own["capabilities"] == {"drop": ["ALL"]}


def test_the_budget_is_the_limit_of_the_container():
    (budget,) = [variable for variable in CONTAINER["env"] if variable["name"] == "SKPCA_BUDGET__MEMORY"]
    assert budget["valueFrom"]["resourceFieldRef"] == {"containerName": CONTAINER["name"], "resource": "limits.memory"}
    assert CONTAINER["resources"]["limits"]["memory"] == CONTAINER["resources"]["requests"]["memory"]


def test_what_would_fail_again_fails_the_job():
    disrupted, failing = SPEC["podFailurePolicy"]["rules"]
    assert disrupted["action"] == "Ignore"
    assert (failing["action"], failing["onExitCodes"]["operator"]) == ("FailJob", "NotIn")
    assert set(failing["onExitCodes"]["values"]) == RETRIED
    assert failing["onExitCodes"]["containerName"] == CONTAINER["name"]
    assert SPEC["backoffLimit"] > 0


@pytest.mark.parametrize(
    ("run", "update", "expected"),
    [(0, 0, 0), (99, 99, 0), (0, 99, 0), (99, 0, 0), (78, 0, 78), (99, 65, 65), (75, 0, 75), (0, 74, 74)],
)
def test_nothing_to_do_is_success_and_everything_else_is_passed_on(programs, tmp_path, run, update, expected):
    path = programs(f'echo "$@" >> {tmp_path / "said"}\n[ $1 = run ] && exit {run}\nexit {update}')
    assert subprocess.run(command(), env={**os.environ, "PATH": path}, check=False).returncode == expected
    lines = (tmp_path / "said").read_text().splitlines()
    both = ["run /data/daily.yaml --json", "update /output/daily --source /data/days/*.parquet --json"]
    assert lines == both[: 1 if run not in (0, 99) else 2]


def test_being_told_to_stop_is_passed_on_and_waited_for(programs, tmp_path):
    heard = tmp_path / "heard"
    path = programs(
        f"trap 'sleep 0.3; touch {heard}; exit 75' TERM\necho started\nfor n in $(seq 600); do sleep 0.1; done"
    )
    environment = {**os.environ, "PATH": path}
    with subprocess.Popen(command(), env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 75
    assert heard.exists()


@pytest.mark.slow
def test_the_script_adds_the_days_once_and_fails_on_a_bad_one(programs, tmp_path):
    path = programs(f'exec {shlex.quote(sys.executable)} -m scalable_kpca.cli "$@"')
    with daily_job(tmp_path):
        line = command(tmp_path, tmp_path / "results")
        variables = {**os.environ, "PATH": path, "SKPCA_OUTPUT__PATH": str(tmp_path / "results" / "daily")}
        far = tmp_path / "days" / f"{FAR}-part-0.parquet"
        aside = far.rename(tmp_path / far.name)
        for status in ("done", "unchanged"):
            finished = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
            assert finished.returncode == 0, finished.stderr
            answers = [json.loads(said) for said in finished.stdout.splitlines()]
            assert [answer["status"] for answer in answers] == [status] * 2
        aside.rename(far)
        assert subprocess.run(line, env=variables, check=False).returncode == 65
