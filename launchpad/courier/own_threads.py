"""Launchpad's own threads, whose deaths are reported.

If a thread died silently, its work would stop, and other threads would wait for it. So when one of these
threads dies, its traceback is printed, and the program that this process belongs to fails with an error that
names the thread.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


class OwnThread(threading.Thread):
    """A daemon thread that runs until its target returns. The target must not raise anything.

    Don't run users' code in such a thread: errors of users' code aren't bugs of launchpad.
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


# One list per process, because a thread's death ends the whole process.
_on_death: list[tuple[int, Callable[[str], object]]] = []


@contextlib.contextmanager
def watched(on_death: Callable[[str], object]) -> Iterator[None]:
    """Call `on_death` with a text if one of launchpad's threads dies while the block runs.

    Forked children don't call it, because they have none of this process's threads.
    """
    entry = os.getpid(), on_death
    _on_death.append(entry)
    try:
        yield
    finally:
        _on_death.remove(entry)


def _report_death(thread: threading.Thread, error: BaseException) -> None:
    if sys.is_finalizing():  # the interpreter is clearing the modules that the thread uses
        return
    with contextlib.suppress(Exception):
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), thread)))
    text = f"launchpad's own thread {thread.name!r} has died of {type(error).__name__}: {error}"
    for pid, on_death in tuple(_on_death):
        if pid == os.getpid():
            on_death(text)
