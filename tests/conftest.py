"""For every test: neither a calibration of this machine nor how busy it is decides about anything."""

import os

import hypothesis
import pytest

from tests.s3 import moto, server  # noqa: F401

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
