"""A test of exceptions that signal handlers raise at random moments of calls, streams, queues, collectives.

    python benchmarks/interrupts.py [--exceptions=10000] [--seed=0]

After each exception three things must hold: the interrupted code got the exception, every future ends, and
every client can still be used. The script prints a line for each kind of work. It exits with 1 if something
does not hold.
"""

from __future__ import annotations

import contextlib
import faulthandler
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.programs import replicas, run
from launchpad import courier

LIMIT_S = 20.0  # for things that must end by themselves
LARGE = np.arange(1 << 16, dtype=np.float32)  # large enough to travel in shared memory

Work = Callable[[Any, list["Future[Any]"]], object]


class Interrupt(BaseException):
    """An exception like KeyboardInterrupt: launchpad raises it later where Python would drop it."""


class Alarm(Exception):
    """An exception like that of a handler that limits the time of a test."""


class AlarmTimeoutError(TimeoutError):
    """An OSError, which sockets raise as well; but this one comes from the handler."""


class Interrupter:
    """A signal handler that raises at most one exception, at a random moment of a block."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._is_armed = False
        signal.signal(signal.SIGALRM, self._on_alarm)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self._is_armed:
            self._is_armed = False
            raise self._random.choice((Interrupt, Alarm, AlarmTimeoutError))("interrupted")

    def run(self, work: Callable[[], object], longest_s: float) -> bool:
        """Do the work; return True if it was interrupted."""
        try:
            self._is_armed = True
            signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-5, longest_s))
            try:
                work()
            finally:
                # The alarm may still come before the timer is off. Then it must not raise, because
                # the exception would leave this method.
                self._is_armed = False
        except (Interrupt, Alarm, AlarmTimeoutError):
            return True
        except courier.CourierError:
            return False  # a consequence of an earlier interruption
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return False


def make_calls(client: Any, _: list[Future[Any]]) -> None:
    for i in range(100):
        assert client.echo(i) == i


def make_futures(client: Any, futures: list[Future[Any]]) -> None:
    for i in range(400):
        futures.append(client.futures.echo(i))


def wait_for_results(client: Any, futures: list[Future[Any]]) -> None:
    for i in range(100):
        future = client.futures.echo(i)
        futures.append(future)
        assert future.result() == i


def add_callbacks(client: Any, futures: list[Future[Any]]) -> None:
    for i in range(100):
        future = client.futures.echo([i])
        futures.append(future)
        future.add_done_callback(lambda future: None)
    for future in futures:
        assert future.exception() is None


def make_late_futures(client: Any, futures: list[Future[Any]]) -> None:
    client = client.with_options(timeout_s=60)
    for i in range(100):
        futures.append(client.futures.echo(i))
    for future in futures:
        future.result()


def read_streams(client: Any, futures: list[Future[Any]]) -> None:
    for _ in range(5):
        assert list(client.count(300)) == list(range(300))


def send_streams(client: Any, futures: list[Future[Any]]) -> None:
    for _ in range(5):
        futures.append(client.futures.total(iter(range(50))))
        assert client.total(iter(range(100))) == 4950


def send_large_arrays(client: Any, futures: list[Future[Any]]) -> None:
    for _ in range(5):
        assert client.echo(LARGE)[-1] == LARGE[-1]
        futures.append(client.futures.echo(LARGE))
        futures.append(client.futures.echo(LARGE))
        futures[-1].result()


WORK: dict[str, tuple[Work, float]] = {
    "calls": (make_calls, 0.01),
    "futures": (make_futures, 0.005),
    "results": (wait_for_results, 0.01),
    "callbacks": (add_callbacks, 0.01),
    "late futures": (make_late_futures, 0.01),
    "streams": (read_streams, 0.02),
    "argument streams": (send_streams, 0.02),
    "large arrays": (send_large_arrays, 0.02),
}


def check(client: Any, futures: list[Future[Any]]) -> Counter[str]:
    """Check that all futures end and that the client works in each way; return how the futures ended."""
    ends: Counter[str] = Counter()
    for future in futures:
        try:
            future.result(LIMIT_S)
            ends["ended well"] += 1
        except CancelledError:
            ends["cancelled"] += 1
        except courier.CourierError as error:
            ends[type(error).__name__] += 1
        except (Interrupt, Alarm, AlarmTimeoutError) as error:
            raise AssertionError(
                "the exception of a signal handler became that of a future"
            ) from error
    assert client.echo(1) == 1
    assert client.futures.echo(2).result(LIMIT_S) == 2
    assert sum(client.count(100)) == 4950
    assert client.total(iter(range(10))) == 45
    assert client.futures.echo(LARGE).result(LIMIT_S)[1] == LARGE[1]
    return ends


@contextlib.contextmanager
def echo_server(address: str) -> Iterator[Any]:
    server = courier.Server("echo", address=address)
    server.bind("echo", lambda value: value)
    server.bind("count", lambda n: iter(range(n)))
    server.bind("total", lambda items: sum(items))
    server.start()
    client = courier.Client(address, call_timeout=None)
    try:
        yield client
    finally:
        courier.close(client)
        server.stop()


def interrupt_calls(address: str, n: int, interrupter: Interrupter, kinds: list[str]) -> None:
    with echo_server(address) as client:
        for name in kinds:
            work, longest_s = WORK[name]
            n_interrupted = 0
            ends: Counter[str] = Counter()
            while n_interrupted < n:
                futures: list[Future[Any]] = []
                faulthandler.dump_traceback_later(3 * LIMIT_S, exit=True)
                n_interrupted += interrupter.run(partial(work, client, futures), longest_s)
                ends += check(client, futures)
            print(
                f"{address.partition(':')[0]}: {name}: {n_interrupted} exceptions; futures: {dict(ends)}",
                flush=True,
            )


def interrupt_queues(n: int, interrupter: Interrupter, launch_type: str) -> None:
    program = lp.Program("interrupts")
    program.add_node(lp.QueueNode(maxsize=1000), label="queue")
    program.add_node(lp.CounterNode(), label="counter")
    program.add_node(lp.WorkQueueNode(), label="work")
    with lp.launch(program, launch_type) as running:
        queue: Any = running.client("queue")
        counter: Any = running.client("counter")
        work: Any = running.client("work")

        def use_all() -> None:
            for i in range(5):
                queue.put(i)
                counter.increment(steps=1)
                work.add(i, key=next(keys))
                queue.get(timeout_s=LIMIT_S)
                work.take(LIMIT_S).done(i)

        keys = iter(range(1 << 60))
        n_interrupted = 0
        while n_interrupted < n:
            faulthandler.dump_traceback_later(3 * LIMIT_S, exit=True)
            n_interrupted += interrupter.run(use_all, 0.01)
            with contextlib.suppress(TimeoutError):
                while True:
                    work.take(0.0001).done(None)
            use_all()
        print(f"{launch_type}: queues: {n_interrupted} exceptions", flush=True)


class Interrupted(Exception):
    """An exception that ends the attempt of an interrupted rank: the others don't know what it has missed."""


def interrupted_rank(
    group: lp.Collective, counter: lp.Counter, n: int, seed: int
) -> dict[str, float]:
    """Compute with the other rank until all attempts of both have raised `n` exceptions together.

    Return name of an error → the number of attempts that it has ended.
    """
    interrupter = Interrupter(seed + 1000 * group.generation + group.rank)
    while group.broadcast_object(counter.get_counts().get("exceptions", 0)) < n:
        faulthandler.dump_traceback_later(3 * LIMIT_S, exit=True)
        try:
            is_interrupted = interrupter.run(partial(collect, group), 0.02)
        except Exception as error:
            counter.increment(**{type(error).__name__: 1})
            raise
        if is_interrupted:
            counter.increment(exceptions=1)
            raise Interrupted
    return counter.get_counts()


def collect(group: lp.Collective) -> None:
    array = np.ones(1 << 17, np.float32)
    for i in range(20):
        assert group.all_reduce(i) == 2 * i
        assert group.all_reduce(array)[-1] == 2
        assert group.all_gather(i) == [i, i]
        assert group.broadcast(np.full(9, i))[0] == i
        group.barrier()


EXPECTED = {"exceptions", "PeerFailed", "CollectiveMismatch"}
"""The names that are counted: the exceptions, and the errors of the ranks that were not interrupted."""


def interrupt_collectives(n: int, seed: int, launch_type: str) -> None:
    counter = lp.CounterNode()
    rank = partial(
        lp.CollectiveNode, interrupted_rank, counter.create_handle(), n, seed, timeout_s=2 * LIMIT_S
    )
    policy = lp.RestartPolicy(max_restarts=10 * n, within_s=1e6, backoff=0, scope="group")
    program = replicas("rank", 2, rank, policy)
    program.add_node(counter, label="counter")
    errors = run(program, launch_type)["rank"][0]
    assert errors.keys() <= EXPECTED, errors
    print(f"{launch_type}: collectives: {n} exceptions; others: {errors}", flush=True)


def main() -> None:
    args = Parser(
        __doc__,
        exceptions=10_000,
        seed=0,
        kinds=list(WORK),
        transports=["unix", "tcp", "inproc"],
        queues=1,
        collectives=1,
    ).parse_args()
    interrupter = Interrupter(args.seed)
    n_parts = len(args.kinds) * len(args.transports) + args.queues + args.collectives
    n_each = max(1, args.exceptions // n_parts)
    began = time.monotonic()
    addresses = {
        "unix": f"unix:{tempfile.mkdtemp()}/s",
        "tcp": "tcp:127.0.0.1:47391",
        "inproc": "inproc:interrupts",
    }
    for transport in args.transports:
        interrupt_calls(addresses[transport], n_each, interrupter, args.kinds)
    if args.queues:
        interrupt_queues(n_each, interrupter, "local_mp")
    faulthandler.cancel_dump_traceback_later()
    if args.collectives:
        interrupt_collectives(n_each, args.seed, "local_mp")
    print(f"{args.exceptions} exceptions in {time.monotonic() - began:.0f} s; all held")
    finish(args, {})


if __name__ == "__main__":
    main()
