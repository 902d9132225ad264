"""The only module that talks to a Dask scheduler."""

from scalable_kpca.engine.base import Engine, Event, Listener
from scalable_kpca.engine.blas import several_blas_threads, single_threaded_blas
from scalable_kpca.engine.cluster import ClusterEngine
from scalable_kpca.engine.connections import CONNECT_SECONDS
from scalable_kpca.engine.examination import examine_cluster
from scalable_kpca.engine.local import LocalEngine
from scalable_kpca.engine.opening import active_kind, open_engine
from scalable_kpca.engine.settings import BACKENDS, ClusterSettings, Tls
from scalable_kpca.engine.slurm_runner import taking_part

__all__ = [
    "BACKENDS",
    "CONNECT_SECONDS",
    "ClusterEngine",
    "ClusterSettings",
    "Engine",
    "Event",
    "Listener",
    "LocalEngine",
    "Tls",
    "active_kind",
    "examine_cluster",
    "open_engine",
    "several_blas_threads",
    "single_threaded_blas",
    "taking_part",
]
