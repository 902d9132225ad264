"""Tasks in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.core
import dask.local
import dask.threaded

from scalable_kpca.engine.base import Engine, Graph, Key, Listener

__all__ = ["LocalEngine"]

LONGEST_CHAIN = 8  # entries of a graph: a pass over one tile has six


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
        self._n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None  # until there are tasks that can run beside one another

    @property
    def n_parallel(self) -> int:
        return max(1, self._n_threads)

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
        finished = self._counting(stage, weights, progress)
        callbacks = [(None, None, None, lambda key, *_: finished(key), None)]
        wanted, graph = [*outputs, *keep], self._attempted(graph)
        if not self._n_threads or _is_chain(graph):
            values = dask.local.get_sync(graph, wanted, callbacks=callbacks)
        else:
            pool = self._threads()
            values = dask.threaded.get(graph, wanted, pool=pool, num_workers=self._n_threads, callbacks=callbacks)
        finished.rest()
        return list(values[: len(outputs)]), list(values[len(outputs) :])

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._n_threads)
        return self._pool

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _is_chain(graph: Graph) -> bool:
    """Whether a small graph has one task that waits for no other: then there is next to nothing to share."""
    if len(graph) > LONGEST_CHAIN:
        return False
    tasks = {key for key, value in graph.items() if dask.core.istask(value)}
    return sum(tasks.isdisjoint(dask.core.get_dependencies(graph, key)) for key in tasks) <= 1
