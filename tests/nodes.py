"""The nodes that tests run. A module of its own, so that workers import it and not pytest."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import queue
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import launchpad as lp


class Counter:
    """Serves; has no run."""

    def __init__(self, start: int = 0) -> None:
        self.value = start

    def add(self, amount: int = 1) -> int:
        self.value += amount
        return self.value

    def echo(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return args, kwargs

    def mutate(self, items: list[Any]) -> list[Any]:
        items.append("changed by the server")
        return items

    def fail(self, text: str = "boom") -> None:
        raise ValueError(text)

    def whoami(self) -> dict[str, Any]:
        me = lp.current()
        return {
            "name": me.name,
            "label": me.label,
            "replica_index": me.replica_index,
            "num_replicas": me.num_replicas,
            "attempt": me.attempt,
            "seed": me.seed,
            "launch_type": me.launch_type,
            "pid": os.getpid(),
        }

    def whoami_in_a_thread(self) -> str:
        names: list[str] = []
        thread = threading.Thread(target=lambda: names.append(lp.current().name))
        thread.start()
        thread.join()
        return names[0]

    def stop_the_program(self) -> None:
        lp.stop()

    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    def kill_self(self, number: int = signal.SIGKILL) -> None:
        os.kill(os.getpid(), number)

    @property
    def trap(self) -> None:
        raise AssertionError("a property was evaluated")

    def _hidden(self) -> None: ...


class Numbers:
    """A queue of `n` numbers; whoever asks for one more waits, longer than a stop may take."""

    def __init__(self, n: int) -> None:
        self._queue: queue.Queue[int] = queue.Queue()
        for i in range(n):
            self._queue.put(i)

    def take(self) -> int:
        return self._queue.get(timeout=5)

    def n_left(self) -> int:
        return self._queue.qsize()


class Taker:
    """Takes numbers until there are none."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def run(self) -> None:
        while True:
            self._numbers.take()


class Namesake:
    """Says and prints whose worker it runs in."""

    def name(self) -> str:
        print(f"asked {lp.current().name}")
        return lp.current().name


class Asker:
    """Asks a server for its name again and again."""

    def __init__(self, server: Namesake, times: int) -> None:
        self._server, self._times = server, times

    def run(self) -> None:
        names = {self._server.name() for _ in range(self._times)}
        print("all said", *names)


class Caller:
    """Calls a counter once from run()."""

    def __init__(self, counter: Any, times: int = 1) -> None:
        self.counter, self.times = counter, times

    def run(self) -> None:
        for _ in range(self.times):
            self.counter.add()
        print(f"{lp.current().name} counted", flush=True)


class Loop:
    """Runs until it is told to stop, and looks for it."""

    def run(self) -> None:
        stop = lp.stop_event()  # before it says that it runs: who has not asked is interrupted
        print("looping", flush=True)
        stop.wait()
        print("stopped in good order", flush=True)


class ServesBriefly:
    """Serves until its run() is over, which is soon."""

    def ping(self) -> str:
        return "pong"

    def run(self) -> None: ...


class StopHandler:
    """Has something to say when the program stops."""

    def register(self) -> None:
        lp.register_stop_handler(lambda: print(lp.current().name, "handles the stop", flush=True))

    def close(self) -> None:
        print(lp.current().name, "is closed", flush=True)


class Pings:
    """Calls a server again and again."""

    def __init__(self, server: Any) -> None:
        self.server = server

    def run(self) -> None:
        while True:
            self.server.ping()


class DeafLoop:
    """Runs for ever and never asks about stopping."""

    def run(self) -> None:
        try:
            print("deaf", flush=True)
            while True:
                time.sleep(0.01)
        finally:
            print("unwound", flush=True)


class BuiltWhenStopped:
    """Its constructor asks about stopping, and returns only then."""

    def __init__(self) -> None:
        lp.wait_for_stop()

    def ping(self) -> str:
        return "pong"


class BadHandler:
    """Registers a stop handler that raises, and one that does not."""

    def __init__(self) -> None:
        lp.register_stop_handler(self.fail)
        lp.register_stop_handler(lambda: print("the second was called", flush=True))

    def fail(self) -> None:
        raise ValueError("the first handler")

    def ping(self) -> str:
        return "pong"


class EndsWithABadHandler(BadHandler):
    """The same, and ends by itself."""

    def run(self) -> None: ...


class FailsInInit:
    def __init__(self, after_s: float = 0.0) -> None:
        time.sleep(after_s)
        raise RuntimeError("no constructor for you")

    def run(self) -> None: ...


class FailsInRun:
    def __init__(self, after: Any = None) -> None:
        self.after = after

    def run(self) -> None:
        if self.after is not None:
            self.after.add()
        raise ValueError("it broke")


class StartsLate:
    """Serves only once its constructor is through, at about `ready_at` (time.monotonic)."""

    def __init__(self, delay_s: float) -> None:
        time.sleep(delay_s)
        self.ready_at = time.monotonic()

    def when(self) -> float:
        return self.ready_at


class CallsInDeferred:
    """Is given what a Deferred answered, which calls another node."""

    def __init__(self, answer: int) -> None:
        self.answer = answer

    def add(self, amount: int = 1) -> int:
        return amount


class CallsInInit:
    """Calls another node while it is itself being built."""

    def __init__(self, other: Any) -> None:
        self.answer = other.add()

    def add(self, amount: int = 1) -> int:
        return amount


class TwoArguments(Exception):
    """Pickles, but does not unpickle: it says that one value makes it, and its constructor wants two."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")

    def __reduce__(self) -> tuple[type[TwoArguments], tuple[object, ...]]:
        return TwoArguments, self.args


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class Thrower:
    """Raises and returns what is hard to send."""

    def recurse(self) -> int:
        return self.recurse() + 1

    def return_a_lock(self) -> Any:
        return threading.Lock()

    def raise_unpicklable(self) -> None:
        raise Unpicklable

    def raise_two_arguments(self) -> None:
        raise TwoArguments("this", "that")

    def raise_long(self) -> None:
        raise ValueError("x" * 200_000 + "END")

    def exit(self) -> None:
        sys.exit(3)

    def ping(self) -> str:
        return "pong"


class Relay:
    """Calls the next one, which may call back: chains and rings of blocking calls."""

    def __init__(self, next_one: Any) -> None:
        self.next_one = next_one

    def relay(self, hops: int) -> int:
        return 0 if hops == 0 else 1 + int(self.next_one.relay(hops - 1))


class Mailbox:
    """Its run() and its async methods share what belongs to one event loop."""

    def __init__(self) -> None:
        self.letters: asyncio.Queue[str] = asyncio.Queue()

    async def put(self, letter: str) -> None:
        await self.letters.put(letter)

    async def run(self) -> None:
        for _ in range(3):
            print(f"{lp.current().name} has {await self.letters.get()}", flush=True)


async def post(mailbox: Any) -> None:
    for letter in "abc":
        await asyncio.sleep(0)
        mailbox.put(letter)


class AsyncLoop:
    async def run(self) -> None:
        try:
            print("begun", flush=True)
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0)
            print("cleaned up", flush=True)


async def fail_later() -> None:
    await asyncio.sleep(0)
    raise ValueError("it broke")


def answer_of(counter: Any) -> int:
    return int(counter.add())


def loop_for_ever() -> None:
    """Never asks about stopping, and says when it is reached."""
    print("looping", flush=True)
    while True:
        time.sleep(0.01)


def lose_a_lock() -> None:
    """Runs for ever; what interrupts it is hidden, as by a condition that is about to take its lock."""
    print("looping", flush=True)
    try:
        while True:
            time.sleep(0.01)
    finally:
        threading.Lock().release()


def fail_with(kind: type[Exception], text: str, server: object) -> None:
    error = kind(text)
    error.server = server  # type: ignore[attr-defined]
    raise error


def add_once(counter: Any) -> None:
    counter.add()


def call(server: Any, method: str) -> None:
    getattr(server, method)()


def print_many(lines: int) -> None:
    me = lp.current()
    for i in range(lines):
        print(f"{me.name} line {i}")
    print("to stderr", file=sys.stderr)
    sys.stdout.write("no newline at the end")


def fail_at_once(text: str = "it broke") -> None:
    raise ValueError(text)


def fail_once(directory: str) -> None:
    """Fails at the first attempt only."""
    marker = Path(directory) / "tried"
    if not marker.exists():
        marker.touch()
        raise ValueError("the first attempt fails")


def stop_from_a_thread(reason: Any) -> None:
    thread = threading.Thread(target=lp.stop, args=(reason,))
    thread.start()
    thread.join()
    lp.wait_for_stop(30)


def sleep_for_ever() -> None:
    threading.Event().wait()


def exit_with(code: int) -> None:
    sys.exit(code)


def leave_work(kind: str, takes_s: float) -> None:
    """Returns at once, and leaves work that Python waits for; "saved" is printed at its end."""

    def save() -> None:
        time.sleep(takes_s)
        print("saved", flush=True)

    if kind == "thread":
        threading.Thread(target=save, name="saver").start()
    elif kind == "executor":
        concurrent.futures.ThreadPoolExecutor(1, "saver").submit(save)
    else:
        atexit.register(save)


class Waiter:
    """A server with a method that is still at work when the worker stops."""

    def __init__(self) -> None:
        self._calls = 0

    def wait(self) -> None:
        self._calls += 1
        lp.stop_event().wait()
        threading.Event().wait(3)

    def number_of_calls(self) -> int:
        return self._calls


def warns(text: str) -> str:
    """The category that the warning was raised as."""
    try:
        warnings.warn(text, UserWarning, stacklevel=1)
    except UserWarning:
        return "raised"
    return "shown"


class Interpreter:
    """Tells of the interpreter that it runs in."""

    def hash_of(self, text: str) -> int:
        return hash(text)

    def settings(self) -> dict[str, Any]:
        logging.getLogger("here").info("this is at level INFO")
        return {
            "recursion limit": sys.getrecursionlimit(),
            "log level": logging.getLogger().level,
            "warning": warns("sound 18"),
            "another": warns("something else"),
            "asserts": __debug__,
        }


def print_hash_and_fail_once() -> None:
    print(f"<{hash('word')}>", flush=True)
    if lp.current().attempt == 1:
        raise ValueError("the first attempt")
    lp.wait_for_stop()
