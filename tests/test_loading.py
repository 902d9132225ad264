"""What a configuration comes to: a file, what the environment says over it, and what a command says over both."""

import json
from pathlib import Path

import pytest

from scalable_kpca.errors import ConfigError
from scalable_kpca.workflow.config import Config
from scalable_kpca.workflow.loading import load_config, override_config
from tests.recovery.jobs import JOBS, write_job
from tests.recovery.zygote import Zygote

ROOT = Path(__file__).parents[1]

YAML = """
source: {uri: rows/*.parquet, id: id, features: ["x*"]}
kernel: {name: rbf, gamma: 0.3}
n_components: 3
budget: {memory: 4GiB}
output: {path: out}
"""
TOML = """
n_components = 3

[source]
uri = "rows/*.parquet"
id = "id"
features = ["x*"]

[kernel]
name = "rbf"
gamma = 0.3

[budget]
memory = "4GiB"

[output]
path = "out"
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.yaml").write_text(YAML)
    return tmp_path / "job.yaml"


def test_toml_says_the_same_as_yaml(job):
    job.with_suffix(".toml").write_text(TOML)
    assert load_config(job.with_suffix(".toml")) == load_config(job)


@pytest.mark.parametrize(("suffix", "kind"), [(".toml", "TOML"), (".yaml", "YAML")])
def test_what_is_neither_is_refused_by_its_kind(tmp_path, suffix, kind):
    (tmp_path / f"job{suffix}").write_text("a: [")
    with pytest.raises(ConfigError, match=f"job{suffix} is not {kind}: "):
        load_config(tmp_path / f"job{suffix}")


def test_the_environment_goes_before_the_file_and_the_command_before_both(job):
    environment = {"SKPCA_KERNEL__GAMMA": "0.1", "SKPCA_N_COMPONENTS": "5", "SKPCA_SOURCE__FEATURES": "[x1, x2]"}
    found = load_config(job, ["kernel.gamma=0.2"], environment | {"HOME": "/", "SKPCA_TEST_ORDERS": "1"})
    assert (found.kernel.gamma, found.n_components, found.source.features) == (0.2, 5, ["x1", "x2"])
    assert found.budget.memory == "4GiB"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("SKPCA_KERNEL__GAMA", "with SKPCA_KERNEL__GAMA: unknown key 'kernel.gama': did you mean 'gamma'"),
        ("SKPCA_KERNL", "with SKPCA_KERNL: unknown key 'kernl': did you mean 'kernel'"),
        ("SKPCA_N_COMPONENTS__X", "SKPCA_N_COMPONENTS__X: n_components is a value, not a section"),
    ],
)
def test_a_variable_that_is_no_key_is_named(job, name, message):
    with pytest.raises(ConfigError) as caught:
        load_config(job, environment={name: "1"})
    assert message in str(caught.value)


def test_an_update_hears_of_the_environment_what_it_may_change(job):
    fields = load_config(job).model_dump(mode="json")
    environment = {"SKPCA_DRIFT__FAIL": "5", "SKPCA_N_COMPONENTS": "7", "SKPCA_DRIFT__WARN": "3"}
    found = override_config(fields, ["drift.warn=4"], ("drift",), environment)
    assert (found.drift.fail, found.drift.warn, found.n_components) == (5, 4, 3)


@pytest.mark.slow
def test_a_command_hears_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SKPCA_N_COMPONENTS", "2")
    job = write_job(tmp_path, JOBS["stored tiles, LAPACK"])
    with Zygote(tmp_path) as zygote:
        ended = zygote.run("run", str(job), "--json")
    assert ended.answer["n_components"] == 2


def test_the_schema_that_editors_are_told_of_is_the_one_of_this_version():
    assert json.loads((ROOT / "pipelines" / "schema.json").read_text()) == Config.model_json_schema()
    for job in (ROOT / "pipelines").glob("*.yaml"):
        assert job.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
