"""Pages of the gallery, run as they stand."""

import contextlib
import importlib
import io
import runpy
from pathlib import Path

import pytest
from matplotlib import pyplot

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"


class Shown(dict):
    """Names of a page after it has run; `printed` is what it said, `figures` the pictures that it drew."""

    printed: str
    figures: list


@pytest.fixture
def page(monkeypatch):
    """Run a page by its name, as the build of the documents does."""

    def run(name):
        monkeypatch.chdir(GALLERY)
        monkeypatch.syspath_prepend(str(GALLERY.parent / "extensions"))
        importlib.import_module("order").our_look(None, name)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            shown = Shown(runpy.run_path(str(GALLERY / f"{name}.py")))
        shown.printed = said.getvalue()
        shown.figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        assert shown.figures, f"{name}.py draws nothing"
        return shown

    yield run
    pyplot.close("all")


def pytest_collection_modifyitems(items):
    """Each takes seconds: beside the others of `.ci/run`, not in the README's command."""
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            item.add_marker("slow")
