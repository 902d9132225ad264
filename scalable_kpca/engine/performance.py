"""Dask's own page about how a scheduler and its workers have spent their time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalable_kpca.engine.asking import within
from scalable_kpca.errors import ClusterError, ConfigError
from scalable_kpca.machine import installed_version

__all__ = ["begin_report", "check_report"]

REPORT_SECONDS = 120.0  # for the scheduler to draw it: 10 000 tasks take it 2, and it remembers 100 000


def check_report(client: Any, seconds: float) -> None:
    """Refuse a scheduler that cannot draw the page, before there is anything to be drawn.

    Raises
    ------
    ClusterError
        When it does not answer within so many seconds.
    ConfigError
        When it has no bokeh.
    """

    def has_bokeh() -> bool:  # here, so that it travels: the scheduler may have another version of this package
        try:
            import bokeh  # noqa: F401
        except ImportError:
            return False
        return True

    try:
        draws = within(client, seconds, client.run_on_scheduler, has_bokeh)
    except TimeoutError as error:
        raise ClusterError(
            f"the Dask scheduler at {client.scheduler.address} did not answer within {seconds:g} s; look at its log, "
            "and run again."
        ) from error
    if not draws:
        raise ConfigError(
            f"monitor.performance_report is drawn by the scheduler, and that at {client.scheduler.address} has no "
            'bokeh: pip install "scalable-kpca[monitoring]" where it runs, or leave the report out '
            "(--set monitor.performance_report=null)."
        )


def begin_report(client: Any) -> Callable[[], str]:
    """See `Engine.begin_report`; the client need not be the one that is active."""
    from distributed import performance_report

    report = performance_report(mode="inline")  # what is in the page is all that it needs

    async def begin() -> None:
        with client.as_current():
            await report.__aenter__()

    async def end() -> None:
        with client.as_current():
            await report.__aexit__(None, None, None, code=f"scalable-kpca {installed_version('scalable-kpca')}")

    def drawn() -> str:
        with tempfile.TemporaryDirectory() as folder:
            report.filename = str(Path(folder) / "report.html")
            _answered(client, end)
            return Path(report.filename).read_text(encoding="utf-8")

    _answered(client, begin)
    return drawn


def _answered(client: Any, call: Callable[[], Any]) -> None:
    try:
        within(client, REPORT_SECONDS, call)
    except TimeoutError as error:
        raise ClusterError(
            f"the Dask scheduler at {client.scheduler.address} has not drawn it within {REPORT_SECONDS:g} s"
        ) from error
