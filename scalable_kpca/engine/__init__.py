"""The only module that talks to a Dask scheduler."""

from scalable_kpca.engine.base import Engine, Event, Listener
from scalable_kpca.engine.blas import several_blas_threads, single_threaded_blas
from scalable_kpca.engine.cluster import ClusterEngine
from scalable_kpca.engine.local import LocalEngine
from scalable_kpca.engine.opening import CONNECT_SECONDS, Tls, active_kind, open_engine

__all__ = [
    "CONNECT_SECONDS",
    "ClusterEngine",
    "Engine",
    "Event",
    "Listener",
    "LocalEngine",
    "Tls",
    "active_kind",
    "open_engine",
    "several_blas_threads",
    "single_threaded_blas",
]
