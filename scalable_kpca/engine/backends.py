"""Clusters that a run starts for itself, by the classes that dask's projects offer for it, and ends."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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
    from distributed import Client

    path, extra = BACKENDS.get(settings.kind, (settings.class_path, None))
    start = _class_of(path, extra)
    with _named(f"{path}({', '.join(settings.options)})"):
        cluster = start(**settings.options)
    with _ended(cluster, path):
        with _named(f"the cluster of {path}"):
            _scale(cluster, settings)
            client = Client(cluster, set_as_default=False)
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
            reason = str(error) or type(error).__name__
            logger.warning("%s", f"the cluster of {path} could not be ended ({reason}); see that nothing of it is left")


def _scale(cluster: Any, settings: ClusterSettings) -> None:
    from distributed import SpecCluster

    if isinstance(settings.scale, Mapping):
        cluster.scale(**settings.scale)
    elif settings.scale is not None:
        cluster.scale(settings.scale)
    if settings.adapt is not None:
        cluster.adapt(**settings.adapt)

    async def is_scaled() -> None:
        await cluster
        for worker in list(cluster.workers.values()):
            await worker  # one that could not be handed in is tried again, and says why

    if isinstance(cluster, SpecCluster):  # it starts them meanwhile, and would only log that it could not
        cluster.sync(is_scaled)


def _class_of(path: str | None, extra: str | None) -> Any:
    """The class that starts a cluster."""
    module, colon, name = (path or "").partition(":")
    if not module or not colon or not name.isidentifier():
        raise ConfigError(f"cluster.import={path!r} names no class; give it as package.module:Class.")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        remedy = f'pip install "scalable-kpca[{extra}]"' if extra else "install its package, or correct cluster.import"
        raise ConfigError(f"{path} cannot be imported ({error}): {remedy}.") from error
    except AttributeError as error:
        raise ConfigError(f"{module} has no {name}; correct cluster.import.") from error


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn what a library says into an error of ours: of its arguments, or of what it could not do."""
    try:
        yield
    except KernelPCAError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} cannot be started with these settings: {error}; correct section cluster.") from error
    except Exception as error:
        text = str(error) or type(error).__name__
        raise ClusterError(f"{what} could not be started: {text}; correct it, and run again.") from error
