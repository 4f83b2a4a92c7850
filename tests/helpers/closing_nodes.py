"""Nodes that hold something until the end, and write down when they let go of it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from pathlib import Path

import launchpad as lp


class Journal:
    """A file of lines, to which several may add."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{line}\n")

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


class Closes:
    """Has everything that is called at an end."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        lp.on_exit(journal.add, "of the constructor")

    def add(self, line: str) -> None:
        self.journal.add(line)

    def save(self) -> str:
        self.journal.add("save")
        return "saved"

    def restore(self, saved: str) -> None:
        self.journal.add(f"restore {saved}")

    def close(self) -> None:
        self.journal.add("close")


class Runs(Closes):
    def run(self) -> None:
        lp.on_exit(self.journal.add, "of run")
        self.journal.add("run")


class Leaves:
    """A context manager without a `close()`."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def __enter__(self) -> Leaves:
        return self

    def __exit__(self, *error: object) -> None:
        self.journal.add(f"exit {error}")


class Lock:
    """Is a context manager, and was not entered."""

    def acquire(self) -> None:
        raise AssertionError("nothing acquires it")

    def __enter__(self) -> None:
        raise AssertionError("nothing enters it")

    def __exit__(self, *error: object) -> None:
        raise RuntimeError("release unlocked lock")


class Waits:
    """Looks at another node's end from its `run()`, and is no context manager."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.is_closed = False

    def run(self) -> None:
        try:
            while True:
                time.sleep(0.01)
        finally:
            self.journal.add(f"run ends, closed {self.is_closed}")

    def close(self) -> None:
        self.is_closed = True
        self.journal.add("close")


class OfDeferred:
    """Gives a coroutine as it is built, before its node is."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        lp.on_exit(self.end)

    async def end(self) -> None:
        self.journal.add("of the deferred")


class LeavesAsync:
    """Is closed on the loop on which its methods run, with a task of its own."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.loop: asyncio.AbstractEventLoop | None = None

    async def connect(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(asyncio.sleep(3600))

    async def __aenter__(self) -> LeavesAsync:
        return self

    async def __aexit__(self, *error: object) -> None:
        is_same = self.loop is asyncio.get_running_loop()
        self.journal.add(f"same loop {is_same}, task done {self.task.done()}")
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


class Table:
    """Belongs to one thread until its end."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.thread = threading.get_ident()
        self.db = sqlite3.connect(":memory:")

    def rows(self) -> list[tuple[int]]:
        return self.db.execute("select 1").fetchall()

    def save(self) -> None:
        self.journal.add(f"save {len(self.rows())}")

    def close(self) -> None:
        self.db.close()
        self.journal.add(f"in its thread {threading.get_ident() == self.thread}")


class Slow(Closes):
    """Is called as the program stops, and must not be closed before its call has ended."""

    def work(self) -> None:
        self.journal.add("begins")
        lp.stop()
        lp.wait_for_stop()
        time.sleep(0.3)
        self.journal.add("ends")


class HangsAtTheEnd(Closes):
    def run(self) -> None:
        self.journal.add("run")

    def close(self) -> None:
        threading.Event().wait()


class FailsAtTheEnd(Closes):
    def close(self) -> None:
        raise OSError("the disk is full")


def ignore(deferred: OfDeferred) -> None:
    assert deferred.journal.lines == []


def function(journal: Journal) -> None:
    lp.on_exit(journal.add, "first given")

    @lp.on_exit
    def last() -> None:
        journal.add("last given")

    journal.add("function")


async def coroutine(journal: Journal) -> None:
    async def end() -> None:
        await asyncio.sleep(0)
        journal.add("on the loop")

    lp.on_exit(end)


def call(server: lp.CourierClient[Closes], name: str) -> None:
    getattr(server, name)()


def fail(journal: Journal) -> None:
    lp.on_exit(journal.add, "never")
    raise ValueError("wrong")
