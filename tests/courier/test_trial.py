"""Trial runs: which methods may have to wait for others, though they did not this time."""

from __future__ import annotations

import colorsys
import concurrent.futures
import cProfile
import importlib
import os
import pickle
import queue
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from launchpad.courier.local import pace
from launchpad.courier.local.trial import Trial
from launchpad.courier.protocol import wire
from launchpad.courier.servers.methods import Methods
from launchpad.courier.values import codec
from tests.courier.conftest import Connect, Serve


class Things:
    """What methods use; nothing of it has to be waited for just now."""

    def __init__(self, stack: ExitStack) -> None:
        self.table = {"key": 1}
        self.lock, self.rlock = threading.Lock(), threading.RLock()
        self.condition, self.semaphore = threading.Condition(), threading.Semaphore()
        self.event = threading.Event()
        self.event.set()
        self.queue: queue.Queue[int] = queue.Queue()
        self.queue.put(1)
        self.simple_queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.simple_queue.put(1)
        self.future: concurrent.futures.Future[int] = concurrent.futures.Future()
        self.future.set_result(1)
        self.ours, self.theirs = socket.socketpair()
        stack.callback(self.ours.close)
        stack.callback(self.theirs.close)
        self.theirs.send(b"waiting to be read")

    def look_up_with_a_lock(self) -> int:
        with self.lock, self.rlock:
            return self.table["key"]

    def enter_a_condition(self) -> int:
        with self.condition:
            return self.table["key"]

    def enter_a_semaphore(self) -> int:
        with self.semaphore:
            return self.table["key"]

    def acquire_a_lock(self) -> None:
        self.lock.acquire()
        self.lock.release()

    def join_a_thread(self) -> None:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()


@pytest.fixture
def things() -> Iterator[Things]:
    with ExitStack() as stack:
        yield Things(stack)


def import_anew() -> str:
    sys.modules.pop("this_is_imported_late", None)
    with pytest.raises(ImportError):
        __import__("this_is_imported_late")
    return importlib.reload(colorsys).__name__


def trial_of(method: Callable[[], Any]) -> Trial:
    methods = Methods("server", "inproc:here")
    methods.bind("method", method)
    trial = Trial()
    trial.run(methods.answer, b"method", pickle.dumps(((), {})), ())
    return trial


HARMLESS: dict[str, Callable[[Things], Callable[[], Any]]] = {
    "a look at a dict": lambda things: lambda: things.table.get("key"),
    "a lock around it": lambda things: things.look_up_with_a_lock,
    "setting an event": lambda things: things.event.set,
    "looking at an event": lambda things: things.event.is_set,
    "the size of a queue": lambda things: things.queue.qsize,
    "who am I": lambda things: lambda: threading.current_thread().name,
    "importing": lambda things: import_anew,
    "an error": lambda things: lambda: things.table["no such key"],
    "printing": lambda things: lambda: print("harmless"),
}

WAITING: dict[str, Callable[[Things], Callable[[], Any]]] = {
    "a queue": lambda things: things.queue.get,
    "a queue, inside": lambda things: lambda: things.queue.get(),
    "a queue written in C": lambda things: things.simple_queue.get,
    "a condition": lambda things: things.enter_a_condition,
    "an event": lambda things: things.event.wait,
    "a semaphore": lambda things: things.enter_a_semaphore,
    "acquiring a lock": lambda things: things.acquire_a_lock,
    "a thread": lambda things: things.join_a_thread,
    "a future": lambda things: things.future.result,
    "a socket": lambda things: lambda: things.ours.recv(1),
    "many sockets": lambda things: lambda: select.select([things.ours], [], [], 0),
    "a descriptor": lambda things: lambda: os.read(things.ours.fileno(), 1),
    "a moment": lambda things: lambda: time.sleep(0),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_a_method_that_waits_for_nobody_may_become_quick(things: Things, what: str) -> None:
    trial = trial_of(HARMLESS[what](things))

    assert trial.is_valid
    assert not trial.may_wait


@pytest.mark.parametrize("what", WAITING)
def test_a_method_that_may_have_to_wait_is_told_by_a_run_in_which_it_did_not(
    things: Things, what: str
) -> None:
    assert trial_of(WAITING[what](things)).may_wait


def test_a_method_that_calls_another_server_may_be_quick(serve: Serve, connect: Connect, address):
    serve(address, echo=lambda value: value)
    client = connect(address)

    assert not trial_of(lambda: client.echo(1)).may_wait


def test_endless_recursion_in_a_trial_is_a_recursion_error() -> None:
    methods = Methods("server", "inproc:here")

    def recurse() -> None:
        recurse()

    methods.bind("recurse", recurse)
    trial = Trial()

    kind, body, _ = trial.run(methods.answer, b"recurse", pickle.dumps(((), {})), ())

    assert kind == wire.ERROR
    assert codec.describe_error(body)[0] == "RecursionError"
    assert trial.may_wait
    assert sys.getprofile() is None


def test_nothing_is_watched_after_the_trial_nor_where_somebody_else_watches(things: Things) -> None:
    trial_of(things.queue.get)
    after = sys.getprofile()

    with cProfile.Profile():
        trial = trial_of(lambda: things.table.get("key"))

    assert after is None
    assert not trial.is_valid or sys.version_info >= (3, 12)  # which profiles in another way


def test_a_method_that_may_wait_stays_with_the_threads_of_its_server(
    serve: Serve, connect: Connect, short_directory
) -> None:
    numbers: queue.Queue[int] = queue.Queue()

    def get() -> int:
        numbers.get()
        return threading.get_ident()

    server = serve(f"inproc:{short_directory}/s", get=get)
    client = connect(server.address)
    for i in range(3 * pace.FIRST_RUNS):
        numbers.put(i)

    threads = {client.get() for _ in range(3 * pace.FIRST_RUNS)}

    assert threading.get_ident() not in threads


def test_a_method_is_on_trial_for_its_first_runs_and_for_the_last_ones_of_a_bad_time() -> None:
    paces = pace.Paces()
    on_trial = []

    for _ in range(pace.FIRST_RUNS):
        on_trial.append(paces.is_on_trial(b"m"))
        paces.note(b"m", 0.0)
    quick = paces.is_on_trial(b"m")
    paces.distrust(b"m", 2 * pace.QUICK_S)
    n_untried = 0
    while not paces.is_on_trial(b"m"):
        paces.note(b"m", 0.0)
        n_untried += 1

    assert on_trial == [True] * pace.FIRST_RUNS
    assert not quick
    assert n_untried == pace.RUNS_AFTER_SLOW - pace.FIRST_RUNS
