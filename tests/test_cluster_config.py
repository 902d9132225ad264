"""What the section `cluster` may say, and what becomes of it when another kind is asked for."""

import json

import pytest

from scalable_kpca.errors import ConfigError
from scalable_kpca.machine import available_processors
from scalable_kpca.workflow.config import ClusterConfig, Config
from scalable_kpca.workflow.engines import settings_of
from scalable_kpca.workflow.loading import load_config, stored_draft

JOB = {"source": {"uri": "rows"}, "output": {"path": "out"}}


def load(folder, cluster, *overrides, environment=None):
    (folder / "job.yaml").write_text(json.dumps({**JOB, "cluster": cluster}))
    return load_config(folder / "job.yaml", overrides, environment or {}).cluster


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (
            {"dashboard": True},
            "cluster: dashboard is for kind local, and kind is threads: remove it, or set cluster.kind",
        ),
        ({"kind": "local", "address": "tcp://host:1"}, "address is for kind address, and kind is local"),
        ({"kind": "threads", "n_workers": 2}, "n_workers is for kind local, address, "),
        ({"kind": "ssh", "tls": {"ca": "a", "cert": "b", "key": "c"}}, "tls is for kind address"),
        (
            {"kind": "address", "options": {"n": 1}},
            "options is for kind slurm, ssh, gateway, kubernetes, import, slurm-r",
        ),
        ({"kind": "local", "import": "a:B"}, "import is for kind import"),
        ({"kind": "import"}, "no class is named: set cluster.import to package.module:Class"),
        ({"kind": "slurm", "scale": 2, "adapt": {"maximum": 3}}, "scale and adapt are both given"),
        (
            {"kind": "address", "address": "tcp://h:1", "scheduler_file": "s.json"},
            "address and scheduler_file are both",
        ),
        ({"kind": "slurm", "scale": 0}, "cluster.scale"),
        ({"kind": "slurm", "adapt": {"minimum": 1, "maximum": 8}, "wait_for": 4}, "wait_for is 4, and adapt starts 1"),
        ({"kind": "slurm", "adapt": {"maximum": 8}, "wait_for": 2}, "wait_for is 2, and adapt starts 0"),
        ({"kind": "mars"}, "cluster.kind"),
    ],
)
def test_keys_of_another_kind_are_refused_by_name(tmp_path, cluster, words):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, cluster)
    assert words in str(refused.value)


def test_another_kind_that_is_asked_for_leaves_out_what_only_the_first_one_has(tmp_path):
    slurm = {"kind": "slurm", "options": {"cores": 4}, "adapt": {"maximum": 8}, "wait": 60, "n_threads": 4}
    assert load(tmp_path, slurm, "cluster.kind=threads") == ClusterConfig(n_threads=4)
    assert load(tmp_path, slurm, "cluster.kind=address", "cluster.address=tcp://h:1") == ClusterConfig(
        kind="address", address="tcp://h:1", wait=60, n_threads=4
    )
    environment = {"SKPCA_CLUSTER__KIND": "address", "SKPCA_CLUSTER__ADDRESS": "tcp://h:2"}
    assert load(tmp_path, slurm, environment=environment).address == "tcp://h:2"
    started = {"kind": "import", "import": "a.b:C", "options": {"x": 1}}
    assert load(tmp_path, started, "cluster.kind=ssh") == ClusterConfig(kind="ssh")  # options are of one class
    options = 'cluster.options={"y": 2}'
    for changes in (("cluster.kind=ssh", options), (options, "cluster.kind=ssh")):  # in any order
        assert load(tmp_path, started, *changes) == ClusterConfig(kind="ssh", options={"y": 2})
    assert load(tmp_path, started, "cluster.kind=import").options == {"x": 1}
    by_file = {"kind": "address", "scheduler_file": "s.json", "wait": 9}
    assert load(tmp_path, by_file, "cluster.kind=address", "cluster.address=tcp://h:1") == ClusterConfig(
        kind="address", address="tcp://h:1", wait=9
    )
    assert load(tmp_path, {"kind": "address", "address": "tcp://h:1"}, "cluster.scheduler_file=s.json").address is None
    # what is asked for is still checked
    assert ClusterConfig(kind="slurm", adapt={"minimum_jobs": 4}, wait_for=4).wait_for == 4
    with pytest.raises(ConfigError, match="dashboard is for kind local"):
        load(tmp_path, slurm, "cluster.kind=threads", "cluster.dashboard=true")


def test_the_file_of_a_scheduler_lies_beside_the_configuration(tmp_path):
    cluster = load(tmp_path, {"kind": "address", "scheduler_file": "scheduler.json"})
    assert settings_of(cluster).scheduler_file == tmp_path / "scheduler.json"


def test_a_class_of_ones_own_is_named_by_import(tmp_path):
    cluster = load(tmp_path, {"kind": "import", "import": "package.module:Class", "options": {"size": 2}})
    assert settings_of(cluster).class_path == "package.module:Class"
    assert settings_of(cluster).options == {"size": 2}
    # as a run describes itself
    again = Config.model_validate({**JOB, "cluster": cluster.model_dump(mode="json", by_alias=True)})
    assert again.cluster == cluster


def test_workers_are_waited_for_longer_where_they_may_be_in_a_queue():
    seconds = {kind: settings_of(ClusterConfig(kind=kind)).seconds for kind in ("address", "local", "slurm", "gateway")}
    assert seconds == {"address": 30, "local": 30, "slurm": 3600, "gateway": 3600}
    assert settings_of(ClusterConfig(kind="slurm", wait=5)).seconds == 5


def test_a_plan_counts_with_the_workers_that_are_known():
    processors = available_processors()
    assert ClusterConfig().n_processes == 1
    assert ClusterConfig(kind="local", n_workers=3).n_processes == 3
    assert ClusterConfig(kind="local", n_workers=2 * processors).n_jobs == 1
    assert ClusterConfig(kind="local", n_threads=1).n_processes == processors
    assert ClusterConfig(kind="slurm", scale=7).n_processes == 7
    assert ClusterConfig(kind="slurm", scale={"jobs": 7}).n_processes == 1
    assert ClusterConfig(kind="slurm", adapt={"maximum": 9}, n_workers=5).n_processes == 5


def test_an_update_takes_its_cluster_from_its_own_settings_alone():
    draft = stored_draft({}, ["cluster.kind=local", "cluster.n_workers=2"], ("cluster",), {})
    assert draft.cluster() == ClusterConfig(kind="local", n_workers=2)
