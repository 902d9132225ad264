"""Tasks on the workers of a cluster."""

from __future__ import annotations

import contextlib
import logging
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from scalable_kpca.engine.asking import ask_workers, within
from scalable_kpca.engine.base import Engine, Graph, Key, Listener
from scalable_kpca.engine.blas import blas_architecture
from scalable_kpca.engine.metrics import count_task
from scalable_kpca.engine.performance import begin_report
from scalable_kpca.engine.preflight import libraries_digest, versions
from scalable_kpca.engine.settings import STALL_SECONDS
from scalable_kpca.errors import ClusterError, KernelPCAError
from scalable_kpca.faults import attempt

__all__ = ["ClusterEngine"]

logger = logging.getLogger(__name__)

LAST_SECONDS = 10.0  # for a scheduler to answer then
MOST_TALLIES = 64
FEWEST_PARALLEL = 16  # threads that are counted with: of a cluster that has yet to grow
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
        self._libraries, self._token = libraries_digest(), uuid.uuid4().hex
        try:
            within(client, stall, client.register_plugin, _blas_plugin(), "scalable-kpca-blas")
        except TimeoutError as error:
            raise self._stalled("start", {}) from error

    @property
    def n_parallel(self) -> int:
        # what the client was last told, every other second: a scheduler is not asked, and may hang
        return max(FEWEST_PARALLEL, int(self._client._scheduler_identity.get("total_threads", 0)))

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
        from distributed.scheduler import NoWorkerError

        count = self._counting(stage, weights, progress)
        try:
            tasks = self._attempted(graph, _attempt_alike, self._token, self._libraries, stage)
            futures = self._client.get(tasks, [*outputs, *keep], sync=False)
            self._wait(stage, dict(zip(futures, outputs, strict=False)), count)
            values = self._gathered(stage, futures[: len(outputs)])
        except KilledWorker as error:
            raise ClusterError(
                f"stage {stage!r}: a worker died {error.allowed_failures + 1} times on task {error.task!r}, the last "
                f"at {error.last_worker.address}; look at that worker's memory limit and log, then run again."
            ) from error
        except NoWorkerError as error:
            raise ClusterError(
                f"stage {stage!r}: the scheduler at {self._address} had no worker for {error.timeout:g} s; start one, "
                "and run again: nothing finished is done twice."
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

    def workers(self) -> list[dict[str, Any]]:
        try:
            return [
                {"address": address, **answer}
                for address, answer in sorted(ask_workers(self._client, LAST_SECONDS, _tally, self._token).items())
            ]
        except Exception as error:
            # of a scheduler that is gone by now: the work is done, and this is said where it can be
            logger.warning("%s", f"what each worker has done is not known: {str(error) or type(error).__name__}")
            return []

    def begin_report(self) -> Callable[[], str]:
        return begin_report(self._client)

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

    def _gathered(self, stage: str, futures: Sequence[Any]) -> list[Any]:
        """Values of futures, from workers that may hang or die by now."""
        try:
            return list(within(self._client, self._stall, self._client.gather, list(futures)))
        except TimeoutError as error:
            raise self._stalled(stage, futures) from error

    def _stalled(self, stage: str, futures: Iterable[Any]) -> ClusterError:
        state = "does not answer"  # nor may what is asked now
        with contextlib.suppress(TimeoutError):
            state = f"has {len(within(self._client, LAST_SECONDS, self._client.nthreads))} workers"
            within(self._client, LAST_SECONDS, partial(self._client.cancel, list(futures), force=True))
        return ClusterError(
            f"stage {stage!r}: nothing has finished for {self._stall:g} s on the scheduler at {self._address}, which "
            f"{state}; look at their logs, or set cluster.stall higher, and run again: nothing "
            "finished is done twice."
        )


def _attempt_alike(token: str, libraries: str, stage: str, task: Callable[..., Any], *arguments: Any) -> Any:
    """A task on a worker, which may have joined after all others were asked for their versions."""
    if libraries_digest() != libraries:
        own = ", ".join(f"{name} {version}" for name, version in versions().items())
        raise ClusterError(
            f"a worker on {platform.node()} has joined with other libraries than this run ({own}); end it, or give it "
            "the same environment, and run again: nothing finished is done twice."
        )
    started = time.perf_counter()
    try:
        return attempt(task, *arguments)
    finally:
        seconds = time.perf_counter() - started
        _tally_of(token).add(seconds)
        count_task(stage, seconds)


class _Tally:
    """Tasks of one engine on this worker."""

    def __init__(self) -> None:
        self.tasks, self.seconds, self._lock = 0, 0.0, threading.Lock()

    def add(self, seconds: float) -> None:
        """Count a task."""
        with self._lock:
            self.tasks, self.seconds = self.tasks + 1, self.seconds + seconds


_tallies: dict[str, _Tally] = {}  # by engine, that which worked last at the end
_tallying = threading.Lock()


def _tally_of(token: str) -> _Tally:
    with _tallying:
        found = _tallies.pop(token) if token in _tallies else _Tally()
        _tallies[token] = found
        if len(_tallies) > MOST_TALLIES:
            del _tallies[next(iter(_tallies))]  # of a worker that has been there for long
    return found


def _tally(token: str, dask_worker: Any = None) -> dict[str, Any]:
    """What this worker has done for an engine; `distributed` fills in the worker."""
    found = _tally_of(token)
    threads = int(dask_worker.state.nthreads)
    place = {"host": platform.node(), "blas": blas_architecture(), "threads": threads}
    return {**place, "tasks": found.tasks, "seconds": round(found.seconds, 3)}


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
