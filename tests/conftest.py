"""For every test: neither a calibration of this machine nor how busy it is decides about anything."""

import os

import hypothesis
import pytest

from tests.s3 import moto, server  # noqa: F401

SKIPPED = "scalable_kpca/skipped"  # in pytest's cache

hypothesis.settings.register_profile("busy", deadline=None)
hypothesis.settings.load_profile("busy")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory):
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what the last run here has skipped, so that `.ci/run` comes back to it with everything installed."""
    skipped = tuple(config.cache.get(SKIPPED, [])) if hasattr(config, "cache") else ()
    for item in items:
        if skipped and item.nodeid.startswith(skipped):
            item.add_marker("skipped_before")


def pytest_terminal_summary(terminalreporter, config):
    """Remember what was skipped: tests, or modules as a whole."""
    if hasattr(config, "cache"):
        config.cache.set(SKIPPED, sorted({report.nodeid for report in terminalreporter.stats.get("skipped", [])}))
