"""Tasks on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scalable_kpca.engine.base import Engine, Graph, Key, Listener
from scalable_kpca.errors import ClusterError

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
        address = str(client.scheduler.address)
        self.is_local = address.startswith("inproc://") or "://127.0.0.1:" in address
        client.register_plugin(_blas_plugin(), name="scalable-kpca-blas")

    def run(
        self,
        graph: Graph,
        outputs: Sequence[Key],
        *,
        keep: Sequence[Key] = (),
        stage: str = "compute",
        weights: Mapping[Key, int] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        from distributed import KilledWorker

        finished = self._counting(stage, weights)
        futures = self._client.get(graph, [*outputs, *keep], sync=False)
        for key, future in zip(outputs, futures, strict=False):
            future.add_done_callback(lambda _, key=key: finished(key))
        try:
            values = self._client.gather(futures[: len(outputs)])
        except KilledWorker as error:
            raise ClusterError(
                f"stage {stage!r}: a worker died {error.allowed_failures + 1} times on task {error.task!r}, the "
                "last at "
                f"{error.last_worker.address}; look at that worker's memory limit and log, then run again."
            ) from error
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
