"""The callers of a pair of hosts: `python -m benchmarks.between_hosts.caller ADDRESS`.

Threads and coroutines make calls without a pause, each call with an id of its own, and record when it began,
when it ended and how. The program prints "ready" after its first call. It stops when its input ends, once all
calls have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any, NamedTuple

from benchmarks.between_hosts.server import ITEM_S, RECORD, add_keys
from launchpad import courier
from launchpad.testing import History

FUTURES = 10
COROUTINES = 4
STREAM_ITEMS = 8
PATIENCE_S = 1.0
_PAUSE_S = 0.05

IN_DOUBT = frozenset({"OutcomeUnknown"})
"""The errors that a call without a deadline may end with, if the connection ends while it's in flight."""


class WrongAnswerError(Exception):
    """A call was answered with what belongs to another call."""


class Caller:
    """The client, and the record of its calls."""

    def __init__(self, address: str) -> None:
        self.client = courier.Client[Any](address)
        self.impatient_client = self.client.with_options(timeout_s=PATIENCE_S, wait_for_ready=False)
        self.history = History(RECORD)
        self.is_over = threading.Event()
        self._numbers = itertools.count()

    def new_call(self, lane: str) -> str:
        """Return the id of another call of a lane."""
        return f"{lane}/{next(self._numbers)}"

    @contextlib.contextmanager
    def recorded(self, call: str) -> Iterator[None]:
        """Record the block's call, and end the block at the errors that calls may have."""
        errors = (courier.CourierError, WrongAnswerError)
        with contextlib.suppress(*errors), self.history.call(call):
            yield


# --- one round of each lane


def block(caller: Caller, lane: str) -> None:
    call = caller.new_call(lane)
    with caller.recorded(call):
        check(caller.client.note(call, short()), call)


def use_futures(caller: Caller, lane: str) -> None:
    futures = []
    for _ in range(FUTURES):
        call = caller.new_call(lane)
        futures.append(caller.client.futures.note(call, short()))
        caller.history.follow(call, futures[-1])
    wait(futures)


def use_coroutines(caller: Caller, lane: str) -> None:
    """Make calls in an event loop until all is over."""

    async def call_again_and_again() -> None:
        while not caller.is_over.is_set():
            call = caller.new_call(lane)
            with caller.recorded(call):
                check(await caller.client.aio.note(call, short()), call)

    async def run() -> None:
        await asyncio.gather(*[call_again_and_again() for _ in range(COROUTINES)])

    asyncio.run(run())


def read_stream(caller: Caller, lane: str) -> None:
    call = caller.new_call(lane)
    with caller.recorded(call):
        check(list(caller.client.count(call, STREAM_ITEMS)), list(range(STREAM_ITEMS)))


def send_stream(caller: Caller, lane: str) -> None:
    call = caller.new_call(lane)
    with caller.recorded(call):
        check(caller.client.add(call, slowly(STREAM_ITEMS)), sum(range(STREAM_ITEMS)))


def be_impatient(caller: Caller, lane: str) -> None:
    call = caller.new_call(lane)
    with caller.recorded(call):
        check(caller.impatient_client.note(call, short()), call)
    # A call to a host without a server fails at once.
    time.sleep(_PAUSE_S)


def hold(caller: Caller, lane: str) -> None:
    call = caller.new_call(lane)
    with caller.recorded(call):
        check(caller.client.hold(call), call)


def hold_coroutine(caller: Caller, lane: str) -> None:
    call = caller.new_call(lane)

    async def run() -> None:
        with caller.recorded(call):
            check(await caller.client.aio.hold(call), call)

    asyncio.run(run())


def hold_stream(caller: Caller, lane: str) -> None:
    call = caller.new_call(lane)
    with caller.recorded(call):
        for number, item in enumerate(caller.client.hold_stream(call)):
            check(item, number)


class Lane(NamedTuple):
    """Calls of one kind.

    Attributes:
        act: Makes some calls, and returns when they have ended.
        is_long: True if a call takes longer than a fault. Other calls take a fraction of a second.
        errors: The errors that its calls may end with while the network fails.
    """

    act: Callable[[Caller, str], None]
    is_long: bool = False
    errors: frozenset[str] = IN_DOUBT


_STREAM_ERRORS = IN_DOUBT | {"StreamBroken"}

LANES = {
    "blocking": Lane(block),
    "another thread": Lane(block),
    "futures": Lane(use_futures),
    "coroutines": Lane(use_coroutines),
    "stream": Lane(read_stream, errors=_STREAM_ERRORS),
    "argument stream": Lane(send_stream, errors=_STREAM_ERRORS),
    "impatient": Lane(be_impatient, errors=IN_DOUBT | {"NotSent", "DeadlineExceeded"}),
    "long": Lane(hold, is_long=True),
    "long coroutine": Lane(hold_coroutine, is_long=True),
    "long stream": Lane(hold_stream, is_long=True, errors=_STREAM_ERRORS),
}


def lane_of(call: str) -> Lane:
    """Return the lane of a call with this id."""
    return LANES[call.partition("/")[0]]


def short() -> float:
    """Return the seconds that a short call takes on the server."""
    return random.uniform(0.0, 0.2)


def slowly(n: int) -> Iterator[int]:
    """Make a stream of the numbers below `n`."""
    for number in range(n):
        time.sleep(ITEM_S)
        yield number


def check(answer: object, expected: object) -> None:
    if answer != expected:
        raise WrongAnswerError(f"the answer was {answer!r}, and not {expected!r}")


def repeat(caller: Caller, name: str) -> None:
    """Make calls of a lane until all is over."""
    while not caller.is_over.is_set():
        LANES[name].act(caller, name)


def main() -> None:
    add_keys()
    caller = Caller(sys.argv[1])
    block(caller, "blocking")
    threads = [
        threading.Thread(target=functools.partial(repeat, caller, name), name=name)
        for name in LANES
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    caller.is_over.set()
    caller.client.release()
    for thread in threads:
        thread.join()
    courier.close(caller.client)


if __name__ == "__main__":
    main()
