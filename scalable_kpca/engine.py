"""The only module that talks to a Dask scheduler.

A graph is a plain mapping from keys to task tuples or values. An engine runs it, reports finished keys, returns the
values of the *outputs*, and leaves the values of the *kept* keys where they were computed: `Kept` handles stand for
them in later graphs. No engine holds anything else after a run.
"""

from __future__ import annotations

import itertools
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask.config
import dask.local
import dask.threaded
from threadpoolctl import threadpool_limits

from scalable_kpca.errors import ClusterError, ConfigError

__all__ = [
    "ClusterEngine",
    "Engine",
    "Event",
    "Listener",
    "LocalEngine",
    "active_kind",
    "open_engine",
    "single_threaded_blas",
]

Key = Any  # dask's keys: str or (str, int, ...)
Graph = Mapping[Any, Any]

CONNECT_SECONDS = 5  # for a scheduler to answer


@dataclass(frozen=True)
class Event:
    """Progress of one named stage: `done` of `total` units; the last event of a stage has done == total."""

    stage: str
    done: int
    total: int


Listener = Callable[[Event], None]


class Engine(ABC):
    """Runs task graphs.

    Attributes
    ----------
    shares_memory : bool
        Whether tasks run in this process, so that arrays can be handed to them by reference.
    is_local : bool
        Whether every task runs on this machine, so that a temporary directory is seen by all of them.
    """

    shares_memory: bool
    is_local: bool

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._counter = itertools.count()

    def new_name(self, prefix: str) -> str:
        """Key prefix that no other graph of this engine has."""
        return f"{prefix}-{id(self):x}-{next(self._counter)}"

    def notify(self, stage: str, done: int, total: int) -> None:
        """Tell the listener how far a stage has come."""
        if self._listener is not None:
            self._listener(Event(stage, done, total))

    def row_blocks(self, array: Any) -> Iterator[Any]:
        """Row blocks of a dask array as numpy arrays, one after another: a block at a time is in memory."""
        for i in range(array.numblocks[0]):
            block = array.blocks[i].rechunk((-1, -1))
            keys = [key for row in block.__dask_keys__() for key in row]
            values, _ = self.run(dict(block.__dask_optimize__(block.__dask_graph__(), keys)), keys, stage="rows")
            yield values[0]

    @abstractmethod
    def run(
        self,
        graph: Graph,
        outputs: Sequence[Key],
        *,
        keep: Sequence[Key] = (),
        stage: str = "compute",
        weights: Mapping[Key, int] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Run a graph.

        Parameters
        ----------
        graph : mapping
            Keys to values or ``(function, *arguments)``.
        outputs : sequence of keys
            Whose values come back.
        keep : sequence of keys
            Whose values stay where they are computed.
        stage : str
            Name in progress events.
        weights : mapping, optional
            Progress units of each output key.

        Returns
        -------
        values : list
            Of the outputs, in order.
        kept : list
            A stand-in for each kept key, to be used as an argument in a later graph of the same engine.
        """

    def _counting(self, stage: str, weights: Mapping[Key, int] | None) -> Callable[[Key], None]:
        pending = dict(weights or {})
        total, done = sum(pending.values()), 0
        lock = threading.Lock()

        def finished(key: Key) -> None:
            nonlocal done
            with lock:
                units = pending.pop(key, 0)
                if units:
                    done += units
                    self.notify(stage, done, total)

        return finished


class LocalEngine(Engine):
    """Tasks in this process: one after another (the reference), or on a pool of threads.

    Parameters
    ----------
    n_threads : int
        0 runs every task in the calling thread.
    listener : callable, optional
        Receives `Event` objects.
    """

    shares_memory = True
    is_local = True

    def __init__(self, n_threads: int, listener: Listener | None = None) -> None:
        super().__init__(listener)
        self._pool = ThreadPoolExecutor(n_threads) if n_threads else None
        self._n_threads = n_threads

    def run(
        self,
        graph: Graph,
        outputs: Sequence[Key],
        *,
        keep: Sequence[Key] = (),
        stage: str = "compute",
        weights: Mapping[Key, int] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        finished = self._counting(stage, weights)
        callbacks = [(None, None, None, lambda key, *_: finished(key), None)]
        wanted = [*outputs, *keep]
        if self._pool is None:
            values = dask.local.get_sync(graph, wanted, callbacks=callbacks)
        else:
            values = dask.threaded.get(graph, wanted, pool=self._pool, num_workers=self._n_threads, callbacks=callbacks)
        return list(values[: len(outputs)]), list(values[len(outputs) :])

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


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


def active_kind() -> str:
    """Kind of scheduler that dask's own settings ask for here: an active client, ``scheduler=`` or threads."""
    if "distributed" in sys.modules:
        from distributed import get_client

        try:
            get_client()
        except ValueError:
            pass
        else:
            return "client"
    chosen = dask.config.get("scheduler", None)
    return "synchronous" if chosen in ("synchronous", "sync", "single-threaded") else "threads"


@contextmanager
def open_engine(
    kind: str = "threads",
    *,
    n_threads: int = 1,
    address: str | None = None,
    n_workers: int | None = None,
    listener: Listener | None = None,
) -> Iterator[Engine]:
    """Engine for a kind of scheduler; everything that it started is stopped at the end.

    Parameters
    ----------
    kind : {"threads", "synchronous", "local", "address", "client"}
        ``"local"`` starts worker processes on the loopback interface; ``"address"`` connects; ``"client"`` uses the
        active `distributed` client.
    n_threads : int
        Of ``"threads"``, and of each worker process of ``"local"``.
    address : str, optional
        Of a scheduler.
    n_workers : int, optional
        Processes of ``"local"``.
    listener : callable, optional
        Receives progress events.

    Yields
    ------
    Engine

    Raises
    ------
    ClusterError
        When no scheduler answers.

    Notes
    -----
    While the engine is open, BLAS in this process runs on one thread per task: see `single_threaded_blas`.
    """
    with single_threaded_blas():
        if kind in ("threads", "synchronous"):
            engine = LocalEngine(n_threads if kind == "threads" else 0, listener)
            try:
                yield engine
            finally:
                engine.close()
        elif kind == "client":
            yield ClusterEngine(_active_client(), listener)
        elif kind in ("local", "address"):
            with _connected(kind, address, n_workers, n_threads) as client:
                yield ClusterEngine(client, listener)
        else:
            raise ConfigError(
                f"cluster kind {kind!r} is not known; choose one of threads, synchronous, local, address."
            )


def _active_client() -> Any:
    from distributed import get_client

    try:
        return get_client()
    except ValueError as error:
        raise ClusterError("no Dask client is active here; make one with distributed.Client(...).") from error


@contextmanager
def _connected(kind: str, address: str | None, n_workers: int | None, n_threads: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    if kind == "local":
        with (
            LocalCluster(
                n_workers=n_workers, threads_per_worker=n_threads, host="127.0.0.1", dashboard_address="127.0.0.1:0"
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client
        return
    if address is None:
        raise ConfigError("cluster.kind is 'address' but no address is given; set cluster.address to tcp://HOST:PORT.")
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {CONNECT_SECONDS} s ({error}); start one or correct it."
        ) from error
    with client:
        yield client


_blas_lock = threading.Lock()
_blas_users = 0
_blas_limit: threadpool_limits | None = None


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread in this process until the last user leaves.

    Notes
    -----
    The limit belongs to the process, not to a task: a limit set and restored by concurrent tasks lifts the others'.
    Tasks are the parallelism here, and one thread a product also makes its bits independent of the machine's load.
    """
    import numpy  # noqa: F401 - a library is limited only when it is loaded
    import scipy.linalg  # noqa: F401

    global _blas_users, _blas_limit
    with _blas_lock:
        _blas_users += 1
        if _blas_users == 1:
            _blas_limit = threadpool_limits(1, user_api="blas")
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0 and _blas_limit is not None:
                _blas_limit.restore_original_limits()
                _blas_limit = None


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
