"""What is tried again, what is made again, what is given up; and the same for tasks on every scheduler."""

import errno
import logging
import os

import pytest

from scalable_kpca import faults
from scalable_kpca.engine import open_engine
from scalable_kpca.errors import ClusterError, ConfigError, CorruptTileError, LockedError, StorageError, storage_errors
from scalable_kpca.faults import ATTEMPTS, attempt, classify


def wrapped(number):
    """What the package raises where the system refuses with this number."""
    try:
        with storage_errors("reading"):
            raise OSError(number, os.strerror(number))
    except StorageError as error:
        return error


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ESTALE", "transient"),
        ("EAGAIN", "transient"),
        ("EMFILE", "transient"),
        ("ETIMEDOUT", "transient"),
        ("ECONNRESET", "transient"),
        ("EIO", "damage"),
        ("ENOENT", "damage"),
        ("EISDIR", "damage"),
        ("ENOSPC", "permanent"),
        ("EDQUOT", "permanent"),
        ("EROFS", "permanent"),
        ("EACCES", "permanent"),
        ("EFBIG", "permanent"),
    ],
)
def test_an_error_of_the_system_has_one_kind_however_it_is_wrapped(name, kind):
    number = getattr(errno, name)
    assert classify(OSError(number, "as the system says")) == kind
    assert classify(wrapped(number)) == kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CorruptTileError(0, 1, "gram.zarr", "its checksum is wrong"), "damage"),
        (TimeoutError("no answer"), "transient"),
        (ClusterError("no worker"), "permanent"),
        (LockedError("held"), "permanent"),
        (ConfigError("wrong"), "permanent"),
        (MemoryError(), "permanent"),
        (ValueError("wrong"), "permanent"),
    ],
)
def test_errors_that_are_named_have_one_kind(error, kind):
    assert classify(error) == kind


def test_an_error_that_was_judged_keeps_its_kind_whatever_caused_it():
    error = ClusterError("no scheduler")
    error.__cause__ = ConnectionResetError(errno.ECONNRESET, "reset")
    assert classify(error) == "permanent"


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, failures, number):
        self.left, self.number, self.calls = failures, number, 0

    def __call__(self, x):
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number))
        return x + 1


@pytest.fixture
def short_waits(monkeypatch):
    monkeypatch.setattr(faults, "LONGEST_WAIT", 0.02)


@pytest.mark.usefixtures("short_waits")
def test_what_passes_by_itself_is_tried_again_and_said(caplog):
    task = Flaky(2, errno.ESTALE)
    with caplog.at_level(logging.WARNING):
        assert attempt(task, 1) == 2
    assert task.calls == 3
    assert "Stale file handle" in caplog.text


@pytest.mark.usefixtures("short_waits")
def test_attempts_come_to_an_end_with_the_error_itself():
    task = Flaky(100, errno.ESTALE)
    with pytest.raises(OSError, match="Stale file handle"):
        attempt(task, 1)
    assert task.calls == ATTEMPTS


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_what_does_not_pass_is_not_tried_again(number):
    task = Flaky(1, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        attempt(task, 1)
    assert task.calls == 1


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("kind", ["synchronous", "threads"])
def test_tasks_are_tried_again_where_they_run(kind):
    task = Flaky(1, errno.ESTALE)
    with open_engine(kind, n_threads=2) as engine:
        values, _ = engine.run({"a": (task, 1), "b": (task, "a")}, ["a", "b"])
    assert values == [2, 3]
    assert task.calls == 3
