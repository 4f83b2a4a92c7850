"""Interruptions: where `Stopped` strikes, and where it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from launchpad import courier
from launchpad.courier.local import visit
from launchpad.errors import Stopped
from launchpad.interruption import Interruption, raise_in

DEADLINE_S = 20.0


class Table:
    """What must never be half changed: two entries that are always equal."""

    def __init__(self) -> None:
        self.left = self.right = 0
        self.entered = threading.Event()
        self.may_go_on = threading.Event()

    def change(self) -> int:
        self.left += 1
        self.entered.set()
        while not self.may_go_on.is_set():
            pass  # a place where an exception would strike
        self.right += 1
        return threading.get_ident()


@contextmanager
def served(table: Table) -> Iterator[courier.Client[Any]]:
    """A client of a table that is known to be quick."""
    server = courier.Server("table", address="inproc:test_interruption")
    server.bind_object(table)
    server.start()
    assert server._house is not None
    try:
        with courier.Client[Any](server.address) as client:
            courier.list_methods(client)  # greets
            server._house.paces.quick.add(b"change")
            yield client
    finally:
        server.stop()


class Worker:
    """A thread that may be interrupted while it is in `run`."""

    def __init__(self, run: Callable[[Interruption], Any]) -> None:
        self.interruption = Interruption(lambda: raise_in(self.thread))
        self.guard_afterwards: object = "unknown"
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
        self.guard_afterwards = visit.this_thread().guard


@pytest.fixture
def table() -> Iterator[Table]:
    table = Table()
    yield table
    table.may_go_on.set()


def test_stopped_waits_until_a_visit_has_ended_and_strikes_then(table: Table) -> None:
    threads: list[int] = []
    went_on: list[bool] = []

    with served(table) as client:

        def run(_: Interruption) -> None:
            threads.append(threading.get_ident())
            client.change()
            went_on.append(True)

        worker = Worker(run)
        assert table.entered.wait(DEADLINE_S)
        worker.interruption.ask()
        table.may_go_on.set()
        worker.thread.join(DEADLINE_S)

    assert isinstance(worker.error, Stopped)
    assert (table.left, table.right) == (1, 1)
    assert went_on == []
    assert worker.guard_afterwards is None


def test_a_visit_that_nobody_interrupts_returns_to_where_interruptions_are_allowed(
    table: Table,
) -> None:
    table.may_go_on.set()
    visited: list[bool] = []
    reached = threading.Event()

    with served(table) as client:

        def run(_: Interruption) -> None:
            visited.append(client.change() == threading.get_ident())
            reached.set()
            while True:
                pass

        worker = Worker(run)
        assert reached.wait(DEADLINE_S)
        worker.interruption.ask()
        worker.thread.join(DEADLINE_S)

    assert visited == [True]
    assert isinstance(worker.error, Stopped)


def test_a_visit_where_interruptions_are_forbidden_leaves_them_forbidden(table: Table) -> None:
    table.may_go_on.set()
    went_on: list[bool] = []

    with served(table) as client:

        def run(interruption: Interruption) -> None:
            with interruption.forbidden():
                client.change()
                interruption.ask()
                went_on.append(True)

        worker = Worker(run)
        worker.thread.join(DEADLINE_S)

    assert went_on == [True]
    assert isinstance(worker.error, Stopped)


def test_threads_that_no_interruption_reaches_have_no_guard() -> None:
    guards: list[object] = []
    interruption = Interruption()

    with interruption.allowed():
        thread = threading.Thread(target=lambda: guards.append(visit.this_thread().guard))
        thread.start()
        thread.join(DEADLINE_S)

    assert guards == [None]
