"""How a command ended, told to other programs: metrics for Prometheus, events of OpenLineage, and a performance report.

That is what the section `monitor` asks for.

Whatever goes wrong here is a warning: the job's results and its exit code are not touched by it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from scalable_kpca.documents import open_plain
from scalable_kpca.engine import Engine
from scalable_kpca.errors import ClusterError, ConfigError, KernelPCAError
from scalable_kpca.machine import peak_memory
from scalable_kpca.objects import SourceFile, StoredObject, is_object
from scalable_kpca.source.location import find_files
from scalable_kpca.workflow.files import alone_in, append_line, read_json, replace_file
from scalable_kpca.workflow.layout import Output, RunDirectory
from scalable_kpca.workflow.lineage import Attempt, Written, clean, event_line, named_inputs, read_written
from scalable_kpca.workflow.loading import Draft, draft_of
from scalable_kpca.workflow.mirror import output_at
from scalable_kpca.workflow.monitor_config import MonitorConfig
from scalable_kpca.workflow.prometheus import Ending, metrics_text

__all__ = ["Watch", "end_watches", "reporting", "watch_job", "watch_output", "watching"]

logger = logging.getLogger(__name__)

LIBRARIES = {"prometheus": "prometheus_client", "openlineage": "openlineage.client", "performance_report": "bokeh"}
MAX_BYTES = 2**20  # of the metrics that are there
INTERRUPTED = 75

_watches: set[Watch] = set()


class Watch:
    """One command, from its beginning to its end.

    Parameters
    ----------
    command : {"run", "update", "transform"}
    section : MonitorConfig
        With absolute paths.
    job : str
        What it is called where the section does not say.
    run : RunDirectory, optional
        That it goes on with; None for one that says with `start` which run it makes.
    inputs : sequence of Path or StoredObject
        Files that it reads.

    Attributes
    ----------
    answer : dict
        What the command found, for it to fill: ``run``, ``embedding``, ``status``, ``rows``, ``health``, ``drift`` of
        its JSON.

    Notes
    -----
    It ends once, whichever thread says so first.
    """

    def __init__(
        self,
        command: Literal["run", "update", "transform"],
        section: MonitorConfig,
        job: str,
        run: RunDirectory | None = None,
        inputs: Sequence[SourceFile] = (),
    ) -> None:
        self.command, self.section, self.run = command, section, run
        self.answer: dict[str, Any] = {} if run is None else {"run": str(run.path)}
        self._job = clean(section.job or job or "skpca")
        self._began, self._clock = time.time_ns(), time.perf_counter()
        self._attempt: Attempt | None = None
        self._inputs = list(inputs)
        self._ending = threading.Lock()

    def start(self, fingerprint: str, inputs: Sequence[str | SourceFile] | None = None) -> None:
        """Say that it has begun: the run that it makes or goes on with, and the files that it reads."""
        place = self.section.openlineage
        if place is None:
            return
        with _warning_of(place):
            self._attempt = Attempt(self.section.namespace, self._job, self.command, fingerprint, self._began)
            self._inputs = named_inputs(self._inputs if inputs is None else inputs)
            append_line(Path(place), event_line("START", self._attempt, self._began, self._inputs))

    def end(self, exit_code: int, message: str) -> None:
        """Say how it ended; `message` is what stderr says of an error."""
        if not self._ending.acquire(blocking=False):
            return
        if self.section.prometheus is not None:
            with _warning_of(self.section.prometheus):
                self._write_metrics(Path(self.section.prometheus), exit_code)
        if self.section.openlineage is not None:
            if self._attempt is None:
                self.start("")
            with _warning_of(self.section.openlineage):
                self._write_event(Path(self.section.openlineage), exit_code, message)

    def _write_metrics(self, place: Path, exit_code: int) -> None:
        answer: dict[str, Any] = self.answer if exit_code in (0, 99) else {}
        ending = Ending(
            exit_code=exit_code,
            ended=time.time(),
            seconds=time.perf_counter() - self._clock,
            peak_memory=peak_memory(),
            rows=answer.get("rows") if self.command == "transform" else None,
            model=_metrics_of(answer.get("run")),
            drift={measure: _size(entry["value"]) for measure, entry in answer.get("health", {}).items()},
            landmark_drift=[_size(ratio) for ratio in answer.get("drift", {}).values()],
        )
        with alone_in(place.parent):
            replace_file(place, metrics_text(self._job, self.command, ending, _text_of(place)))

    def _write_event(self, place: Path, exit_code: int, message: str) -> None:
        output, kind = None, "ABORT" if exit_code == INTERRUPTED else "FAIL"  # type: Any, Any
        if exit_code in (0, 99):
            kind, is_new = "COMPLETE", self.answer.get("status") not in ("unchanged", "restored")
            with _warning_of("what is in the output"):
                output = self._written(is_new=is_new)
        if self._attempt is not None:
            append_line(place, event_line(kind, self._attempt, time.time_ns(), self._inputs, output, message))

    def _written(self, *, is_new: bool) -> Written:
        """Scores that the command found or wrote, called what they are on S3 where they are there."""
        place = self.answer.get("embedding") or str(Path(self.answer["run"]) / "embedding")
        if is_object(place):  # of `transform`
            return Written(StoredObject.of(place), (), None)
        found, published = read_written(Path(place), is_new=is_new), self.answer.get("published")
        return replace(found, path=StoredObject.of(f"{published}/embedding")) if published else found


def watch_job(draft: Draft) -> Watch:
    """Of `skpca run`; its caller calls `Watch.start` when the run has a name."""
    try:
        job = output_at(draft.fields["output"]["path"], draft.base).name
    except (KeyError, TypeError, ValueError, AttributeError):  # the configuration is refused for that
        job = ""
    return Watch("run", draft.monitor(), job)


def watch_output(
    command: Literal["update", "transform"], output: Output, uri: str | None, overrides: Sequence[str]
) -> Watch:
    """Of a command that goes on with the run in force, by the section of its configuration and the overrides of that.

    What is wrong with them, or with the output, is for the command to say: nothing is watched, or without what is not
    known.
    """
    fields: Any = {}
    run = None
    try:
        run = output.require_latest()
        fields = read_json(run.path / "run.json")["config"]["monitor"]
    except (KernelPCAError, OSError, KeyError, TypeError):
        pass
    section = draft_of("monitor", fields, overrides).monitor()
    return Watch(command, section, output.name, run, _files(uri) if section.openlineage else ())


@contextmanager
def watching(watch: Watch, judge: Callable[[BaseException], tuple[str, int]]) -> Iterator[Watch]:
    """The time in which a command is watched; `judge` says what an error is in words, and its exit code.

    Raises
    ------
    ConfigError
        Before anything is done, when a library that the section needs is not installed.
    """
    _require_libraries(watch.section)
    _watches.add(watch)
    try:
        if watch.run is not None:
            watch.start(watch.run.fingerprint)
        yield watch
    except SystemExit as left:
        watch.end(left.code if isinstance(left.code, int) else 1, "")
        raise
    except BaseException as error:
        message, exit_code = judge(error)
        watch.end(exit_code, message)
        raise
    else:
        watch.end(0, "")
    finally:
        _watches.discard(watch)


def end_watches(exit_code: int, message: str) -> None:
    """End what is being watched: the process is about to be left in the middle of it."""
    for watch in list(_watches):
        watch.end(exit_code, message)


@contextmanager
def reporting(engine: Engine, place: str | None) -> Iterator[None]:
    """The time that a performance report is of, which is written to a place at the end, if there is one.

    Of a run that fails it is written too, unless the cluster is what failed; one that is stopped has no time for it.
    """
    drawn: Callable[[], str] | None = None
    if place is not None:
        with _warning_of(place):
            drawn = engine.begin_report()
    if place is None or drawn is None:
        yield
        return
    try:
        yield
    except ClusterError:
        raise
    except Exception:
        with _warning_of(place):
            replace_file(Path(place), drawn())
        raise
    with _warning_of(place):
        replace_file(Path(place), drawn())


def _require_libraries(section: MonitorConfig) -> None:
    for key, library in LIBRARIES.items():
        if getattr(section, key) is not None and not _is_installed(library):
            raise ConfigError(
                f'monitor.{key} needs {library}, which is not installed: pip install "scalable-kpca[monitoring]", or '
                f"leave it out (--set monitor.{key}=null)."
            )


@contextmanager
def _warning_of(place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever a library or the system says: the job goes on
        reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        logger.warning("%s", f"{place} was not written: {reason}; the job itself is not touched by that.")


def _files(uri: str | None) -> Sequence[SourceFile]:
    """Files that a source means, none when they are not there: the command says so."""
    try:
        return [] if uri is None else find_files(uri, Path.cwd())
    except (KernelPCAError, OSError, ValueError, RuntimeError):
        return []


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # what it is in
        return False


def _metrics_of(run: str | None) -> dict[str, Any]:
    """Numbers of the run in force; nothing of one whose numbers cannot be read."""
    found: dict[str, Any] = {}
    if run is not None:
        with _warning_of("what the run in force says of itself"):
            found = read_json(Path(run) / "metrics.json") or {}
    return found


def _text_of(place: Path) -> str:
    """The metrics that are there; nothing of what is no text of some."""
    try:
        with open_plain(place) as stream:
            return stream.read(MAX_BYTES).decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def _size(value: float | None) -> float:
    """What JSON has as null is infinite."""
    return math.inf if value is None else value
