"""Stopping a program from inside: what a node's code may call, from any of its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from launchpad import context


def stop(reason: str = "") -> None:
    """Stops the whole program, well: it ends as succeeded, exit code 0.

    Returns at once; the supervisor then asks every worker to stop, this one included. Works from any
    thread of a worker, also while it answers a call. Calling it twice is fine.

    Example:
      def run(self):
        train()
        lp.stop()
    """
    me = context.current()
    me.report("stop", str(reason))


def stop_event() -> threading.Event:
    """The event that is set when this worker is asked to stop.

    Example:
      while not lp.stop_event().is_set():
        step()
    """
    me = context.current()
    me.heeds_stop = True
    return me.stop_event


def wait_for_stop(timeout_secs: float | None = None) -> bool:
    """Blocks until this worker is asked to stop; False when the time is up before that."""
    return stop_event().wait(timeout_secs)


def register_stop_handler(handler: Callable[[], None]) -> None:
    """Calls `handler` (no arguments, in a thread of launchpad's) when this worker is asked to stop."""
    context.current().add_stop_handler(handler)


def unregister_stop_handler(handler: Callable[[], None]) -> None:
    """Takes back a handler given to `register_stop_handler`."""
    context.current().remove_stop_handler(handler)


def make_program_stopper(launch_type: object = None) -> Callable[..., None]:
    """A function that stops the program; `launch_type` is accepted and makes no difference.

    For programs written for dm-launchpad: there a stopper had to know how it was launched.
    """

    def stopper(mark_as_completed: bool = False) -> None:
        stop("marked as completed" if mark_as_completed else "")

    return stopper
