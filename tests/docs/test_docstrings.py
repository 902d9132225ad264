"""Docstrings of everything public: complete by numpydoc's rules, and their examples run."""

import dataclasses
import doctest
import importlib
import pkgutil
import re

import pytest

import scalable_kpca
from scalable_kpca import commands, errors, plots
from tests.support import skip

METHODS = (
    *("fit", "fit_transform", "transform", "inverse_transform", "preimages", "partial_fit", "save"),
    *("novelty", "score_samples", "novelty_threshold"),
)
PUBLIC = [
    *(f"scalable_kpca.{name}" for name in scalable_kpca.__all__),
    *(f"scalable_kpca.KernelPCA.{name}" for name in METHODS),
    "scalable_kpca.source.write_table",
    *(f"{module.__name__}.{name}" for module in (commands, errors, plots) for name in module.__all__),
]
# not asked for: extended summaries, examples and cross-references everywhere; that summaries are commands
NOT_ASKED = {"ES01", "EX01", "SA01", "SS05"}
MODULES = [
    found.name
    for found in pkgutil.walk_packages(scalable_kpca.__path__, "scalable_kpca.")
    if ">>>" in importlib.util.find_spec(found.name).loader.get_source(found.name)
]


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_of_public_names_are_complete(name):
    try:
        from numpydoc.validate import validate
    except ImportError:
        skip("numpydoc is not installed")
    module, _, attribute = name.rpartition(".")
    if module == "scalable_kpca.plots" and attribute.isupper():
        return  # a constant has no docstring
    found = validate(name)["errors"]
    target = getattr(importlib.import_module(module), attribute) if attribute not in METHODS else None
    if dataclasses.is_dataclass(target):
        # its parameters are its attributes
        documented = set(re.findall(r"^    (\w[\w, ]*) : ", target.__doc__, re.MULTILINE))
        fields = {field.name for field in dataclasses.fields(target)}
        assert fields <= {one for names in documented for one in names.split(", ")}
        found = [(code, text) for code, text in found if code != "PR01"]
    assert [f"{code}: {text}" for code, text in found if code not in NOT_ASKED] == []


def test_there_are_examples():
    assert len(MODULES) >= 11


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    found = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert found.attempted > 0
    assert found.failed == 0
