"""Starting `skpca` from another program, such as a task of an orchestrator: one result, or one of two named errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from scalable_kpca.errors import CommandError, RetryableError

__all__ = ["CommandResult", "run_skpca"]

# the standard library only: an orchestrator's environment may have this package without what it depends on, and give
# a `command` of another one
NOTHING_TO_DO = 99
RETRYABLE = frozenset((69, 74, 75))
SIGNALLED = 128  # what a shell adds to the number of the signal that killed its command
CANNOT_START = 78
GRACE_SECONDS = 30.0  # a command that is told to stop ends in ten
LAST_LINES = 20


@dataclass(frozen=True)
class CommandResult:
    """What a command that succeeded has said.

    Attributes
    ----------
    status : {"done", "restored", "unchanged"}
        "unchanged" for exit code 99: there was nothing to do.
    exit_code : int
        0 or 99.
    answer : dict
        The JSON object of its last line; its keys depend on the command.
    run : Path or None
        The run directory that is in force now, where the command names one; as absolute as `cwd` was.
    """

    status: str
    exit_code: int
    answer: dict[str, Any]
    run: Path | None

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file of the run directory, such as ``metrics.json``; an empty one where there is none."""
        if self.run is None or not (self.run / name).exists():
            return {}
        fields: dict[str, Any] = json.loads((self.run / name).read_text())
        return fields


def run_skpca(
    *arguments: str | Path,
    command: Sequence[str] = (),
    cwd: Path | None = None,
    listener: Callable[[str], object] | None = None,
) -> CommandResult:
    """Run one `skpca` command in a process of its own, and wait for it.

    Parameters
    ----------
    *arguments : str or Path
        Such as ``"run", "daily.yaml"``; ``--json`` is added.
    command : sequence of str, optional
        How `skpca` is started where it lives in another environment: ``["/opt/skpca/bin/skpca"]``; this interpreter's
        own.
    cwd : Path, optional
        Where relative paths of the arguments begin.
    listener : callable, optional
        Receives each line of text as it comes: progress, warnings, errors.

    Returns
    -------
    CommandResult
        Of exit code 0 or 99.

    Raises
    ------
    RetryableError
        The same command may succeed later: a cluster or a disk that is away (69, 74), an interrupt or another writer
        (75), a signal.
    CommandError
        It would fail again: bad data (65), a bad configuration (78), usage (2), a bug (70), anything else.

    Notes
    -----
    When an exception such as an orchestrator's cancellation comes while the command runs, the command is told to stop
    and waited for: its work is kept, and its lock is given back. Of a caller that is killed the command knows nothing
    and finishes; one that is started meanwhile exits with 75, one afterwards finds that nothing is to do.

    Examples
    --------
    >>> run_skpca("doctor").status
    'done'
    """
    own = (sys.executable, "-P", "-m", "scalable_kpca.cli")
    line = [*(command or own), *map(str, arguments), "--json"]
    said: deque[str] = deque(maxlen=LAST_LINES)
    with tempfile.TemporaryFile() as printed:  # a pipe would be full some time
        code = _wait(line, cwd, printed, said, listener)
        printed.seek(0)
        lines = printed.read().decode(errors="replace").splitlines()
    if code not in (0, NOTHING_TO_DO):
        raise _error(code, arguments, said)
    answer = _object(lines[-1] if lines else "")
    if answer is None:
        raise CommandError(f"{line[0]} exited with {code} and its last line is no JSON object: is it skpca?", code)
    status = "unchanged" if code == NOTHING_TO_DO else str(answer.get("status", "done"))
    run = answer.get("run")
    return CommandResult(status, code, answer, Path(cwd or "", run) if isinstance(run, str) else None)


def _wait(
    line: Sequence[str],
    cwd: Path | None,
    printed: IO[bytes],
    said: deque[str],
    listener: Callable[[str], object] | None,
) -> int:
    """Exit code of a process, negative for a signal; each line of its stderr is heard and the last ones are kept."""
    try:
        process = subprocess.Popen(
            line,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        text = f"{line[0]} cannot be started: {error.strerror or error} ({error.filename or cwd})"
        raise CommandError(f"{text}; install skpca there, or correct the command.", CANNOT_START) from error
    with process:
        try:
            for text in process.stderr or ():
                said.append(text.rstrip("\n"))
                if listener is not None:
                    listener(said[-1])
            return process.wait()
        except BaseException:
            _stop(process)
            raise


def _stop(process: subprocess.Popen[str]) -> None:
    """Tell a process to stop, and end it if it does not hear."""
    process.terminate()
    try:
        process.communicate(timeout=GRACE_SECONDS)  # reads on: a process that waits for its reader does not end
    except subprocess.TimeoutExpired:
        process.kill()


def _error(code: int, arguments: Sequence[str | Path], said: Sequence[str]) -> CommandError | RetryableError:
    number = -code if code < 0 else code - SIGNALLED
    killed = number in set(signal.Signals)
    how = f"was killed by {signal.Signals(number).name}" if killed else f"exited with {code}"
    first = next((index for index, text in enumerate(said) if text.startswith("Error: ")), 0)
    words = "\n".join(list(said)[first:]).removeprefix("Error: ") or "it said nothing"
    kind = RetryableError if killed or code in RETRYABLE else CommandError
    return kind(f"skpca {arguments[0] if arguments else ''} {how}: {words}", code)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
