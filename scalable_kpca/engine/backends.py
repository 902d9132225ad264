"""Clusters that a run starts for itself, by the classes that dask's projects offer for it, and ends."""

from __future__ import annotations

import importlib
import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scalable_kpca.engine.connections import new_client
from scalable_kpca.engine.settings import BACKENDS, ClusterSettings
from scalable_kpca.errors import ClusterError, ConfigError, KernelPCAError

__all__ = ["started"]

logger = logging.getLogger(__name__)


@contextmanager
def started(settings: ClusterSettings) -> Iterator[Any]:
    """A client of a cluster that is started for the block, and ended with it.

    Parameters
    ----------
    settings : ClusterSettings
        Of a kind in `BACKENDS`, or ``"import"``.

    Raises
    ------
    ConfigError
        When the class is not there, or does not take these options.
    ClusterError
        When the cluster does not start: what its library says.
    """
    path, extra = BACKENDS.get(settings.kind, (settings.class_path, None))
    start = _class_of(path, extra)
    with _named(f"{path}({', '.join(settings.options)})"):
        cluster = start(**settings.options)
        _check_cluster(cluster, path)
    with _ended(cluster, path):
        with _named(f"the cluster of {path}"):
            _scale(cluster, settings)
            client = new_client(cluster)
        with client:
            yield client


@contextmanager
def _ended(cluster: Any, path: str | None) -> Iterator[None]:
    """End a cluster; what goes wrong by then is a warning, since the run is done or has an error of its own."""
    try:
        yield
    finally:
        try:
            cluster.close()
        except Exception as error:  # of any library, also an assertion
            text = f"the cluster of {path} could not be ended ({_said(error)}); see that nothing of it is left"
            logger.warning("%s", text)


def _scale(cluster: Any, settings: ClusterSettings) -> None:
    from distributed import SpecCluster

    adapt = settings.adapt or {}
    if isinstance(settings.scale, Mapping):
        cluster.scale(**settings.scale)
    elif settings.scale is not None:
        cluster.scale(settings.scale)
    elif adapt.get("minimum"):
        cluster.scale(adapt["minimum"])  # at once, and not when it looks for the first time

    async def is_scaled() -> None:
        await cluster
        for worker in list(cluster.workers.values()):
            await worker  # one that could not be handed in is tried again, and says why

    if isinstance(cluster, SpecCluster):  # it starts them meanwhile, and would only log that it could not
        cluster.sync(is_scaled)
        if not cluster.worker_spec and settings.adapt is None:
            raise ConfigError(
                f"cluster.kind {settings.kind} starts no workers by itself: set cluster.scale to their number, or "
                "cluster.adapt."
            )
    if settings.adapt is not None:
        cluster.adapt(**adapt)


def _class_of(path: str | None, extra: str | None) -> Any:
    """The class that starts a cluster."""
    module, colon, name = (path or "").partition(":")
    if not module or not colon or not name.isidentifier():
        raise ConfigError(f"cluster.import={path!r} names no class; give it as package.module:Class.")
    try:
        with _signals_kept():
            return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise ConfigError(f"cluster.import={path!r} names no class: {error}; correct it.") from error
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        remedy = f'pip install "scalable-kpca[{extra}]"' if extra else "install its package, or correct cluster.import"
        raise ConfigError(f"{path} cannot be imported ({_said(error)}): {remedy}.") from error


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Give signals back to whom they belong: dask-jobqueue takes SIGINT, and ends with exit code 0 on it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what signals do
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_cluster(cluster: Any, path: str | None) -> None:
    """ConfigError unless an object is one of dask's clusters, as far as can be seen."""
    missing = [name for name in ("scheduler_address", "scale", "close") if not hasattr(cluster, name)]
    if missing:
        raise ConfigError(
            f"{path}() is no cluster of dask but of type {type(cluster).__name__}, without {', '.join(missing)}; "
            "correct cluster.import."
        )


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn what a library says into an error of ours: of its arguments, or of what it could not do."""
    try:
        yield
    except KernelPCAError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} cannot be started with these settings: {error}; correct section cluster.") from error
    except SystemExit as error:
        raise ConfigError(f"{what} has ended this command ({_said(error)}); correct section cluster.") from error
    except Exception as error:
        raise ClusterError(f"{what} could not be started: {_said(error)}; correct it, and run again.") from error
