"""Every scheduler runs the same graphs to the same values, says how far it is, and leaves nothing behind."""

import operator
import os
import re
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import dask
import distributed
import numpy as np
import psutil
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from scalable_kpca.engine import CONNECT_SECONDS, ClusterSettings, Event, LocalEngine, open_engine, single_threaded_blas
from scalable_kpca.engine.connections import ALLOCATOR
from scalable_kpca.errors import ClusterError, ConfigError, IncompleteGramError, InvalidInputError
from scalable_kpca.gram import StoredTiles, create_tiles
from scalable_kpca.kernels import resolve_kernel
from scalable_kpca.tiling import Tiling

A = np.random.default_rng(0).standard_normal((60, 60))
B = np.random.default_rng(1).standard_normal((60, 7))


def blas_threads(info):
    return {pool["num_threads"] for pool in info if pool["user_api"] == "blas"}


# graphs name functions that any worker process can import: numpy's, operator's and the package's own


def first_graph(name):
    return {
        (name, 0): A,
        (name, 1): (np.matmul, (name, 0), B),
        (name, 2): (np.add, (name, 1), 1.0),
        (name, 3): (np.sum, (name, 2)),
    }


def run_twice(engine):
    """Values of a graph, and of a second one that uses what the first one kept."""
    name, later = engine.new_name("first"), engine.new_name("second")
    values, kept = engine.run(first_graph(name), [(name, 3), (name, 1)], keep=[(name, 2), (name, 0)])
    second = {(later, 0): (np.matmul, kept[1], kept[0]), (later, 1): (np.linalg.norm, (later, 0))}
    more, none = engine.run(second, [(later, 0), (later, 1)])
    assert none == []
    return [*values, *more]


def expected_values():
    with single_threaded_blas():
        product = A @ B
        moved = product + 1.0
        again = A @ moved
        return [moved.sum(), product, again, np.linalg.norm(again)]


def assert_same(values, expected):
    assert len(values) == len(expected)
    for value, other in zip(values, expected, strict=True):
        assert np.array_equal(value, other)


def weighted_graph(engine, n=12):
    name = engine.new_name("weighted")
    graph = {(name, i): (operator.mul, i, i) for i in range(n)}
    weights = {(name, i): i for i in range(n)}  # the first weighs nothing
    return graph, list(graph), weights


def assert_progress(events, stage, total):
    assert [(event.stage, event.total) for event in events] == [(stage, total)] * len(events)
    done = [event.done for event in events]
    assert done == sorted(set(done))
    assert done[-1] == total
    assert len(done) > 1


@pytest.mark.parametrize("kind", ["synchronous", "threads"])
def test_kept_values_serve_a_later_graph(kind):
    with open_engine(kind, n_threads=2) as engine:
        assert engine.shares_memory
        assert_same(run_twice(engine), expected_values())


def test_kept_arrays_stay_where_they_are_in_this_process():
    with open_engine("threads", n_threads=2) as engine:
        name = engine.new_name("first")
        _, kept = engine.run(first_graph(name), [(name, 3)], keep=[(name, 0)])
        assert kept[0] is A


@pytest.mark.parametrize("kind", ["synchronous", "threads"])
def test_progress_rises_to_the_total(kind):
    events = []
    with open_engine(kind, n_threads=3, listener=events.append) as engine:
        graph, keys, weights = weighted_graph(engine)
        values, _ = engine.run(graph, keys, stage="squares", weights=weights)
    assert values == [i * i for i in range(12)]
    assert_progress(events, "squares", sum(range(12)))
    assert isinstance(events[0], Event)


def test_engine_without_a_listener_or_weights_says_nothing():
    events = []
    with open_engine("synchronous", listener=events.append) as engine:
        engine.run({"a": (operator.add, 1, 2)}, ["a"])
    assert events == []


def test_names_of_two_engines_never_meet():
    engines = [LocalEngine(0), LocalEngine(0)]
    names = [engine.new_name("tile") for engine in engines for _ in range(3)]
    assert len(set(names)) == 6


@pytest.mark.parametrize("kind", ["synchronous", "threads"])
def test_exception_of_a_task_arrives_with_its_own_type(kind):
    with open_engine(kind, n_threads=2) as engine:
        with pytest.raises(ZeroDivisionError):
            engine.run({"a": (operator.truediv, 1, 0), "b": (operator.add, "a", 1)}, ["b"])
        assert engine.run({"c": (operator.add, 1, 1)}, ["c"]) == ([2], [])


def test_threads_of_an_engine_end_with_it():
    before = threading.active_count()
    with open_engine("threads", n_threads=3) as engine:
        barrier = threading.Barrier(3, timeout=30)
        keys = [("wait", i) for i in range(3)]
        engine.run({key: (lambda _, barrier=barrier: barrier.wait() * 0, i) for i, key in enumerate(keys)}, keys)
        assert threading.active_count() == before + 3  # all three ran at the same time
    assert threading.active_count() == before


# ---------------------------------------------------------------- workers


@pytest.fixture(scope="class")
def workers():
    """An engine on two worker processes, and the events it sends."""
    events = []
    # the nanny's own limit of one BLAS thread is lifted, so that only the engine's can be seen
    environment = {"OMP_NUM_THREADS": 2, "OPENBLAS_NUM_THREADS": 2, "MKL_NUM_THREADS": 2}
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": environment}),
        open_engine(ClusterSettings("local", n_workers=2), n_threads=1, listener=events.append) as engine,
    ):
        yield engine, events


class TestOnWorkers:
    def test_values_equal_those_of_one_process(self, workers):
        engine, _ = workers
        assert not engine.shares_memory
        assert_same(run_twice(engine), expected_values())

    def test_progress_rises_to_the_total(self, workers):
        engine, events = workers
        # many short graphs: the last event of a stage must not arrive after its run has returned
        for round_ in range(10):
            events.clear()
            graph, keys, weights = weighted_graph(engine)
            values, _ = engine.run(graph, keys, stage=f"squares {round_}", weights=weights)
            assert values == [i * i for i in range(12)]
            assert_progress(list(events), f"squares {round_}", sum(range(12)))

    def test_exception_of_a_task_arrives_with_its_own_type(self, workers):
        engine, _ = workers
        name = engine.new_name("failing")
        with pytest.raises(ZeroDivisionError):
            engine.run({(name, 0): (operator.truediv, 1, 0), (name, 1): (operator.add, (name, 0), 1)}, [(name, 1)])

    def test_named_errors_arrive_whole(self, workers, tmp_path):
        engine, _ = workers
        tiles = create_tiles(tmp_path / "gram.zarr", Tiling(4, 2), "float64", "f", {})
        name = engine.new_name("failing")
        with pytest.raises(IncompleteGramError) as caught:
            engine.run({(name, 0): (StoredTiles.read, tiles, 0, 1)}, [(name, 0)])
        assert caught.value.missing == ((0, 0), (0, 1), (1, 1))
        assert caught.value.path == str(tmp_path / "gram.zarr")
        with pytest.raises(InvalidInputError, match="kernel='none' is not known"):
            engine.run({(name, 1): (dask.utils.apply, resolve_kernel, ["none"], {"n_features": 2})}, [(name, 1)])

    def test_blas_runs_on_one_thread_in_every_task(self, workers):
        engine, _ = workers
        name = engine.new_name("blas")
        graph = {(name, i): (threadpool_info,) for i in range(8)}
        infos, _ = engine.run(graph, list(graph))
        assert [blas_threads(info) for info in infos] == [{1}] * 8

    def test_nothing_listens_beyond_this_machine(self, workers):
        del workers
        this = psutil.Process()
        listening = [
            connection.laddr.ip
            for process in (this, *this.children(recursive=True))
            for connection in process.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert len(listening) >= 3  # the scheduler and two workers
        assert set(listening) <= {"127.0.0.1", "::1"}


def test_workers_start_beside_another_cluster_on_the_same_machine():
    # port 8787 is where every scheduler on a machine puts its HTTP server unless it is told otherwise
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # taken already: just as good
            other.bind(("127.0.0.1", 8787))
            other.listen()
        with open_engine(ClusterSettings("local", n_workers=1), n_threads=1) as engine:
            assert engine.run({"a": (operator.add, 1, 2)}, ["a"]) == ([3], [])


@pytest.mark.parametrize("left", [{}, {"MALLOC_TRIM_THRESHOLD_": "65536"}])
def test_worker_processes_keep_what_they_free(monkeypatch, left):
    assert str(dask.config.get("distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_")) == "65536"
    for name, value in left.items():
        monkeypatch.setenv(name, value)  # as starting several nannies may
    with open_engine(ClusterSettings("local", n_workers=1), n_threads=1) as engine:
        graph = {f"value of {name}": (os.getenv, name) for name in ALLOCATOR}
        values, _ = engine.run(graph, list(graph), stage="environment")
    assert values == list(ALLOCATOR.values())
    assert int(ALLOCATOR["MALLOC_TRIM_THRESHOLD_"]) >= 2**26 > 2**16  # distributed's own


def test_workers_end_with_their_engine():
    this = psutil.Process()
    before = set(this.children(recursive=True))
    with open_engine(ClusterSettings("local", n_workers=1), n_threads=1) as engine:
        assert engine.run({"a": (operator.add, 1, 2)}, ["a"]) == ([3], [])
        started = set(this.children(recursive=True)) - before
        assert started
    # what may stay is multiprocessing's resource tracker, which serves the whole process
    left = [child for child in started if child.is_running() and "resource_tracker" not in " ".join(child.cmdline())]
    assert left == []


# ---------------------------------------------------------------- what cannot be opened


def test_active_client_must_exist():
    with pytest.raises(ClusterError, match="client"), open_engine("client"):
        pass


@pytest.mark.slow
def test_address_without_a_scheduler_is_a_cluster_error():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with (
        pytest.raises(ClusterError, match=f"no Dask scheduler answers at {address} within {CONNECT_SECONDS} s"),
        open_engine(ClusterSettings("address", address=address)),
    ):
        pass


@pytest.mark.parametrize("address", ["nowhere://here", "tcp://here", "tcp://127.0.0.1:99999", "tcp://127.0.0.1:0"])
def test_address_that_is_not_one_is_a_mistake_in_the_settings(address):
    with (
        pytest.raises(ConfigError, match=f"cluster.address={address} is no address"),
        open_engine(ClusterSettings("address", address=address)),
    ):
        pass
    with pytest.raises(ValueError, match="No global client"):  # no half-made one stays behind
        distributed.get_client()


def test_file_of_a_scheduler_is_one(tmp_path):
    for place in (Path("/dev/zero"), tmp_path):
        settings = ClusterSettings("address", scheduler_file=place)
        with pytest.raises(ConfigError, match="is no file"), open_engine(settings):
            pass


CLASSES = {
    "a getter": ("os:getcwd", "os:getcwd() is no cluster of dask but of type str"),
    "a mapping": ("builtins:dict", "is no cluster of dask but of type dict"),
    "no such class": ("os:Nothing", "cluster.import='os:Nothing' names no class"),
    "an end": ("builtins:exit", "builtins:exit() has ended this command"),
    "an error": ("broken_module:Cluster", "broken_module:Cluster cannot be imported (it is broken)"),
    "another end": ("ending_module:Cluster", "ending_module:Cluster cannot be imported (3)"),
    "no workers": ("distributed:SpecCluster", "cluster.kind import starts no workers by itself: set cluster.scale"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_no_cluster_is_a_mistake_in_the_settings_and_leaves_signals_alone(name, tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text(
        "import signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nraise RuntimeError('it is broken')\n"
    )
    (tmp_path / "ending_module.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    path, words = CLASSES[name]
    options = {"scheduler": {"cls": distributed.Scheduler, "options": {"dashboard": False, "port": 0}}}
    settings = ClusterSettings("import", class_path=path, options=options if name == "no workers" else {})
    with pytest.raises(ConfigError, match=re.escape(words)), open_engine(settings):
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_address_must_be_given():
    with pytest.raises(ConfigError, match=r"set cluster\.address to tcp://HOST:PORT"), open_engine("address"):
        pass


def test_unknown_kind_of_scheduler_is_named_with_the_known_ones():
    with (
        pytest.raises(ConfigError, match=r"'mars' is not known; choose one of threads, synchronous, client, local"),
        open_engine("mars"),
    ):
        pass


# ---------------------------------------------------------------- BLAS


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads(threadpool_info()) == {2}
        yield


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_runs_on_one_thread_inside_and_as_before_afterwards():
    with single_threaded_blas():
        assert blas_threads(threadpool_info()) == {1}
    assert blas_threads(threadpool_info()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_overlapping_users_of_blas_do_not_lift_each_others_limit(first_to_leave):
    users = [ExitStack(), ExitStack()]
    for user in users:
        user.enter_context(single_threaded_blas())
    users[first_to_leave].close()
    assert blas_threads(threadpool_info()) == {1}
    users[1 - first_to_leave].close()
    assert blas_threads(threadpool_info()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), open_engine("threads", n_threads=2) as engine:
        engine.run({"a": (operator.truediv, 1, 0)}, ["a"])
    assert blas_threads(threadpool_info()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("kind", ["synchronous", "threads"])
def test_every_task_sees_one_blas_thread(kind):
    with open_engine(kind, n_threads=2) as engine:
        infos, _ = engine.run(dict.fromkeys("abcdef", (threadpool_info,)), list("abcdef"))
    assert [blas_threads(info) for info in infos] == [{1}] * 6
    assert blas_threads(threadpool_info()) == {2}
