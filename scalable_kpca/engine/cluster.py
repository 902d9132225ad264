"""Tasks on the workers of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import Any

from scalable_kpca.engine.base import Engine, Graph, Key, Listener
from scalable_kpca.errors import ClusterError, KernelPCAError

__all__ = ["STALL_SECONDS", "ClusterEngine"]

STALL_SECONDS = 1800.0  # without a finished key, before a run gives up
LOOK_SECONDS = 1.0  # between two looks at whether there is still a scheduler


class ClusterEngine(Engine):
    """Tasks on the workers of a `distributed` client; kept values stay on the workers as futures.

    Parameters
    ----------
    client : distributed.Client
        Connected client; the caller closes it.
    listener : callable, optional
        Receives `Event` objects.
    stall : float
        Seconds without any finished output after which a run gives up: no worker, or only such as hang.
    """

    shares_memory = False

    def __init__(self, client: Any, listener: Listener | None = None, *, stall: float = STALL_SECONDS) -> None:
        super().__init__(listener)
        self._client, self._stall = client, stall
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
        try:
            futures = self._client.get(self._attempted(graph), [*outputs, *keep], sync=False)
            self._wait(stage, dict(zip(futures, outputs, strict=False)), count)
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

    def _wait(self, stage: str, outputs: Mapping[Any, Key], count: Callable[[Key], None]) -> None:
        """Return when every output is there, one has failed, or the scheduler is gone; count them as they come."""
        arrived: SimpleQueue[Any] = SimpleQueue()
        for future in outputs:
            future.add_done_callback(arrived.put)
        left, last = len(outputs), time.monotonic()
        while left:
            try:
                future = arrived.get(timeout=LOOK_SECONDS)
            except Empty:
                if self._client.status != "running":
                    return
                if time.monotonic() - last > self._stall:
                    raise self._stalled(stage, outputs) from None
                continue
            if future.status != "finished":  # done is also what failed or was cancelled
                return
            count(outputs[future])
            left, last = left - 1, time.monotonic()

    def _stalled(self, stage: str, outputs: Mapping[Any, Key]) -> ClusterError:
        workers = len(self._client.scheduler_info(n_workers=-1)["workers"])
        self._client.cancel(list(outputs), force=True)
        return ClusterError(
            f"stage {stage!r}: nothing has finished for {self._stall:g} s on the scheduler at {self._address}, which "
            f"has {workers} workers; look at their logs, or set cluster.stall higher, and run again: nothing "
            "finished is done twice."
        )


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
