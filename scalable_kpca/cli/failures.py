"""Errors of commands: one line on stderr, an exit code, and with ``--json`` an answer too."""

from __future__ import annotations

import contextlib
import traceback
from typing import Any

import click

from scalable_kpca.address_space import check_addresses, spare_addresses
from scalable_kpca.cli.answers import AS_JSON, say_answer
from scalable_kpca.errors import KernelPCAError, StorageError, storage_errors
from scalable_kpca.faults import classify, lacks_memory
from scalable_kpca.stopping import INTERRUPTED, terminable

__all__ = ["BUG", "NamedErrors", "named"]

BUG = 70
TOO_LITTLE_MEMORY = 78


class _Failure(click.ClickException):
    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Print the error where that is possible."""
        with contextlib.suppress(OSError):
            super().show(file)


class NamedErrors(click.Group):
    """Commands whose errors become one line on stderr and an exit code, also below another program's group."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; `click` shows what it raises and ends with its exit code."""
        try:
            spare_addresses()
            check_addresses("this command")
            with terminable():
                return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise  # click's own, and a reader of our output that has seen enough
        except (Exception, KeyboardInterrupt) as error:
            message, code = named(error)
            if code == BUG:
                with contextlib.suppress(OSError):
                    traceback.print_exc()
        with contextlib.suppress(OSError):
            say_answer({"status": "failed", "exit_code": code, "error": message}, ctx.meta.get(AS_JSON, False))
        raise _Failure(message, code)


def named(error: BaseException) -> tuple[str, int]:
    """An error in words, and its exit code."""
    if isinstance(error, KernelPCAError):
        return str(error), _exit_code(error)
    if isinstance(error, KeyboardInterrupt):
        return "stopped; the same command resumes.", INTERRUPTED
    if lacks_memory(error):
        return _out_of_memory(error), TOO_LITTLE_MEMORY
    if isinstance(error, OSError) and error.errno is not None:
        named = _refused(error)
        return str(named), _exit_code(named)
    return _bug_report(error), BUG


def _exit_code(error: KernelPCAError) -> int:
    """The error's own, or that of what the system said: that it would pass, or that there is no memory."""
    if lacks_memory(error):
        return TOO_LITTLE_MEMORY
    return INTERRUPTED if classify(error) == "transient" else error.exit_code


def _refused(error: OSError) -> StorageError:
    """What the operating system refused, in words."""
    try:
        with storage_errors("this command"):
            raise error
    except StorageError as named:
        return named


def _out_of_memory(error: BaseException) -> str:
    return (
        f"the system gave no more memory ({str(error) or 'no size named'}), less than budget.memory allows for; set "
        "budget.memory lower, or let the process have more (ulimit -v and -u, the control group), and run the same "
        "command again: nothing finished is done twice."
    )


def _bug_report(error: BaseException) -> str:
    return (
        f"{type(error).__name__} was not foreseen: this is a bug in skpca, not in your configuration. Please report "
        "it to the developers with the lines above, the command, and what `skpca doctor --json` prints."
    )
