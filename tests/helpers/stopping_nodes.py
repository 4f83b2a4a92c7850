"""Nodes that are interrupted where that is easily lost: in a file without pytest, as each worker imports it.

Each creates the file `up` when it is about to be interrupted, and writes into `said` what becomes of it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import launchpad as lp


def say(folder: Path, text: str) -> None:
    with (folder / "said").open("a") as file:
        file.write(f"{text}\n")


def catches_all(folder: Path) -> None:
    """Is sure to catch the first interruption, and half of those that follow."""
    try:
        (folder / "up").touch()
        while True:
            time.sleep(0.01)
    except:  # noqa: E722
        pass
    while True:
        try:  # noqa: SIM105
            time.sleep(0.01)
        except:  # noqa: E722
            pass
        time.sleep(0.01)


def exits_when_it_is_interrupted(folder: Path) -> None:
    try:
        (folder / "up").touch()
        while True:
            time.sleep(0.01)
    except BaseException:
        sys.exit(3)


def raises_an_error_of_its_own(folder: Path) -> None:
    try:
        (folder / "up").touch()
        while True:
            time.sleep(0.01)
    except BaseException as error:
        raise RuntimeError("the work was ended") from error


def runs_a_loop_without_tasks(folder: Path) -> None:
    loop = asyncio.new_event_loop()
    loop.call_soon((folder / "up").touch)
    loop.run_forever()
    loop.close()
    say(folder, "closed")


def cleans_up_slowly(folder: Path) -> None:
    with closing_slowly(folder):
        try:
            (folder / "up").touch()
            while True:
                time.sleep(0.01)
        finally:
            for _ in range(15):
                time.sleep(0.1)
            say(folder, "cleaned up")


@contextmanager
def closing_slowly(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        for _ in range(10):
            time.sleep(0.1)
        say(folder, "closed")


def saves_after_the_stop(folder: Path) -> None:
    try:
        (folder / "up").touch()
        while True:
            time.sleep(0.01)
    except lp.Stopped:
        pass
    for _ in range(15):
        time.sleep(0.1)
    say(folder, "saved")


def runs_a_loop(folder: Path) -> None:
    asyncio.run(wait_in_loop(folder))


def runs_a_loop_in_c(folder: Path) -> None:
    import uvloop

    uvloop.run(wait_in_loop(folder))


async def wait_in_loop(folder: Path) -> None:
    try:
        (folder / "up").touch()
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(1)
        say(folder, "cleaned up")


def runs_a_loop_that_handles_sigterm(folder: Path) -> None:
    """As web servers do, which raise the signal again when they have ended."""
    before = signal.getsignal(signal.SIGTERM)
    asyncio.run(wait_for_sigterm(folder))
    say(folder, "ended in good order")
    signal.signal(signal.SIGTERM, before)
    signal.raise_signal(signal.SIGTERM)
    say(folder, "and was not killed")


async def wait_for_sigterm(folder: Path) -> None:
    is_asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_asked.set)
    (folder / "up").touch()
    await is_asked.wait()
    await asyncio.sleep(1)


class Halves:
    """Answers large arrays with large arrays."""

    def __init__(self) -> None:
        self._n_answered = 0

    def half(self, array: Any) -> Any:
        self._n_answered += 1
        return array[: len(array) // 2]

    def has_answered(self) -> bool:
        return self._n_answered > 4


def ask_for_ever(server: Any) -> None:
    array = np.zeros(600_000)
    while True:
        server.half(array)
