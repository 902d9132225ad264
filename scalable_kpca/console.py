"""What commands print, also where nobody reads it or the place is full: a job does not fail by its words."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import click

from scalable_kpca.errors import StorageError

__all__ = ["open_standard_streams", "say", "warn"]


def say(line: str) -> None:
    """Print a line on stdout; one whose reader has gone is lost.

    Raises
    ------
    StorageError
        When it cannot be written.
    """
    try:
        click.echo(line)
    except OSError as error:
        _give_up_stdout()
        if not isinstance(error, BrokenPipeError):
            raise StorageError(
                f"standard output cannot be written: {error.strerror}; make room, or send it elsewhere. What the "
                "command has done stays: the same command, or `skpca status`, says what."
            ) from error


def warn(line: str) -> None:
    """Print a line on stderr; one that cannot be written is lost."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def open_standard_streams() -> None:
    """Give a process whose standard streams are closed some that lead nowhere, before a file of ours gets a number.

    A file that is opened as number 2 would get what libraries print there.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115


def _give_up_stdout() -> None:
    """What is still to be printed there, by the interpreter's end at the latest, is lost."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):  # one without a number, of a test
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
