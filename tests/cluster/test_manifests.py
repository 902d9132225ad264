"""What Kubernetes and dask's operator read, checked to the last key; and what is in it agrees with the package."""

from __future__ import annotations

import copy
import importlib.metadata
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dask.utils import parse_bytes

import scalable_kpca
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.loading import stored_draft
from tests.support import skip

CLUSTER = Path(__file__).parents[2] / "cluster"
KUBERNETES = CLUSTER / "kubernetes"
MANIFESTS = [
    pytest.param(document, id=f"{file.name} {document['kind']}")
    for file in sorted(KUBERNETES.glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
]
DASK = yaml.safe_load((KUBERNETES / "daskcluster.yaml").read_text())
JOB = yaml.safe_load((KUBERNETES / "job.yaml").read_text())


def closed(schema: Any) -> Any:
    """A schema that knows no other keys than those it names."""
    if isinstance(schema, list):
        return [closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(entry) for name, entry in schema.items()}
    is_open = "additionalProperties" in inner or inner.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object" and not is_open:
        inner["additionalProperties"] = False
    return inner


def schema_of_the_operator() -> dict[str, Any]:
    """Of a DaskCluster, as the operator's own chart installs it."""
    try:
        files = importlib.metadata.files("dask-kubernetes") or []
    except importlib.metadata.PackageNotFoundError:
        skip("dask-kubernetes is not installed")
    (place,) = (file.locate() for file in files if file.match("crds/daskcluster.yaml"))
    definition = yaml.safe_load(Path(place).read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
    return closed(schema)


@pytest.mark.parametrize("manifest", [each for each in MANIFESTS if each.values[0]["kind"] != "DaskCluster"])
def test_manifests_are_valid_to_the_last_key(manifest):
    try:
        import kubernetes_validate
    except ImportError:
        skip("kubernetes_validate is not installed")
    kubernetes_validate.validate(manifest, "1.34", strict=True)
    wrong = {**manifest, "spec": {**manifest["spec"], "acessModes": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def test_prometheus_is_let_in_by_a_rule_that_is_a_comment_at_first():
    text = (KUBERNETES / "network.yaml").read_text()
    before, told, rule = text.partition("    # Prometheus, where it is to read /metrics")
    policy = yaml.safe_load(text)
    assert told
    assert "prometheus" not in str(policy)
    opened = yaml.safe_load(before + rule.partition("\n")[2].replace("    # ", "    "))
    first, second = opened["spec"]["ingress"]
    assert [first] == policy["spec"]["ingress"]
    worker, scheduler = (DASK["spec"][part]["spec"]["containers"][0] for part in ("worker", "scheduler"))
    for container in (worker, scheduler):
        assert {port["port"] for port in second["ports"]} <= {port["name"] for port in container["ports"]}
    (port,) = worker["ports"]
    assert f":{port['containerPort']}" == worker["args"][worker["args"].index("--dashboard-address") + 1]
    assert str(port["containerPort"]) == DASK["spec"]["worker"]["metadata"]["annotations"]["prometheus.io/port"]
    try:
        import kubernetes_validate
    except ImportError:
        skip("kubernetes_validate is not installed")
    kubernetes_validate.validate(opened, "1.34", strict=True)


def test_the_cluster_is_valid_by_the_schema_of_the_operator():
    schema = schema_of_the_operator()
    try:
        import jsonschema  # comes with what validates the others
    except ImportError:
        skip("jsonschema is not installed")
    jsonschema.validate(DASK, schema)
    wrong = copy.deepcopy(DASK)
    wrong["spec"]["worker"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(jsonschema.ValidationError, match="comand"):
        jsonschema.validate(wrong, schema)


def test_scheduler_workers_and_job_have_one_image_and_one_volume():
    worker, scheduler = (DASK["spec"][part]["spec"]["containers"][0] for part in ("worker", "scheduler"))
    job = JOB["spec"]["template"]["spec"]["containers"][0]
    assert {worker["image"], scheduler["image"], job["image"]} == {f"skpca:{scalable_kpca.__version__}"}
    mounted = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    assert mounted.items() <= {mount["name"]: mount["mountPath"] for mount in job["volumeMounts"]}.items()
    assert (worker["command"], scheduler["command"]) == (["dask", "worker"], ["dask", "scheduler"])


def test_the_job_counts_with_the_workers_that_there_are():
    variables = {entry["name"]: entry["value"] for entry in JOB["spec"]["template"]["spec"]["containers"][0]["env"]}
    fields = {"source": {"uri": "rows"}, "output": {"path": "out"}}
    config = stored_draft(fields, (), tuple(Config.model_fields), variables_of(variables)).config()
    arguments = DASK["spec"]["worker"]["spec"]["containers"][0]["args"]
    assert config.cluster.address == f"tcp://{DASK['metadata']['name']}-scheduler:8786"
    assert config.cluster.n_workers == DASK["spec"]["worker"]["replicas"]
    assert str(config.cluster.n_threads) == arguments[arguments.index("--nthreads") + 1]
    paused_at = 0.8 * parse_bytes(arguments[arguments.index("--memory-limit") + 1])
    assert 0.5 * paused_at < parse_bytes(config.budget.memory) <= paused_at


def variables_of(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("SKPCA_")}


@pytest.fixture
def instead(tmp_path) -> Callable[[str], subprocess.Popen[str]]:
    """What the container of the job runs, with a script in the place of skpca."""

    def begin(script: str) -> subprocess.Popen[str]:
        program = tmp_path / "skpca"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        container = JOB["spec"]["template"]["spec"]["containers"][0]
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        line = [*container["command"], *container["args"]]
        return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)

    return begin


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (99, 0), (65, 65), (75, 75), (69, 69)])
def test_a_job_with_nothing_to_do_has_not_failed_and_every_other_code_is_passed_on(instead, code, expected):
    with instead(f'echo "$@"; exit {code}') as process:
        assert process.communicate(timeout=60)[0] == "run /data/job.yaml --json\n"
    assert process.returncode == expected


def test_a_job_that_is_told_to_stop_passes_it_on_and_waits(instead, tmp_path):
    script = (
        f"trap 'sleep 0.3; touch {tmp_path}/heard; exit 75' TERM\necho started\nfor n in $(seq 600); do sleep 0.1; done"
    )
    with instead(script) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 75
    assert (tmp_path / "heard").exists()


@pytest.mark.parametrize("file", sorted(CLUSTER.glob("*/section.yaml")), ids=lambda file: file.parent.name)
def test_sections_are_what_a_configuration_may_say(file):
    section = yaml.safe_load(file.read_text())
    config = Config.model_validate({"source": {"uri": "rows"}, "output": {"path": "out"}, **section})
    assert config.cluster.kind != "threads"
