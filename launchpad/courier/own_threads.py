"""Threads of launchpad's own. When one dies, what it did is never done again, and others would wait for it.

So its death is made known: its traceback is printed, and the program that this process is of fails, by name.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


class OwnThread(threading.Thread):
    """A daemon thread that runs until its target returns, and must not raise anything.

    Not for code of users, whose errors are theirs.
    """

    def __init__(
        self, target: Callable[..., object], *, name: str, args: tuple[Any, ...] = ()
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:
            _report_death(self, error)


# One list per process by nature: so is what ends it.
_on_death: list[tuple[int, Callable[[str], object]]] = []


@contextlib.contextmanager
def watched(on_death: Callable[[str], object]) -> Iterator[None]:
    """In this block `on_death` is called with a text when a thread of launchpad's dies.

    Not in forked children, which have none of the threads that this process has.
    """
    entry = os.getpid(), on_death
    _on_death.append(entry)
    try:
        yield
    finally:
        _on_death.remove(entry)


def _report_death(thread: threading.Thread, error: BaseException) -> None:
    if sys.is_finalizing():  # the interpreter takes apart what threads use
        return
    with contextlib.suppress(Exception):
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))
    text = f"launchpad's own thread {thread.name!r} has died of {type(error).__name__}: {error}"
    for pid, on_death in tuple(_on_death):
        if pid == os.getpid():
            on_death(text)
