"""Nodes that are restarted: in a file without pytest, since each worker imports it anew."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import launchpad as lp


class Tally:
    """Counts; its `run` fails when it is told to, as often as it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self._fail = threading.Event()

    def add(self) -> int:
        self.count += 1
        return self.count

    def attempt(self) -> int:
        return lp.current().attempt

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        self._fail.set()

    def run(self) -> None:
        stop = lp.stop_event()
        while not stop.is_set():
            if self._fail.wait(0.01):
                raise ValueError("told to fail")


class Keeper(Tally):
    """One that saves its count when it is stopped for a restart, and finds it again."""

    def save(self) -> None:
        (lp.current().state_dir / "count").write_text(str(self.count))

    def restore(self) -> None:
        self.count = int((lp.current().state_dir / "count").read_text())


class AsyncKeeper(Tally):
    """A Keeper whose methods are coroutines."""

    async def save(self) -> None:
        Keeper.save(self)  # type: ignore[arg-type]

    async def restore(self) -> None:
        Keeper.restore(self)  # type: ignore[arg-type]


class SlowAtFirst(Tally):
    def __init__(self) -> None:
        super().__init__()
        if lp.current().attempt == 1:
            self.take_long()

    def take_long(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            time.sleep(0.01)


def remember() -> None:
    me = lp.current()
    with (me.state_dir / "notes").open("a") as file:
        file.write(f"{me.name} attempt {me.attempt}\n")
    if me.attempt < 3:
        raise ValueError("again")


class Loader:
    """Its `save` is somebody else's: it takes a path."""

    def save(self, path: str) -> None:
        raise AssertionError(path)

    def restore(self, path: str) -> None:
        raise AssertionError(path)

    def ping(self) -> int:
        return os.getpid()


class Short:
    """Serves for a moment."""

    def __init__(self) -> None:
        self._called = threading.Event()

    def ping(self) -> None:
        self._called.set()

    def run(self) -> None:
        self._called.wait()


def call_the_gone(short: Any) -> None:
    """Calls until the server has ended; so do all its attempts, which find it gone."""
    while True:
        try:
            short.ping()
        except lp.courier.OutcomeUnknown:
            continue
        except lp.courier.WorkerFailed as error:
            print(error)
            break
    if lp.current().attempt == 1:
        raise ValueError("again")
