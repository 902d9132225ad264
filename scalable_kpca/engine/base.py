"""What every engine is: graphs in, values out, progress on the way.

A graph is a plain mapping from keys to task tuples or values. An engine runs it, reports finished keys, returns the
values of the *outputs*, and leaves the values of the *kept* keys where they were computed: stand-ins for them go into
later graphs. No engine holds anything else after a run.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scalable_kpca.errors import ConfigError
from scalable_kpca.faults import attempt

__all__ = ["Engine", "Event", "Graph", "Key", "Listener"]

Key = Any  # dask's keys: str or (str, int, ...)
Graph = Mapping[Any, Any]


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
    n_parallel : int
        Tasks that run at the same time, as far as is known.
    """

    shares_memory: bool
    is_local: bool

    @property
    @abstractmethod
    def n_parallel(self) -> int: ...

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

    def workers(self) -> list[dict[str, Any]]:
        """What each worker process has done so far for this engine: none where tasks run in this process.

        Returns
        -------
        list of dict
            ``address``, ``host``, ``threads``, ``tasks``, and ``seconds`` in which these ran, of all threads together.
            Of workers that are gone nothing is known.
        """
        return []

    def begin_report(self) -> Callable[[], str]:
        """Begin what dask's performance report tells of.

        Returns
        -------
        callable
            Ends it, and returns it as HTML with all that it needs.

        Raises
        ------
        ClusterError
            When the scheduler does not answer; from the callable also when it does not draw it in time.
        ConfigError
            Where tasks run in this process: no scheduler notes what they do.

        Notes
        -----
        Cost: the scheduler does nothing else while it draws, some 2 s for 10 000 tasks, whose page has 3 MB; of more
        than 100 000 it remembers the last ones.
        """
        raise ConfigError("a performance report is of tasks on a Dask scheduler; set cluster.kind to local.")

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
        progress: tuple[int, int] | None = None,
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
            Progress units of keys; those of keys that are no outputs may be counted at the end.
        progress : tuple of (int, int), optional
            Units done before this run, and in all: where a stage takes several runs.

        Returns
        -------
        values : list
            Of the outputs, in order.
        kept : list
            A stand-in for each kept key, to be used as an argument in a later graph of the same engine.
        """

    @staticmethod
    def _attempted(graph: Graph, *head: Any) -> dict[Any, Any]:
        """The same graph, whose tasks are called by `head`, a function and what it takes before them.

        By default they are tried again when they fail by what passes: see `faults.attempt`.
        """
        head = head or (attempt,)
        return {
            key: (*head, *value) if type(value) is tuple and value and callable(value[0]) else value
            for key, value in graph.items()
        }

    def _counting(self, stage: str, weights: Mapping[Key, int] | None, progress: tuple[int, int] | None) -> _Counter:
        return _Counter(partial(self.notify, stage), weights or {}, progress)


class _Counter:
    """Progress of one run: units of the keys that have finished."""

    def __init__(
        self, notify: Callable[[int, int], None], weights: Mapping[Key, int], progress: tuple[int, int] | None
    ) -> None:
        self._notify, self._pending, self._lock = notify, dict(weights), threading.Lock()
        self._done, self._total = progress or (0, sum(self._pending.values()))

    def __call__(self, key: Key) -> None:
        """Count a key that has finished."""
        with self._lock:
            self._count(self._pending.pop(key, 0))

    def rest(self) -> None:
        """Count what an engine was not told of one by one, when all is done."""
        with self._lock:
            units = sum(self._pending.values())
            self._pending.clear()
            self._count(units)

    def _count(self, units: int) -> None:
        if units:
            self._done += units
            self._notify(self._done, self._total)
