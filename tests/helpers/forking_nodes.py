"""Nodes that fork, and what each public client and lock does in the child."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import launchpad as lp

CHILD_S = 10.0
HANGS = "hangs"


class Echo:
    """A server whose answers can be held up."""

    def __init__(self) -> None:
        self._is_open = threading.Event()

    def echo(self, value: Any) -> Any:
        return value

    def wait(self, value: Any) -> Any:
        self._is_open.wait(60)
        return value

    def open(self) -> None:
        self._is_open.set()

    def shut(self) -> None:
        self._is_open.clear()

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)


def in_child(run: Callable[[], Any]) -> Any:
    """Call `run` in a forked child of this process. Return its result, its error, or HANGS."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                outcome = run()
            except Exception as error:
                outcome = error
            try:
                data = pickle.dumps(outcome)
            except Exception:
                data = pickle.dumps(RuntimeError(f"{type(outcome).__name__}: {outcome}"))
            os.write(writing, data)
        finally:
            os._exit(0)
    os.close(writing)
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    data = b""
    deadline = time.monotonic() + CHILD_S
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(reading, 1 << 16)
        if not part:
            break
        data += part
    else:
        os.kill(pid, signal.SIGKILL)
        data = pickle.dumps(HANGS)
    os.close(reading)
    os.waitpid(pid, 0)
    return pickle.loads(data) if data else RuntimeError("the child died")


class Clients(NamedTuple):
    """The clients that a walk uses."""

    echo: Any
    rows: lp.Queue[int]
    jobs: lp.WorkQueue
    counter: lp.Counter
    replay: Any
    workers: list[Any]
    slow: Any = None
    """The first of them, over an edge with a delay."""


Walk = dict[str, Any]


def held(lock: Any) -> Callable[[], None]:
    """Let another thread hold a lock. Return the function that ends this."""
    has_lock = threading.Event()
    may_go = threading.Event()

    def hold() -> None:
        with lock:
            has_lock.set()
            may_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has_lock.wait()

    def release() -> None:
        may_go.set()
        thread.join()

    return release


def walk(clients: Clients, name: str) -> Walk:
    """Fork while each client is in use. Return what happened in the children, by use."""
    echo, rows, jobs, counter, replay = clients[:5]
    outcomes: Walk = {}

    # Calls: what is in flight, and new ones.
    echo.echo(0)
    echo.shut()
    small = echo.futures.wait(1)
    large = echo.futures.wait(np.ones(1 << 17, np.uint8))
    stream_argument = echo.futures.total(iter(int, 1))
    several = lp.submit(lp.broadcast([echo, echo]).wait, 2)
    watched = echo.futures.wait(3)
    callbacks: list[Any] = []
    watched.add_done_callback(callbacks.append)
    stream = echo.count(10**9)
    next(stream)
    for label, future in {
        "small": small,
        "large": large,
        "with a stream": stream_argument,
        "of several": several,
        "watched": watched,
    }.items():
        outcomes[f"a future in flight, {label}"] = in_child(
            lambda future=future: future.exception(5)
        )
    outcomes["concurrent.futures.wait"] = in_child(
        lambda: [len(each) for each in concurrent.futures.wait([small, watched, several, large], 5)]
    )
    outcomes["callbacks in the child"] = in_child(lambda: len(callbacks))
    outcomes["a stream"] = in_child(lambda: next(stream))
    outcomes["a call"] = in_child(lambda: echo.echo(5))
    outcomes["a future"] = in_child(lambda: echo.futures.echo(6).result(5))
    outcomes["a large future"] = in_child(
        lambda: len(echo.futures.echo(np.ones(1 << 17, np.uint8)).result(5))
    )

    async def ask() -> Any:
        return await echo.aio.echo(7)

    asyncio.run(ask())
    outcomes["an awaited call"] = in_child(lambda: asyncio.run(ask()))
    if clients.slow is not None:
        delayed = clients.slow.futures.echo(8)
        outcomes["a future in flight, over a slow edge"] = in_child(lambda: delayed.exception(5))
        outcomes["a future over a slow edge"] = in_child(
            lambda: clients.slow.futures.echo(8).result(5)
        )
        delayed.result(20)
    outcomes["a new stream"] = in_child(lambda: list(echo.count(3)))
    stream_argument.cancel()
    stream.close()
    echo.open()
    outcomes["the parent's futures"] = [
        small.result(20),
        int(large.result(20).sum()),
        several.result(20),
        watched.result(20),
    ]
    echo.shut()

    # Sessions.
    jobs.add_many([f"{name} 1", f"{name} 2"])
    outcomes["WorkQueue.add"] = in_child(lambda: jobs.add_many([f"{name} 3"]) and None)
    jobs.add(f"{name} 4")

    def take() -> Any:
        lease = jobs.take(5)
        return lease.job if lease else None

    outcomes["WorkQueue.take"] = [take(), in_child(lambda: jobs.take(5).job), take()]

    before = counter.increment(**{name: 1})[name]
    child = in_child(lambda: counter.increment(**{name: 1})[name])
    outcomes["Counter.increment"] = [before, child, counter.increment(**{name: 1})[name]]

    rows.put_many([1, 2, 3])
    first = rows.get(5)
    child = in_child(lambda: rows.put(4) and rows.get(5))
    rows.put(5)
    items = [rows.get(5) for _ in range(rows.size())]
    rows.acknowledge()
    outcomes["Queue"] = [first, child, items]

    # Replay.
    writer = replay.trajectory_writer(max_sequence_length=4)
    with replay.batches("items", 1) as batches:
        writer.append({"x": 1})
        writer.create_item("items", 1.0, num_steps=1)
        writer.flush(5)
        next(batches)

        def write() -> int:
            writer.append({"x": 2})
            writer.create_item("items", 1.0, num_steps=2)
            writer.flush(5)
            return 2

        outcomes["a replay writer"] = in_child(write)
        writer.append({"x": 3})
        writer.create_item("items", 1.0, num_steps=2)
        writer.close()
        outcomes["a replay sample"] = in_child(lambda: replay.sample_batch("items", 1, 5) and None)
        outcomes["replay batches"] = in_child(lambda: next(batches))

    # Pools.
    if clients.workers:
        with lp.pool(clients.workers) as pool:
            results = pool.map(abs, range(5), chunksize=1)
            next(results)
            future = pool.submit(time.sleep, 0.5)
            outcomes["a pool's future"] = in_child(lambda: future.exception(5))
            outcomes["a pool's map"] = in_child(lambda: list(results))
            outcomes["a pool"] = in_child(lambda: pool.submit(abs, -1).result(5))
            outcomes["the parent's pool"] = list(results)
        with lp.pool(clients.workers) as pool:

            def new_pool() -> int:
                with lp.pool(clients.workers) as own:
                    return own.submit(abs, -1).result(5)

            outcomes["a pool of the child's"] = in_child(new_pool)

    outcomes["a program of the child's"] = in_child(launch)

    # Locks that another thread holds.
    inbox = lp.Inbox[str, int]()
    inbox.put("a", 1)
    for label, lock, use in (
        ("Inbox", inbox._lock, lambda: inbox.take("a", 5)),
        ("Counter", counter._own._lock, lambda: counter.get_counts() and None),
        ("WorkQueue", jobs._adding, lambda: jobs.add("x", key="x")),
        ("Queue", rows._lock, lambda: rows.size() and None),
        ("client", _pool_of(echo), lambda: echo.futures.echo(1).result(5)),
    ):
        release = held(lock)
        outcomes[f"a lock held, {label}"] = in_child(use)
        release()

    # The worker itself.
    if name != "script":
        outcomes["lp.current()"] = in_child(lambda: lp.current().name)
        outcomes["lp.barrier()"] = in_child(lambda: lp.barrier("b", 5))
        outcomes["lp.wait_for_stop()"] = in_child(lambda: lp.wait_for_stop(5))
        outcomes["lp.heartbeat()"] = in_child(lp.heartbeat)
        outcomes["lp.stop_event()"] = in_child(lambda: lp.stop_event().is_set())
        release = held(lp.current().state._lock)
        outcomes["lp.current().save()"] = in_child(lambda: lp.current().save(1))
        release()
    return {label: _shown(outcome) for label, outcome in outcomes.items()}


def launch() -> Any:
    """Launch a program of this process's own, and return an answer of its server."""
    program = lp.Program("own")
    program.add_node(lp.CourierNode(Echo), label="echo")
    with lp.launch(program, "test_mt") as running:
        return running.client("echo").echo(9)


def _pool_of(client: Any) -> Any:
    channel = client._channel
    connections = getattr(channel, "connections", None)
    return threading.Lock() if connections is None else connections.lock


def _shown(outcome: Any) -> Any:
    """It, or of an error what it says."""
    if isinstance(outcome, list):
        return [*map(_shown, outcome)]
    return f"{type(outcome).__name__}: {outcome}" if isinstance(outcome, BaseException) else outcome


class Walker:
    """A worker that walks when it is asked to, also in a forked child."""

    def __init__(self, *clients: Any) -> None:
        self._clients = Clients(*clients)

    def walk(self) -> Walk:
        return walk(self._clients, "worker")

    def walk_in_child(self) -> Walk:
        return in_child(lambda: walk(self._clients, "child"))
