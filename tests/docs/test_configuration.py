"""The page of configuration keys: it has every key, and a word on each."""

import importlib

from scalable_kpca.workflow.config import Config
from tests.docs.test_site import DOCS


def test_every_key_is_described():
    schema = Config.model_json_schema()
    for name, section in {"": schema, **schema["$defs"]}.items():
        for key, field in section["properties"].items():
            is_section = any("$ref" in choice for choice in (field, *field.get("anyOf", ())))
            assert is_section or field.get("description"), f"{name}.{key} has no description"


def test_the_page_has_every_key(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    text = importlib.import_module("configuration").page()
    for section in (
        "source",
        "source.csv",
        "kernel",
        "nystroem",
        "drift",
        "cluster",
        "cluster.tls",
        "output",
        "inverse",
    ):
        assert f"# `{section}`" in text
    for key in ("uri", "gamma", "n_landmarks", "psi", "scheduler_file", "ca", "null_values"):
        assert f"| `{key}` |" in text
