"""Pool: an executor over a group of workers; its thread is in `pool_thread.py`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from launchpad.courier import Client, fork
from launchpad.courier.checks import is_whole
from launchpad.courier.client.future import CourierFuture
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.interruptions import Lock
from launchpad.pools import map_results
from launchpad.pools.function import PoolFunction, PoolFunctions
from launchpad.pools.map_results import MapFeed
from launchpad.pools.packing import Call, pack_call
from launchpad.pools.pool_thread import PoolThread
from launchpad.pools.schedule import CallChunk, MapCalls

P = ParamSpec("P")
R = TypeVar("R")

_LEAST_AHEAD = 64


def pool(workers: Iterable[Any], *, idempotent: bool = False) -> Pool:
    """An executor that runs functions on the workers of a group: `concurrent.futures`, on any backend.

    Example:
        program = lp.Program("sweep")
        with program.group("worker", restart=lp.RestartPolicy()):
          for _ in range(8):
            program.add_node(lp.PoolNode())

        with lp.launch(program, "local_mp") as running:
          with lp.pool(running.clients("worker")) as pool:
            scores = list(pool.map(evaluate, range(1000)))

    In a node it is `lp.pool(workers)`, with the list of handles that the node was given. See `Pool`.

    Args:
        workers: Clients of `lp.PoolNode`s. Several pools may share them.
        idempotent: All functions may run twice. Else those with `@lp.idempotent` may.

    Raises:
        TypeError, ValueError: no list of clients, or an empty one.
    """
    clients = tuple(workers)
    if not clients:
        raise ValueError("a pool needs at least one worker, and was given none")
    for client in clients:
        if not isinstance(client, Client):
            raise TypeError(
                f"lp.pool takes clients of lp.PoolNode, and {client!r} is none. A handle turns into a client"
                " when the program runs: make the pool inside the node that the handles were given to; in the"
                " launching script, lp.pool(running.clients('worker'))."
            )
    return Pool(clients, idempotent)


class Pool(Executor):
    """Runs functions on workers; made by `lp.pool`. A `concurrent.futures.Executor`, safe from any thread.

    Example:
        with lp.pool(self._workers) as pool:
          future = pool.submit(simulate, seed=3)
          for score in pool.map(evaluate, candidates):     # in order; sent in chunks
            print(score)
          print(future.result())

    Functions, lambdas and closures travel by value, once to each worker; what a `functools.partial` has for
    arguments is made anew for each call. A coroutine function is run to its end. An exception arrives as its
    own type, with the remote traceback. A worker gets more when it is free.

    A worker that ends: what it had not begun is run by another. What it may have begun is run again only if
    the function is declared to be idempotent; else its future raises `courier.OutcomeUnknown`. A worker that
    is started again takes part again. When all are gone for good, futures raise `courier.WorkerFailed`; when
    the program stops, `lp.Stopped`.

    `cancel()` works for what was not sent; `running()` is true of what was.
    """

    def __init__(self, clients: Iterable[Client[Any]], idempotent: bool) -> None:
        self._functions = PoolFunctions(idempotent)
        self._lock = fork.free_in_child(Lock())
        self._thread = PoolThread(clients)
        weakref.finalize(self, self._thread.shut, cancels=False).atexit = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Runs `fn(*args, **kwargs)` on one of the workers, with the arguments as they are now.

        Raises:
            RuntimeError: the pool is shut down.
            Stopped: the program stops.
            Exception: what pickling the function raised; the future has what pickling an argument raised.
        """
        future: Future[R] = CourierFuture()
        function = self._find(fn)
        try:
            call = pack_call(args, kwargs)
        except Exception as error:
            future.set_running_or_notify_cancel()
            future.set_exception(error)
        else:
            self._thread.add(CallChunk(function, [call], future))
        return future

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[R]:
        """`fn` of each, side by side; the results in order.

        The function is pickled once. Iterables that have a length are read at once; of others, so few
        are read ahead of the results that are taken that workers have enough to do: one may be endless.

        Args:
            timeout: Seconds from now on, after which the iterator raises TimeoutError.
            chunksize: How many calls a worker gets at once. By default as many as take 20 ms, by how long
                they have taken so far.
            buffersize: How many calls at most are under way, or have results that were not taken.

        Raises:
            ValueError: `chunksize` or `buffersize` is less than 1.
            RuntimeError, Stopped, Exception: as `submit`; the iterator raises the error of the first call
                that fails, or of the iterables, after the results before it. Then calls that were not sent
                are dropped.
        """
        for name, number in (("chunksize", chunksize), ("buffersize", buffersize)):
            if number is not None and not is_whole(number, at_least=1):
                raise ValueError(f"{name} is a whole number of 1 or more, not {number!r}")
        deadline = deadline_after(timeout)
        function = self._find(fn)
        work = MapCalls(function, chunksize)
        calls: Iterable[Call] = (pack_call(args, {}) for args in zip(*iterables, strict=False))
        is_finite = any(isinstance(iterable, Sized) for iterable in iterables)

        def ahead() -> float:
            if buffersize is not None:
                return buffersize
            schedule = self._thread.schedule  # an iteration keeps the pool
            n = chunksize or schedule.frame_calls(function)
            return float("inf") if is_finite else max(_LEAST_AHEAD, 4 * n * schedule.slots)

        feed = MapFeed(work, calls, ahead, self._thread.feed)
        feed.fill()
        if feed.error is not None and not feed.n_open:
            raise feed.error
        return map_results.taken(feed, timeout, deadline, self._thread.drop)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more work, and waits until all is done; the workers stay.

        Args:
            wait: Whether to wait.
            cancel_futures: Whether what was not sent is cancelled.
        """
        self._thread.shut(cancels=cancel_futures)
        if wait:
            self._thread.join()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Waits until all is done; where the block has raised, what was not sent is cancelled before."""
        self.shutdown(cancel_futures=kind is not None)

    def __repr__(self) -> str:
        return f"<Pool of {[member.name for member in self._thread.schedule.members]}>"

    def _find(self, fn: Callable[..., Any]) -> PoolFunction:
        self._thread.refuse_if_over()
        with self._lock:
            return self._functions.find(fn)
