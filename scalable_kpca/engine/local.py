"""Tasks in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.local
import dask.threaded

from scalable_kpca.engine.base import Engine, Graph, Key, Listener

__all__ = ["LocalEngine"]


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
        progress: tuple[int, int] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        finished = self._counting(stage, weights, progress)
        callbacks = [(None, None, None, lambda key, *_: finished(key), None)]
        wanted = [*outputs, *keep]
        if self._pool is None:
            values = dask.local.get_sync(graph, wanted, callbacks=callbacks)
        else:
            values = dask.threaded.get(graph, wanted, pool=self._pool, num_workers=self._n_threads, callbacks=callbacks)
        finished.rest()
        return list(values[: len(outputs)]), list(values[len(outputs) :])

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
