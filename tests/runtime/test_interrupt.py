"""Interruptions: where `Stopped` strikes, and where it waits."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier.interruptions import kept_whole
from launchpad.errors import Stopped
from launchpad.runtime.interrupt import Interruption, interrupt_thread
from tests.waiting import until

DEADLINE_S = 20.0


class Worker:
    """A thread that may be interrupted while it is in `run`."""

    def __init__(self, run: Callable[[Interruption], Any]) -> None:
        self.interruption = Interruption(lambda: interrupt_thread(self.thread))
        self.error: BaseException | None = None
        self._run = run
        self.thread = threading.Thread(target=self._main)
        self.thread.start()

    def _main(self) -> None:
        try:
            with self.interruption.allowed():
                self._run(self.interruption)
        except BaseException as error:
            self.error = error


def test_a_worker_that_waits_for_a_call_is_interrupted_and_the_method_runs_to_its_end() -> None:
    entered, may_go_on, ended = (threading.Event() for _ in range(3))
    went_on: list[bool] = []

    def change() -> None:
        entered.set()
        may_go_on.wait(DEADLINE_S)
        ended.set()

    server = courier.Server("table", address="inproc:test_interrupt")
    server.bind("change", change)
    server.start()
    with courier.Client[Any](server.address) as client:

        def run(_: Interruption) -> None:
            client.change()
            went_on.append(True)

        worker = Worker(run)
        assert entered.wait(DEADLINE_S)
        worker.interruption.request()
        worker.thread.join(DEADLINE_S)
        may_go_on.set()
        assert ended.wait(DEADLINE_S)
    server.stop()

    assert isinstance(worker.error, Stopped)
    assert went_on == []


def test_an_interruption_that_is_forbidden_comes_when_it_is_allowed_again() -> None:
    went_on: list[bool] = []

    def run(interruption: Interruption) -> None:
        with interruption.forbidden():
            interruption.request()
            went_on.append(True)
        went_on.append(False)

    worker = Worker(run)
    worker.thread.join(DEADLINE_S)

    assert went_on == [True]
    assert isinstance(worker.error, Stopped)


def test_no_lock_stays_locked_that_a_worker_was_about_to_enter() -> None:
    for _ in range(5):
        lock = threading.Lock()
        workers = [Worker(lambda _, lock=lock: contend_for(lock)) for _ in range(2)]

        for worker in workers:
            worker.interruption.request()
        for worker in workers:
            worker.thread.join(DEADLINE_S)

        assert not lock.locked()
        assert all(isinstance(worker.error, Stopped) for worker in workers)


def contend_for(lock: threading.Lock) -> None:
    while True:
        with lock:
            sum(range(50))


def test_a_function_that_is_kept_whole_is_interrupted_when_it_has_ended() -> None:
    has_begun = threading.Event()
    may_end = threading.Event()
    has_ended: list[bool] = []

    @kept_whole
    def open_something() -> None:
        has_begun.set()
        while not may_end.wait(0.001):
            pass
        has_ended.append(True)

    def run(_: Interruption) -> None:
        open_something()
        while True:
            may_end.wait(0.001)

    worker = Worker(run)
    assert has_begun.wait(DEADLINE_S)
    stops = threading.Thread(target=worker.interruption.request)
    stops.start()
    until(lambda: has_looked_where_the_worker_is(stops) or not stops.is_alive())

    may_end.set()
    stops.join(DEADLINE_S)
    worker.thread.join(DEADLINE_S)

    assert has_ended == [True]
    assert isinstance(worker.error, Stopped)


def has_looked_where_the_worker_is(stops: threading.Thread) -> bool:
    """True once `raise_in` has looked, and has not raised yet."""
    frame = sys._current_frames().get(stops.ident or 0)
    while frame is not None and frame.f_code.co_name != "raise_in":
        frame = frame.f_back
    return frame is not None and frame.f_locals.get("place") is not None


def test_no_thread_is_left_of_an_interruption_when_the_code_that_it_was_for_has_been_left() -> None:
    early = Interruption()
    early.request()
    late = Interruption()

    with pytest.raises(Stopped), early.allowed():
        raise AssertionError
    with late.allowed():
        late.request()

    until(lambda: "launchpad-interrupt" not in [each.name for each in threading.enumerate()])
