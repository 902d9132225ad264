"""Tasks on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from scalable_kpca.engine.base import Engine, Graph, Key, Listener
from scalable_kpca.errors import ClusterError, KernelPCAError

__all__ = ["ClusterEngine"]


class ClusterEngine(Engine):
    """Tasks on the workers of a `distributed` client; kept values stay on the workers as futures.

    Parameters
    ----------
    client : distributed.Client
        Connected client; the caller closes it.
    listener : callable, optional
        Receives `Event` objects.
    """

    shares_memory = False

    def __init__(self, client: Any, listener: Listener | None = None) -> None:
        super().__init__(listener)
        self._client = client
        self._address = str(client.scheduler.address)
        self.is_local = self._address.startswith("inproc://") or "://127.0.0.1:" in self._address
        client.register_plugin(_blas_plugin(), name="scalable-kpca-blas")

    def run(
        self,
        graph: Graph,
        outputs: Sequence[Key],
        *,
        keep: Sequence[Key] = (),
        stage: str = "compute",
        weights: Mapping[Key, int] | None = None,
        progress: tuple[int, int] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        from distributed import KilledWorker
        from distributed.comm.core import CommClosedError

        count = self._counting(stage, weights, progress)

        def finished(future: Any, key: Key) -> None:
            if future.status == "finished":  # done is also what failed or was cancelled
                count(key)

        try:
            futures = self._client.get(graph, [*outputs, *keep], sync=False)
            for key, future in zip(outputs, futures, strict=False):
                future.add_done_callback(partial(finished, key=key))
            values = self._client.gather(futures[: len(outputs)])
        except KilledWorker as error:
            raise ClusterError(
                f"stage {stage!r}: a worker died {error.allowed_failures + 1} times on task {error.task!r}, the last "
                f"at {error.last_worker.address}; look at that worker's memory limit and log, then run again."
            ) from error
        except Exception as error:
            # a lost scheduler shows as any of these, or as whatever the client says once it has noticed
            lost = isinstance(error, (CancelledError, CommClosedError)) or self._client.status != "running"
            if not lost or isinstance(error, KernelPCAError):
                raise
            raise ClusterError(
                f"stage {stage!r}: lost the connection to the Dask scheduler at {self._address}; see that it runs, "
                "and run again: nothing finished is done twice."
            ) from error
        count.rest()
        return list(values), list(futures[len(outputs) :])


def _blas_plugin() -> Any:
    from distributed import WorkerPlugin

    class SingleThreadedBlas(WorkerPlugin):
        """Limits BLAS on every worker, also on those that join later."""

        def setup(self, worker: Any) -> None:
            del worker
            import numpy  # noqa: F401
            import scipy.linalg  # noqa: F401
            from threadpoolctl import threadpool_limits

            threadpool_limits(1, user_api="blas")

    return SingleThreadedBlas()
