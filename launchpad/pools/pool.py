"""Pool: an executor that runs calls on a group of workers. Its thread is in `pool_thread.py`."""

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
    """Return a `concurrent.futures` executor that runs functions on a group's workers, on any backend.

    Example:
        program = lp.Program("sweep")
        with program.group("worker", restart=lp.RestartPolicy()):
          for _ in range(8):
            program.add_node(lp.PoolNode())

        with lp.launch(program, "local_mp") as running:
          with lp.pool(running.clients("worker")) as pool:
            scores = list(pool.map(evaluate, range(1000)))

    Inside a node, call `lp.pool(workers)` with the list of handles that the node was given. See `Pool`.

    Args:
        workers: Clients of `lp.PoolNode`s. Several pools may share them.
        idempotent: If True, all functions may run twice. If False, only functions with `@lp.idempotent` may.

    Raises:
        TypeError, ValueError: `workers` is not a list of clients, or it is empty.
    """
    clients = tuple(workers)
    if not clients:
        raise ValueError("a pool needs at least one worker, and was given none")
    for client in clients:
        if not isinstance(client, Client):
            raise TypeError(
                f"lp.pool takes clients of lp.PoolNode, and {client!r} is not one. A handle turns into a"
                " client when the program runs: make the pool inside the node that the handles were given to;"
                " in the launching script, lp.pool(running.clients('worker'))."
            )
    return Pool(clients, idempotent)


class Pool(Executor):
    """A `concurrent.futures.Executor` that runs calls on workers, made by `lp.pool`. Safe from any thread.

    Example:
        with lp.pool(self._workers) as pool:
          future = pool.submit(simulate, seed=3)
          for score in pool.map(evaluate, candidates):     # in order; sent in chunks
            print(score)
          print(future.result())

    Functions, lambdas and closures are sent by value, once to each worker. If a function is a
    `functools.partial`, each call gets new copies of the arguments in it. A worker runs a coroutine function
    to its end. An exception arrives with its own type and the remote traceback. A worker gets more calls when
    it is free.

    If a worker ends, another worker runs the calls that the first one had not begun. Calls that it may have
    begun run again only if their function is declared idempotent; otherwise their futures raise
    `courier.OutcomeUnknown`. A restarted worker takes part again. If all workers are gone for good, futures
    raise `courier.WorkerFailed`. When the program stops, futures raise `lp.Stopped`.

    A future's `cancel()` works until its call is sent. From then on, `running()` is True.
    """

    def __init__(self, clients: Iterable[Client[Any]], idempotent: bool) -> None:
        self._functions = PoolFunctions(idempotent)
        # Two threads that submit the same new function at once must get the same PoolFunction.
        self._lock = fork.free_in_child(Lock())
        self._thread = PoolThread(clients)
        weakref.finalize(self, self._thread.shut, cancels=False).atexit = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run `fn(*args, **kwargs)` on one of the workers, with the current values of the arguments.

        Raises:
            RuntimeError: the pool is shut down.
            Stopped: the program stops.
            Exception: pickling the function has failed. If pickling an argument fails, the future raises the
                error instead.
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
        """Call `fn` with the items of the iterables, in parallel, and return the results in order.

        The function is pickled once. If one of the iterables has a length, all of them are read at once.
        Otherwise they are read only as far ahead of the results as the workers need, so they may be endless.

        Args:
            timeout: Seconds from now after which the iterator raises TimeoutError.
            chunksize: The number of calls that a worker gets at once. By default, it gets as many as take
                20 ms, judging by earlier calls.
            buffersize: The largest number of calls that are under way, or whose results were not taken yet.

        Raises:
            ValueError: `chunksize` or `buffersize` is less than 1.
            RuntimeError, Stopped, Exception: for the same reasons as in `submit`. If a call or an iterable
                raises an error, the iterator first returns the results before it, then raises the error and
                drops the calls that were not sent.
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
            # This reference to `self` keeps the pool alive during the iteration.
            schedule = self._thread.schedule
            n = chunksize or schedule.frame_calls(function)
            return float("inf") if is_finite else max(_LEAST_AHEAD, 4 * n * schedule.slots)

        feed = MapFeed(work, calls, ahead, self._thread.feed)
        feed.fill()
        if feed.error is not None and not feed.n_open:
            raise feed.error
        return map_results.taken(feed, timeout, deadline, self._thread.drop)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and wait until all are done. The workers keep running.

        Args:
            wait: If False, return without waiting.
            cancel_futures: If True, cancel the calls that were not sent.
        """
        self._thread.shut(cancels=cancel_futures)
        if wait:
            self._thread.join()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Shut down the pool, and wait. If the block raised, first cancel the calls that were not sent."""
        self.shutdown(cancel_futures=kind is not None)

    def __repr__(self) -> str:
        return f"<Pool of {[member.name for member in self._thread.schedule.members]}>"

    def _find(self, fn: Callable[..., Any]) -> PoolFunction:
        self._thread.refuse_if_over()
        with self._lock:
            return self._functions.find(fn)
