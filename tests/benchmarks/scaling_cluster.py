"""A cluster that exists as a queue of events: one scheduler, workers with threads and a link each, one client.

What a task costs is given; when things happen follows from who waits for whom. Nothing is random.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Any

__all__ = ["Costs", "SimulatedCluster", "SimulatedTask"]

SATURATION = 1.1  # tasks that a scheduler gives to a worker for each of its threads: `distributed` has the same


@dataclass(frozen=True)
class Costs:
    """What the parts of a cluster take.

    Attributes
    ----------
    scheduler_task, scheduler_edge : float
        Seconds of the scheduler for a task, and for each value that it takes from another one, from first to last.
    client_task, client_edge : float
        Seconds of the client, which makes the graph and sends it.
    transit_byte : float
        Seconds of the client and of the scheduler each, for a byte that goes through both.
    added_byte : float
        Seconds of a worker's thread to add a byte to a sum.
    latency : float
        Seconds of a message on its way.
    bandwidth : float
        Bytes a second into a worker, the scheduler or the client.
    """

    scheduler_task: float
    scheduler_edge: float
    client_task: float
    client_edge: float
    transit_byte: float
    added_byte: float
    latency: float
    bandwidth: float

    def scheduling(self, edges: int) -> float:
        """Seconds of the scheduler for a task that takes values from so many others."""
        return self.scheduler_task + self.scheduler_edge * edges

    def building(self, tasks: int, edges: int) -> float:
        """Seconds of the client for a graph."""
        return self.client_task * tasks + self.client_edge * edges

    def fetching(self, n_bytes: float) -> float:
        """Seconds until a worker has bytes of others, once it has asked for them."""
        return n_bytes / self.bandwidth + 2 * self.latency if n_bytes else 0.0

    def transit(self, n_bytes: float) -> float:
        """Seconds from the client to the scheduler, or back."""
        return n_bytes * (1 / self.bandwidth + self.transit_byte) + self.latency


class Server:
    """Does one thing after another, in the order of asking."""

    def __init__(self) -> None:
        self.free, self.busy = 0.0, 0.0

    def serve(self, now: float, seconds: float) -> float:
        """When something that takes so long and is asked for now will be done."""
        self.free = max(now, self.free) + seconds
        self.busy += seconds
        return self.free


@dataclass
class SimulatedTask:
    """One task.

    Attributes
    ----------
    seconds : float
        Of a thread.
    edges : int
        Values that it takes from other tasks.
    missing : callable
        Bytes that a worker, given by its number, has to fetch for it; asked once, when the worker gets it.
    finished : callable
        Called with the number of the worker, when the scheduler knows that it is done.
    worker : int, optional
        Where it has to run; otherwise where there is a place.
    urgent : bool
        Whether it takes the next free thread of its worker before others that wait.
    place : int
        Worker on whose account it is, once it was given to one: another one may have taken it from there.
    """

    seconds: float
    edges: int
    missing: Callable[[int], float]
    finished: Callable[[int], None]
    worker: int | None = None
    urgent: bool = False
    place: int = -1


@dataclass
class _Worker:
    idle: int
    coming: int = 0  # tasks on their way to it
    link: Server = field(default_factory=Server)
    ready: deque[SimulatedTask] = field(default_factory=deque)


class SimulatedCluster:
    """Scheduler, workers and client at work on one or more graphs, one after another.

    Parameters
    ----------
    n_workers, n_threads : int
        Workers, threads of each.
    costs : Costs
    """

    def __init__(self, n_workers: int, n_threads: int, costs: Costs) -> None:
        self.costs, self.n_workers, self.n_threads = costs, n_workers, n_threads
        self.now, self.working = 0.0, 0.0
        self.scheduler, self.client = Server(), Server()
        self._workers = [_Worker(n_threads) for _ in range(n_workers)]
        self._queue: deque[SimulatedTask] = deque()
        # workers with tasks that wait for a thread and may run elsewhere; with threads that nothing is on its way to
        self._waiting: set[int] = set()
        self._idle: set[int] = set()
        self._places = deque(w for _ in range(ceil(SATURATION * n_threads)) for w in range(n_workers))
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    @property
    def busiest_link(self) -> float:
        """Seconds that the busiest worker's link has carried bytes."""
        return max(worker.link.busy for worker in self._workers)

    def give(self, task: SimulatedTask) -> None:
        """Hand a task that waits for nothing else to the scheduler."""
        if task.worker is not None:
            self._dispatch(task, task.worker)
        elif self._places:
            self._place(task)
        else:
            self._queue.append(task)

    def use_client(self, seconds: float, n_bytes: float = 0.0) -> None:
        """Let the client compute, and bytes go between it and the scheduler; nothing else happens meanwhile.

        Bytes take both of them, each with a link of its own, one after the other.
        """
        self.now = self.client.serve(self.now, seconds + (self.costs.transit(n_bytes) if n_bytes else 0.0))
        if n_bytes:
            self.now = self.scheduler.serve(self.now, self.costs.transit(n_bytes))

    def run(self) -> float:
        """The time when everything has happened."""
        while self._events:
            self.now, _, function, arguments = heapq.heappop(self._events)
            function(*arguments)
        return self.now

    def _at(self, time: float, function: Callable[..., None], *arguments: Any) -> None:
        self._order += 1  # of two events at one time the one that was seen first comes first
        heapq.heappush(self._events, (time, self._order, function, arguments))

    def _place(self, task: SimulatedTask) -> None:
        task.place = self._places.popleft()
        self._dispatch(task, task.place)

    def _dispatch(self, task: SimulatedTask, worker: int) -> None:
        self._workers[worker].coming += 1
        known = self.scheduler.serve(self.now, self.costs.scheduling(task.edges) / 2)
        self._at(known + self.costs.latency, self._arrive, task, worker)

    def _arrive(self, task: SimulatedTask, worker: int) -> None:
        n_bytes = task.missing(worker)
        if n_bytes:
            fetched = self._workers[worker].link.serve(self.now, n_bytes / self.costs.bandwidth)
            self._at(fetched + 2 * self.costs.latency, self._ready, task, worker)
        else:
            self._ready(task, worker)

    def _ready(self, task: SimulatedTask, worker: int) -> None:
        found = self._workers[worker]
        found.coming -= 1
        if task.urgent:
            found.ready.appendleft(task)
        else:
            found.ready.append(task)
        self._start(worker)
        self._balance()

    def _end(self, task: SimulatedTask, worker: int) -> None:
        self._workers[worker].idle += 1
        self._start(worker)
        self._balance()
        self._at(self.now + self.costs.latency, self._reported, task, worker)

    def _start(self, number: int) -> None:
        worker = self._workers[number]
        while worker.idle and worker.ready:
            task = worker.ready.popleft()
            worker.idle -= 1
            self.working += task.seconds
            self._at(self.now + task.seconds, self._end, task, number)
        waits, is_idle = worker.ready and worker.ready[-1].worker is None, worker.idle > worker.coming
        (self._waiting.add if waits else self._waiting.discard)(number)
        (self._idle.add if is_idle else self._idle.discard)(number)

    def _balance(self) -> None:
        """Tasks that wait for a thread go to workers that have nothing to do, once there is nothing left to give."""
        while self._waiting and self._idle and not self._queue:
            crowded = max(self._waiting, key=lambda number: (len(self._workers[number].ready), -number))
            number = min(self._idle)
            self._dispatch(self._workers[crowded].ready.pop(), number)
            self._start(crowded)
            self._start(number)

    def _reported(self, task: SimulatedTask, worker: int) -> None:
        self._at(self.scheduler.serve(self.now, self.costs.scheduling(task.edges) / 2), self._finish, task, worker)

    def _finish(self, task: SimulatedTask, worker: int) -> None:
        task.finished(worker)
        if task.worker is None:
            self._places.append(task.place)
            if self._queue:
                self._place(self._queue.popleft())
