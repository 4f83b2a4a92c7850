"""StuckWatch: a watch that ends the process if a rank's failure does not free a thread from torch.

When gloo's connections end, gloo frees the threads that wait in it, with two exceptions. If a connection ends
in the middle of a payload, or if a send fails before gloo has seen the end, gloo forgets which thread waits.
No call from Python frees this thread. It will never return, so nothing is lost if the process ends: it ends
as if the worker had failed, and the worker is restarted.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType
from typing import Any

from launchpad.collectives.generation import Generation
from launchpad.courier.interruptions import Event
from launchpad.courier.own_threads import OwnThread
from launchpad.runtime import context

_LOOK_S = 1.0
_N_ALIKE = 2
"""The number of checks in a row that must find the thread at the same place."""

_OURS = ("launchpad.collectives.default_group", "launchpad.collectives.torch_operations")
"""Modules in which a thread may drop a group. Dropping a group waits for gloo's threads."""

_SAVING = ("torch.distributed.checkpoint", "torch.serialization")
"""Modules in which a thread may wait for a disk."""


class StuckWatch:
    """A watch over the thread that makes it, in one generation, until it is closed.

    The thread counts as stuck if all of these are true: the generation has ended; the thread is in torch's
    code for collectives or gradients, or in our code that drops groups; it is at the same instruction as 2 s
    ago; and it has used no processor time since then. A thread that computes or saves is left alone.

    Only workers that are processes are watched, and only on systems that know a thread's processor time
    (macOS does not).
    """

    def __init__(self, generation: Generation) -> None:
        me = context.current()
        self._generation = generation
        self._name = me.name
        self._thread = threading.current_thread()
        self._is_closed = Event()
        self._has_begun = False
        if context.is_a_process(me) and hasattr(time, "pthread_getcpuclockid"):
            generation.on_end(lambda error: self._begin())
            generation.on_stop(self._begin)

    def close(self) -> None:
        """Stop watching, because the thread has returned from torch."""
        self._is_closed.set()

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            OwnThread(target=self._watch, name="collective-stuck").start()

    def _watch(self) -> None:
        n_alike = 0
        before = None
        while not self._is_closed.wait(_LOOK_S) and self._thread.is_alive():
            now = place_in_torch(self._thread)
            n_alike = n_alike + 1 if now is not None and now == before else 0
            before = now
            if n_alike == _N_ALIKE:
                why = self._generation.error or "PeerFailed: another rank is asked to stop"
                print(f"{self._name} leaves: {why}; gloo does not let go of it", file=sys.stderr)
                sys.stderr.flush()
                os._exit(1)


def place_in_torch(thread: threading.Thread) -> Any:
    """Return a thread's place in code for collectives or gradients, and its processor time so far.

    Return None if the thread is elsewhere.
    """
    top = sys._current_frames().get(thread.ident or 0)
    if top is None or top.f_globals.get("__name__", "").startswith(_SAVING):
        return None
    is_there = False
    frame: FrameType | None = top
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith(("torch.", *_OURS)):
            break
        is_there = is_there or module.startswith(("torch.distributed", "torch.autograd", *_OURS))
        frame = frame.f_back
    if not is_there:
        return None
    clock = time.pthread_getcpuclockid(thread.ident or 0)
    return id(top), top.f_lasti, time.clock_gettime_ns(clock)
